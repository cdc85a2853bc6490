"""Claims about tables of which the first rows do not show all, and about long texts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from elasticdl.sql.data import embedded
from elasticdl.sql.data.source import open_source
from elasticdl.sql.plan import ColumnPlan, Head, Kind, LabelPlan, Schema, Stored
from elasticdl.sql.problems import StatementError
from elasticdl.sql.registry import Description
from elasticdl.sql.running import predict
from elasticdl.sql.running.session import Session

from tests.unit.sql.ready import read, train


@pytest.mark.parametrize(
    ("amount", "count"), [("i // 1000", 40), ("CAST(i // 6000 AS DOUBLE)", 7)]
)
def test_amounts_that_begin_as_a_few_numbers_are_not_taken_for_classes(
    session: Session, tmp_path: Path, amount: str, count: int
) -> None:
    """Rows in the order of their label gave a class of each amount in silence.

    Whole numbers of a DOUBLE are classes where they are 0 and 1 alone.
    """
    rows = f"SELECT i AS x, {amount} AS amount FROM range(40_000) t(i)"
    text = f"{rows} LABEL amount INTO m"
    with pytest.raises(StatementError) as caught:
        train(session, text, tmp_path)
    (problem,) = caught.value.problems
    assert text[problem.at.offset :].startswith("amount INTO")
    told = f"has {count} different numbers, of which the first rows had few"
    assert told in str(problem)
    named = f"{rows} TO TRAIN DNNClassifier LABEL amount INTO m"
    made = train(session, named, tmp_path / "named")
    assert len(made.shards.classes) == count


def test_long_texts_need_no_more_memory(
    session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A row group of them did not fit, even where a job had answered already."""
    monkeypatch.setattr(embedded, "MEMORY_LIMIT", "300MiB")
    select = "SELECT i AS x, repeat('a' || i % 9, 10_000) AS t "
    select += "FROM range(30_000) t(i)"
    statement = read(f'{select} TO PREDICT "{tmp_path}/to.parquet" USING m')
    label = LabelPlan("y", Kind.INTEGER, Head.BINARY, 2, (0, 1))
    columns = (ColumnPlan("x", "x", Stored.FLOAT),)
    about = Description(columns, label, Schema(()), "DNNClassifier")
    place = tmp_path / "work"
    place.mkdir()
    source = open_source("", folder=tmp_path)
    limited = replace(session, source=source)
    assert predict.prepare(limited, statement, about, place) == 30_000
    said = {"record": list(range(30_000)), "prediction": [0.25] * 30_000}
    (place / "outputs").mkdir()
    pq.write_table(pa.table(said), place / "outputs" / "part-000000.parquet")
    predict.finish(limited, statement, about, place, {})
    source.close()
    found = pq.ParquetFile(tmp_path / "to.parquet")
    assert found.metadata.num_rows == 30_000
    (first,) = next(found.iter_batches(1)).to_pylist()
    assert (first["x"], first["t"][:2], first["prediction"]) == (0, "a0", 0)
