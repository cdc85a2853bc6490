"""What readers and their callers speak of: shards, ranges of records, bad records.

Owns the types that cross the border of `data`. Used by the master, workers and every
reader of this package. Knows no format, file or task.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from elasticdl.errors import BadRecordError

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Shard:
    """All records [start, end) of one source."""

    source: str
    start: int
    end: int

    @property
    def num_records(self) -> int:
        """Records in the shard."""
        return self.end - self.start


@dataclass(frozen=True)
class Metadata:
    """What a reader knows about its records; passed to `feed` as `metadata`.

    Attributes:
        column_names: Columns of a line, or features of an Example.
        column_dtypes: Their types as NumPy names them, where the file tells.
        extra: What one format alone knows, as `delimiter` of CSV.
        examples: A record is a tf.train.Example with a feature for each column, and
            no line of text.
    """

    column_names: tuple[str, ...] = ()
    column_dtypes: tuple[str, ...] = ()
    extra: dict[str, Any] = field(default_factory=dict)
    examples: bool = False


@dataclass(frozen=True)
class BadRecord:
    """A record that could not be read."""

    source: str
    record: int
    reason: str


@dataclass(frozen=True)
class Records:
    """Records [start, end) of a source: serialized bytes, in order, without bad ones.

    A CSV record is its line's text as UTF-8 bytes without the line end (quoted
    newlines kept); a NumPy, Parquet or Arrow row is a serialized tf.train.Example
    (those of Parquet and Arrow become one when they are asked for: `RowTable`).

    Attributes:
        values: The records.
        bad: Those of the range that are not among them.
        unplanned: How many of them have no number in the file: its index counts fewer
            records than it holds, which is known only when they are read.
    """

    values: Sequence[bytes]
    bad: tuple[BadRecord, ...] = ()
    unplanned: int = 0


class Reader(Protocol):
    """Reads ranges of records."""

    @property
    def metadata(self) -> Metadata:
        """What is known of the records."""

    def shards(self) -> Sequence[Shard]:
        """Return one shard per source, in a stable order. Raises DataError if none."""

    def read(self, source: str, start: int, end: int, *, skip_bad: bool) -> Records:
        """Return the records of a range.

        Raises BadRecordError at the first bad record unless `skip_bad`, then lists
        them in the result. Thread-safe.
        """


class FileReader(Protocol):
    """Reads ranges of one file: what a format has to provide. Thread-safe."""

    @property
    def num_records(self) -> int:
        """Records in the file, bad ones included."""

    @property
    def metadata(self) -> Metadata:
        """What is known of the records."""

    def read(self, start: int, end: int, bad: BadRecords) -> Sequence[bytes]:
        """Return the good records of [start, end); report the others to `bad`."""


class BadRecords:
    """Collects the bad records of one read, or raises at the first one."""

    def __init__(self, source: str, *, skip: bool) -> None:
        """`source` is named in messages; `skip` collects, otherwise `add` raises."""
        self._source = source
        self._skip = skip
        self._found: list[BadRecord] = []
        self.unplanned = 0  # see Records

    @property
    def found(self) -> tuple[BadRecord, ...]:
        """The records that were added, in order."""
        return tuple(self._found)

    def add(self, record: int, reason: str) -> None:
        """Note a bad record. Raises BadRecordError unless bad ones are skipped."""
        if not self._skip:
            raise BadRecordError(self._source, record, reason)
        self._found.append(BadRecord(self._source, record, reason))

    def add_unplanned(self, count: int, where: str) -> None:
        """Note records that the read returns and the file's index does not count."""
        log.warning(
            "%s: %s, %d more than its header counts; they are read too",
            self._source,
            where,
            count,
        )
        self.unplanned += count
