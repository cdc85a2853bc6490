"""Samples of a job for its history: what is taken of it, and how often.

Owns both. Called by `master.telling.history`. Pure: reads the job, and `now` is an
argument.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from elasticdl.job.heartbeats import PsReport
from elasticdl.job.history import HistorySample, PsSample, WorkerSample
from elasticdl.job.names import Role
from elasticdl.job.status import JobStatus, ReplicaStatus
from elasticdl.job.words import NOT_YET_RUNNING, EndCause, ReplicaState

# Workers report once a second: faster samples would repeat figures.
LEAST_SECONDS = 2.0
# A sample each 500th of the job's age: 4,000 in its first month, and the same again
# only when it is eight times as old.
_AGE_SHARE = 500.0
# Of more workers only each second, third ... sample has what each of them does.
_MOST_WORKERS = 50


def period_seconds(age_seconds: float) -> float:
    """Return the seconds to the next sample of a job of that age."""
    return max(LEAST_SECONDS, age_seconds / _AGE_SHARE)


@dataclass(frozen=True)
class Bounds:
    """The bounds on the number of workers."""

    least: int
    most: int


def sample(
    status: JobStatus, bounds: Bounds, ps: dict[str, PsSample], *, number: int
) -> HistorySample:
    """Return the `number`th sample of a job."""
    progress = status.progress
    workers = [
        r
        for r in status.replicas
        if r.role == Role.WORKER and r.state != ReplicaState.ENDED
    ]
    running = sum(r.state == ReplicaState.RUNNING for r in workers)
    pending = sum(r.state in NOT_YET_RUNNING for r in workers)
    every = -(-len(workers) // _MOST_WORKERS)
    loss = status.last_loss
    return HistorySample(
        time=round(status.time, 3),
        state=str(status.state),
        workers_wanted=status.workers_wanted,
        workers_min=bounds.least,
        workers_max=bounds.most,
        workers_running=running,
        workers_pending=pending,
        epoch=progress.epoch,
        records_done=progress.records_done,
        records_per_second=progress.records_per_second,
        tasks_done=progress.tasks_done,
        tasks_total=progress.tasks_total,
        tasks_leased=progress.tasks_leased,
        tasks_waiting=progress.tasks_waiting,
        replayed_records=progress.replayed_records,
        steps=progress.steps,
        version=progress.version,
        loss=loss if loss is not None and math.isfinite(loss) else None,
        eta_seconds=progress.eta_seconds,
        checkpoint_version=status.checkpoint_version,
        checkpoint_age_seconds=status.checkpoint_age_seconds,
        checkpoint_seconds=status.checkpoint_seconds,
        preemptions=sum(
            by_cause.get(EndCause.PREEMPTED, 0)
            for by_cause in status.relaunch_causes.values()
        ),
        goodput_seconds=status.goodput_seconds,
        workers=(
            {str(r.index): _worker(r) for r in workers}
            if every <= 1 or number % every == 0
            else {}
        ),
        ps=ps,
    )


def _worker(replica: ReplicaStatus) -> WorkerSample:
    speed = replica.steps_per_second
    return WorkerSample(
        state=replica.state,
        phase=replica.phase,
        step_seconds=round(1 / speed, 5) if speed else 0.0,
        memory_bytes=replica.memory_bytes,
    )


def ps_sample(state: str, told: PsReport | None) -> PsSample:
    """Return a PS's last reported figures."""
    if told is None:
        return PsSample(state=state)
    return PsSample(
        state=state,
        version=told.version,
        memory_bytes=told.memory_bytes,
        memory_limit_bytes=told.memory_limit_bytes,
        parameter_bytes=told.bytes,
        embedding_rows=told.embedding_rows,
        received_bytes=told.received_bytes,
        sent_bytes=told.sent_bytes,
        calls=told.calls,
        call_seconds=round(told.call_seconds, 6),
        pushes=told.pushes,
        staleness_sum=told.staleness_sum,
    )
