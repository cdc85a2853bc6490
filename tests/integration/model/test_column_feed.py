"""Rows of Parquet reach the model as columns, and are what their Examples are."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tensorflow as tf
from elasticdl.data.formats.row_table import RowTable
from elasticdl.data.reader import Metadata, open_reader
from elasticdl.model.feed.columns import ColumnTensors
from elasticdl.model.feed.unparsed import FeedError

from tests.integration.model.conftest import example

MODULE = """
import keras


def model():
    age = keras.Input((1,), name="age")
    number = keras.Input((), name="number", dtype="int64")
    city = keras.Input((1,), name="city", dtype="string")
    pair = keras.Input((2,), name="pair")
    numbers = keras.ops.expand_dims(keras.ops.cast(number, "float32"), 1)
    place = keras.layers.StringLookup(vocabulary=["bonn", "köln"])(city)
    place = keras.ops.cast(place, "float32")
    joined = keras.layers.Concatenate()([age, numbers, place, pair])
    network = keras.Model([age, number, city, pair], keras.layers.Dense(1)(joined))
    network.compile(optimizer="sgd", loss="mse")
    return network
"""


@pytest.fixture
def records(tmp_path):
    n = 300
    rows = pa.table(
        {
            "age": np.where(np.arange(n) % 7, np.arange(n) / 3, np.nan),
            "number": np.arange(n) * 2**40,
            "city": pa.array([["bonn", "köln", "", "\\N"][i % 4] for i in range(n)]),
            "pair": pa.array([[i, -i] for i in range(n)], pa.list_(pa.int64())),
            "label": np.arange(n) % 2,
        }
    )
    pq.write_table(rows, tmp_path / "a.parquet", row_group_size=128)
    reader = open_reader("a.parquet", data_root=tmp_path)
    found = reader.read("a.parquet", 20, 290, skip_bad=False).values
    assert isinstance(found, RowTable)
    return reader, found


@pytest.mark.parametrize("mode", ["training", "evaluation", "prediction"])
def test_columns_give_the_batches_of_their_examples(mode, built, feeder, records):
    reader, rows = records
    definition = built(MODULE, "net.model")
    arguments = {"mode": mode, "metadata": reader.metadata, "batch_size": 32}
    by_column = list(feeder(definition, **arguments).batches(rows))
    by_example = list(feeder(definition, **arguments).batches(list(rows)))
    assert [b.num_records for b in by_column] == [b.num_records for b in by_example]
    assert sum(b.num_records for b in by_column) == len(rows)
    for one, other in zip(by_column, by_example, strict=True):
        same = tf.nest.map_structure(_equal, one.features, other.features)
        assert all(tf.nest.flatten(same))
        if mode != "prediction":
            assert _equal(one.labels, other.labels)


@pytest.mark.parametrize("numbers", [pa.int8(), pa.uint16(), pa.uint32(), pa.int64()])
def test_a_files_own_dictionary_may_number_its_words_by_any_type(numbers, tmp_path):
    words = pa.DictionaryArray.from_arrays(
        pa.array([1, 0, 2, 1], numbers), pa.array(["bonn", "köln", ""])
    )
    rows = pa.table({"city": words})
    with (
        pa.OSFile(str(tmp_path / "a.arrow"), "wb") as file,
        pa.ipc.new_file(file, rows.schema) as writer,
    ):
        writer.write_table(rows)
    reader = open_reader("a.arrow", data_root=tmp_path)
    found = reader.read("a.arrow", 0, 4, skip_bad=False).values
    assert isinstance(found, RowTable)
    column = found.columns["city"]
    made = ColumnTensors().tensor(
        column, name="city", stored=tf.string, shape=(1,), dtype=tf.string
    )
    expected = [["köln"], ["bonn"], [""], ["köln"]]
    assert made.shape == (4, 1)
    assert [[v.decode()] for v in made.numpy()[:, 0]] == expected


IDS = """
import keras


def model():
    number = keras.Input((), name="id", dtype="int64")
    rows = keras.layers.Embedding(10, 2)(number % 10)
    network = keras.Model(number, keras.layers.Dense(1)(rows))
    network.compile("sgd", "mse")
    return network
"""


@pytest.mark.parametrize("wrong", [16777217.0, -123456789.0, float("nan")])
@pytest.mark.parametrize("form", ["columns", "examples"])
def test_an_id_that_was_rounded_to_a_float_is_not_trained_as_another(
    wrong, form, built, feeder, tmp_path
):
    rows = pa.table({"id": [16777215.0, wrong], "label": [0, 1]})
    pq.write_table(rows, tmp_path / "a.parquet")
    reader = open_reader("a.parquet", data_root=tmp_path)
    found = reader.read("a.parquet", 0, 2, skip_bad=False).values
    feed = feeder(built(IDS, "net.model"), metadata=reader.metadata)
    with pytest.raises(FeedError, match=r"record 1 .*`id`.*write the column as int"):
        list(feed.batches(found if form == "columns" else list(found)))
    good = feed.batches(found[:1] if form == "columns" else list(found)[:1])
    assert np.asarray(next(good).features).tolist() == [16777215]


def test_what_one_record_alone_has_decides_nothing(built, feeder):
    """Neither which feature the only Input takes, nor which one is the label."""
    rows = [example(pair=np.ones(2), labels=np.zeros(1)) for _ in range(9)]
    rows.insert(3, example(pair=np.ones(2), label=np.zeros(1), note=np.ones(1)))
    text = PAIRS.replace('name="pair"', 'name="img"')
    definition = built(text, "net.model", metadata=Metadata(), sample=rows[:5])
    feed = feeder(definition, metadata=Metadata(), skip_bad=True)
    assert sum(batch.num_records for batch in feed.batches(rows)) == 9
    assert [(bad.index, bad.reason) for bad in feed.bad] == [
        (3, "it has no feature `labels`")
    ]


LISTS = """
import keras


def model():
    ids = keras.Input((None,), name="ids", dtype="int64")
    rows = keras.layers.GlobalAveragePooling1D()(keras.layers.Embedding(10, 2)(ids))
    network = keras.Model(ids, keras.layers.Dense(1)(rows))
    network.compile("sgd", "mse")
    return network
"""


def test_lists_of_other_lengths_without_a_feed_are_named_with_their_feature(
    built, feeder, tmp_path
):
    rows = pa.table({"ids": [[1, 2], [3, 4], [5]], "label": [0, 1, 0]})
    pq.write_table(rows, tmp_path / "a.parquet")
    reader = open_reader("a.parquet", data_root=tmp_path)
    found = list(reader.read("a.parquet", 0, 3, skip_bad=False).values)
    feed = feeder(built(LISTS, "net.model"), metadata=reader.metadata)
    with pytest.raises(FeedError, match=r"record 2 .*`ids` has 1 values, expected 2"):
        list(feed.batches(found))


PAIRS = """
import keras


def model():
    pair = keras.Input((2,), name="pair")
    network = keras.Model(pair, keras.layers.Dense(1)(pair))
    network.compile("sgd", "mse")
    return network
"""


def pairs(tmp_path, values, labels):
    """Return a reader of Parquet with row groups of 16 rows."""
    rows = {"pair": pa.array(values, pa.list_(pa.float32())), "label": pa.array(labels)}
    pq.write_table(pa.table(rows), tmp_path / "a.parquet", row_group_size=16)
    return open_reader("a.parquet", data_root=tmp_path)


def test_a_null_in_a_row_group_takes_no_row_beside_it_along(built, feeder, tmp_path):
    values = [[float(i), 1.0] for i in range(32)]
    values[20] = None
    reader = pairs(tmp_path, values, [0.0] * 32)
    feed = feeder(
        built(PAIRS, "net.model"), metadata=reader.metadata, skip_bad=True, batch_size=4
    )
    seen = []
    for start in (0, 16):
        found = reader.read("a.parquet", start, start + 16, skip_bad=True)
        for batch in feed.batches(found.values):
            seen += np.asarray(batch.features)[:, 0].tolist()
    assert seen == [float(i) for i in range(32) if i != 20]
    assert feed.bad == []
    assert [bad.record for bad in found.bad] == [20]


@pytest.mark.parametrize("form", ["columns", "examples"])
@pytest.mark.parametrize("part", ["feature", "label"])
def test_a_first_row_of_another_length_is_the_bad_one(
    part, form, built, feeder, tmp_path
):
    values = [[float(i), 1.0] for i in range(16)]
    labels = [[float(i)] for i in range(16)]
    wrong = values if part == "feature" else labels
    wrong[0] = [1.0, 2.0, 3.0]
    reader = pairs(tmp_path, values, labels)
    found = reader.read("a.parquet", 0, 16, skip_bad=False).values
    records = found if form == "columns" else list(found)
    definition = built(
        PAIRS, "net.model", metadata=reader.metadata, sample=list(found)[:8]
    )
    feed = feeder(definition, metadata=reader.metadata)
    with pytest.raises(FeedError, match=r"record 0 .* has 3 values, expected [12]"):
        list(feed.batches(records))
    skipping = feeder(definition, metadata=reader.metadata, skip_bad=True)
    kept = [n for batch in skipping.batches(records) for n in batch.features[:, 0]]
    assert [int(n) for n in kept] == list(range(1, 16))
    assert [bad.index for bad in skipping.bad] == [0]


def _equal(one, other):
    assert (one.shape, one.dtype) == (other.shape, other.dtype)
    if one.dtype == tf.string:
        return bool(tf.reduce_all(one == other))
    return np.array_equal(one.numpy(), other.numpy(), equal_nan=one.dtype.is_floating)
