"""A user's own reader, in the classic form, as one of ours.

Owns the adapter. Called by `model`, which finds the user's `custom_data_reader`. Knows
the classic methods by their names alone: `create_shards()`, `read_records(task)`, and
optionally `metadata` and `records_output_types`.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from elasticdl.data.records import BadRecords, Metadata, Records, Shard
from elasticdl.errors import DataError, ElasticDLError, UserCodeError


@dataclass(frozen=True)
class ClassicShard:
    """A range as classic readers know it: `task.shard.name`, `.start`, `.end`."""

    name: str
    start: int
    end: int
    indices: tuple[int, ...] = ()


@dataclass(frozen=True)
class ClassicTask:
    """A task as classic readers know it, in both spellings of its range."""

    shard: ClassicShard

    @property
    def shard_name(self) -> str:
        """The shard's name."""
        return self.shard.name

    @property
    def start(self) -> int:
        """First record."""
        return self.shard.start

    @property
    def end(self) -> int:
        """Record behind the last."""
        return self.shard.end


class CustomReader:
    """Reads through an object with the methods of the classic AbstractDataReader.

    Calls to the object are made one at a time, as the classic system made them, so it
    need not be thread-safe.
    """

    def __init__(self, classic: Any) -> None:
        """Wrap the object. Raises UserCodeError if it lacks a method."""
        for name in ("create_shards", "read_records"):
            if not callable(getattr(classic, name, None)):
                raise UserCodeError(
                    f"the custom data reader {type(classic).__name__} has no method "
                    f"{name}; a reader has create_shards() -> {{name: (start, count)}} "
                    "and read_records(task), which gives the task's records"
                )
        self._classic = classic
        self._lock = threading.Lock()

    @property
    def metadata(self) -> Metadata:
        """The reader's own metadata: an object, a mapping or nothing."""
        found = getattr(self._classic, "metadata", None)
        if isinstance(found, Metadata):
            return found
        if isinstance(found, Mapping):
            return Metadata(extra=dict(found))
        names = getattr(found, "column_names", None) or ()
        dtypes = getattr(found, "column_dtypes", None) or ()
        if isinstance(dtypes, Mapping):
            dtypes = [dtypes[name] for name in names if name in dtypes]
        return Metadata(
            column_names=tuple(str(name) for name in names),
            column_dtypes=tuple(getattr(d, "name", str(d)) for d in dtypes),
        )

    @property
    def records_output_types(self) -> Any:
        """What the reader says its records are; None if it says nothing."""
        return getattr(self._classic, "records_output_types", None)

    def shards(self) -> Sequence[Shard]:
        """Return the reader's shards. Raises DataError if there are none."""
        with self._lock:
            created = self._call("create_shards", self._classic.create_shards)
        shards = _shards(created)
        if not shards:
            raise DataError(
                f"the custom data reader {type(self._classic).__name__} gave no "
                "shards; expected at least one with records"
            )
        return shards

    def read(self, source: str, start: int, end: int, *, skip_bad: bool) -> Records:
        """Return the records of a range (see records.Reader.read).

        What the reader raises is a UserCodeError: which record it stumbled over is not
        known, so none is skipped. Fewer records than asked for are bad ones.
        """
        task = ClassicTask(ClassicShard(source, start, end))
        with self._lock:
            values = self._call(
                "read_records", lambda: list(self._classic.read_records(task))
            )
        bad = BadRecords(source, skip=skip_bad)
        if len(values) > end - start:
            raise UserCodeError(
                f"read_records of {type(self._classic).__name__} gave {len(values)} "
                f"records of {source} for [{start}, {end}); expected {end - start}"
            )
        for record in range(start + len(values), end):
            bad.add(
                record, f"read_records gave only {len(values)} records from {start}"
            )
        return Records(values, bad.found)

    def _call(self, name: str, call: Any) -> Any:
        try:
            return call()
        except ElasticDLError:
            raise
        except Exception as error:  # the border to the user's code
            raise UserCodeError(
                f"{name} of the custom data reader {type(self._classic).__name__} "
                f"raised {type(error).__name__}: {error}"
            ) from error


def _shards(created: Any) -> list[Shard]:
    """Read {name: (start, count)}, or a sequence of (name, start, count)."""
    try:
        if isinstance(created, Mapping):
            triples = [(name, *place) for name, place in created.items()]
        else:
            triples = [tuple(shard) for shard in created]
        return [
            Shard(str(name), int(start), int(start) + int(count))
            for name, start, count in triples
            if int(count) > 0
        ]
    except (TypeError, ValueError) as error:
        raise UserCodeError(
            f"create_shards gave {created!r}; expected {{name: (start, count)}} or a "
            "list of (name, start, count)"
        ) from error
