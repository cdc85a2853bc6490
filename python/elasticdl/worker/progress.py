"""What a worker is doing right now, as its heartbeats tell it.

Owns phase, step counter, last loss, the time since something last happened, and how
long that usually takes; the master finds a hung worker by the latter two. Written by
the main thread, read by the heartbeat thread. Must not know tasks or parameters.

How long a batch takes is known of batches of the same kind alone: the first one of a
kind may be traced or compiled. Of everything else (the feed, a read, an export) nobody
knows it, and it has as long as a worker has to start.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Hashable, Mapping, Sequence

from elasticdl.job.heartbeats import SnapshotDone, WorkerReport
from elasticdl.job.words import WorkerPhase

# Weight of the newest step in the mean step time that heartbeats carry.
_NEWEST = 0.1
# Kinds of batches that are remembered; a model that is fed ragged data has no end of
# them, and then each is as good as new.
_MOST_KINDS = 1024
# Batches that are noted before they are counted without being asked for.
_MOST_NOTED = 512
# A training step: (seconds, records, loss, version of the model).
Step = tuple[float, int, float, int]
# Bytes that count as a sign of life of what reads or writes; less are logs and metrics.
_MOVED_BYTES = 1 << 20


class WorkerProgress:
    """Counters of one worker process. Thread-safe."""

    def __init__(
        self,
        clock: Callable[[], float],
        *,
        reached: Callable[[int], None] = lambda _: None,
        counted: Callable[[Sequence[Step]], None] = lambda _: None,
    ) -> None:
        """Begin in phase `start`.

        `clock` gives seconds that only grow. `reached` is told the model's version
        after each step, by the thread that made it; `counted` several steps at once,
        in their order, by whichever thread counts them.
        """
        self._clock = clock
        self._reached = reached
        self._counted = counted
        self._lock = threading.Lock()
        self._counting = threading.Lock()  # what `count` fills
        self._phase = WorkerPhase.START
        self._since = clock()
        self._step = 0
        self._counted_steps = 0  # of these, as all that follows
        self._batches = 0
        self._version = 0
        self._loss = 0.0
        self._step_seconds = 0.0
        self._reading = 0
        self._kind: Hashable | None = None  # of the batch under way
        self._began = 0.0
        # Batches since somebody last asked: kind, seconds, and the training step that
        # it was. The end of a batch is the beginning of the next one, and there with
        # cold caches, where it takes six times as long to count it as in a row with
        # others: what only those who ask want to know waits for them.
        self._noted: deque[tuple[Hashable, float, Step | None]] = deque()
        # By kind: the mean, and of how many; the first one is left out, where it can.
        self._usual: dict[Hashable, tuple[float, int]] = {}
        self._moved_bytes = 0

    @property
    def steps(self) -> int:
        """Steps made by this process."""
        return self._step

    @property
    def phase(self) -> WorkerPhase:
        """What the worker is doing."""
        return self._phase

    def enter(self, phase: WorkerPhase) -> None:
        """Enter a phase; the same one again counts as a sign of life."""
        with self._lock:
            self._phase = phase
            self._kind = None
            self._since = self._clock()

    def waits_to_read(self, lease_id: int) -> None:
        """Note that a task's records are being read; a repeat is no sign of life."""
        if self._phase is not WorkerPhase.READ or self._reading != lease_id:
            self._reading = lease_id
            self.enter(WorkerPhase.READ)

    def touch(self) -> None:
        """Note progress in the present phase."""
        with self._lock:
            self._since = self._clock()

    def moved(self, total_bytes: int) -> None:
        """Note the bytes that the process has read and written so far.

        They are a sign of life of whatever nobody knows the usual length of. A batch
        under way is no such thing: what others of the process read meanwhile says
        nothing of it.
        """
        with self._lock:
            if total_bytes - self._moved_bytes < _MOVED_BYTES:
                return
            self._moved_bytes = total_bytes
            if self._kind is None:
                self._since = self._clock()

    def begins(self, kind: Hashable) -> None:
        """Note the start of a batch of this kind in the present phase."""
        with self._lock:
            self._kind = (self._phase, kind)
            self._began = self._since = self._clock()

    def ended(self) -> None:
        """Note the end of a batch that is not a training step."""
        with self._lock:
            self._since = now = self._clock()
            self._noted.append((self._kind, now - self._began, None))
            self._kind = None

    def given_up(self) -> None:
        """Note that the batch in progress was abandoned."""
        with self._lock:
            self._kind = None
            self._since = self._clock()

    def stepped(
        self,
        *,
        version: int,
        loss: float,
        records: int = 0,
        seconds: float | None = None,
    ) -> int:
        """Note a training step; return how many this process has made.

        It took the seconds since it `begins`, or those given where it is more than that
        batch.
        """
        with self._lock:
            self._since = now = self._clock()
            since = now - self._began
            step = since if seconds is None else seconds, records, loss, version
            self._noted.append((self._kind, since, step))
            self._kind = None
            self._step = made = self._step + 1
        if len(self._noted) >= _MOST_NOTED:
            self.count()
        self._reached(version)
        return made

    def count(self) -> None:
        """Count the batches noted so far, and tell of their steps."""
        with self._counting:
            steps = []
            while self._noted:
                kind, seconds, step = self._noted.popleft()
                self._batches += 1
                if step is not None:
                    steps.append(step)
                    mean = self._step_seconds or step[0]
                    self._step_seconds = mean + _NEWEST * (step[0] - mean)
                if kind is not None:
                    self._count_kind(kind, seconds)
            if steps:
                self._counted_steps += len(steps)
                _, _, self._loss, self._version = steps[-1]
                self._counted(steps)

    def _count_kind(self, kind: Hashable, seconds: float) -> None:
        mean, count = self._usual.get(kind, (0.0, 0))
        # The first is a bound for the second, no more: it may have been traced.
        mean = seconds if count < 2 else mean + _NEWEST * (seconds - mean)
        if kind not in self._usual and len(self._usual) >= _MOST_KINDS:
            self._usual.clear()
        self._usual[kind] = mean, count + 1

    def report(
        self,
        *,
        seconds: Mapping[str, float],
        memory_bytes: int,
        lease_ids: Sequence[int],
        snapshots: Sequence[SnapshotDone],
        ps_rewind: int = 0,
        ps_versions: Sequence[int] = (),
    ) -> WorkerReport:
        """Return the worker's part of a heartbeat."""
        self.count()
        with self._counting, self._lock:
            return WorkerReport(
                phase=str(self._phase),
                step=self._counted_steps,
                batches=self._batches,
                model_version=self._version,
                loss=self._loss,
                step_seconds=self._step_seconds,
                seconds=dict(seconds),
                memory_bytes=memory_bytes,
                phase_seconds=self._clock() - self._since,
                usual_seconds=self._usual.get(self._kind, (0.0, 0))[0],
                lease_ids=tuple(lease_ids),
                snapshots=tuple(snapshots),
                ps_rewind=ps_rewind,
                ps_versions=tuple(ps_versions),
            )
