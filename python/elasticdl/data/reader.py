"""Readers: ranges of records out of files, in constant time whatever the start.

Owns the choice of files and of a reader for them. Called by the master (to count
records), by workers (to read tasks) and by the `data` commands. Must not import
TensorFlow, and must not know tasks or leases.
"""

from __future__ import annotations

import glob
import logging
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from elasticdl.data.formats import arrow_files, csv_lines, numpy_files
from elasticdl.data.formats.arrow_files import ArrowReader
from elasticdl.data.formats.chunk_cache import ChunkCache
from elasticdl.data.formats.csv_lines import CsvOptions, CsvReader
from elasticdl.data.formats.detect import format_of, is_data_file, refuse_compressed
from elasticdl.data.formats.files import FilePool
from elasticdl.data.formats.numpy_files import NumpyReader
from elasticdl.data.formats.recordio import RecordIOReader
from elasticdl.data.formats.tfrecord import TFRecordReader
from elasticdl.data.records import (
    BadRecord,
    BadRecords,
    FileReader,
    Metadata,
    Reader,
    Records,
    Shard,
)
from elasticdl.errors import DataError
from elasticdl.job.spec.job import DataFormat
from elasticdl.job.spec.problems import nearest

__all__ = [
    "BadRecord",
    "FilesReader",
    "Metadata",
    "Reader",
    "Records",
    "Shard",
    "find_files",
    "open_reader",
]

_LARGE_ROW_GROUP = 100_000  # A task reads whole row groups: larger ones make it slow.

log = logging.getLogger(__name__)

_PARAMS: Mapping[DataFormat, Sequence[str]] = {
    DataFormat.CSV: csv_lines.PARAMS,
    DataFormat.NUMPY: numpy_files.PARAMS,
    DataFormat.PARQUET: arrow_files.PARAMS,
    DataFormat.ARROW: arrow_files.PARAMS,
}


def open_reader(
    path: str,
    *,
    data_root: Path,
    format: DataFormat = DataFormat.AUTO,
    params: Mapping[str, Any] | None = None,
) -> FilesReader:
    """Return a reader of a file, a folder's files, a glob, or several with commas.

    Args:
        path: What the specification names; relative paths start at `data_root`.
        data_root: The current folder here, the mounted claim in a cluster.
        format: AUTO goes by the first file's ending, then by its content.
        params: `data.readerParams`.

    Raises DataError if nothing is there, or the files' format is unknown or mixed.
    """
    files = find_files(path, data_root=data_root)
    if format is DataFormat.AUTO:
        format = common_format(files)
    else:
        for file in files:
            if format in (DataFormat.TFRECORD, DataFormat.CSV):
                refuse_compressed(file)
    check_params(format, params or {})
    by_source = {source_name(file, data_root): file for file in files}
    return FilesReader(
        by_source, data_root=data_root, format=format, params=params or {}
    )


def find_files(path: str, *, data_root: Path) -> list[Path]:
    """Return the data files that a path names, sorted. Raises DataError if none."""
    if not path.strip():
        raise DataError(
            "the path to the data is empty; name a file, a folder or a glob, as "
            "`digits/train`"
        )
    whole = data_root / path
    parts = [path] if "," not in path or whole.exists() else path.split(",")
    files: dict[Path, None] = {}
    for part in parts:
        files.update(dict.fromkeys(_find(part.strip(), data_root)))
    return list(files)


def _find(path: str, data_root: Path) -> list[Path]:
    place = data_root / Path(path).expanduser()
    if place.is_file():
        return [place]
    if place.is_dir():
        files = sorted(f for f in place.iterdir() if f.is_file() and is_data_file(f))
        if not files:
            folders = sorted(f.name for f in place.iterdir() if f.is_dir())
            inside = (
                f"; it holds the folders {', '.join(folders[:5])}: name one of them, "
                f"or all files with `{path.rstrip('/')}/*/*`"
                if folders
                else "; put the data there, or let data.prepare make it"
            )
            raise DataError(f"{place}: the folder holds no data files{inside}")
        return files
    # Path.glob takes no absolute patterns.
    names = glob.glob(str(place), recursive=True)  # noqa: PTH207
    found = sorted(Path(name) for name in names)
    files = [file for file in found if file.is_file() and is_data_file(file)]
    if files:
        return files
    if glob.has_magic(path):
        raise DataError(
            f"{place}: no file matches; got nothing, expected at least one data file"
        )
    raise DataError(
        f"{place}: there is no such file or folder{_near(place)}; relative paths start "
        f"at the data root {data_root}; `elasticdl data make` makes the built-in data "
        "sets, data.prepare does so for a job"
    )


def _near(place: Path) -> str:
    if not place.parent.is_dir():
        return ""
    names = [entry.name for entry in place.parent.iterdir()]
    near = nearest(place.name, names)
    return f"; did you mean {near}?" if near else ""


def common_format(files: Sequence[Path]) -> DataFormat:
    """Return the format of all files. Raises DataError if unknown or mixed."""
    # Endings decide for most files, so that thousands are not opened for this.
    formats = {file.suffix: file for file in reversed(files)}
    found = {format_of(file): file for file in formats.values()}
    if len(found) > 1:
        (one, its_file), (other, other_file) = list(found.items())[:2]
        raise DataError(
            f"files of different formats: {its_file.name} is {one}, {other_file.name} "
            f"is {other}; name those of one format with a glob, as `folder/*.{one}`"
        )
    return next(iter(found))


def check_params(format: DataFormat, params: Mapping[str, Any]) -> None:
    """Raise DataError for a parameter that the format's reader does not know."""
    known = _PARAMS.get(format, ())
    for name in params:
        if name not in known:
            near = nearest(name, known)
            hint = f"; did you mean {near}?" if near else ""
            expected = f"one of {', '.join(known)}" if known else "none"
            raise DataError(
                f"readerParams.{name}: the {format} reader does not know it; expected "
                f"{expected}{hint}"
            )


class FilesReader:
    """Reads ranges of many files of one format. Thread-safe.

    A source is a file's path from the data root (absolute if it lies elsewhere), so
    that it means the same file to every role, wherever the root is mounted.
    """

    def __init__(
        self,
        files: Mapping[str, Path],
        *,
        data_root: Path,
        format: DataFormat,
        params: Mapping[str, Any],
    ) -> None:
        """Take files by source, in order; each is opened on first use."""
        self.format = format
        self._root = data_root
        self._files = dict(files)
        self._params = dict(params)
        self._pool = FilePool()
        self._chunks = ChunkCache()
        self._lock = threading.Lock()
        self._readers: dict[str, FileReader] = {}

    @property
    def files(self) -> Mapping[str, Path]:
        """The files by source, in order."""
        return self._files

    @property
    def metadata(self) -> Metadata:
        """Metadata of the first file's records; all files have the same."""
        return self._reader(next(iter(self._files))).metadata

    def shards(self) -> list[Shard]:
        """Return one shard per file that holds records, in order.

        Raises DataError if there is no record in all files, one cannot be read, or
        they do not have the same columns.
        """
        shards = []
        for source in self._files:
            reader = self._reader(source)
            if reader.num_records:
                shards.append(Shard(source, 0, reader.num_records))
                self._check_alike(shards[0].source, source)
        if not shards:
            names = ", ".join(list(self._files)[:3])
            raise DataError(
                f"no records in {len(self._files)} file(s) ({names}); expected at "
                "least one; check what wrote them"
            )
        self._warn_of_large_row_groups(shards[0].source)
        return shards

    def read(self, source: str, start: int, end: int, *, skip_bad: bool) -> Records:
        """Return the records of a range (see records.Reader.read)."""
        if not 0 <= start <= end:
            raise DataError(
                f"{source}: got the range [{start}, {end}), expected 0 <= start <= end"
            )
        bad = BadRecords(source, skip=skip_bad)
        reader = self._reader(source)
        values = reader.read(start, end, bad)
        # A file that changed since it was counted must not pass for a shorter one.
        for record in range(max(start, reader.num_records), end):
            bad.add(record, f"the file has only {reader.num_records} records")
        return Records(values, bad.found, bad.unplanned)

    def _check_alike(self, first: str, source: str) -> None:
        one, other = self._reader(first).metadata, self._reader(source).metadata
        if _columns(one) != _columns(other):
            raise DataError(
                f"files of different columns: {first} has {_columns(one)}, {source} "
                f"{_columns(other)}; name files that belong together, or choose the "
                "columns that all have with data.readerParams"
            )
        check_units((first, one), (source, other))

    def _warn_of_large_row_groups(self, source: str) -> None:
        rows = self._reader(source).metadata.extra.get("largest_row_group", 0)
        if rows > _LARGE_ROW_GROUP:
            log.warning(
                "%s has row groups of %d records, and each task decodes a whole one; "
                "`elasticdl data convert` writes small ones",
                source,
                rows,
            )

    def _reader(self, source: str) -> FileReader:
        with self._lock:
            reader = self._readers.get(source)
        if reader is None:
            # Outside the lock, as making an index takes time; the first one stays.
            made = self._open(self._files.get(source) or self._root / source)
            with self._lock:
                reader = self._readers.setdefault(source, made)
        return reader

    def _open(self, file: Path) -> FileReader:
        if self.format is DataFormat.RECORDIO:
            return RecordIOReader(file, self._pool, self._chunks)
        if self.format is DataFormat.TFRECORD:
            return TFRecordReader(file, self._pool)
        if self.format is DataFormat.CSV:
            return CsvReader(file, self._pool, CsvOptions.from_params(self._params))
        if self.format is DataFormat.NUMPY:
            return NumpyReader(file, self._params)
        return ArrowReader(file, self._chunks, self._params, format=self.format)


def _columns(metadata: Metadata) -> dict[str, tuple[str, Any]] | list[str]:
    """Return what all files must have in common, in a form to compare and show.

    The columns of lines go by their order; those of Examples by name, and their values
    by what a feature can hold.
    """
    if not metadata.examples:
        return list(metadata.column_names)
    shapes = metadata.extra.get("shapes", {})
    kinds = {"f": "floats", "i": "integers", "u": "integers", "b": "integers"}
    return {
        name: (kinds.get(np.dtype(dtype).kind, "bytes"), shapes.get(name))
        for name, dtype in sorted(
            zip(metadata.column_names, metadata.column_dtypes, strict=True)
        )
    }


def check_units(one: tuple[str, Metadata], other: tuple[str, Metadata]) -> None:
    """Raise DataError if a column of times counts in two units, by source.

    Its numbers reach the model as they are: one file's would be 1,000 times another's.
    """
    (first, its), (source, theirs) = one, other
    units, others = its.extra.get("units", {}), theirs.extra.get("units", {})
    for name, unit in units.items():
        if unit and others.get(name) and others[name] != unit:
            raise DataError(
                f"times in different units: column {name!r} is in {unit} in {first}, "
                f"in {others[name]} in {source}; write both in one, or choose other "
                "columns with data.readerParams"
            )


def source_name(file: Path, root: Path) -> str:
    """Return a file's path relative to the root, or in full if it is elsewhere."""
    try:
        return file.relative_to(root).as_posix()
    except ValueError:
        return str(file)
