"""Shapes and order of what a feed gives, beside what `fit` takes of the same arrays."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from elasticdl.data.reader import open_reader
from elasticdl.errors import DataError

from tests.integration.model.conftest import CLASSIC, example

OUTPUTS = """
import keras


def model():
    network = keras.Sequential(
        [
            keras.Input((4,), name="x"),
            keras.layers.Dense(5),
            keras.layers.Reshape({shape}),
        ]
    )
    network.compile("sgd", "mse")
    return network
"""


@pytest.mark.parametrize(
    ("row", "output"), [((), (5,)), ((1,), (5,)), ((1, 5), (1, 5)), ((5,), (1, 5))]
)
def test_labels_of_arrays_have_the_shape_that_fit_gives_to_the_loss(
    built, feeder, tmp_path, row, output
):
    labels = np.arange(3 * int(np.prod(row)), dtype=np.float32).reshape(3, *row)
    np.savez(tmp_path / "a.npz", x=np.zeros((3, 4), np.float32), label=labels)
    reader = open_reader("a.npz", data_root=tmp_path)
    rows = reader.read("a.npz", 0, 3, skip_bad=False).values
    definition = built(OUTPUTS.format(shape=output), "net.model")
    for records in (rows, [bytes(row) for row in rows]):
        feed = feeder(definition, metadata=reader.metadata)
        found = np.asarray(next(feed.batches(records)).labels)
        np.testing.assert_array_equal(found, labels)


@pytest.mark.parametrize(
    ("values", "output", "shape"),
    [(5, (1, 5), (1, 5)), (5, (5,), (5,)), (4, (5,), (4,)), (1, (5, 1), ())],
)
def test_labels_of_records_without_shapes_fit_the_output_where_they_can(
    built, feeder, values, output, shape
):
    """Else a loss of `[batch, 5]` and `[batch, 1, 5]` were one of batch * batch."""
    label = np.arange(values, dtype=np.float32)
    record = example(x=np.zeros(4), label=label)
    feed = feeder(built(OUTPUTS.format(shape=output), "net.model"))
    found = np.asarray(next(feed.batches([record] * 3)).labels)
    assert found.shape == (3, *shape)
    np.testing.assert_array_equal(found[0].ravel(), label)


def test_a_shuffle_of_one_record_keeps_the_order(built, feeder, records):
    chain = "return dataset.map(parse).shuffle(1)"
    feed = feeder(built(CLASSIC.replace("return dataset.map(parse)", chain)))
    order = np.concatenate(
        [np.asarray(b.features)[:, 0] for b in feed.batches(records)]
    )
    assert np.array_equal(order, np.sort(order))


@pytest.mark.parametrize("text", [False, True])
@pytest.mark.parametrize("apart", [False, True])
def test_lists_of_other_lengths_make_no_other_records(
    built, feeder, tmp_path, text, apart
):
    """Rows of a later row group, or one among others, which is skipped if it may be."""
    one = "a" if text else 1.0
    lists = [[one] * 2] * 15 + [[one] * 4]
    if apart:
        lists = [[one] * 2] * 8 + [[one] * 4] * 8
    zeros = np.zeros(64, np.float32)
    table = pa.table(
        {
            "x": pa.FixedSizeListArray.from_arrays(zeros, 4),
            "label": pa.array(lists),
        }
    )
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=8)
    reader = open_reader("a.parquet", data_root=tmp_path)
    definition = built(OUTPUTS.format(shape=(5,)), "net.model")
    first, second = (
        reader.read("a.parquet", start, start + 8, skip_bad=False).values
        for start in (0, 8)
    )
    feed = feeder(definition, metadata=reader.metadata)
    assert sum(batch.num_records for batch in feed.batches(first)) == 8
    with pytest.raises(DataError, match=f"cannot parse record {0 if apart else 7}"):
        list(feed.batches(second))
    skipping = feeder(definition, metadata=reader.metadata, skip_bad=True)
    assert sum(batch.num_records for batch in skipping.batches(first)) == 8
    left = sum(batch.num_records for batch in skipping.batches(second))
    assert (left, len(skipping.bad)) == ((0, 8) if apart else (7, 1))
