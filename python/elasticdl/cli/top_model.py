"""What `elasticdl top` shows of one job: a status and a history, made into answers.

Owns the rules behind the figures: who is a straggler, which PS is hot, what the last
change of the membership cost. Called by `cli.top`. Pure: `now` is an argument; must not
know how any of it is drawn.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median_low

from elasticdl.cli import format as text
from elasticdl.job.history import Decision, History, PsSample, Sample
from elasticdl.job.status import (
    EvaluationResult,
    JobStatus,
    Progress,
    ReplicaStatus,
)

# A worker is a straggler whose steps take longer than so many times the median.
STRAGGLER = 1.5
# A PS is hot that is busy for longer than so many times the mean of all PS ...
HOT = 1.5
# ... and for more than this share of the time: of idle PS none is hot.
HOT_BUSY = 0.05
# PS figures are means over so long: samples are seconds apart.
_PS_SECONDS = 15.0

# From here on a loss is drawn by its logarithm.
_STEEP = 10.0

_ENDED = "ended"
_WAITING = ("scheduled", "launched", "pending")
_RESIZED = ("grown", "shrunk")
_CAME, _LEFT = "joined", "left"
_OTHERWISE = (*_RESIZED, "ended", "state", "master")
_PREEMPTED = "preempted"


@dataclass(frozen=True)
class Worker:
    """One worker that is not over."""

    name: str
    state: str
    doing: str  # or why it waits
    step_seconds: float  # 0: not known
    straggler: bool
    loss: float | None
    memory_bytes: int
    seconds: float  # in this state


@dataclass(frozen=True)
class PsLoad:
    """What a PS did in the last while; None is not known."""

    busy: float  # share of the time in calls, of all its threads together
    latency_seconds: float | None  # of one call
    staleness: float | None  # versions between a gradient and what it is applied to


@dataclass(frozen=True)
class Ps:
    """One PS that is not over."""

    name: str
    state: str
    doing: str  # why it waits
    version: int
    memory_bytes: int
    memory_limit_bytes: int  # 0: not limited
    parameter_bytes: int  # 0: not known
    rows: int  # of embedding tables
    load: PsLoad | None
    share: float | None  # of the load of all PS, 0 to 1
    hot: bool


@dataclass(frozen=True)
class Workers:
    """How many there are; `most` 0 is no maximum."""

    wanted: int
    least: int
    most: int
    running: int
    pending: int
    why_pending: str  # the most frequent reason
    straggling: int


@dataclass(frozen=True)
class Cause:
    """Seconds of all workers that went to one cause, in people's words."""

    name: str
    good: bool
    share: float


@dataclass(frozen=True)
class Change:
    """The last change of who is there."""

    ago_seconds: float
    text: str
    cost: str  # until a replacement worked, or until all are there
    open: bool  # that time is not over


@dataclass(frozen=True)
class Preemptions:
    """Replicas whose machine was taken away."""

    count: int
    ago_seconds: float | None  # of the last
    lost_seconds: float  # of workers that could not run for it


@dataclass(frozen=True)
class Checkpoint:
    """The newest complete one."""

    version: int
    age_seconds: float | None
    took_seconds: float | None


@dataclass(frozen=True)
class Top:
    """All that is shown of one running job."""

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
    change: Change | None
    preemptions: Preemptions
    checkpoint: Checkpoint | None
    checkpoint_problem: str  # why the last one was not written
    loss: float | None
    losses: Sequence[float]
    evaluation: EvaluationResult | None
    trend: Sequence[float]  # of the evaluation's first metric
    lost: Sequence[str]  # master restarts, rewinds, lost updates
    worker_rows: Sequence[Worker] = field(default_factory=tuple)
    ps_rows: Sequence[Ps] = field(default_factory=tuple)


def top(status: JobStatus, history: History, *, now: float, place: str = "") -> Top:
    """Return what is shown; the history may be empty or end earlier than the status."""
    live = [r for r in status.replicas if r.state != _ENDED]
    workers = [r for r in live if r.role == "worker"]
    slow = stragglers(workers)
    newest = history.samples[-1] if history.samples else None
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
        change=last_change(status, history.decisions, now=now),
        preemptions=_preemptions(status, newest, now=now),
        checkpoint=_checkpoint(status),
        checkpoint_problem=text.first_line(status.checkpoint_problem),
        loss=status.last_loss,
        losses=_losses(status, history.samples),
        evaluation=status.last_evaluation,
        trend=_trend(status.last_evaluation, history.evaluations),
        lost=_lost(status),
        worker_rows=[_worker(r, slow, now=now) for r in _in_order(workers)],
        ps_rows=_ps(_in_order([r for r in live if r.role == "ps"]), history.samples),
    )


def stragglers(workers: Sequence[ReplicaStatus]) -> frozenset[str]:
    """Return the names of workers whose steps take over 1.5 times the median.

    Of an even number the lower of both medians counts, so that of two workers one can
    be the slow one.
    """
    at_it = {
        r.name: r.step_seconds
        for r in workers
        if r.state == "running" and r.phase == "train" and r.step_seconds > 0
    }
    if len(at_it) < 2:
        return frozenset()
    bound = STRAGGLER * median_low(at_it.values())
    return frozenset(name for name, seconds in at_it.items() if seconds > bound)


def goodput(seconds: Mapping[str, float]) -> list[Cause]:
    """Return the causes, training first, then what took most; shares sum to 1."""
    total = sum(seconds.values())
    spent = [(cause, value) for cause, value in seconds.items() if value > 0]
    spent.sort(key=lambda item: (item[0] != "train", -item[1]))
    return [
        Cause(text.doing(cause), cause == "train", value / total)
        for cause, value in spent
    ]


def last_change(
    status: JobStatus, decisions: Sequence[Decision], *, now: float
) -> Change | None:
    """Return what last changed who is there: a replica lost, or another size."""
    lost = status.relaunches[-1] if status.relaunches else None
    resized = [d for d in decisions if d.kind in _RESIZED]
    if resized and (lost is None or resized[-1].time > lost.time):
        return _resized(resized[-1], decisions, now=now)
    if lost is None:
        return None
    replaced = (
        "not replaced"
        if not lost.replacement
        else "started again"
        if lost.replacement == lost.replica
        else f"{lost.replacement} in its place"
    )
    ago = max(0.0, now - lost.time)
    living = any(
        r.name == lost.replacement and r.state != _ENDED for r in status.replicas
    )
    going = living and lost.seconds is None
    cost = ""
    if going:
        cost = f"cost {text.duration(ago)} so far"
    elif lost.seconds is not None:
        cost = f"cost {text.duration(lost.seconds)}"
    return Change(ago, f"{lost.replica} {lost.reason}, {replaced}", cost, going)


def _resized(change: Decision, decisions: Sequence[Decision], *, now: float) -> Change:
    """Of a new size it is told when the last one had come, or left, for it."""
    came = _LEFT if change.kind == "shrunk" else _CAME
    last = None
    for decision in decisions[decisions.index(change) + 1 :]:
        if decision.kind == came:
            last = decision.time
        elif decision.kind in _OTHERWISE:
            break  # who comes now comes for another reason
    cost = ""
    if last is not None:
        word = "gone" if came == _LEFT else "there"
        cost = f"{word} after {text.duration(max(0.0, last - change.time))}"
    ago = max(0.0, now - change.time)
    return Change(ago, change.cause or change.text, cost, open=False)


def _counts(
    status: JobStatus, workers: Sequence[ReplicaStatus], straggling: int
) -> Workers:
    waiting = [r for r in workers if r.state in _WAITING]
    reasons = Counter(r.reason for r in waiting if r.reason).most_common(1)
    return Workers(
        wanted=status.workers_wanted,
        least=status.workers_min,
        most=status.workers_max,
        running=sum(r.state == "running" for r in workers),
        pending=len(waiting),
        why_pending=reasons[0][0] if reasons else "",
        straggling=straggling,
    )


def _preemptions(
    status: JobStatus, newest: Sample | None, *, now: float
) -> Preemptions:
    times = [one.time for one in status.relaunches if one.reason == _PREEMPTED]
    # In a cluster a status carries the newest relaunches alone.
    known = newest.preemptions if newest else 0
    return Preemptions(
        count=max(known, len(times)),
        ago_seconds=max(0.0, now - times[-1]) if times else None,
        lost_seconds=status.goodput_seconds.get(_PREEMPTED, 0.0),
    )


def _checkpoint(status: JobStatus) -> Checkpoint | None:
    if status.checkpoint_version is None:
        return None
    return Checkpoint(
        version=status.checkpoint_version,
        age_seconds=status.checkpoint_age_seconds,
        took_seconds=status.checkpoint_seconds,
    )


def _losses(status: JobStatus, samples: Sequence[Sample]) -> list[float]:
    """Return the losses, or their logarithms where these tell more.

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
    doing = text.doing(replica.phase) if replica.state == "running" else replica.reason
    return Worker(
        name=replica.name,
        state=replica.state,
        doing=doing,
        step_seconds=replica.step_seconds,
        straggler=replica.name in slow,
        loss=replica.loss,
        memory_bytes=replica.memory_bytes,
        seconds=max(0.0, now - replica.since) if replica.since else 0.0,
    )


def _ps(replicas: Sequence[ReplicaStatus], samples: Sequence[Sample]) -> list[Ps]:
    told = _told(samples)
    loads = {index: _load(ones) for index, ones in told.items()}
    busy = {index: load.busy for index, load in loads.items() if load is not None}
    total, hot = sum(busy.values()), hot_shards(busy)
    rows = []
    for replica in replicas:
        index = str(replica.index)
        # Before a restarted master has heard of it, what was known holds on.
        one = told[index][-1][1] if index in told else PsSample(state="")
        rows.append(
            Ps(
                name=replica.name,
                state=replica.state,
                doing=replica.reason if replica.state != "running" else "",
                version=replica.version,
                memory_bytes=replica.memory_bytes,
                memory_limit_bytes=one.memory_limit_bytes,
                parameter_bytes=one.parameter_bytes,
                rows=one.embedding_rows,
                load=loads.get(index),
                share=busy[index] / total if total and index in busy else None,
                hot=index in hot,
            )
        )
    return rows


def hot_shards(busy: Mapping[str, float]) -> frozenset[str]:
    """Return the PS that are busy for over 1.5 times the mean, if any is busy."""
    if len(busy) < 2:
        return frozenset()
    bound = max(HOT_BUSY, HOT * sum(busy.values()) / len(busy))
    return frozenset(index for index, share in busy.items() if share > bound)


def _told(samples: Sequence[Sample]) -> dict[str, list[tuple[float, PsSample]]]:
    """Return what each PS said of itself, with the time; there is something in each."""
    told: dict[str, list[tuple[float, PsSample]]] = {}
    for sample in samples:
        for index, one in sample.ps.items():
            if one.calls:
                told.setdefault(index, []).append((sample.time, one))
    return told


def _load(told: Sequence[tuple[float, PsSample]]) -> PsLoad | None:
    """Return what a PS did between its last word and one some time before."""
    now, after = told[-1]
    earlier = [entry for entry in told[:-1] if entry[0] <= now - _PS_SECONDS]
    since, before = earlier[-1] if earlier else told[0]
    if now <= since:
        return None
    if after.calls < before.calls:
        before = PsSample(state="")  # another process, which counts from its start
    calls = after.calls - before.calls
    spent = after.call_seconds - before.call_seconds
    pushes = after.pushes - before.pushes
    stale = after.staleness_sum - before.staleness_sum
    return PsLoad(
        busy=spent / (now - since),
        latency_seconds=spent / calls if calls > 0 else None,
        staleness=stale / pushes if pushes > 0 else None,
    )
