"""What data is there: files, counts, sizes, columns and the first records in words.

Owns the summary and the form in which a record is shown. Called by `elasticdl data
info`. Must not print.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from elasticdl.data.formats.csv_lines import CsvOptions
from elasticdl.data.formats.example import Decoded, decode_example
from elasticdl.data.reader import open_reader
from elasticdl.data.records import BadRecord, Metadata
from elasticdl.job.spec.job import DataFormat

_VALUES_SHOWN = 8  # A line of a record in `data info`.
_BYTES_SHOWN = 40


@dataclass(frozen=True)
class FileInfo:
    """One file."""

    source: str
    num_records: int
    num_bytes: int


@dataclass(frozen=True)
class DataInfo:
    """All files of a path.

    Attributes:
        first: The first records, each as lines to show.
        bad: Those of the first records that cannot be read.
    """

    format: DataFormat
    files: tuple[FileInfo, ...]
    metadata: Metadata
    first: tuple[tuple[str, ...], ...]
    bad: tuple[BadRecord, ...]

    @property
    def num_records(self) -> int:
        """Records in all files."""
        return sum(file.num_records for file in self.files)

    @property
    def num_bytes(self) -> int:
        """Bytes of all files."""
        return sum(file.num_bytes for file in self.files)


def describe(
    path: str,
    *,
    data_root: Path,
    format: DataFormat = DataFormat.AUTO,
    params: Mapping[str, Any] | None = None,
    num_first: int = 3,
) -> DataInfo:
    """Summarize a file, folder or glob. Raises DataError if it cannot be read."""
    reader = open_reader(path, data_root=data_root, format=format, params=params)
    shards = reader.shards()
    counts = {shard.source: shard.num_records for shard in shards}
    first = reader.read(
        shards[0].source, 0, min(num_first, shards[0].end), skip_bad=True
    )
    return DataInfo(
        format=reader.format,
        files=tuple(
            FileInfo(source, counts.get(source, 0), file.stat().st_size)
            for source, file in reader.files.items()
        ),
        metadata=reader.metadata,
        first=tuple(
            show_record(value, reader.format, reader.metadata, params or {})
            for value in first.values
        ),
        bad=first.bad,
    )


def show_record(
    record: bytes,
    format: DataFormat,
    metadata: Metadata,
    params: Mapping[str, Any],
) -> tuple[str, ...]:
    """Return a record as lines: its columns or features, or its first bytes."""
    if format is DataFormat.CSV:
        cells = CsvOptions.from_params(params).split(record.decode())
        names = metadata.column_names or tuple(f"column {i}" for i in range(len(cells)))
        return tuple(f"{name}: {cell}" for name, cell in zip(names, cells, strict=True))
    try:
        features = decode_example(record)
    except ValueError:
        features = {}
    if not features:
        more = "..." if len(record) > _BYTES_SHOWN else ""
        return (f"{len(record)} bytes: {record[:_BYTES_SHOWN]!r}{more}",)
    return tuple(f"{name}: {_show(values)}" for name, values in features.items())


def _show(values: Decoded) -> str:
    more = " ..." if len(values) > _VALUES_SHOWN else ""
    if isinstance(values, list):
        shown = " ".join(repr(value[:_BYTES_SHOWN]) for value in values[:_VALUES_SHOWN])
        return f"bytes[{len(values)}] {shown}{more}"
    kind = "float" if values.dtype == np.float32 else "int64"
    shown = " ".join(f"{value:g}" for value in values[:_VALUES_SHOWN].tolist())
    if kind == "int64":
        shown = " ".join(str(value) for value in values[:_VALUES_SHOWN].tolist())
    return f"{kind}[{len(values)}] {shown}{more}"
