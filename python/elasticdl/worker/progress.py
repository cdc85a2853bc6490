"""What a worker is doing right now, as its heartbeats tell it.

Owns phase, step counter, last loss and the time since something last happened; the
master finds a hung worker by the latter. Written by the main thread, read by the
heartbeat thread. Must not know tasks or parameters.
"""

from __future__ import annotations

import enum
import threading
from collections.abc import Callable, Mapping, Sequence

from elasticdl.proto import master_pb2


class Phase(enum.StrEnum):
    """What the worker is at; `WAIT` is waiting for others and never a hang."""

    START = "start"
    PREPARE = "prepare"
    TRAIN = "train"
    EVALUATE = "evaluate"
    PREDICT = "predict"
    EXPORT = "export"
    WAIT = "wait"
    IDLE = "idle"


# Weight of the newest step in the mean step time that heartbeats carry.
_NEWEST = 0.1


class Progress:
    """Counters of one worker process. Thread-safe."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """Begin in phase `start`; `clock` gives seconds that only grow."""
        self._clock = clock
        self._lock = threading.Lock()
        self._phase = Phase.START
        self._since = clock()
        self._step = 0
        self._batches = 0
        self._version = 0
        self._loss = 0.0
        self._step_seconds = 0.0

    @property
    def steps(self) -> int:
        """Steps made by this process."""
        return self._step

    @property
    def phase(self) -> Phase:
        """What the worker is at."""
        return self._phase

    def enter(self, phase: Phase) -> None:
        """Change the phase; the same one again counts as a sign of life."""
        with self._lock:
            self._phase = phase
            self._since = self._clock()

    def touch(self) -> None:
        """Say that something happened in the present phase."""
        with self._lock:
            self._since = self._clock()

    def went_through_batch(self) -> None:
        """Count a batch that is no step: it was evaluated, or predicted."""
        with self._lock:
            self._since = self._clock()
            self._batches += 1

    def stepped(self, *, version: int, loss: float, seconds: float) -> int:
        """Count a training step of so many seconds; return the number of steps."""
        with self._lock:
            self._since = self._clock()
            self._step += 1
            self._batches += 1
            self._version = version
            self._loss = loss
            old = self._step_seconds or seconds
            self._step_seconds = old + _NEWEST * (seconds - old)
            return self._step

    def message(
        self,
        *,
        seconds: Mapping[str, float],
        memory_bytes: int,
        lease_ids: Sequence[int],
        snapshots: Sequence[master_pb2.SnapshotDone],
    ) -> master_pb2.Worker:
        """Return the worker's part of a heartbeat."""
        with self._lock:
            return master_pb2.Worker(
                phase=str(self._phase),
                step=self._step,
                batches=self._batches,
                model_version=self._version,
                loss=self._loss,
                step_seconds=self._step_seconds,
                seconds=dict(seconds),
                memory_bytes=memory_bytes,
                phase_seconds=self._clock() - self._since,
                lease_ids=lease_ids,
                snapshots=snapshots,
            )
