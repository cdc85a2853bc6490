"""Checkpoints: when one is due, and when all its parts are there.

Owns the request that is under way. Called by `master.model.checkpointing`, which writes
manifests. Pure: `now` is an argument, no file is touched.

A checkpoint belongs to a position in the data: that of the moment of the request. What
is reported done after it is in the parameters only as far as `applied` says, and is
given out again by a rewind otherwise.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from elasticdl.checkpoint.layout import is_shard_file
from elasticdl.job.heartbeats import SnapshotDone
from elasticdl.job.spec.job import CheckpointSpec
from elasticdl.job.tasks import Ticket
from elasticdl.pauses import growing

# A failed checkpoint is tried again soon, but a full disk is not hammered.
_LEAST_RETRY_SECONDS = 5.0
_LONGEST_RETRY_SECONDS = 30.0
# At the job's end nothing else is done meanwhile.
_HURRIED_RETRY_SECONDS = 1.0
# A part of which no byte more is written for so long will not come, however large.
STILL_SECONDS = 120.0
# A PS says nothing of a copy in memory before it is whole: 100 GB at 0.2 GB/s.
COPY_SECONDS = 600.0


class RequestOutcome(enum.Enum):
    """State of the request in progress."""

    WAITING = enum.auto()
    COMPLETE = enum.auto()
    FAILED = enum.auto()


@dataclass(frozen=True)
class WrittenShard:
    """One written shard."""

    file: str
    bytes: int
    crc32: int
    version: int
    applied: Mapping[int, int]


@dataclass
class CheckpointRequest:
    """A checkpoint that was asked for."""

    id: str
    dir: str
    why: str
    position: dict[str, Any]
    rewind: int
    since: float
    num_shards: int
    moved: float = 0.0  # when anything of it was heard last
    ready: bool = False  # its folder is there
    written: dict[int, int] = field(default_factory=dict)  # bytes by shard
    parts: dict[int, WrittenShard] = field(default_factory=dict)
    pinned: set[int] = field(default_factory=set)
    ticket: Ticket | None = None  # of PS 0, sync mode
    error: str = ""

    def take(self, shard: int, done: SnapshotDone) -> bool:
        """Take a replica's answer about its shard; return whether anything was new."""
        before = self._heard
        self.pinned.add(shard)
        self.written[shard] = max(self.written.get(shard, 0), done.written_bytes)
        if shard == 0 and done.ticket is not None:
            self.ticket = done.ticket
        if done.error:
            self.error = self.error or done.error
        elif done.file and not is_shard_file(done.file):
            got = f"got the file {done.file!r}, expected a name"
            self.error = self.error or f"shard {shard}: {got}"
        elif not done.pinned_only and done.file:
            self.parts[shard] = WrittenShard(
                done.file, done.file_bytes, done.crc32, done.version, dict(done.applied)
            )
        return before != self._heard

    def prepared(self, error: str) -> None:
        """Note that the folder exists, or the `error` why it does not."""
        self.ready, self.error = True, error or self.error

    def moves(self, now: float) -> None:
        """Note progress of the request."""
        self.moved = now

    def put_off(self, seconds: float, *, now: float) -> None:
        """Leave seconds in which nobody was heard out of what it stands still."""
        self.moved = min(now, self.moves_since + seconds)

    @property
    def moves_since(self) -> float:
        """When it moved last."""
        return max(self.moved, self.since)

    @property
    def _heard(self) -> tuple[object, ...]:
        return len(self.parts), len(self.pinned), self.ticket, self.error

    @property
    def written_bytes(self) -> int:
        """Bytes on disk of all shards so far."""
        return sum(self.written.values())

    def stuck(self, *, now: float, in_worker: bool, still_seconds: float) -> str:
        """Return why the checkpoint will not be completed; "" while it may.

        Args:
            now: Unix seconds.
            in_worker: A worker writes it, no PS.
            still_seconds: A disk that writes nothing for so long is stuck.

        A worker copies between two of its steps, however long they are; a copy that a
        PS was asked for takes as long as its memory is large.
        """
        copied = len(self.pinned) == self.num_shards
        if self.ready and not copied and in_worker:
            return ""
        bound = COPY_SECONDS if self.ready and not copied else still_seconds
        still = now - self.moves_since
        if still <= bound:
            return ""
        if not self.ready:
            return f"{self.dir}: no folder after {still:.0f} s: the disk is stuck"
        if self.outcome is RequestOutcome.COMPLETE:
            return f"{self.dir}: no manifest after {still:.0f} s: the disk is stuck"
        missing = sorted(set(range(self.num_shards)) - set(self.parts))
        shards = ", ".join(map(str, missing))
        return f"nothing more was written of shard {shards} for {still:.0f} s"

    @property
    def outcome(self) -> RequestOutcome:
        """Return whether all shards are written, or one failed."""
        if self.error:
            return RequestOutcome.FAILED
        if len(self.parts) == self.num_shards:
            return RequestOutcome.COMPLETE
        return RequestOutcome.WAITING

    @property
    def version(self) -> int:
        """The checkpoint's version: that of shard 0."""
        return self.parts[0].version

    def applied(self) -> dict[int, int]:
        """Return by task the number of leading records that every shard contains."""
        return least_applied([part.applied for part in self.parts.values()])


def least_applied(parts: Iterable[Mapping[int, int]]) -> dict[int, int]:
    """Return by task the minimum over all shards; tasks in all shards only."""
    parts = list(parts)
    if not parts:
        return {}
    common = set(parts[0]).intersection(*parts[1:])
    return {task: min(part[task] for part in parts) for task in sorted(common)}


class CheckpointSchedule:
    """Decides when a checkpoint is due."""

    def __init__(
        self, spec: CheckpointSpec, *, version: int | None, time: float
    ) -> None:
        """`version`, `time`: of the newest complete checkpoint, or None."""
        self._spec = spec
        self.version = version
        self.time = time
        self._last_try = time
        self._retry_at = 0.0
        self._failures = 0

    def due(self, *, version: int, now: float) -> str | None:
        """Return why a checkpoint is due, or None. That of version 0 is due at once."""
        # The clock was set back since an earlier master wrote the newest one.
        self._last_try = min(self._last_try, now)
        if now < self._retry_at:
            return None
        if self.version is None:
            return "first"
        if version <= self.version:
            return None
        spec = self._spec
        # A multiple has gone by: one that comes late does not shift the next ones.
        every = spec.every_steps
        if every and version // every > self.version // every:
            return "steps"
        if spec.every_seconds and now >= self._last_try + spec.every_seconds:
            return "time"
        return None

    def next_time(self) -> float | None:
        """Return the next moment at which a checkpoint may be due by time alone."""
        times = [self._retry_at] if self._retry_at else []
        if self._spec.every_seconds and self.version is not None:
            times.append(self._last_try + self._spec.every_seconds)
        return max(times, default=None)

    def requested(self, *, now: float) -> None:
        """Note that a checkpoint was requested."""
        self._last_try = now

    def completed(self, *, version: int, now: float) -> None:
        """Note that a checkpoint is complete."""
        self.version, self.time = version, now
        self._retry_at, self._failures = 0.0, 0

    def failed(self, *, now: float) -> float:
        """Note a failure; return the seconds until the next try."""
        first, most = _LEAST_RETRY_SECONDS, _LONGEST_RETRY_SECONDS
        pause = growing(self._failures, first=first, most=most)
        self._failures += 1
        self._retry_at = now + pause
        return pause

    def may_hurry(self, *, now: float) -> bool:
        """Whether the job's last checkpoint may be tried again now."""
        return now >= self._last_try + _HURRIED_RETRY_SECONDS

    def rewound(self, *, version: int | None) -> None:
        """Note that training went back to that checkpoint; None: to its beginning."""
        self.version = version
