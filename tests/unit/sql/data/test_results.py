"""Claims about a model's answers: what is a prediction, and what is none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from elasticdl.errors import DataError
from elasticdl.sql.data import results
from elasticdl.sql.data.results import Names
from elasticdl.sql.data.shards import Staged
from elasticdl.sql.plan import (
    Column,
    ColumnPlan,
    Head,
    Kind,
    LabelPlan,
    Schema,
    Stored,
)
from elasticdl.sql.registry import Description
from elasticdl.sql.running import evaluate, explain
from elasticdl.sql.running.session import Bars, Session, Table

from tests.unit.sql.ready import read

_TWO = LabelPlan("y", Kind.TEXT, Head.BINARY, 2, ("no", "yes"))
_THREE = LabelPlan("y", Kind.TEXT, Head.CLASSES, 3, ("a", "b", "c"))
_NUMBER = LabelPlan("y", Kind.NUMBER, Head.NUMBER)


def _joined(answers: list[Any], label: LabelPlan, folder: Path) -> list[Any]:
    number = len(answers)
    kind = pa.list_(pa.float32()) if isinstance(answers[0], list) else pa.float32()
    made = {"record": range(number), "prediction": pa.array(answers, kind)}
    pq.write_table(pa.table({"x": range(number)}), folder / "rows.parquet")
    pq.write_table(pa.table(made), folder / "part-0.parquet")
    schema = Schema((Column("x", Kind.INTEGER),))
    staged = Staged(folder / "rows.parquet", schema, number)
    out = folder / "out.parquet"
    results.join(staged, folder, out, label=label, names=Names())
    return [tuple(row.values())[1:] for row in pq.read_table(out).to_pylist()]


def test_answers_that_are_no_probabilities_are_no_prediction(tmp_path: Path) -> None:
    for answers, label in (
        ([0.5, 3.25], _TWO),
        ([-0.5, float("nan")], _TWO),
        ([[1.5, 0.25, 0.0]], _THREE),
    ):
        with pytest.raises(DataError, match="expected probabilities: its output ends"):
            _joined(answers, label, tmp_path)


def test_answers_of_unknown_rows_are_no_prediction(tmp_path: Path) -> None:
    """As of a feed that shuffles; it was said that there is no room for them."""
    pq.write_table(pa.table({"x": [1, 2]}), tmp_path / "rows.parquet")
    pq.write_table(pa.table({"prediction": [0.5, 0.25]}), tmp_path / "part-0.parquet")
    staged = Staged(tmp_path / "rows.parquet", Schema((Column("x", Kind.INTEGER),)), 2)
    out = tmp_path / "out.parquet"
    with pytest.raises(DataError, match="its `feed` leaves rows out") as caught:
        results.join(staged, tmp_path, out, label=_TWO, names=Names())
    assert type(caught.value) is DataError  # another one's rows and answers are kept


def test_two_classes_may_have_a_probability_each(tmp_path: Path) -> None:
    found = _joined([[0.25, 0.75], [0.625, 0.375]], _TWO, tmp_path)
    assert found == [("yes", 0.75), ("no", 0.625)]


def test_answers_of_another_number_than_there_are_classes_are_told(
    tmp_path: Path,
) -> None:
    with pytest.raises(DataError, match="answers 2 numbers a row, expected 3"):
        _joined([[0.5, 0.5]], _THREE, tmp_path)
    with pytest.raises(DataError, match="answers 1 numbers a row, expected 3"):
        _joined([0.5], _THREE, tmp_path)
    with pytest.raises(DataError, match="several numbers a row, expected one"):
        _joined([[0.5, 0.5]], _NUMBER, tmp_path)
    assert _joined([2.5], _NUMBER, tmp_path) == [(2.5,)]


@pytest.mark.parametrize("several", [False, True])
def test_a_column_counts_that_decides_how_probable_a_seldom_class_is(
    session: Session, tmp_path: Path, several: bool
) -> None:
    """All columns had 0 where no probability is above a half."""
    text = (
        "SELECT CAST(i % 10 = 0 AS INTEGER) AS x, i % 7 AS z, "
        "CAST(i % 20 = 0 AS INTEGER) AS y FROM range(200) t(i) TO EXPLAIN m"
    )
    statement = read(text)
    plans = tuple(ColumnPlan(one, one, Stored.FLOAT) for one in "xz")
    label = LabelPlan("y", Kind.INTEGER, Head.BINARY, 2, (0, 1))
    about = Description(plans, label, Schema(()), "DNNClassifier")
    assert explain.prepare(session, statement, about, tmp_path) == 200
    rows = pq.read_table(tmp_path / "exchanged.parquet").to_pylist()
    chances = [0.45 if row["x"] else 0.01 for row in rows]
    answers = [[1 - one, one] for one in chances] if several else chances
    table = pa.table({"record": range(len(rows)), "prediction": answers})
    (tmp_path / "outputs").mkdir()
    pq.write_table(table, tmp_path / "outputs" / "part-0.parquet")
    (bars,) = explain.finish(session, statement, about, tmp_path, {})
    assert isinstance(bars, Bars)
    found = dict(bars.values)
    assert found["x"] > 0.02
    assert found["z"] == 0


@pytest.mark.parametrize(("label", "auc"), [("1", None), ("i % 2", 0.0)])
def test_rows_of_one_class_have_no_auc(
    session: Session, tmp_path: Path, label: str, auc: float | None
) -> None:
    """It was told as 0, that of a model which is always wrong."""
    select = f"SELECT i AS x, {label} AS y FROM range(9) t(i)"
    statement = read(f"{select} TO EVALUATE m INTO figures")
    plans = (ColumnPlan("x", "x", Stored.FLOAT),)
    label_of = LabelPlan("y", Kind.INTEGER, Head.BINARY, 2, (0, 1))
    about = Description(plans, label_of, Schema(()), "DNNClassifier")
    assert evaluate.prepare(session, statement, about, tmp_path) == 9
    figures = {"auc": 0.0, "loss": 0.5}
    (table,) = evaluate.finish(session, statement, about, tmp_path, figures)
    assert isinstance(table, Table)
    assert table.rows == (("rows", 9.0), ("auc", auc), ("loss", 0.5))
    found = session.source.execute("SELECT value FROM figures", most_rows=9).rows
    assert found == ((9.0,), (auc,), (0.5,))
