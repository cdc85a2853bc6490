"""The watchdog: names and ends any phase of a job in which nothing moves.

Owns the judgement and what it goes by. The loop asks in each turn and carries out what
comes of it. Must not act, nor judge single replicas: who is silent or hung is
`master.members.member`'s word, and has shorter bounds. `judge` is pure; `Watchdog`
looks.

What moves: batches, reports, checkpoints, the search for data. What may rightly stand
still is *held*: paused jobs, replicas that wait for room, a journal that waits for a
disk, data being prepared. Everything else has `STILL_STARTS` times worker.startSeconds,
and what a PS that loads needs for its bytes. Then all go back to the newest checkpoint,
once, where there are PS; if the job stands still again before it got further than
where it stood, it fails, and goes on from there when it is launched again.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from elasticdl.job.words import JobState, ReplicaState
from elasticdl.master.job_state import Job
from elasticdl.master.members.member import HANG_STEPS, Member
from elasticdl.master.model.checkpointing import THE_END
from elasticdl.master.model.ps_group import SLOWEST_BYTES_PER_SECOND
from elasticdl.master.tasks.data_plan import SearchStage
from elasticdl.master.tasks.queued import LeasedTask

# Twice what a replica may take to start, trace or restore before it is ended itself.
STILL_STARTS = 2.0
# With 1,000 workers a look costs milliseconds.
_LOOK_SECONDS = 5.0

_PREPARES = (SearchStage.CHECKING, SearchStage.PREPARING, SearchStage.ASKING)


class Verdict(enum.Enum):
    """What to do about a job."""

    WAIT = enum.auto()
    GO_BACK = enum.auto()
    END = enum.auto()


@dataclass(frozen=True)
class Look:
    """The state of a job at one moment, as far as it shows progress."""

    moved: tuple[Any, ...]  # another one means that the job got further
    bound: float  # seconds in which it has to
    held: str = ""  # why it rightly stands still; "" if it does not
    waits_for: str = ""  # what is missing, in words
    can_go_back: bool = False
    reached: tuple[Any, ...] = ()  # how far training and its end are; grows


@dataclass(frozen=True)
class WatchedProgress:
    """The last progress seen, and when."""

    moved: tuple[Any, ...]
    since: float  # it moved last, or was held, or sent back
    # How far it was when all went back. What is done again up to there moves as well,
    # and is no reason to go back once more.
    stood_at: tuple[Any, ...] | None = None


def judge(
    before: WatchedProgress, look: Look, *, now: float
) -> tuple[WatchedProgress, Verdict]:
    """Return what to remember, and what to do about a job in this state."""
    if look.moved != before.moved:
        stood = before.stood_at
        beyond = stood is not None and look.reached > stood
        return WatchedProgress(look.moved, now, None if beyond else stood), Verdict.WAIT
    if look.held:
        return replace(before, since=now), Verdict.WAIT
    if now - before.since < look.bound:
        return before, Verdict.WAIT
    if look.can_go_back and before.stood_at is None:
        return replace(before, since=now, stood_at=look.reached), Verdict.GO_BACK
    return before, Verdict.END


class Watchdog:
    """Detects that nothing moves in one job."""

    def __init__(self, job: Job) -> None:
        """Start watching."""
        self._job = job
        self._watch = WatchedProgress(_moved(job), job.clock())
        self._looked = 0.0

    def put_off(self, seconds: float, *, now: float) -> None:
        """Leave out seconds in which the master did not answer, so nothing moved."""
        since = min(now, self._watch.since + seconds)
        self._watch = replace(self._watch, since=since)

    def ask(self, *, now: float) -> tuple[Verdict, str]:
        """Return what to do, and in words what the job waits for."""
        moved = _moved(self._job)
        if moved == self._watch.moved and now - self._looked < _LOOK_SECONDS:
            return Verdict.WAIT, ""
        self._looked = now
        if moved != self._watch.moved and self._watch.stood_at is None:
            # Many workers report many times a second: what moves needs no closer look.
            self._watch = WatchedProgress(moved, now)
            return Verdict.WAIT, ""
        look = look_at(self._job)
        self._watch, verdict = judge(self._watch, look, now=now)
        return verdict, f"nothing has moved for {look.bound:.0f} s: {look.waits_for}"


def look_at(job: Job) -> Look:
    """Return the state of a job now. Iterates over all replicas."""
    parts = job.parts
    return Look(
        moved=_moved(job),
        bound=_bound(job),
        held=_held(job),
        waits_for=_waits_for(job),
        can_go_back=parts.holder.can_go_back and parts.ledger.queue is not None,
        reached=_reached(job),
    )


def _moved(job: Job) -> tuple[Any, ...]:
    checkpoints = job.parts.checkpoints
    request = checkpoints.request
    # The next try of what a disk refuses writes the same bytes again.
    new = request is not None and (request.why == THE_END or not checkpoints.problem)
    written = request.moved if request is not None and new else 0.0
    stage = job.parts.data.stage
    queue = job.parts.ledger.queue
    return (
        job.state,
        stage,
        job.batches,
        job.reports,
        # Whoever is next at a task has a bound of its own; so many end the job.
        queue.deaths if queue else 0,
        checkpoints.schedule.time,
        written,
    )


def _reached(job: Job) -> tuple[Any, ...]:
    """Return how far the job is; repeated work after a rewind does not count."""
    parts = job.parts
    queue = parts.ledger.queue
    records = queue.done_records if queue else 0
    return (
        records,
        parts.rounds.is_up_to_date,
        parts.checkpoints.up_to_date,
        job.finished,
    )


def _bound(job: Job) -> float:
    spec, parts = job.spec.worker, job.parts
    told = [m.worker for m in parts.table.workers() if m.worker]
    slowest = max((worker.step_seconds for worker in told), default=0.0)
    still = STILL_STARTS * max(spec.start_seconds, HANG_STEPS * slowest)
    still += parts.holder.waits_for_values()
    origin, newest = parts.holder.origin, parts.checkpoints.newest
    own = newest.manifest.total_bytes if newest else 0
    loads = (_loads(member) for member in parts.table.ps() if member)
    total = max(
        (origin.bytes if d == origin.dir else own for d in loads if d), default=0
    )
    return still + total / SLOWEST_BYTES_PER_SECOND


def _loads(member: Member) -> str:
    """Return the checkpoint that a PS is loading; "" if none."""
    if member.restore is None or member.initialized:
        return ""
    return member.restore.dir


def _held(job: Job) -> str:
    parts = job.parts
    if parts.ledger.trouble or job.storage_trouble(now=job.clock()):
        return "storage is away"  # each with a bound of its own
    if job.save_refused:
        return "the last checkpoint is tried again"  # with a bound of its own
    if job.state is JobState.PAUSED:
        return "the job is paused"
    if parts.data.stage in _PREPARES:
        return "data are being looked for or prepared"
    if any(m is None or m.state is not ReplicaState.RUNNING for m in parts.table.ps()):
        return "a PS waits for room"
    return _lacks_workers(job)


def _lacks_workers(job: Job) -> str:
    workers = job.parts.table.workers()
    if not any(m.alive for m in workers):
        return "all workers wait for room"
    if not any(m.alive and m.ready for m in workers):
        return "workers build the model"
    if job.parts.holder.num_waiting is not None:
        return "fewer workers are ready than worker.min"
    return ""


def _waits_for(job: Job) -> str:
    return next(_waits(job), "no worker asks for a task")


def _waits(job: Job) -> Iterator[str]:
    yield from _waits_for_ps(job)
    parts = job.parts
    if parts.checkpoints.request is not None:
        yield f"checkpoint {parts.checkpoints.request.id} is not complete"
    current = parts.rounds.current
    if current is not None:
        what = f"{current.left} tasks are not done"
        if not current.started:
            what = "a PS has not taken its snapshot"
        yield f"evaluation ({current.why}): {what}"
    queue = parts.ledger.queue
    if queue is not None and queue.leased:
        yield _of_lease(job, next(iter(queue.leased.values())))
    if side := parts.side.leased_records:
        yield f"tasks beside training, of {side} records, are not done"


def _waits_for_ps(job: Job) -> Iterator[str]:
    parts = job.parts
    for member in parts.table.ps():
        if member is None or not member.registered:
            yield "a PS that has not registered"
        elif not member.initialized or not (member.ps and member.ps.initialized):
            loads = _loads(member)
            what = f"loads {loads}" if loads else "gets no values"
            if member.ps and member.ps.wants_optimizer:
                what = f"gets no optimizer to load {loads} with"
            yield f"{member.name} {what} (rewind {parts.holder.rewind})"
    if parts.holder.rewinding:
        yield f"not all PS have come to rewind {parts.holder.rewind}"


def _of_lease(job: Job, leased: LeasedTask) -> str:
    """Return in words what the holder of the oldest lease is doing."""
    at = {m.key.index: m.phase for m in job.parts.table.workers()}
    task = leased.task
    return (
        f"worker-{leased.worker} (at: {at.get(leased.worker) or 'nothing'}) holds "
        f"{task.source} records {task.start} to {task.end} and makes no step"
    )
