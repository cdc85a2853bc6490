"""Every record of a task comes out of the feed once, whatever the feed does."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tensorflow as tf
from elasticdl.data.reader import Metadata, open_reader
from elasticdl.errors import DataError, UserCodeError
from elasticdl.model.feed.unparsed import FeedError
from pyarrow import feather

from tests.integration.model.conftest import CLASSIC, COMPILED, example

HEAD, _, TAIL = CLASSIC.partition("    return dataset.map(parse)\n")


def with_return(text):
    return HEAD + "    " + text.strip() + "\n" + TAIL


def values(batches):
    """All features and labels of batches, in the order of the records' numbers."""
    batches = list(batches)
    x = np.concatenate([np.asarray(b.features) for b in batches])
    y = np.concatenate([np.asarray(b.labels) for b in batches])
    order = np.argsort(x[:, 0])
    return x[order], y[order]


def honest(definition, records, mode="training"):
    dataset = tf.data.Dataset.from_tensor_slices(records)
    fed = definition.feed(dataset, mode, Metadata())
    pairs = [(f["x"].numpy(), label.numpy()) for f, label in fed]
    x = np.stack([p[0] for p in pairs])
    order = np.argsort(x[:, 0])
    return x[order], np.stack([p[1] for p in pairs])[order]


@pytest.mark.parametrize(
    ("chain", "plan", "ordered"),
    [
        ("return dataset.map(parse)", "block", True),
        ("return dataset.map(parse).prefetch(4)", "block", True),
        ("return dataset.map(parse, num_parallel_calls=2)", "block", True),
        ("return dataset.map(parse).shuffle(1024)", "block", False),
        ("return dataset.shuffle(7).map(parse)", "block", False),
        ("return dataset.map(parse).map(lambda f, y: (f, y))", "block", True),
        ("return dataset.map(parse).batch(5)", "pipeline", True),
        ("return dataset.map(parse).batch(8)", "pipeline", True),
        ("return dataset.map(parse).filter(lambda f, y: True)", "pipeline", False),
        ("return dataset.map(parse).cache()", "rebuilt", False),
        ("return dataset.map(parse).padded_batch(8)", "pipeline", True),
        (
            "return dataset.map(parse).flat_map("
            "lambda f, y: tf.data.Dataset.from_tensors((f, y)))",
            "pipeline",
            False,
        ),
    ],
)
def test_each_way_gives_what_the_feed_gives(
    built, feeder, records, chain, plan, ordered
):
    definition = built(with_return(chain))
    feed = feeder(definition)
    expected = honest(built(CLASSIC), records)
    for part in (slice(0, 50), slice(0, 21), slice(0, 3)):
        got = list(feed.batches(records[part]))
        assert [b.num_records for b in got][:-1] == [8] * (len(got) - 1)
        for one, other in zip(values(got), expected, strict=True):
            np.testing.assert_allclose(one, other[part], rtol=1e-6)
    assert feed.plan_name == plan
    assert feed.order_preserved is ordered


def test_shuffling_gives_another_order_each_time(built, feeder, records):
    feed = feeder(built(with_return("return dataset.map(parse).shuffle(99)")))
    orders = [
        np.concatenate([np.asarray(b.features)[:, 0] for b in feed.batches(records)])
        for _ in range(2)
    ]
    assert not np.array_equal(orders[0], orders[1])
    assert not np.array_equal(orders[0], np.sort(orders[0]))


def test_a_random_op_is_drawn_for_each_record(built, feeder, records):
    text = CLASSIC.replace('found["x"] * 2.0', 'found["x"] + tf.random.uniform([4])')
    feed = feeder(built(text))
    got = np.concatenate([np.asarray(b.features) for b in feed.batches(records)])
    assert feed.plan_name == "pipeline"
    noise = got[:, 0] - np.floor(got[:, 0])
    assert len(np.unique(noise)) > 40


def test_python_in_the_map_runs_as_it_is(built, feeder, records):
    text = CLASSIC.replace(
        'found["x"] * 2.0',
        "tf.ensure_shape("
        'tf.numpy_function(lambda v: v * 2, [found["x"]], tf.float32), [4])',
    )
    feed = feeder(built(text))
    np.testing.assert_allclose(
        values(feed.batches(records))[0], honest(built(CLASSIC), records)[0]
    )
    assert feed.plan_name == "pipeline"


def test_a_lookup_table_runs_in_blocks(built, feeder, records):
    text = CLASSIC.replace(
        "    def parse(record):",
        "    table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer("
        "tf.constant([0, 1, 2], tf.int64), tf.constant([2, 1, 0], tf.int64)), -1)\n\n"
        "    def parse(record):",
    ).replace('(features, found["label"])', '(features, table.lookup(found["label"]))')
    feed = feeder(built(text))
    _, labels = values(feed.batches(records))
    assert labels.tolist() == [2 - i % 3 for i in range(50)]


def test_prediction_has_no_labels(built, feeder, records):
    job = {
        "type": "predict",
        "data": {"prediction": "x"},
        "checkpoint": {"initFrom": "y"},
    }
    definition = built(CLASSIC, job=job)
    batches = list(feeder(definition, mode="prediction").batches(records))
    assert all(b.labels is None for b in batches)
    assert sum(b.num_records for b in batches) == 50


def test_two_tasks_can_be_read_in_turns(built, feeder, records):
    feed = feeder(built(with_return("return dataset.map(parse).batch(8)")))
    one, two = feed.batches(records[:24]), feed.batches(records[24:48])
    numbers = [
        [int(np.asarray(b.features)[0, 0] / 2) for b in pair]
        for pair in zip(one, two, strict=True)
    ]
    assert numbers == [[0, 24], [8, 32], [16, 40]]


def test_no_records_give_no_batches(built, feeder):
    assert list(feeder(built(CLASSIC)).batches([])) == []


@pytest.mark.parametrize("chain", ["dataset.map(parse)", "dataset.map(parse).batch(8)"])
def test_a_bad_record_is_named_by_its_place(built, feeder, records, chain):
    feed = feeder(built(with_return(f"return {chain}")))
    assert sum(b.num_records for b in feed.batches(records)) == 50
    broken = [*records[:11], example(y=np.int64(1)), *records[11:]]
    with pytest.raises(FeedError, match=r"record 11 of the task: .*onBadRecord") as e:
        list(feed.batches(broken))
    assert e.value.bad.index == 11


def test_a_feed_that_runs_by_record_alone_is_told_in_one_line(built, feeder, caplog):
    """TensorFlow logs a hundred lines of errors where a function does not convert."""
    text = with_return("return dataset.map(by_words)").replace(
        "def feed(",
        "def by_words(line):\n"
        "    words = tf.strings.to_number(tf.strings.split(line, b','))\n"
        "    words = tf.ensure_shape(words, [5])\n"
        "    return {'x': words[:4]}, tf.cast(words[4] > 2, tf.int64)\n\n\n"
        "def feed(",
    )
    feed = feeder(built(text))
    caplog.set_level("INFO")
    (batch,) = feed.batches([b"1,2,3,4,5", b"6,7,8,9,1"])
    assert batch.num_records == 2
    assert feed.plan_name == "pipeline"
    (said,) = [one for one in caplog.records if one.levelname != "DEBUG"]
    assert "feed cannot run in blocks" in said.getMessage()
    assert "\n" not in said.getMessage()


@pytest.mark.parametrize("chain", ["dataset.map(parse)", "dataset.map(parse).batch(8)"])
def test_bad_records_are_left_out_and_listed_on_request(built, feeder, records, chain):
    feed = feeder(built(with_return(f"return {chain}")), skip_bad=True)
    broken = [b"no", *records[:20], b"nor this", *records[20:]]
    got = values(feed.batches(broken))
    assert [b.index for b in feed.bad] == [0, 21]
    np.testing.assert_allclose(got[0], honest(built(CLASSIC), records)[0])
    assert sum(b.num_records for b in feed.batches(records)) == 50
    assert feed.bad == []


def test_all_bad_is_a_task_without_batches(built, feeder):
    feed = feeder(built(CLASSIC), skip_bad=True)
    assert list(feed.batches([b"no", b"no"])) == []
    assert len(feed.bad) == 2


def test_older_names_and_fewer_arguments_are_understood(built, feeder, records):
    text = CLASSIC.replace(
        "def feed(dataset, mode, metadata):", "def dataset_fn(dataset, mode):"
    )
    assert sum(b.num_records for b in feeder(built(text)).batches(records)) == 50
    text = CLASSIC.replace(
        "def feed(dataset, mode, metadata):", "def input_fn(dataset, mode='training'):"
    )
    assert sum(b.num_records for b in feeder(built(text)).batches(records)) == 50


@pytest.mark.parametrize(
    ("chain", "message"),
    [
        ("return 3", "returned int, expected a tf.data.Dataset"),
        ("return dataset.map(parse).repeat()", "repeats the data without end"),
        ("return dataset.map(lambda r: parse(r)[0])", "expected a pair"),
        (
            "return dataset.map(lambda r: (*parse(r), 1.0, 2.0))",
            r"expected a pair .*or \(features, labels, weights\)",
        ),
        (
            "return dataset.map(parse).batch(8, drop_remainder=True)",
            "drops what is left over of each task",
        ),
        (
            "return dataset.map(parse).padded_batch(8, drop_remainder=True)",
            "drops what is left over of each task",
        ),
        ("return dataset.map(parse).take(100)", "feed takes some records of each task"),
        ("return dataset.skip(1).map(parse)", "a CSV's header is no record here"),
        ("return dataset.shard(2, 0).map(parse)", "takes a shard of each task"),
        (
            "return dataset.map(parse).take_while(lambda f, y: y < 2)",
            "ends each task at the first record .*use filter",
        ),
        (
            "return dataset.window(4, drop_remainder=True)"
            ".flat_map(lambda w: w.batch(4)).unbatch().map(parse)",
            "drops what is left over of each task",
        ),
        (
            "return dataset.window(2, shift=3).flat_map(lambda w: w).map(parse)",
            "leaves out records between its windows",
        ),
        (
            "return dataset.batch(5).flat_map("
            "lambda r: tf.data.Dataset.from_tensor_slices(r).take(2)).map(parse)",
            "feed takes some records of each task",
        ),
        (
            "return dataset.batch(5).interleave("
            "lambda r: tf.data.Dataset.from_tensor_slices(r).skip(1)).map(parse)",
            "feed skips records of each task",
        ),
        (
            "return dataset.group_by_window("
            "lambda r: tf.constant(0, tf.int64), lambda k, w: w.take(3), window_size=4)"
            ".map(parse)",
            "feed takes some records of each task",
        ),
        (
            "return dataset.map(parse).bucket_by_sequence_length("
            "lambda f, y: 6, [100], [4, 4], drop_remainder=True)",
            "drops what is left over of each task",
        ),
        (
            "return dataset.map(parse).ignore_errors()",
            "leaves out without a word what does not parse .*onBadRecord: skip",
        ),
        (
            "return dataset.map(parse).batch(2).concatenate("
            "dataset.map(parse).batch(2).unbatch())",
            "some are batched and some are not",
        ),
        ("return dataset.map(lambda r: nothing(r))", r"net\.py:\d+ in .*nothing"),
    ],
)
def test_a_feed_that_breaks_the_contract_is_refused(define, feeder, chain, message):
    def use():
        definition = define(with_return(chain))
        definition.build_model()
        feeder(definition)

    with pytest.raises(UserCodeError, match=message):
        use()


def test_a_feature_that_no_input_takes_is_left_out(built, feeder, records):
    text = CLASSIC.replace('{"x": found["x"] * 2.0}', '{"x": found["x"], "id": record}')
    batch = next(feeder(built(text)).batches(records))
    assert batch.features.shape == (8, 4)


def test_an_input_without_its_feature_is_named(define):
    text = CLASSIC.replace('name="x"', 'name="image"').replace(
        '{"x": found["x"] * 2.0}', '{"x": found["x"], "id": record}'
    )
    with pytest.raises(UserCodeError, match=r"input `image` is not among.*'x'"):
        define(text).build_model()


# Without a feed.


SEEN = [
    "dataset.map(parse).shuffle(9).batch(8)",
    "dataset.map(parse).filter(lambda f, y: y > 2).repeat(2)",
    "dataset.map(parse).cache().prefetch(2)",
    "dataset.map(parse).batch(8).unbatch()",
    "dataset.map(parse).bucket_by_sequence_length(lambda f, y: 6, [100], [4, 4])",
]


@pytest.mark.parametrize("chain", SEEN)
def test_nothing_is_said_of_a_feed_that_can_be_seen_through(
    built, feeder, caplog, chain
):
    feeder(built(with_return(f"return {chain}"))).warn_of_unseen()
    assert "cannot be seen" not in caplog.text


@pytest.mark.parametrize(
    ("chain", "through"),
    [
        (
            "dataset.map(parse).flat_map("
            "lambda f, y: tf.data.Dataset.from_tensors((f, y)).take(0))",
            "FlatMap",
        ),
        (
            "dataset.map(parse).scan(0, lambda s, e: (s, e))",
            "Scan",
        ),
        (
            "tf.data.Dataset.zip((dataset.map(parse), tf.data.Dataset.range(3)))"
            ".map(lambda e, n: e)",
            "Zip",
        ),
        (
            "tf.data.Dataset.from_tensors(({'x': tf.zeros([4])}, "
            "tf.zeros([], tf.int64))).repeat(4)",
            "not show to be made of the records",
        ),
    ],
)
def test_a_feed_that_cannot_be_seen_through_is_said_to_be_one_in_one_line(
    built, feeder, caplog, chain, through
):
    feeder(built(with_return(f"return {chain}"))).warn_of_unseen()
    (line,) = [r for r in caplog.records if "cannot be seen" in r.getMessage()]
    assert through in line.getMessage()


@pytest.mark.parametrize(
    "chain",
    [
        "map(parse, num_parallel_calls=4, deterministic=False).batch(8)",
        "map(parse).batch(8, num_parallel_calls=4, deterministic=False)",
    ],
)
def test_a_feed_that_may_reorder_records_is_not_said_to_keep_their_order(
    built, feeder, chain
):
    assert not feeder(built(with_return(f"return dataset.{chain}"))).order_preserved
    kept = chain.replace(", deterministic=False", "")
    assert feeder(built(with_return(f"return dataset.{kept}"))).order_preserved


def test_the_default_feed_takes_features_by_the_inputs_names(built, feeder, records):
    feed = feeder(built(COMPILED, "net.model"))
    x, labels = values(feed.batches(records))
    assert x.shape == (50, 4)
    assert x[:, 0].tolist() == list(map(float, range(50)))
    assert labels.tolist() == [i % 3 for i in range(50)]
    assert feed.order_preserved


def test_an_input_of_unsigned_ids_gets_all_64_bits(built, feeder, tmp_path):
    ids = np.asarray([1, 1 << 63, (1 << 64) - 1], np.uint64)
    pq.write_table(pa.table({"id": ids, "label": [0, 1, 2]}), tmp_path / "a.parquet")
    reader = open_reader("a.parquet", data_root=tmp_path)
    records = reader.read("a.parquet", 0, 3, skip_bad=False).values
    model = built(
        COMPILED.replace("keras.Input((4,)", "keras.Input((1,), dtype='uint64'"),
        "net.model",
    )
    batches = list(feeder(model, metadata=reader.metadata).batches(records))
    found = np.concatenate([np.asarray(b.features) for b in batches])
    assert np.array_equal(found.ravel(), ids)


def test_the_default_feed_takes_the_only_feature(built, feeder):
    rows = [
        example(pixels=np.full(4, i / 2), label=tf.constant(0, tf.int64))
        for i in range(5)
    ]
    feed = feeder(built(COMPILED, "net.model"))
    assert np.asarray(next(feed.batches(rows)).features)[4].tolist() == [2.0] * 4


@pytest.mark.parametrize(
    ("record", "message", "kind"),
    [
        (
            example(a=1.5, b=2.5, label=tf.constant(0, tf.int64)),
            "input `x` is no feature",
            0,
        ),
        (
            example(x=np.ones(5), label=tf.constant(0, tf.int64)),
            "has 5 values per record",
            0,
        ),
        (
            example(x=np.ones(4), target=tf.constant(0, tf.int64)),
            "no feature `label`",
            0,
        ),
        (b"\xff\xff\xff", "not a tf.train.Example", 1),
        (b"", "has no features", 1),
    ],
    # Protobuf maps have no order: bytes in a name would differ between processes.
    ids=["no input", "wrong length", "no label", "no example", "empty"],
)
def test_the_default_feed_says_what_does_not_fit(built, feeder, record, message, kind):
    feed = feeder(built(COMPILED, "net.model"))
    with pytest.raises((UserCodeError, DataError)[kind], match=message):
        list(feed.batches([record]))


def test_the_default_feed_reads_bytes_as_pixels(built, feeder):
    text = COMPILED.replace(
        'keras.Input((4,), name="x")', 'keras.Input((4,), name="i")'
    )
    rows = [example(i=bytes([0, 1, 2, 255]), label=np.int64(1))]
    batch = next(feeder(built(text, "net.model")).batches(rows))
    assert np.asarray(batch.features).tolist() == [[0.0, 1.0, 2.0, 255.0]]


@pytest.mark.parametrize("mode", ["training", "prediction"])
def test_text_is_not_taken_for_the_numbers_of_its_characters(mode, built, feeder):
    text = COMPILED.replace("keras.Input((4,)", "keras.Input((1,)")
    rows = [example(x=b"7", label=np.int64(1)), example(x=b"?", label=np.int64(1))]
    with pytest.raises(UserCodeError, match=r"`x` is text or bytes"):
        next(feeder(built(text, "net.model"), mode=mode).batches(rows))


@pytest.mark.parametrize("mode", ["training", "prediction"])
def test_bytes_of_another_length_make_no_other_records(mode, built, feeder):
    rows = [example(x=bytes(8), label=np.int64(1))] * 2
    with pytest.raises(FeedError, match="record 0"):
        next(feeder(built(COMPILED, "net.model"), mode=mode).batches(rows))


@pytest.mark.parametrize("mode", ["training", "prediction"])
def test_a_csv_column_is_not_cut_into_an_inputs_shape(mode, built, feeder):
    names = Metadata(column_names=("x", "label"))
    feed = feeder(built(COMPILED, "net.model"), mode=mode, metadata=names)
    with pytest.raises(UserCodeError, match=r"column `x` has one value per record"):
        next(feed.batches([b"1,0"] * 4))


def test_a_vector_of_ids_of_a_csv_keeps_them(built, feeder):
    text = COMPILED.replace("keras.Input((4,)", "keras.Input((2,), dtype='int64'")
    names = Metadata(column_names=("a", "b", "label"))
    feed = feeder(built(text, "net.model"), metadata=names)
    batch = next(feed.batches([b"16777217,9007199254740993,0"]))
    assert np.asarray(batch.features).tolist() == [[16777217, 9007199254740993]]


def test_a_csv_goes_into_one_vector_or_one_input_per_column(built, feeder):
    names = Metadata(column_names=("a", "b", "label", "c", "d"))
    rows = [b"1,2,0,3,4", b"5,6,2,7,8"]
    batch = next(feeder(built(COMPILED, "net.model"), metadata=names).batches(rows))
    assert np.asarray(batch.features).tolist() == [[1, 2, 3, 4], [5, 6, 7, 8]]
    assert np.asarray(batch.labels).tolist() == [0, 2]

    two = """
import keras

def model():
    a = keras.Input((1,), name="a")
    city = keras.Input((1,), name="city", dtype="string")
    number = keras.Input((), name="number", dtype="int64")
    ids = keras.layers.Hashing(10)(city)
    vector = keras.layers.Flatten()(keras.layers.Embedding(10, 2)(ids))
    more = keras.layers.Embedding(10, 2)(number)
    out = keras.layers.Dense(1)(keras.layers.Concatenate()([a, vector, more]))
    network = keras.Model([a, city, number], out)
    network.compile("sgd", "mse")
    return network
"""
    names = Metadata(column_names=("a", "city", "number", "unused", "label"))
    rows = [b"1.5,Rome,16777217,,0.5", b"2,Oslo,3,x,1"]
    feed = feeder(built(two, "net.model"), metadata=names)
    batch = next(feed.batches(rows))
    assert [np.asarray(f).ravel().tolist() for f in batch.features] == [
        [1.5, 2.0],
        [b"Rome", b"Oslo"],
        [16777217, 3],
    ]


def test_a_csv_is_taken_apart_at_the_marks_of_its_reader(built, feeder, tmp_path):
    path = tmp_path / "data.csv"
    path.write_text('a\tb\tlabel\tc\td\n"1"\t2\t0\t3\t4\n')
    params = {"delimiter": "\t"}
    reader = open_reader("data.csv", data_root=tmp_path, params=params)
    rows = reader.read("data.csv", 0, 1, skip_bad=False).values
    feed = feeder(built(COMPILED, "net.model"), metadata=reader.metadata)
    batch = next(feed.batches(rows))
    assert np.asarray(batch.features).tolist() == [[1, 2, 3, 4]]
    other = Metadata(column_names=reader.metadata.column_names, extra={"quote": "'"})
    feed = feeder(built(COMPILED, "net.model"), metadata=other)
    with pytest.raises(UserCodeError, match="quoted with '"):
        next(feed.batches(rows))


@pytest.mark.parametrize("ending", ["npz", "parquet", "feather"])
def test_rows_of_column_files_are_examples(ending, built, feeder, tmp_path):
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    columns = {"x": x, "label": np.arange(3), "unused": np.asarray(["a", "b", "c"])}
    path = tmp_path / f"data.{ending}"
    if ending == "npz":
        np.savez(path, **columns)
    else:
        table = pa.table({**columns, "x": x.tolist()})
        write = pq.write_table if ending == "parquet" else feather.write_feather
        write(table, str(path))
    reader = open_reader(path.name, data_root=tmp_path)
    rows = reader.read(path.name, 0, 3, skip_bad=False).values
    for source in (COMPILED, CLASSIC):
        name = "net.model" if source == COMPILED else "net.custom_model"
        feed = feeder(built(source, name), metadata=reader.metadata)
        batch = next(feed.batches(rows))
        factor = 1 if source == COMPILED else 2
        assert np.asarray(batch.features).tolist() == (x * factor).tolist()
        assert np.asarray(batch.labels).tolist() == [0, 1, 2]


def test_a_csv_without_a_label_or_input_column_is_refused(built, feeder):
    definition = built(COMPILED, "net.model")
    feed = feeder(definition, metadata=Metadata(column_names=("a", "b")))
    with pytest.raises(UserCodeError, match="no column `label`"):
        list(feed.batches([b"1,2"]))


@pytest.mark.parametrize("line", [b"1,2,oh,4,0", b"1,2,,4,0"])
def test_a_broken_csv_line_is_named_with_its_column(line, built, feeder):
    names = Metadata(column_names=("a", "b", "c", "d", "label"))
    feed = feeder(built(COMPILED, "net.model"), metadata=names)
    with pytest.raises(FeedError, match=r"record 1 of the task: column `c` is "):
        list(feed.batches([b"1,2,3,4,0", line]))


BY_LENGTH = "lambda f, y: tf.cast(f['x'][0], tf.int32) % 8"  # any length does
BATCHED = {
    "bucket": f"dataset.map(parse).bucket_by_sequence_length({BY_LENGTH}, [4], [2, 3])",
    "group": "dataset.map(parse).group_by_window(lambda f, y: y, "
    "lambda k, w: w.batch(4), window_size=4)",
    "windows": "dataset.window(5).flat_map(lambda w: w.batch(5)).unbatch()"
    ".map(parse).batch(3)",
    "flat_map": "dataset.map(parse).batch(3).flat_map("
    "lambda f, y: tf.data.Dataset.from_tensors((f, y)))",
    "window": "dataset.window(5).flat_map(lambda w: w.map(parse).batch(5))",
    "zip": "tf.data.Dataset.zip((dataset.map(lambda r: parse(r)[0]).batch(4),"
    " dataset.map(lambda r: parse(r)[1]).batch(4)))",
    "zip, then batch": "tf.data.Dataset.zip((dataset.map(lambda r: parse(r)[0]),"
    " dataset.map(lambda r: parse(r)[1]))).padded_batch(4)",
    "concatenate": "dataset.map(parse).batch(4).concatenate("
    "dataset.map(parse).filter(lambda f, y: False).batch(4))",
}


@pytest.mark.parametrize("chain", BATCHED)
def test_a_feed_that_batches_by_any_means_is_not_batched_again(
    built, feeder, records, chain
):
    definition = built(with_return("return " + BATCHED[chain]))
    made = list(feeder(definition).batches(records))
    assert {np.ndim(b.features) for b in made} == {2}
    x, _ = values(made)
    np.testing.assert_array_equal(x[:, 0], 2 * np.arange(50))


def test_batches_of_single_records_from_windows_are_batched(built, feeder, records):
    chain = "return dataset.window(5).flat_map(lambda w: w).map(parse)"
    made = list(feeder(built(with_return(chain))).batches(records))
    assert [b.num_records for b in made] == [8] * 6 + [2]


def test_a_function_may_take_parts_of_a_single_record(built, feeder, records):
    chain = (
        "return dataset.flat_map("
        "lambda r: tf.data.Dataset.from_tensors(r).repeat(3).take(2)).map(parse)"
    )
    made = feeder(built(with_return(chain))).batches(records)
    assert sum(b.num_records for b in made) == 100
