"""Rows in the order of their label are mixed, all others stay as they came."""

import numpy as np
import pyarrow.parquet as pq
import pytest
from elasticdl.sql.data import shards
from elasticdl.sql.data.shards import Staged
from elasticdl.sql.data.source import open_source
from elasticdl.sql.plan import ColumnPlan, Head, Kind, LabelPlan, SplitPlan, Stored

ROWS = 6000
CLASSES = LabelPlan("y", Kind.TEXT, Head.CLASSES, 3, ("k0", "k1", "k2"))
NUMBER = LabelPlan("y", Kind.NUMBER, Head.NUMBER)


def training(tmp_path, y, label, others="", fraction=0.0):
    """Return the training rows of a label, in their order."""
    source = open_source("")
    with source.rows(
        f"SELECT i AS x, {y} AS y {others} FROM range({ROWS}) t(i)"
    ) as rows:
        one = Staged(tmp_path / "s.parquet", rows.schema, ROWS)
        rows.write(one.path)
    made = shards.write_training(
        one,
        tmp_path / "shards",
        columns=(ColumnPlan("x", "x", Stored.FLOAT),),
        label=label,
        division=SplitPlan(fraction),
    )
    found = pq.read_table(made.training)
    assert len(found) == made.num_training
    return found["x"].to_numpy(), found["label"].to_numpy()


@pytest.mark.parametrize("others", ["", ", 7 AS FILE_ROW_NUMBER"])
@pytest.mark.parametrize(
    ("y", "label"),
    [
        ("'k' || i // 2000", CLASSES),
        # The mean place of the classes is that of the other one.
        ("CASE WHEN i < 3000 THEN 'k1' ELSE 'k' || i % 2 * 2 END", CLASSES),
        ("i / 7 - 1e6", NUMBER),
    ],
)
def test_rows_in_the_order_of_their_label_are_mixed(tmp_path, y, label, others):
    """A task had rows of one class alone: each forgot what those before had taught."""
    x, labels = training(tmp_path, y, label, others)
    assert sorted(x) == list(range(ROWS))
    for part in np.split(labels, 20):
        assert abs(part.mean() - labels.mean()) < labels.std() / 3
        assert part.std() > labels.std() / 2
    again, _ = training(tmp_path, y, label, others)
    assert x.tolist() == again.tolist()


@pytest.mark.parametrize(
    ("y", "label"),
    [("'k' || hash(i) % 3", CLASSES), ("hash(i) % 1000 / 3", NUMBER), ("1.5", NUMBER)],
)
def test_other_rows_stay_in_the_order_in_which_they_came(tmp_path, y, label):
    x, _ = training(tmp_path, y, label, fraction=0.2)
    assert (np.diff(x) > 0).all()
