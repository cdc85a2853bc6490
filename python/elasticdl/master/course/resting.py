"""When the workers of a paused job go home, so that others get their CPUs.

Owns since when a paused job has had nothing to do, and the journal's note of what
came of it. Called by the loop before members are planned; `now` is an argument. Must
not stop anything: it says how many workers are wanted.
"""

from __future__ import annotations

from collections.abc import Iterable

from elasticdl.job.spec.job import JobSpec
from elasticdl.job.words import JobState, ReplicaState, WorkerPhase
from elasticdl.master.job_state import Job
from elasticdl.master.members.member import Member
from elasticdl.master.tasks import facts
from elasticdl.master.tasks.ledger import Ledger


class Resting:
    """Decides whether a paused job's workers are sent home."""

    def __init__(self, ledger: Ledger) -> None:
        """Continue with an earlier master's decision."""
        told = ledger.newest_of(facts.RestFact)
        self._ledger = ledger
        self._resting = told is not None and told.resting
        self._since: float | None = None  # nothing to do

    def wanted(self, job: Job, *, now: float) -> int:
        """Return how many workers the job wants now; 0 while it rests."""
        self._decide(job, now=now)
        return 0 if self._resting else job.parts.table.wanted

    def next_time(self, spec: JobSpec) -> float | None:
        """Return when the workers go home if nothing happens before."""
        if self._resting or self._since is None:
            return None
        return self._since + spec.worker.pause_seconds

    def _decide(self, job: Job, *, now: float) -> None:
        spec = job.spec
        if not spec.paused:
            self._note(resting=False)
            self._since = None
        elif self._resting or _is_busy(job):
            self._since = None
        elif self._since is None:
            self._since = now
        elif now - self._since >= spec.worker.pause_seconds:
            self._note(resting=True)

    def _note(self, *, resting: bool) -> None:
        if resting != self._resting:
            self._resting = resting
            self._ledger.record(facts.RestFact(resting=resting))


def _is_busy(job: Job) -> bool:
    """Whether a paused job still has something to do."""
    if job.state is not JobState.PAUSED or not job.parts.holder.outlives_workers:
        return True
    queue = job.parts.ledger.queue
    if (queue is not None and queue.leased) or job.parts.rounds.current is not None:
        return True
    return _any_works(job.parts.table.workers())


def _any_works(workers: Iterable[Member]) -> bool:
    """Whether a worker is busy; a pending one is not."""
    return any(
        w.state is ReplicaState.RUNNING and w.phase != WorkerPhase.IDLE for w in workers
    )
