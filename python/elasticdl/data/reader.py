"""Readers: ranges of records out of files, in constant time whatever the start.

Owns the Reader protocol and the choice of one by format. Called by the master (to
count records) and by workers (to read tasks). Must not import TensorFlow, and must
not know tasks or leases.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol


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
    """What a reader knows of its records; handed to `feed` as `metadata`."""

    column_names: tuple[str, ...] = ()
    column_dtypes: tuple[str, ...] = ()
    extra: dict[str, Any] = field(default_factory=dict)


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
    newlines kept); a NumPy record is a serialized tf.train.Example.
    """

    values: list[bytes]
    bad: tuple[BadRecord, ...] = ()


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
