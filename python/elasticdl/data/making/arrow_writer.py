"""Writing Examples as a Parquet file, a column for each feature.

Owns that mapping, the reverse of arrow_columns. Called by `shards`. Knows neither where
records come from nor how files are named.

The first rows decide: a feature of one value in each is a plain column, any other one a
column of lists.
"""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from elasticdl.data.formats.arrow_files import import_pyarrow
from elasticdl.data.formats.example import Decoded, decode_example
from elasticdl.errors import DataError

# Small, as a task reads whole row groups.
_ROWS_PER_GROUP = 1024


class ParquetWriter:
    """Writes a Parquet file; use as a context manager."""

    def __init__(self, path: Path) -> None:
        """Begin the file. Raises DataError if pyarrow is not installed."""
        self._pa = import_pyarrow(path)
        self._path = path
        self._file: Any = None
        self._types: dict[str, str] = {}
        self._lists: set[str] = set()
        self._rows: list[dict[str, Decoded]] = []

    def write(self, record: bytes) -> None:
        """Append a record. Raises DataError unless its features are the first one's."""
        try:
            features = decode_example(record)
        except ValueError:
            features = {}
        if not features:
            raise DataError(
                "a record is no tf.train.Example, so it has no columns for Parquet; "
                "convert to recordio or tfrecord, which keep any record as it is"
            )
        types = {name: _type(values) for name, values in features.items()}
        self._types = self._types or types
        if types != self._types:
            raise DataError(
                f"a record has the features {types}, the first one {self._types}; "
                "Parquet needs the same in all: convert to recordio or tfrecord"
            )
        self._rows.append(features)
        if len(self._rows) == _ROWS_PER_GROUP:
            self._flush()

    def _flush(self) -> None:
        if not self._rows:
            return
        if self._file is None:
            self._begin()
        columns = {name: self._column(name) for name in self._types}
        self._file.write_table(self._pa.table(columns, schema=self._file.schema))
        self._rows = []

    def _begin(self) -> None:
        from pyarrow import parquet

        pa = self._pa
        kinds = {"int64": pa.int64(), "float32": pa.float32(), "bytes": pa.binary()}
        fields = {}
        for name, kind in self._types.items():
            fields[name] = kinds[kind]
            if any(len(row[name]) != 1 for row in self._rows):
                self._lists.add(name)
                fields[name] = pa.list_(kinds[kind])
        self._file = parquet.ParquetWriter(self._path, pa.schema(fields))

    def _column(self, name: str) -> list[Any]:
        values = [row[name] for row in self._rows]
        if name in self._lists:
            return values
        if any(len(value) != 1 for value in values):
            raise DataError(
                f"feature {name!r} has one value in the first {_ROWS_PER_GROUP} "
                "records and more or none in a later one; convert to recordio or "
                "tfrecord, which keep each record as it is"
            )
        return [value[0] for value in values]

    def close(self) -> None:
        """Write what is left and close the file."""
        self._flush()
        if self._file is not None:
            self._file.close()

    def __enter__(self) -> ParquetWriter:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            self.close()


def _type(values: Decoded) -> str:
    return str(values.dtype) if isinstance(values, np.ndarray) else "bytes"
