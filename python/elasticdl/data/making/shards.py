"""Record files in a folder: written as numbered shards, aside and then renamed.

Owns the names of shards and the rule that a folder of data is there whole or not at
all. Called by data sets and conversion. Must not know what is in a record.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

from elasticdl.data.formats import index, tfrecord
from elasticdl.data.formats.recordio import RecordIOWriter
from elasticdl.data.formats.tfrecord import TFRecordWriter
from elasticdl.data.making.arrow_writer import ParquetWriter
from elasticdl.data.making.catalog import WRITABLE
from elasticdl.errors import DataError
from elasticdl.job.spec.job import DataFormat

# Begins with an underscore, so that it is never taken for data.
MARKER = "_dataset.json"

Progress = Callable[[int, int], None]  # records done, records in all


def no_progress(done: int, total: int) -> None:
    """Default observer: ignore the progress."""


def write_shards(
    records: Iterable[bytes],
    directory: Path,
    *,
    format: DataFormat,
    records_per_file: int,
) -> list[Path]:
    """Write `data-00000.<format>` and so on, with indexes; return the files.

    Raises DataError if the format cannot be written.
    """
    if format not in WRITABLE:
        raise DataError(
            f"got the format {format}, expected one of {', '.join(WRITABLE)}"
        )
    directory.mkdir(parents=True, exist_ok=True)
    files: list[Path] = []
    rest = iter(records)
    while (first := next(rest, None)) is not None:
        files.append(directory / f"data-{len(files):05d}.{format}")
        with _writer(files[-1], format) as writer:
            writer.write(first)
            for record in islice(rest, records_per_file - 1):
                writer.write(record)
    if format is DataFormat.TFRECORD:
        for file in files:
            index.load_or_build(file, tfrecord.INDEX_KIND, tfrecord.scan)
    return files


def _writer(
    file: Path, format: DataFormat
) -> RecordIOWriter | TFRecordWriter | ParquetWriter:
    if format is DataFormat.PARQUET:
        return ParquetWriter(file)
    if format is DataFormat.TFRECORD:
        return TFRecordWriter(file)
    return RecordIOWriter(file)


@contextmanager
def whole_folder(directory: Path, *, replace: bool) -> Iterator[Path]:
    """Yield a folder to write in; it becomes `directory` unless an exception is raised.

    Raises DataError if `directory` holds something already and is not to be replaced,
    or was not made by this package, or cannot be written.
    """
    directory = directory.absolute()
    _check_free(directory, replace=replace)
    aside = directory.with_name(f".{directory.name}.writing-{os.getpid()}")
    try:
        shutil.rmtree(aside, ignore_errors=True)
        aside.mkdir(parents=True)
        try:
            yield aside
            _put_in_place(aside, directory)
        finally:
            shutil.rmtree(aside, ignore_errors=True)
    except OSError as error:
        raise DataError(
            f"{error.filename or directory}: cannot be written: {error.strerror}; "
            "nothing is left of it; make room or name another folder"
        ) from error


def _check_free(directory: Path, *, replace: bool) -> None:
    if not directory.exists():
        return
    if not directory.is_dir():
        raise DataError(f"{directory}: is a file; name a folder to write to")
    if not any(directory.iterdir()):
        return
    if not (directory / MARKER).exists():
        raise DataError(
            f"{directory}: is not empty, and what it holds was not made by `elasticdl "
            "data`, so it is not replaced; name another folder"
        )
    if not replace:
        raise DataError(
            f"{directory}: holds data already; name another folder, or replace it with "
            "--overwrite"
        )


def _put_in_place(aside: Path, directory: Path) -> None:
    if directory.exists():
        old = directory.with_name(f".{directory.name}.old-{os.getpid()}")
        directory.rename(old)
        aside.rename(directory)
        shutil.rmtree(old)
    else:
        aside.rename(directory)
