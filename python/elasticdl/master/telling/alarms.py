"""Since when that holds which alerts go by: a state, no steps, unsaved work.

Owns these times. Called by `master.telling.gauges` at each scrape, which is often
enough for an alert, and free where nobody asks. `now` is an argument. Must not know
which alerts there are.
"""

from __future__ import annotations

from dataclasses import dataclass

from elasticdl.job.words import JobState, WorkerPhase
from elasticdl.master.job_state import Job

# A worker in one of these has other work than a training step.
_BESIDES = (WorkerPhase.EVALUATE, WorkerPhase.PREDICT, WorkerPhase.EXPORT)

# What happened in longer ones nobody knows: a Prometheus was away.
_LONGEST_LOOK_SECONDS = 300.0


@dataclass(frozen=True)
class ScrapedJob:
    """What the alarms observe of the job at one scrape."""

    state: JobState
    to_train: bool  # training is what there is to do now
    workers: int  # that run
    last_step: float | None  # Unix seconds
    version: int  # of the model
    saved_version: int | None  # of the newest checkpoint
    trains: bool


def see(job: Job) -> ScrapedJob:
    """Return the observation of a job now."""
    alive = [member for member in job.parts.table.workers() if member.alive]
    besides = any(member.phase in _BESIDES for member in alive)
    newest = job.parts.checkpoints.newest
    return ScrapedJob(
        state=job.state,
        to_train=job.trains and job.state is JobState.RUNNING and not besides,
        workers=len(alive),
        last_step=job.last_step_time,
        version=job.version,
        saved_version=newest.manifest.version if newest else None,
        trains=job.trains,
    )


class Alarms:
    """By alarm condition, the seconds for which it has held; 0 if it does not."""

    def __init__(self) -> None:
        """Begin without observations."""
        self._state: JobState | None = None
        self._state_since = 0.0
        self._last_step: float | None = None
        self._last_look: float | None = None  # while there was training to do
        self._saved: int | None = None
        self._unsaved_since: float | None = None
        self.state_seconds = 0.0
        self.stalled_seconds = 0.0
        self.unsaved_seconds = 0.0

    def update(self, seen: ScrapedJob, *, now: float) -> None:
        """Take an observation."""
        if seen.state is not self._state:
            self._state, self._state_since = seen.state, now
        self.state_seconds = now - self._state_since
        self.stalled_seconds = self._stalled(seen, now=now)
        self.unsaved_seconds = self._unsaved(seen, now=now)

    def _stalled(self, seen: ScrapedJob, *, now: float) -> float:
        before, self._last_look = self._last_look, now if seen.to_train else None
        looked = min(now - before, _LONGEST_LOOK_SECONDS) if before is not None else 0.0
        stepped = seen.last_step != self._last_step
        self._last_step = seen.last_step
        if not seen.to_train or before is None:
            return 0.0  # a pause or an evaluation is over, or goes on
        if stepped and seen.last_step is not None:
            return min(looked, max(0.0, now - seen.last_step))
        # Time without workers neither counts nor ends it: they may crash again and
        # again, or give way for a day.
        return self.stalled_seconds + (looked if seen.workers else 0.0)

    def _unsaved(self, seen: ScrapedJob, *, now: float) -> float:
        if seen.saved_version != self._saved:
            self._saved, self._unsaved_since = seen.saved_version, None
        if not seen.trains or seen.version <= (seen.saved_version or 0):
            self._unsaved_since = None
            return 0.0
        if self._unsaved_since is None:
            self._unsaved_since = now
        return now - self._unsaved_since
