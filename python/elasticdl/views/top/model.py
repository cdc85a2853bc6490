"""What `elasticdl top` shows of one job: a status and a history, made into answers.

Owns the rules behind the figures, as who is a straggler; those of PS are in `top.ps`,
of changes in `top.change`. Called by `cli.top`. Pure: `now` is an argument; must not
know how any of it is drawn.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median_low

from elasticdl.job.decision import Decision
from elasticdl.job.history import History, HistorySample
from elasticdl.job.names import Role
from elasticdl.job.status import (
    EvaluationResult,
    GroupStatus,
    JobStatus,
    Progress,
    ReplicaStatus,
)
from elasticdl.job.words import (
    NOT_YET_RUNNING,
    EndCause,
    GoodputCause,
    HappeningKind,
    ReplicaState,
    WorkerPhase,
)
from elasticdl.views import formatting as text
from elasticdl.views.top.change import LastChange, last_change
from elasticdl.views.top.ps import Ps, ps_rows

# A worker is a straggler whose steps take longer than so many times the median.
STRAGGLER = 1.5
# From here on a loss is drawn by its logarithm.
_STEEP = 10.0

# Told elsewhere.
_MANY = (HappeningKind.CHECKPOINT, HappeningKind.JOINED, HappeningKind.EVALUATED)


@dataclass(frozen=True)
class Worker:
    """One worker that has not ended."""

    name: str
    state: str
    doing: str  # or why it waits
    step_seconds: float  # 0: not known
    wait_seconds: float  # of a member of a group, for others in a step
    step_bytes: int  # sent by a member of a group for a step
    straggler: bool
    loss: float | None
    memory_bytes: int
    seconds: float  # in this state


@dataclass(frozen=True)
class Workers:
    """The numbers of workers; `most` 0 is no maximum."""

    wanted: int
    least: int
    most: int
    running: int
    pending: int
    why_pending: str  # the most frequent reason
    straggling: int
    granted: str = ""  # why a controller gave it this size; "" where none did


@dataclass(frozen=True)
class Cause:
    """Seconds of all workers spent on one cause, in words."""

    name: str
    good: bool
    share: float


@dataclass(frozen=True)
class Preemptions:
    """Replicas whose machine was taken away."""

    count: int
    ago_seconds: float | None  # of the last
    lost_seconds: float  # of workers that could not run for it


@dataclass(frozen=True)
class Checkpoint:
    """The newest complete checkpoint."""

    version: int
    age_seconds: float | None
    took_seconds: float | None


@dataclass(frozen=True)
class Top:
    """Everything shown of one running job."""

    name: str
    type: str
    strategy: str
    state: str
    seconds: float  # since it began
    message: str
    place: str
    progress: Progress
    workers: Workers
    goodput: Sequence[Cause]
    change: LastChange | None
    preemptions: Preemptions
    checkpoint: Checkpoint | None
    checkpoint_problem: str  # why the last one was not written
    loss: float | None
    losses: Sequence[float]
    evaluation: EvaluationResult | None
    trend: Sequence[float]  # of the evaluation's first metric
    lost: Sequence[str]  # rewinds, lost updates
    events: Sequence[Decision]  # the newest first
    worker_rows: Sequence[Worker] = field(default_factory=tuple)
    ps_rows: Sequence[Ps] = field(default_factory=tuple)
    group: GroupStatus | None = None


def top(status: JobStatus, history: History, *, now: float, place: str = "") -> Top:
    """Return the view's model; the history may be empty or older than status."""
    live = [r for r in status.replicas if r.state != ReplicaState.ENDED]
    workers = [r for r in live if r.role == Role.WORKER]
    slow = _slow(status, workers)
    newest = history.samples[-1] if history.samples else None
    decisions = history.with_newest(status)
    return Top(
        name=status.name,
        type=status.type,
        strategy=status.strategy,
        state=str(status.state),
        seconds=now - status.started,
        message=text.first_line(status.message),
        place=place,
        progress=status.progress,
        workers=_counts(status, workers, len(slow)),
        goodput=goodput(status.goodput_seconds),
        change=last_change(decisions, now=now),
        preemptions=_preemptions(status, newest, now=now),
        checkpoint=_checkpoint(status),
        checkpoint_problem=text.first_line(status.checkpoint_problem),
        loss=status.last_loss,
        losses=_losses(status, history.samples),
        evaluation=status.last_evaluation,
        trend=_trend(status.last_evaluation, history.evaluations),
        lost=_lost(status),
        events=[d for d in reversed(decisions) if d.kind not in _MANY],
        worker_rows=[_worker(r, slow, now=now) for r in _in_order(workers)],
        ps_rows=ps_rows(
            _in_order([r for r in live if r.role == Role.PS]), history.samples
        ),
        group=status.group,
    )


def _slow(status: JobStatus, workers: Sequence[ReplicaStatus]) -> frozenset[str]:
    """Return the names of slow workers; of a group all steps take equally long."""
    if status.group is None:
        return stragglers(workers)
    return frozenset([status.group.last] if status.group.last else [])


def stragglers(workers: Sequence[ReplicaStatus]) -> frozenset[str]:
    """Return the names of workers whose steps take over 1.5 times the median.

    Of an even number the lower of both medians counts, so that of two workers one can
    be the slow one.
    """
    at_it = {
        r.name: r.step_seconds
        for r in workers
        if r.state == ReplicaState.RUNNING
        and r.phase == WorkerPhase.TRAIN
        and r.step_seconds > 0
    }
    if len(at_it) < 2:
        return frozenset()
    bound = STRAGGLER * median_low(at_it.values())
    return frozenset(name for name, seconds in at_it.items() if seconds > bound)


def goodput(seconds: Mapping[str, float]) -> list[Cause]:
    """Return the causes, training first, then by size; shares sum to 1."""
    total = sum(seconds.values())
    spent = [(cause, value) for cause, value in seconds.items() if value > 0]
    spent.sort(key=lambda item: (item[0] != GoodputCause.TRAIN, -item[1]))
    return [
        Cause(text.doing(cause), cause == GoodputCause.TRAIN, value / total)
        for cause, value in spent
    ]


def _counts(
    status: JobStatus, workers: Sequence[ReplicaStatus], straggling: int
) -> Workers:
    waiting = [r for r in workers if r.state in NOT_YET_RUNNING]
    reasons = Counter(r.reason for r in waiting if r.reason).most_common(1)
    return Workers(
        wanted=status.workers_wanted,
        least=status.workers_min,
        most=status.workers_max,
        running=sum(r.state == ReplicaState.RUNNING for r in workers),
        pending=len(waiting),
        why_pending=reasons[0][0] if reasons else "",
        straggling=straggling,
        granted=(status.grant.why or "no reason told") if status.grant else "",
    )


def _preemptions(
    status: JobStatus, newest: HistorySample | None, *, now: float
) -> Preemptions:
    times = [one.time for one in status.relaunches if one.reason == EndCause.PREEMPTED]
    # In a cluster a status carries the newest relaunches alone.
    known = newest.preemptions if newest else 0
    return Preemptions(
        count=max(known, len(times)),
        ago_seconds=max(0.0, now - times[-1]) if times else None,
        lost_seconds=status.goodput_seconds.get(EndCause.PREEMPTED, 0.0),
    )


def _checkpoint(status: JobStatus) -> Checkpoint | None:
    if status.checkpoint_version is None:
        return None
    return Checkpoint(
        version=status.checkpoint_version,
        age_seconds=status.checkpoint_age_seconds,
        took_seconds=status.checkpoint_seconds,
    )


def _losses(status: JobStatus, samples: Sequence[HistorySample]) -> list[float]:
    """Return the losses, or their logarithms if those show more.

    A loss that falls to a hundredth would be a line along the bottom.
    """
    all_of_them = [*(sample.loss for sample in samples), status.last_loss]
    values = [v for v in all_of_them if v is not None and math.isfinite(v)]
    if values and min(values) > 0 and max(values) > _STEEP * min(values):
        return [math.log(value) for value in values]
    return values


def _trend(
    last: EvaluationResult | None, evaluations: Sequence[EvaluationResult]
) -> list[float]:
    if last is None or not last.metrics:
        return []
    first = min(last.metrics, key=lambda name: name == "loss")
    rounds = [*(e for e in evaluations if e.time < last.time), last]
    values = [one.metrics.get(first, math.nan) for one in rounds]
    return [value for value in values if math.isfinite(value)]


def _lost(status: JobStatus) -> list[str]:
    return [
        text.plural(number, what)
        for number, what in (
            (status.rewinds, "rewind"),
            (status.lost_updates, "lost update"),
        )
        if number
    ]


def _in_order(replicas: Sequence[ReplicaStatus]) -> list[ReplicaStatus]:
    return sorted(replicas, key=lambda r: r.index)


def _worker(replica: ReplicaStatus, slow: frozenset[str], *, now: float) -> Worker:
    doing = (
        text.doing(replica.phase)
        if replica.state == ReplicaState.RUNNING
        else replica.reason
    )
    return Worker(
        name=replica.name,
        state=replica.state,
        doing=doing,
        step_seconds=replica.step_seconds,
        wait_seconds=replica.wait_seconds,
        step_bytes=replica.step_bytes,
        straggler=replica.name in slow,
        loss=replica.loss,
        memory_bytes=replica.memory_bytes,
        seconds=max(0.0, now - replica.since) if replica.since else 0.0,
    )
