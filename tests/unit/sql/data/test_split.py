"""Rows are divided alike by every engine, and many equal ones among both sides."""

import random
from collections import Counter

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from elasticdl.errors import DataError
from elasticdl.sql.data import embedded, shards, split
from elasticdl.sql.data.shards import Staged
from elasticdl.sql.data.source import open_source
from elasticdl.sql.plan import (
    Column,
    ColumnPlan,
    Head,
    Kind,
    LabelPlan,
    Schema,
    SplitPlan,
    Stored,
)

LABEL = LabelPlan("y", Kind.INTEGER, Head.BINARY, 2, (0, 1))

_TITANIC = (  # Class, sex, age, who died, who lived (Dawson, 1995).
    ("1st", "m", "child", 0, 5), ("2nd", "m", "child", 0, 11),
    ("3rd", "m", "child", 35, 13), ("1st", "f", "child", 0, 1),
    ("2nd", "f", "child", 0, 13), ("3rd", "f", "child", 17, 14),
    ("1st", "m", "adult", 118, 57), ("2nd", "m", "adult", 154, 14),
    ("3rd", "m", "adult", 387, 75), ("crew", "m", "adult", 670, 192),
    ("1st", "f", "adult", 4, 140), ("2nd", "f", "adult", 13, 80),
    ("3rd", "f", "adult", 89, 76), ("crew", "f", "adult", 3, 20),
)  # fmt: skip


def _passengers(tmp_path, order, **others):
    """Return what each side has of the passengers, by class, sex, age and label."""
    rows = [
        (*who, label)
        for *who, died, lived in _TITANIC
        for label, count in ((0, died), (1, lived))
        for _ in range(count)
    ]
    random.Random(order).shuffle(rows)
    names = ("class", "sex", "age", "y")
    table = dict(zip(names, map(list, zip(*rows, strict=True)), strict=True))
    kinds = [("class", Kind.TEXT), ("sex", Kind.TEXT), ("age", Kind.TEXT)]
    kinds += [("y", Kind.INTEGER), *((name, Kind.INTEGER) for name in others)]
    pq.write_table(pa.table({**table, **others}), tmp_path / "rows.parquet")
    made = shards.write_training(
        Staged(
            tmp_path / "rows.parquet",
            Schema(tuple(Column(*one) for one in kinds)),
            len(rows),
        ),
        tmp_path / "s",
        columns=tuple(ColumnPlan(n, n, Stored.TEXT) for n in names[:3]),
        label=LABEL,
        division=SplitPlan(),
    )
    assert sum(one.count for one in made.classes) == made.num_training
    return [
        Counter(tuple(row.values()) for row in pq.read_table(side).to_pylist())
        for side in (made.training, made.validation)
    ]


@pytest.mark.parametrize("others", [{}, {"File_Row_Number": [7] * 2201}])
def test_rows_of_which_many_are_equal_are_on_both_sides(tmp_path, others):
    """All men of the crew who died were validation rows, and all who lived training.

    A model of such rows says that the crew lived, without a word.
    """
    training, validation = _passengers(tmp_path, 1, **others)
    for *who, died, lived in _TITANIC:
        for label, count in ((0, died), (1, lived)):
            there = training[*who, label], validation[*who, label]
            assert sum(there) == count
            assert there[1] == pytest.approx(count / 5, abs=3 + 2 * count**0.5)
    assert validation.total() == pytest.approx(2201 / 5, rel=0.1)
    assert [training, validation] == _passengers(tmp_path, 2, **others)


def test_a_few_equal_rows_stay_on_one_side(tmp_path):
    """Nothing is learnt by heart that is asked for then."""
    source = open_source("")
    with source.rows(
        "SELECT i % 1000 AS x, i % 1000 % 2 AS y FROM range(1040) t(i)"
    ) as rows:
        one = Staged(tmp_path / "s.parquet", rows.schema, 1040)
        rows.write(one.path)
    made = shards.write_training(
        one,
        tmp_path / "shards",
        columns=(ColumnPlan("x", "x", Stored.FLOAT),),
        label=LABEL,
        division=SplitPlan(),
    )
    sides = [
        {row["x"] for row in pq.read_table(s).to_pylist()}
        for s in (made.training, made.validation)
    ]
    assert not sides[0] & sides[1]


@pytest.mark.parametrize("key", ["", "at"])
def test_times_with_a_zone_divide_rows_alike_on_each_machine(tmp_path, key):
    sides = []
    for zone in ("UTC", "America/New_York"):
        with embedded.working(tmp_path) as connection:
            connection.execute(f"SET TimeZone = '{zone}'")
            rows = "(SELECT i, to_timestamp(i * 3600) AS at FROM range(500) t(i))"
            schema = Schema((Column("i", Kind.INTEGER), Column("at", Kind.TIME)))
            parts = split.divide(connection, rows, schema, SplitPlan(key=key))
            found = connection.execute(
                f"SELECT i FROM {parts.rows} WHERE {parts.validation} ORDER BY i"
            )
            sides.append(found.fetchall())
    assert 50 < len(sides[0]) < 150
    assert sides[0] == sides[1]


def test_single_numbers_divide_rows_as_their_digits_do(tmp_path):
    """Drivers of other engines read 0.1 of a REAL, and not 0.10000000149."""
    with embedded.working(tmp_path) as connection:
        conditions = [
            split.divide(
                connection,
                "(SELECT 1 AS x)",
                Schema((Column("x", Kind.NUMBER, stated=stated),)),
                SplitPlan(),
            ).validation
            for stated in ("FLOAT", "double precision")
        ]
        ((single,), (double,)) = (
            connection.execute(
                f"SELECT list(i ORDER BY i) FROM (SELECT i, CAST(i / 10 AS {kind}) "
                f"AS x FROM range(300) t(i)) WHERE {condition}"
            ).fetchone()
            for condition, kind in zip(conditions, ("FLOAT", "DOUBLE"), strict=True)
        )
        assert single == double


@pytest.mark.parametrize("division", [SplitPlan(key="y"), SplitPlan(order="x")])
def test_training_rows_of_one_class_are_refused(tmp_path, division):
    """The model said that class of everything, and was kept."""
    source = open_source("")
    with source.rows("SELECT i AS x, i // 8 AS y FROM range(10) t(i)") as rows:
        one = Staged(tmp_path / "s.parquet", rows.schema, 10)
        rows.write(one.path)
    with pytest.raises(DataError, match="training rows have the label `y` ="):
        shards.write_training(
            one,
            tmp_path / "shards",
            columns=(ColumnPlan("x", "x", Stored.FLOAT),),
            label=LABEL,
            division=division,
        )
