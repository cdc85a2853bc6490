"""How fast records come out of files, and out of the user's feed.

Owns the data of these benchmarks, made anew in a folder that is gone afterwards.
Called by run.py. Everything is read through `open_reader` and `Feeder`, as workers do;
the baselines are what a user could write instead with tf.data alone.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from elasticdl.data.formats.example_rows import encode_rows
from elasticdl.data.formats.recordio import RecordIOWriter
from elasticdl.data.formats.tfrecord import TFRecordWriter
from elasticdl.data.reader import FilesReader, open_reader
from frame import Benchmark, Row, interleaved, ratios, row, timed

ROOT = Path(__file__).resolve().parents[1]
ROUNDS = 15
NUM_RECORDS = 300_000
RANGE = 4096
BATCH = 64
# Read as a worker's tasks come: one is 64 batches in the table, 16 beside the CNN.
FEED_RECORDS = 64 * BATCH
STEP_RECORDS = 16 * BATCH
ROW_GROUP = 10_000
TEXTS = 1000  # different values of a column of text
TEXT_RECORDS = 16 * RANGE
MIDDLE = NUM_RECORDS // 2


def columns(num_rows: int) -> dict[str, Any]:
    """Return clicks as of an advertisement log: 13 numbers, 26 ids, a label."""
    random = np.random.default_rng(0)
    return {
        **{f"n{i:02}": random.random(num_rows, np.float32) for i in range(13)},
        **{f"c{i:02}": random.integers(0, 1 << 20, num_rows) for i in range(26)},
        "label": random.integers(0, 2, num_rows),
    }


@contextmanager
def folder() -> Iterator[Path]:
    """Give a folder that is gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="elasticdl-bench-") as name:
        yield Path(name)


def write_records(path: Path, writer: Any, records: Sequence[bytes]) -> None:
    """Write a file of records."""
    with writer(path) as file:
        for record in records:
            file.write(record)


def write_all_formats(place: Path) -> list[str]:
    """Write the same rows in each format; return the files' names."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = columns(NUM_RECORDS)
    records = encode_rows(rows, NUM_RECORDS)
    write_records(place / "data.recordio", RecordIOWriter, records)
    write_records(place / "data.tfrecord", TFRecordWriter, records)
    np.savez(place / "data.npz", **rows)
    table = pa.table(rows)
    pq.write_table(table, place / "data.parquet", row_group_size=ROW_GROUP)
    lines = np.stack([rows[name] for name in ("c00", "c01", "c02", "label")], axis=1)
    np.savetxt(
        place / "data.csv", lines, "%d", ",", header="c00,c01,c02,label", comments=""
    )
    return ["data.recordio", "data.tfrecord", "data.csv", "data.npz", "data.parquet"]


def opened(place: Path, name: str) -> FilesReader:
    """Return a reader that knows where records are, as after a job's first task."""
    reader = open_reader(name, data_root=place)
    reader.shards()
    return reader


def read_range(reader: FilesReader, start: int) -> None:
    """Read the range that begins at `start`."""
    source = next(iter(reader.files))
    found = reader.read(source, start, start + RANGE, skip_bad=False)
    # As a list: rows of columns become records when somebody asks for one.
    if len(list(found.values)) != RANGE:
        raise RuntimeError(f"got {len(found.values)} records, expected {RANGE}")


def range_read() -> list[Row]:
    """Compare a range from the middle with what tf.data offers for it."""
    import tensorflow as tf

    start = MIDDLE - RANGE // 2
    with folder() as place:
        path = place / "data.tfrecord"
        records = encode_rows(columns(NUM_RECORDS), NUM_RECORDS)
        write_records(path, TFRecordWriter, records)
        reader = opened(place, path.name)

        def skip_and_take() -> None:
            dataset = tf.data.TFRecordDataset(str(path)).skip(start).take(RANGE)
            if sum(1 for _ in dataset.as_numpy_iterator()) != RANGE:
                raise RuntimeError("the baseline lost records")

        seconds = interleaved(
            {
                "ours": timed(lambda: read_range(reader, start)),
                "theirs": timed(skip_and_take),
            },
            ROUNDS,
        )
    what = "4096 of 300 k TFRecords from the middle: speed / skip().take()"
    return [row("range_read", what, ratios(seconds["theirs"], seconds["ours"]), 8)]


def range_read_flat() -> list[Row]:
    """Compare the last range with the first, in each format."""
    with folder() as place:
        names = write_all_formats(place)
        variants: dict[str, Callable[[], float]] = {}
        for name in names:
            for end, start in (("first", 0), ("last", NUM_RECORDS - RANGE)):
                variants[f"{name} {end}"] = _cold_read(place, name, start)
        seconds = interleaved(variants, ROUNDS)
    found = {
        name: ratios(seconds[f"{name} last"], seconds[f"{name} first"])
        for name in names
    }
    medians = {name: statistics.median(values) for name, values in found.items()}
    worst = max(medians, key=lambda name: medians[name])
    each = ", ".join(f"{n.split('.')[1]} {m:.2f}" for n, m in medians.items())
    what = f"time of the last range of 300 k records / the first, worst of {each}"
    return [row("range_read_flat", what, found[worst], 1.5, "lower")]


def text_columns() -> list[Row]:
    """Compare reading columns of text with reading columns of floats."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    random = np.random.default_rng(0)
    words = np.asarray([f"value {n} of a column" for n in range(TEXTS)])
    names = [f"c{n}" for n in range(8)]
    tables = {
        "text": {n: words[random.integers(0, TEXTS, NUM_RECORDS)] for n in names},
        "float": {n: random.random(NUM_RECORDS, np.float32) for n in names},
    }
    with folder() as place:
        variants: dict[str, Callable[[], float]] = {}
        for kind, rows in tables.items():
            path = place / f"{kind}.parquet"
            pq.write_table(pa.table(rows), path, row_group_size=ROW_GROUP)
            variants[kind] = _all_ranges(place, path.name)
        seconds = interleaved(variants, ROUNDS)
    what = "records/s of 8 text columns with 1,000 values / of 8 float columns, Parquet"
    return [row("text_columns", what, ratios(seconds["float"], seconds["text"]), 0.25)]


def _all_ranges(place: Path, name: str) -> Callable[[], float]:
    reader = opened(place, name)

    def run() -> None:
        for start in range(0, TEXT_RECORDS, RANGE):
            read_range(reader, start)

    return timed(run)


def _cold_read(place: Path, name: str, start: int) -> Callable[[], float]:
    def run() -> float:
        # A new reader each time: what one keeps decoded must not answer.
        reader = opened(place, name)
        began = time.perf_counter()
        read_range(reader, start)
        return time.perf_counter() - began

    return run


def definition_of(name: str, place: Path) -> Any:
    """Return a module of the model zoo, as a worker loads it."""
    from elasticdl.job.names import JobDir
    from elasticdl.job.spec.job import JobSpec
    from elasticdl.model.definition import load_definition

    tree = {
        "name": "bench",
        "data": {"training": "none"},
        "model": {"zoo": str(ROOT / "model_zoo"), "definition": name},
    }
    definition = load_definition(JobSpec.model_validate(tree), JobDir(place / "job"))
    definition.build_model()
    return definition


def images(num_rows: int, pixels: int) -> list[bytes]:
    """Return Examples with `image` and `label`."""
    random = np.random.default_rng(0)
    image = random.random((num_rows, pixels), np.float32) * 16
    label = random.integers(0, 10, num_rows)
    return encode_rows({"image": image, "label": label}, num_rows)


def feeder_of(definition: Any) -> Any:
    """Return the feeder of training, as a worker makes it."""
    from elasticdl.data.reader import Metadata
    from elasticdl.model.feeding import Feeder

    return Feeder(
        definition, mode="training", batch_size=BATCH, metadata=Metadata()
    )  # fmt: skip


def feed() -> list[Row]:
    """Compare a task through the feed of the zoo with a generator of its records."""
    import tensorflow as tf
    from elasticdl.data.reader import Metadata

    with folder() as place:
        definition = definition_of("digits.cnn.custom_model", place)
        feeder = feeder_of(definition)
        records = images(FEED_RECORDS, 64)
        signature = tf.TensorSpec([], tf.string)

        def ours() -> None:
            _drain(feeder.batches(records))

        def theirs() -> None:
            source = tf.data.Dataset.from_generator(
                lambda: iter(records), output_signature=signature
            )
            fed = definition.feed(source, "training", Metadata())
            _drain(fed.batch(BATCH))

        seconds = interleaved({"ours": timed(ours), "theirs": timed(theirs)}, ROUNDS)
    what = (
        "records/s through a classic feed (map, shuffle) / one generator element each"
    )
    return [row("feed", what, ratios(seconds["theirs"], seconds["ours"]), 10)]


def _drain(batches: Any) -> None:
    num = sum(1 for _ in batches)
    if num != FEED_RECORDS // BATCH:
        raise RuntimeError(f"got {num} batches, expected {FEED_RECORDS // BATCH}")


def feed_share() -> list[Row]:
    """Compare reading and feeding a task with the whole of training on it."""
    from elasticdl.worker.local.trainer import LocalTrainer
    from elasticdl.worker.steps.learning_rate import LearningRate
    from elasticdl.worker.steps.variable_step import VariableStep
    from elasticdl.worker.trainer import BatchPosition

    with folder() as place:
        definition = definition_of("mnist.functional_api.custom_model", place)
        write_records(
            place / "data.recordio", RecordIOWriter, images(STEP_RECORDS, 784)
        )
        feeder, reader = feeder_of(definition), opened(place, "data.recordio")
        trainer = LocalTrainer(
            VariableStep(definition, optimizer=definition.optimizer, guard=False),
            definition.optimizer,
            rate=LearningRate(definition.optimizer, lambda *_: None, lambda: 1.0),
            version=0,
            skip_nan=False,
            between_steps=lambda *_: None,
        )

        def batches() -> Iterator[Any]:
            read = reader.read("data.recordio", 0, STEP_RECORDS, skip_bad=False)
            yield from feeder.batches(read.values)

        def train() -> None:
            at = BatchPosition(1, 0, STEP_RECORDS, BATCH, last=False)
            for batch in batches():
                trainer.train_batch(batch.features, batch.labels, at)
            trainer.flush()

        seconds = interleaved(
            {"input": timed(lambda: list(batches())), "whole": timed(train)}, ROUNDS
        )
    what = "time to read and feed a task / to train on it as well (MNIST CNN, local)"
    return [
        row(
            "feed_share", what, ratios(seconds["input"], seconds["whole"]), 0.1, "lower"
        )
    ]


BENCHMARKS: dict[str, Benchmark] = {
    "range_read": Benchmark(range_read, 15, short=False),
    "range_read_flat": Benchmark(range_read_flat, 25, short=False),
    "text_columns": Benchmark(text_columns, 20),
    "feed": Benchmark(feed, 25, short=False),
    "feed_share": Benchmark(feed_share, 20, short=False),
}
