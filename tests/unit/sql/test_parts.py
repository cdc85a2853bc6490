"""Claims about parts of a text that are numbers of a category already."""

from __future__ import annotations

import pytest
from elasticdl.sql.needs import feature_names
from elasticdl.sql.plan import Hash, Source, Split

from tests.unit.sql import tables

_T = "SELECT * FROM t TO TRAIN DNNClassifier "
_IDS = tuple(["3,17", "5", None, "0, 19,", ""] * 40)
_WEIGHTS = tuple(["3:0.5,17", "5:1", None, "0:2", ""] * 40)


def _encoding(written: str, skills: tuple[str | None, ...]) -> object:
    preview = tables.preview(skills=skills)
    return (
        tables.plan(f"{_T} COLUMN {written} LABEL income INTO m", preview)
        .features[0]
        .encoding
    )


@pytest.mark.parametrize(
    ("written", "whole"),
    [
        ("CATEGORY_ID(SPARSE(skills, [9], ',', int), 20)", True),
        ("CATEGORY_ID(SPARSE(skills, 9, delim=','), bucket_size=20)", True),
        ("CATEGORY_ID(DENSE(skills, 3, ',', int), 20)", True),
        ("SEQ_CATEGORY_ID(SPARSE(skills, none, ','), 20)", True),
        ("SEQ_CATEGORY_ID(skills, 20)", True),
        ("SPARSE(skills, 20)", True),
        ("IDENTITY(SPARSE(skills, 9), 20)", True),
        ("CATEGORY_HASH(SPARSE(skills, 9, comma, int), 20)", False),
        ("HASH(SPLIT(skills), 20)", False),
    ],
)
def test_whole_numbers_are_the_category_where_sqlflow_has_them(
    written: str, whole: bool
) -> None:
    """Hashes put different ones together."""
    parts = Split(Source("skills"), ",")
    assert _encoding(written, _IDS) == Hash(parts, 20, whole)
    words = (*_IDS[:-1], "3,four")
    assert _encoding(written, words) == Hash(parts, 20)


@pytest.mark.parametrize(
    ("written", "whole"),
    [
        ("SPARSE(skills, 20, ',', int, ':', float)", True),
        ("CATEGORY_ID(SPARSE(skills, 9, ',', int, ':', float), 20)", True),
        ("WEIGHTED_CATEGORY(CATEGORY_ID(SPARSE(skills, 9, ',', int, ':', float), 20))",
         True),
        ("WEIGHTED_CATEGORY(CATEGORY_HASH(SPARSE(skills, 9, comma, int, ':'), 20))",
         False),
        ("WEIGHTED_CATEGORY(skills, 20)", False),
    ],
)  # fmt: skip
def test_numbers_with_weights_are_the_category_too(written: str, whole: bool) -> None:
    parts = Split(Source("skills"), ",", ":")
    assert _encoding(written, _WEIGHTS) == Hash(parts, 20, whole)


def test_no_text_at_all_is_no_number() -> None:
    assert _encoding("SPARSE(skills, 20)", (None,) * 200) == Hash(
        Split(Source("skills"), ","), 20
    )


def test_a_column_has_its_own_name_beside_one_that_is_written_alike() -> None:
    """A module's Input `x_y` got the column `x y`, which stood before."""
    assert feature_names(["x y", "x_y", "c_dense", "dense", "x-y"]) == {
        "x_y": "x_y",
        "c_dense": "c_dense",
        "x y": "x_y_2",
        "dense": "c_dense_2",
        "x-y": "x_y_3",
    }
