"""The way of rows from a query to a training step, beside what each part must cost.

Owns the tables of these benchmarks. Called by run.py.
"""

from __future__ import annotations

import re
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from data_path import folder, opened
from elasticdl.data.formats.row_table import RowTable
from elasticdl.job.values.document import ValuesFile
from elasticdl.sql.data import embedded, shards, statistics
from elasticdl.sql.data.shards import ROW_GROUP, Shards, Staged
from elasticdl.sql.data.source import open_source
from elasticdl.sql.plan import (
    ColumnPlan,
    Head,
    Kind,
    LabelPlan,
    Measured,
    SplitPlan,
    StatisticsNeeded,
    Stored,
)
from frame import Benchmark, Row, interleaved, ratios, row, timed
from jobs import steady_rate

EXTRACTED, STREAMED, MEASURED, FED, EPOCH = 400_000, 400_000, 200_000, 65_536, 100_000
ROUNDS = 5
BATCH = 128
FLOATS = [f"f{i}" for i in range(6)]
INTEGERS = [f"i{i}" for i in range(2)]
TEXTS = [f"t{i}" for i in range(3)]
COLUMNS = tuple(
    [ColumnPlan(name, name, Stored.FLOAT) for name in FLOATS]
    + [ColumnPlan(name, name, Stored.INTEGER) for name in INTEGERS]
    + [ColumnPlan(name, name, Stored.TEXT) for name in TEXTS]
)
LABEL = LabelPlan("y", Kind.INTEGER, Head.BINARY, 2, (0, 1))
NEEDS = tuple(
    [
        StatisticsNeeded(Measured(name), moments=True, num_buckets=10)
        for name in FLOATS + INTEGERS
    ]
    + [StatisticsNeeded(Measured(name), vocabulary=True) for name in TEXTS]
)


def table(num_rows: int) -> dict[str, Any]:
    """Return 12 columns: 6 floats with NULLs, 2 integers, 3 texts, a label."""
    import pyarrow as pa

    random = np.random.default_rng(0)
    rows: dict[str, Any] = {
        name: pa.array(
            random.random(num_rows) * 1e3, mask=random.random(num_rows) < 0.1
        )
        for name in FLOATS
    }
    rows |= {name: random.integers(0, 1 << 40, num_rows) for name in INTEGERS}
    for name, number in zip(TEXTS, (10, 100, 1000), strict=True):
        words = np.asarray([f"{name}-{i}" for i in range(number)])
        rows[name] = words[random.integers(0, number, num_rows)]
    return {**rows, "y": random.integers(0, 2, num_rows)}


def in_duckdb(place: Path, num_rows: int) -> Path:
    """Write the table as a DuckDB file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table(table(num_rows)), place / "rows.parquet")
    path = place / "rows.duckdb"
    connection = embedded.connect(str(path))
    connection.execute(f"CREATE TABLE t AS SELECT * FROM '{place / 'rows.parquet'}'")
    connection.close()
    return path


def to_shards(url: str, place: Path) -> Shards:
    """Read a table once and write its shards, as a TRAIN does."""
    source = open_source(url)
    try:
        with source.rows("SELECT * FROM t") as rows:
            path = place / "staged.parquet"
            staged = Staged(path, rows.schema, rows.write(path))
    finally:
        source.close()
    return shards.write_training(
        staged, place / "shards", columns=COLUMNS, label=LABEL, division=SplitPlan()
    )


def sql_extract() -> list[Row]:
    """Compare the way from a DuckDB table to shards with the engine's own COPY."""
    with folder() as place:
        path = in_duckdb(place, EXTRACTED)

        def copy() -> None:
            connection = embedded.connect(str(path))
            connection.execute(
                f"COPY t TO '{place / 'copy.parquet'}' "
                f"(FORMAT parquet, ROW_GROUP_SIZE {ROW_GROUP})"
            )
            connection.close()

        seconds = interleaved(
            {
                "ours": timed(lambda: to_shards(str(path), place)),
                "copy": timed(copy),
            },
            ROUNDS,
        )
    what = "rows/s of 12 columns, DuckDB to divided shards / DuckDB's COPY"
    return [row("sql_extract", what, ratios(seconds["copy"], seconds["ours"]), 0.4)]


def sql_stream() -> list[Row]:
    """Compare the way from SQLite to shards with the driver's fetchmany alone."""
    with folder() as place:
        path = place / "rows.sqlite"
        rows = {k: _plain(v) for k, v in table(STREAMED).items()}
        with sqlite3.connect(path) as connection:
            connection.execute(f"CREATE TABLE t ({', '.join(rows)})")
            marks = ", ".join("?" * len(rows))
            connection.executemany(
                f"INSERT INTO t VALUES ({marks})", zip(*rows.values(), strict=True)
            )
        connection.close()

        def fetch() -> None:
            connection = sqlite3.connect(path)
            cursor = connection.execute("SELECT * FROM t")
            while cursor.fetchmany(8192):
                pass
            connection.close()

        seconds = interleaved(
            {
                "ours": timed(lambda: to_shards(str(path), place)),
                "fetch": timed(fetch),
            },
            ROUNDS,
        )
    what = "rows/s of 12 columns, SQLite to divided shards / fetchmany alone"
    return [row("sql_stream", what, ratios(seconds["fetch"], seconds["ours"]), 0.4)]


def _plain(column: Any) -> list[Any]:
    found: list[Any] = column.tolist() if hasattr(column, "tolist") else column
    return found


def sql_statistics() -> list[Row]:
    """Compare all statistics of 12 columns with `adapt` of the layers for them.

    All begin with the same shards. `adapt` reads them in batches of a training, in the
    shards' row groups, or takes all rows at once, which needs the memory for them.
    """
    with folder() as place:
        made = to_shards(str(in_duckdb(place, MEASURED)), place)
        seconds = interleaved(
            {
                "ours": timed(
                    lambda: statistics.measure(made, columns=COLUMNS, needs=NEEDS)
                ),
                "batches": timed(lambda: _adapt(made, BATCH)),
                "groups": timed(lambda: _adapt(made, ROW_GROUP)),
                "whole": timed(lambda: _adapt(made, MEASURED)),
            },
            3,
        )
    found = {name: ratios(taken, seconds["ours"]) for name, taken in seconds.items()}
    what = "seconds of adapt() {} / of all statistics of 12 columns, from shards"
    return [
        row(
            "sql_statistics",
            what.format(f"in batches of {BATCH}"),
            found["batches"],
            10,
        ),
        row(
            "sql_statistics_groups",
            what.format(f"in batches of {ROW_GROUP:,}"),
            found["groups"],
            3,
        ),
        row(
            "sql_statistics_whole",
            what.format("of all rows at once"),
            found["whole"],
            1,
        ),
    ]


def _adapt(made: Shards, batch: int) -> None:
    """Let Keras's layers learn from the shards what NEEDS asks for."""
    import keras

    for name in FLOATS + INTEGERS:
        keras.layers.Normalization().adapt(_batches(made, name, batch))
        keras.layers.Discretization(num_bins=10).adapt(_batches(made, name, batch))
    for name in TEXTS:
        keras.layers.StringLookup().adapt(_batches(made, name, batch))


def _batches(made: Shards, name: str, size: int) -> Iterator[Any]:
    """Give a column of the training shards; NULL is 0, as NaN makes a mean NaN."""
    import pyarrow.parquet as pq

    for path in sorted(made.training.iterdir()):
        with pq.ParquetFile(path) as file:
            for rows in file.iter_batches(size, columns=[name]):
                values = rows[name].to_numpy(zero_copy_only=False).reshape(-1, 1)
                yield (
                    values
                    if name in TEXTS
                    else np.nan_to_num(values.astype(np.float32), copy=False)
                )


def sql_text() -> list[Row]:
    """Compare text with numbers on the way from Parquet to tensors."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    random = np.random.default_rng(0)
    words = np.asarray([f"value {n} of a column" for n in range(1000)])
    names = [f"c{n}" for n in range(8)]
    tables = {
        "text": {n: words[random.integers(0, 1000, FED)] for n in names},
        "float": {n: random.random(FED, np.float32) for n in names},
    }
    with folder() as place:
        variants: dict[str, Callable[[], float]] = {}
        for kind, rows in tables.items():
            pq.write_table(
                pa.table(rows), place / f"{kind}.parquet", row_group_size=ROW_GROUP
            )
            variants[kind] = _to_tensors(place, f"{kind}.parquet")
        seconds = interleaved(variants, ROUNDS)
    what = (
        "records/s of 8 text columns with 1,000 values / of 8 float columns, to tensors"
    )
    return [row("sql_text", what, ratios(seconds["float"], seconds["text"]), 0.25)]


def _to_tensors(place: Path, name: str) -> Callable[[], float]:
    import tensorflow as tf
    from elasticdl.model.feed.columns import ColumnTensors

    reader = opened(place, name)
    source = next(iter(reader.files))
    kind = tf.string if name.startswith("text") else tf.float32
    tensors = ColumnTensors()

    def run() -> None:
        for start in range(0, FED, 1024):
            found = reader.read(source, start, start + 1024, skip_bad=False).values
            if not isinstance(found, RowTable):
                raise TypeError("the reader gave records without columns")
            for key, column in found.columns.items():
                tensors.tensor(column, name=key, stored=kind, shape=(1,), dtype=kind)

    return timed(run)


def training(place: Path) -> tuple[ValuesFile, str]:
    """Return the job of a TRAIN on the employee table, and its module's text."""
    import pyarrow as pa
    import pyarrow.parquet as pq
    from elasticdl.data.making.employee import employees
    from elasticdl.job.values.file import parse_values
    from elasticdl.sql import generate, planning
    from elasticdl.sql.plan import Places
    from elasticdl.sql.statements import Train

    pq.write_table(pa.table(employees(EPOCH).columns), place / "rows.parquet")
    text = f"SELECT * FROM '{place / 'rows.parquet'}' LABEL income INTO bench"
    (statement,) = planning.read_statements(text, "duckdb")
    if not isinstance(statement, Train):
        raise TypeError(f"got {statement}, expected a TRAIN")
    source = open_source("")
    with source.rows(statement.select) as rows:
        plan = planning.plan_training(statement, rows.preview, text)
        staged = Staged(place / "staged.parquet", rows.schema, EPOCH)
        rows.write(staged.path)
    source.close()
    made = shards.write_training(
        staged, place, columns=plan.columns, label=plan.label, division=plan.split
    )
    found = statistics.measure(
        made, columns=plan.columns, needs=plan.needs, label=plan.label.column
    )
    places = Places(str(made.training), "", str(place / "vocabularies"), "")
    generated = generate.generate(plan, found, places)
    for file, content in {
        generated.module_path: generated.module, **generated.files
    }.items():  # fmt: skip
        (place / file).parent.mkdir(exist_ok=True)
        (place / file).write_text(content)
    fields = {"epochs": 0, "batchSize": BATCH, "logLossSteps": 50}
    changes = [f"job.training.{name}={value}" for name, value in fields.items()]
    values, problems = parse_values(
        generated.values, source="bench", overrides=[*changes, "job.export.dir="]
    )
    if values is None:
        raise ValueError(problems)
    return values, str(place / generated.module_path)


def sql_epoch() -> list[Row]:
    """Compare a job of one worker on shards with Keras's fit on arrays in memory."""
    with folder() as place:
        values, module = training(place)
        fit = _fit(place, Path(module))

        def job() -> float:
            return 1 / (steady_rate(values, place, workers=1, seconds=6.0) * BATCH)

        seconds = interleaved({"job": job, "fit": fit}, 3)
        shutil.rmtree(place / "training")
    what = "samples/s of a TRAIN's job, one worker / of fit on arrays in memory"
    return [row("sql_epoch", what, ratios(seconds["fit"], seconds["job"]), 0.8)]


def _fit(place: Path, module: Path) -> Callable[[], float]:
    import importlib.util

    import pyarrow.parquet as pq
    import tensorflow as tf

    found = importlib.util.spec_from_file_location(
        re.sub(r"\W", "", module.stem), module
    )
    if found is None or found.loader is None:
        raise ImportError(str(module))
    code = importlib.util.module_from_spec(found)
    found.loader.exec_module(code)
    model = code.model()
    rows = pq.read_table(place / "training")
    label = rows["label"].to_numpy()
    features = {}
    for tensor in model.inputs:
        column = rows[tensor.name]
        values = (
            tf.constant(column.to_pylist())
            if tensor.dtype == "string"
            else tf.constant(column.to_numpy())
        )
        features[tensor.name] = tf.reshape(values, (-1, 1))
    warm = BATCH * 8
    model.fit({k: v[:warm] for k, v in features.items()}, label[:warm],
              batch_size=BATCH, verbose=0)  # fmt: skip
    epoch = timed(
        lambda: model.fit(features, label, batch_size=BATCH, verbose=0)
    )  # fmt: skip
    return lambda: epoch() / len(label)


BENCHMARKS: dict[str, Benchmark] = {
    "sql_extract": Benchmark(sql_extract, 15, short=False),
    "sql_stream": Benchmark(sql_stream, 10, short=False),
    "sql_statistics": Benchmark(sql_statistics, 60, short=False),
    "sql_text": Benchmark(sql_text, 10),
    "sql_epoch": Benchmark(sql_epoch, 90, short=False),
}
