"""Parquet and Arrow IPC (Feather) files: ranges of rows, each a tf.train.Example.

Owns both formats. Called by the reader of many files. pyarrow is imported when the
first such file is opened: it is an extra, and jobs on other formats do without.

The index is the file's own: row groups of Parquet, record batches of Arrow. A range
reads those that it touches, and of these the chosen columns alone; what was decoded
last is kept, as tasks are smaller than row groups.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from elasticdl.data.formats import arrow_columns, index
from elasticdl.data.formats.chunk_cache import ChunkCache
from elasticdl.data.formats.example_rows import Column, Distinct
from elasticdl.data.formats.row_table import RowTable, joined
from elasticdl.data.records import BadRecords, Metadata
from elasticdl.errors import DataError
from elasticdl.job.spec.kinds import DataFormat

PARAMS = ("columns",)
INDEX_KIND = "arrow"
_OBJECT_BYTES = 60  # of a bytes object and its place in a list, beside its bytes


class _Chunks(Protocol):
    """A file as chunks of rows."""

    schema: Any
    starts: NDArray[np.int64]  # first row of each chunk, and the number of rows

    def read(self, chunk: int, columns: Sequence[str]) -> Any:
        """Return a chunk's columns as a table. Raises OSError or ArrowException."""


class ArrowReader:
    """Reads ranges of rows of one Parquet or Arrow file. Thread-safe.

    A row with a null is a bad record, and so are the rows of a row group that cannot
    be decoded.
    """

    def __init__(
        self,
        path: Path,
        cache: ChunkCache,
        params: Mapping[str, Any],
        *,
        format: DataFormat,
    ) -> None:
        """Read the file's own index; `params["columns"]` chooses columns.

        Raises DataError if pyarrow is not installed, the file is cut or none of the
        format, a column is not there, or one cannot be a feature.
        """
        self._path = path
        self._cache = cache
        self._pa = pa = import_pyarrow(path)
        try:
            self._chunks: _Chunks = (
                _RowGroups(path) if format is DataFormat.PARQUET else _Batches(path)
            )
        except (OSError, pa.ArrowException) as error:
            raise DataError(
                f"{path}: got {_one_line(error)}, expected a whole {format} file; "
                "write it again, or set data.format if it is of another format"
            ) from error
        self._columns = _choose(path, self._chunks.schema.names, params.get("columns"))
        self.metadata = self._describe()

    def _describe(self) -> Metadata:
        pa, schema = self._pa, self._chunks.schema
        kinds = {name: schema.field(name).type for name in self._columns}
        types = {name: arrow_columns.feature_type(pa, kinds[name]) for name in kinds}
        odd = next((name for name, found in types.items() if not found), None)
        if odd is not None:
            raise DataError(
                f"{self._path}: column {odd!r} has type {kinds[odd]}, expected "
                "numbers, times, text, bytes or lists of these; choose others with "
                f"readerParams.columns, as {[name for name in types if types[name]]}"
            )
        sizes = np.diff(self._chunks.starts)
        return Metadata(
            column_names=tuple(types),
            column_dtypes=tuple(types.values()),
            extra={
                "shapes": {n: arrow_columns.row_shape(pa, kinds[n]) for n in kinds},
                "units": {n: arrow_columns.time_unit(pa, kinds[n]) for n in kinds},
                "row_groups": len(sizes),
                "largest_row_group": int(sizes.max(initial=0)),
            },
            examples=True,
        )

    @property
    def num_records(self) -> int:
        """Rows in the file."""
        return int(self._chunks.starts[-1])

    def read(self, start: int, end: int, bad: BadRecords) -> Sequence[bytes]:
        """Return the good records of [start, end); report the others to `bad`."""
        starts = self._chunks.starts
        end = min(end, self.num_records)
        values: list[RowTable] = []
        # Behind chunks without rows, which begin where the next one does.
        chunk = int(np.searchsorted(starts, start, side="right")) - 1
        while start < end:
            stop = min(end, int(starts[chunk + 1]))
            if stop > start:
                values += self._read_chunk(chunk, start, stop, bad)
            start = stop
            chunk += 1
        return joined(values) if values else []

    def _read_chunk(
        self, chunk: int, start: int, stop: int, bad: BadRecords
    ) -> list[RowTable]:
        try:
            decoded = self._decoded(chunk)
            first = int(self._chunks.starts[chunk])
            columns, nulls = decoded.slice(start - first, stop - start)
        except (OSError, self._pa.ArrowException) as error:
            for row in range(start, stop):
                bad.add(row, f"row group {chunk} cannot be read: {_one_line(error)}")
            return []
        table = RowTable(columns, stop - start)
        if not nulls:
            return [table]
        for row in sorted(nulls):
            bad.add(start + row, f"column {nulls[row]!r} is null")
        good = [row for row in range(stop - start) if row not in nulls]
        return [table.take(np.asarray(good, np.int64))] if good else []

    def _decoded(self, chunk: int) -> _Decoded:
        decoded: _Decoded | None = self._cache.get(self._path, chunk)
        if decoded is None:
            decoded = _Decoded(
                self._pa, self._chunks.read(chunk, self._columns), self._columns
            )
            self._cache.put(self._path, chunk, decoded, decoded.num_bytes)
        return decoded


class _Decoded:
    """A decoded chunk of rows. A text value that repeats in it is encoded once."""

    def __init__(self, pa: Any, table: Any, names: Sequence[str]) -> None:
        """Take the chunk; convert text columns to dictionaries."""
        self._pa = pa
        self._arrays = {name: _whole(pa, table, name) for name in names}
        self._distinct: dict[str, Distinct] = {}
        self.num_bytes: int = table.nbytes
        for name, array in self._arrays.items():
            if arrow_columns.is_text(pa, array.type):
                found = arrow_columns.as_dictionary(pa, array)
                distinct = arrow_columns.distinct_of(pa, found)
                self._arrays[name], self._distinct[name] = found, distinct
                # As values and as entries, each an object of Python.
                sizes = sum(map(len, distinct.values))
                self.num_bytes += 2 * (sizes + _OBJECT_BYTES * len(distinct.values))

    def slice(
        self, start: int, num_rows: int
    ) -> tuple[dict[str, Column], dict[int, str]]:
        """Return some rows, and by row the first null column."""
        columns: dict[str, Column] = {}
        nulls: dict[int, str] = {}
        for name, array in self._arrays.items():
            rows = array.slice(start, num_rows)
            found = arrow_columns.convert(self._pa, rows, self._distinct.get(name))
            columns[name] = found.values
            for row in found.null_rows.tolist():
                nulls.setdefault(row, name)
        return columns, nulls


def _whole(pa: Any, table: Any, name: str) -> Any:
    """Return a column as one array."""
    column = table.column(name)
    chunks = getattr(column, "chunks", [column])
    if len(chunks) == 1:
        return chunks[0]
    if pa.types.is_dictionary(column.type):
        return column.unify_dictionaries().combine_chunks()
    return pa.concat_arrays(chunks)


def _is_plain_text(kind: Any) -> bool:
    """Return whether the reader can keep the file's dictionary of a column."""
    return str(kind) in ("string", "binary")


class _RowGroups:
    """A Parquet file; only its footer stays open, as there may be thousands."""

    def __init__(self, path: Path) -> None:
        from pyarrow import parquet

        self._parquet = parquet
        self._path = path
        with parquet.ParquetFile(path) as file:
            self._footer = file.metadata
            self.schema = file.schema_arrow
        self._texts = {
            field.name for field in self.schema if _is_plain_text(field.type)
        }
        groups = range(self._footer.num_row_groups)
        sizes = [self._footer.row_group(group).num_rows for group in groups]
        self.starts = np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])

    def read(self, chunk: int, columns: Sequence[str]) -> Any:
        with self._parquet.ParquetFile(
            self._path,
            metadata=self._footer,
            memory_map=True,
            page_checksum_verification=True,
            # As the file has it: each different value once, and numbers for the rows.
            read_dictionary=[name for name in columns if name in self._texts],
        ) as file:
            # In the loader's thread alone: the step needs the other cores, and in a
            # container pyarrow would count those of the whole machine.
            return file.read_row_group(chunk, columns=list(columns), use_threads=False)


class _Batches:
    """An Arrow IPC file, mapped: uncompressed buffers are not copied."""

    def __init__(self, path: Path) -> None:
        import pyarrow as pa

        self._pa = pa
        self._path = path
        with pa.memory_map(str(path)) as file:
            self.schema = pa.ipc.open_file(file).schema
        # Batches tell their rows one by one, and only when they are loaded.
        self.starts = index.load_or_build(path, INDEX_KIND, self._count)

    def _count(self, path: Path) -> index.Offsets:
        with self._pa.memory_map(str(path)) as file:
            reader = self._open(file, self.schema.names[:1])
            batches = range(reader.num_record_batches)
            sizes = [reader.get_batch(batch).num_rows for batch in batches]
        return np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])

    def read(self, chunk: int, columns: Sequence[str]) -> Any:
        with self._pa.memory_map(str(self._path)) as file:
            return self._open(file, columns).get_batch(chunk)

    def _open(self, file: Any, columns: Sequence[str]) -> Any:
        ipc = self._pa.ipc
        fields = [self.schema.get_field_index(name) for name in columns]
        return ipc.open_file(file, options=ipc.IpcReadOptions(included_fields=fields))


def import_pyarrow(path: Path) -> Any:
    """Return pyarrow. Raises DataError naming the extra if it is not there."""
    try:
        import pyarrow as pa
    except ImportError as error:
        raise DataError(
            f"{path}: Parquet and Arrow files need pyarrow, which is not installed; "
            "install elasticdl[arrow], or use recordio or tfrecord (`elasticdl data "
            "convert` writes them where pyarrow is installed)"
        ) from error
    return pa


def _choose(path: Path, there: Sequence[str], chosen: Any) -> tuple[str, ...]:
    """Return the columns to read: the chosen ones in that order, or all."""
    if isinstance(chosen, str):
        chosen = [name.strip() for name in chosen.split(",") if name.strip()]
    if chosen is not None and not (
        isinstance(chosen, list | tuple)
        and chosen
        and all(isinstance(name, str) for name in chosen)
    ):
        raise DataError(
            f"readerParams.columns: got {chosen!r}, expected names, as [age, label]"
        )
    names = tuple(there if chosen is None else chosen)
    twice = next((n for n in names if list(there).count(n) > 1), None)
    if not names or twice is not None:
        raise DataError(
            f"{path}: has the columns {list(there)}, expected at least one, each with "
            "a name of its own; write it again"
        )
    missing = next((name for name in names if name not in there), None)
    if missing is not None:
        raise DataError(
            f"{path}: has no column {missing!r}, but {list(there)}; name columns of "
            "all files in readerParams.columns"
        )
    return names


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split()).rstrip(".")
