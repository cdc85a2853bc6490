"""Snapshots: consistent cuts of one PS, kept for evaluation or written to disk.

Owns which cuts are held, for how long, and what is reported of them. Called by
ps/server.py under its lock; writing happens on a thread of its own, which comes back
through that lock. Knows nothing of updaters or RPC.

`eval-...` and others are values and state alone; `ckpt-...` also has slots, and is
written once the master names a folder. The id may reach a PS in a ticket (sync mode)
before the master's request: it is pinned at once, so that all PS hold one version.
"""

from __future__ import annotations

import logging
import os
import queue
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from elasticdl.checkpoint.layout import ShardFile
from elasticdl.errors import ElasticDLError
from elasticdl.job.tasks import Ticket
from elasticdl.ps.apply import ParameterShard
from elasticdl.tensor.codec import Array
from elasticdl.tensor.shared_state import SharedState

log = logging.getLogger(__name__)

CHECKPOINT_PREFIX = "ckpt-"
# A pinned snapshot that the master never asks for is dropped after so many replies.
_UNCLAIMED_REPLIES = 200


@dataclass(frozen=True)
class Cut:
    """Everything on one PS at one version. Its arrays are never written again."""

    shard: ParameterShard  # without slots in a snapshot for evaluation
    optimizer_json: str
    version: int
    state: SharedState
    first_step: int  # Parameters.first_step
    last_pushes: Mapping[str, int]  # by source
    untrained: Mapping[str, Array] = field(default_factory=dict)  # PS 0: by variable


@dataclass(frozen=True)
class WantedSnapshot:
    """A snapshot that the master asks for."""

    snapshot: str
    directory: str = ""  # checkpoint: where to write; "": keep in memory
    ticket: Ticket | None = None  # followers: the version to take


@dataclass(frozen=True)
class Done:
    """The outcome of a snapshot."""

    snapshot: str
    version: int
    ticket: Ticket | None = None
    applied: Mapping[int, int] = field(default_factory=dict)
    file: ShardFile | None = None
    error: str = ""
    pinned_only: bool = False
    written: int = 0  # bytes on the disk so far


@dataclass
class _Held:
    cut: Cut | None  # None once written: the memory is given back
    done: Done
    claimed: bool = False  # the master has asked for it
    writing: bool = False
    replies: int = 0


Progress = Callable[[int], None]
Write = Callable[[Cut, Path, Progress], ShardFile]

# Of the calling thread: a step waits for no checkpoint.
_WRITER_NICENESS = 10


class Snapshots:
    """The cuts of one PS. Every method is called with the lock of `changed` held."""

    def __init__(
        self,
        write: Write,
        changed: threading.Condition,
        *,
        tell: Callable[[], None] = lambda: None,
    ) -> None:
        """`write` stores a cut in a folder and reports the bytes on disk.

        It raises OSError or ElasticDLError. `tell` is called, under the lock, when the
        thread that writes has changed what there is to report.
        """
        self._write = write
        self._tell = tell
        self._changed = changed
        self._held: dict[str, _Held] = {}
        self._jobs: queue.SimpleQueue[tuple[str, Cut, Path] | None]
        self._jobs = queue.SimpleQueue()
        self._failures = 0
        threading.Thread(target=self._work, name="snapshots", daemon=True).start()

    def __len__(self) -> int:
        return len(self._held)

    def __contains__(self, snapshot: object) -> bool:
        return snapshot in self._held

    @property
    def failures(self) -> int:
        """Number of shards that could not be written."""
        return self._failures

    def take(
        self,
        snapshot: str,
        cut: Cut,
        *,
        ticket: Ticket | None,
        applied: Mapping[int, int],
    ) -> None:
        """Keep a cut under this id; no effect if it is kept already."""
        if snapshot in self._held:
            return
        writes = snapshot.startswith(CHECKPOINT_PREFIX)
        done = Done(snapshot, cut.version, ticket, applied, pinned_only=writes)
        self._held[snapshot] = _Held(cut, done)

    def refuse(self, snapshot: str, *, version: int, error: str) -> None:
        """Report a snapshot that can no longer be taken."""
        if snapshot not in self._held:
            done = Done(snapshot, version, error=error)
            self._held[snapshot] = _Held(None, done, claimed=True)

    def claim(self, requests: Sequence[WantedSnapshot]) -> None:
        """Take the master's whole list: start writing, drop snapshots not listed."""
        wanted = {request.snapshot: request for request in requests}
        for snapshot, held in list(self._held.items()):
            request = wanted.get(snapshot)
            if request is None:
                held.replies += 1
                if held.claimed or held.replies > _UNCLAIMED_REPLIES:
                    del self._held[snapshot]
                continue
            held.claimed = True
            if request.directory and held.cut is not None and not held.writing:
                held.writing = True
                self._jobs.put((snapshot, held.cut, Path(request.directory)))

    def get(self, snapshot: str) -> Cut | None:
        """Return the cut with an id; None if there is none."""
        held = self._held.get(snapshot)
        return held.cut if held is not None else None

    def clear(self) -> None:
        """Drop all cuts: after a rewind, versions mean something else."""
        self._held.clear()

    def close(self) -> None:
        """End the thread that writes, once it wrote what it was asked for."""
        self._jobs.put(None)

    def give_up(self, error: str) -> None:
        """Drop all cuts and report those of evaluations as failed.

        Taken anew under the same id, one would be of a version that the master was not
        told of. A checkpoint is asked for again as a whole.
        """
        evaluations = [
            held.done
            for held in self._held.values()
            if not held.done.snapshot.startswith(CHECKPOINT_PREFIX)
        ]
        self._held.clear()
        for done in evaluations:
            self.refuse(done.snapshot, version=done.version, error=error)

    @property
    def report(self) -> list[Done]:
        """Return the outcome of every kept snapshot for the master."""
        return [held.done for held in self._held.values()]

    @property
    def pending(self) -> bool:
        """Whether an outcome is still to come."""
        return any(held.done.pinned_only for held in self._held.values())

    def _progress_of(self, snapshot: str, cut: Cut) -> Progress:
        def progress(written: int) -> None:
            with self._changed:
                held = self._held.get(snapshot)
                if held is not None and held.cut is cut:
                    held.done = replace(held.done, written=written)
                    self._tell()

        return progress

    def _work(self) -> None:
        _let_others_first()
        while job := self._jobs.get():
            snapshot, cut, directory = job
            file: ShardFile | None = None
            problem = ""
            try:
                file = self._write(cut, directory, self._progress_of(snapshot, cut))
            except (OSError, ElasticDLError) as error:
                problem = f"{directory}: {error}"
                log.warning("Checkpoint %s was not written: %s", snapshot, problem)
            with self._changed:
                held = self._held.get(snapshot)
                self._failures += bool(problem)
                if held is not None and held.cut is cut:
                    held.cut = None
                    held.done = replace(
                        held.done, file=file, error=problem, pinned_only=False
                    )
                self._tell()
                self._changed.notify_all()
            # Give the memory back before the next one is waited for.
            del job, cut, held


def _let_others_first() -> None:
    """Lower the calling thread's priority, on systems where threads have one."""
    if sys.platform == "linux":
        thread = threading.get_native_id()
        # A process that was started lower yet may not raise it again, nor shall it.
        now = os.getpriority(os.PRIO_PROCESS, thread)
        os.setpriority(os.PRIO_PROCESS, thread, max(now, _WRITER_NICENESS))
