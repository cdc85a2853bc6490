"""When to evaluate, and the sum of what the workers measured.

Owns the schedule (by steps, time, epoch end, once at the end) and one round's merged
metric state. Called by `master.model.evaluation_rounds`. Pure: `now` and versions are
arguments.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from elasticdl.data.reader import Shard
from elasticdl.errors import UserCodeError
from elasticdl.job.spec.job import EvaluationSpec
from elasticdl.master.tasks.queue import TaskQueue
from elasticdl.tensor import codec
from elasticdl.tensor.codec import Array

log = logging.getLogger(__name__)

STEPS = "steps"
TIME = "time"
EPOCH_END = "epoch end"
FINAL = "final"


class EvaluationSchedule:
    """Decides when a round is due; one at a time, the latest reasons count."""

    def __init__(
        self,
        spec: EvaluationSpec,
        *,
        job_started: float,
        now: float,
        version: int = 0,
        epochs_done: int = 0,
    ) -> None:
        """Go on behind the rounds of earlier masters.

        `version`, `epochs_done`: which version they evaluated last, and the epochs
        that were completed then. A round that is opened once more for no reason counts
        for callbacks that wait for a better one.
        """
        self.spec = spec
        self._job_started = job_started
        self._version = version
        self._time = now
        self._epochs = epochs_done

    def take_spec(self, spec: EvaluationSpec) -> None:
        """Use another specification (live edits)."""
        self.spec = spec

    def due(self, *, version: int, epochs_done: int, now: float) -> str | None:
        """Return why a round is due now, or None."""
        spec = self.spec
        if spec.at_epoch_end and epochs_done > self._epochs:
            return EPOCH_END
        if spec.every_steps and version >= self._next_version():
            return STEPS
        if spec.every_seconds and self.next_time() is not None:
            return TIME if now >= (self.next_time() or now) else None
        return None

    def due_behind(self, queue: TaskQueue, *, version: int) -> bool:
        """Whether a round is due once all that is leased has been trained.

        For models that are measured as they are: a task that was leased ahead would be
        in the measure of an epoch, or of steps, that it is no part of. `version`: the
        newest that is known, which may have some of what is leased.
        """
        spec = self.spec
        if spec.at_epoch_end and queue.epoch_behind > self._epochs:
            return True
        steps = len(queue.leased) * queue.plan.batches_per_task
        return bool(spec.every_steps) and version + steps >= self._next_version()

    def next_time(self) -> float | None:
        """Return when a round is due by time; None if never."""
        spec = self.spec
        if not spec.every_seconds:
            return None
        earliest = self._job_started + spec.start_delay_seconds
        return max(earliest, self._time + spec.every_seconds)

    def opened(self, *, version: int, epochs_done: int, now: float) -> None:
        """Note that a round was opened; it serves all reasons that were due."""
        behind = epochs_done - self._epochs
        if self.spec.at_epoch_end and behind > 1:
            log.warning(
                "%d epochs are evaluated together, the last of them is epoch %d: "
                "training is faster than evaluations; callbacks count one",
                behind,
                epochs_done,
            )
        self._version = version
        self._time = now
        self._epochs = max(self._epochs, epochs_done)

    def nobody_trains(self, now: float) -> None:
        """Count the time until the next round from now on."""
        self._time = max(self._time, now)

    def rewound(self, *, version: int, epochs_done: int) -> None:
        """Note that training went back: repeated epochs are evaluated again."""
        self._version = min(self._version, version)
        self._epochs = min(self._epochs, epochs_done)

    def _next_version(self) -> int:
        # A multiple of the present interval: neither a slow round nor one of another
        # interval, before a live edit, shifts the next ones.
        every = self.spec.every_steps
        return self._version // every * every + every


class MetricSums:
    """Sums of metric states over tasks, exact."""

    def __init__(self) -> None:
        self._sums: dict[str, Array] = {}
        self.records = 0

    def add(self, state: bytes, *, records: int) -> None:
        """Add one task's state: a frame of named arrays.

        Raises UserCodeError if it does not fit those before: the metric's variables
        changed their shape between tasks.
        """
        self.records += records
        if not state:
            return
        tensors = codec.decode(state).tensors
        for name, value in tensors.items():
            known = self._sums.get(name)
            if known is None:
                self._sums[name] = value.astype(_wide(value.dtype))
            elif known.shape != value.shape:
                raise UserCodeError(
                    f"metric state {name!r}: got shape {value.shape}, expected "
                    f"{known.shape} as from the tasks before; a metric's variables "
                    "must not change their shape"
                )
            else:
                self._sums[name] = np.add(known, value)

    def state(self) -> bytes:
        """Return the sums as one frame."""
        return codec.join(codec.encode(b"", self._sums))


def _wide(dtype: np.dtype[np.generic]) -> np.dtype[np.generic]:
    """Return the type for sums: float32 loses units of counters above 2^24."""
    if np.issubdtype(dtype, np.floating):
        return np.dtype(np.float64)
    if np.issubdtype(dtype, np.signedinteger):
        return np.dtype(np.int64)
    return dtype


def cut(shards: Sequence[Shard], records_per_task: int) -> Iterator[Shard]:
    """Yield ranges of at most `records_per_task`, in order; lazily."""
    for shard in shards:
        for start in range(shard.start, shard.end, records_per_task):
            yield Shard(shard.source, start, min(start + records_per_task, shard.end))


def in_words(metrics: Mapping[str, float]) -> str:
    """Return metrics in short form: `{'accuracy': 0.978}`."""
    inner = ", ".join(f"{name!r}: {value:.6g}" for name, value in metrics.items())
    return "{" + inner + "}"
