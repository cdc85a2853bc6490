"""The job's status while it runs and its report when it ended, out of the job's parts.

Called by `master.calls.servicer` and `master.main`. Reads only.
"""

from __future__ import annotations

from typing import Any

from elasticdl.errors import ExitCode
from elasticdl.job.spec.job import JobType
from elasticdl.job.status import (
    GrantStatus,
    JobReport,
    JobStatus,
    Progress,
    ReplicaStatus,
)
from elasticdl.job.words import JobState, ReplicaState
from elasticdl.master.job_state import Job
from elasticdl.master.members import goodput
from elasticdl.master.members.member import Member
from elasticdl.master.tasks import facts
from elasticdl.master.tasks.eta import Pace
from elasticdl.master.tasks.ledger import Ledger
from elasticdl.master.tasks.queue import TaskQueue

STOPPED = ExitCode.STOPPED
# The launcher asks twice a second; the report names more.
_MOST_RELAUNCHES = 100


def build(job: Job, *, now: float) -> JobStatus:
    """Return the job's status now."""
    parts = job.parts
    table = parts.table
    newest = parts.checkpoints.newest
    return JobStatus(
        name=job.spec.name,
        type=str(job.spec.type),
        strategy=str(job.spec.strategy),
        state=job.state,
        ending=str(job.ending.state) if job.ending else "",
        message=message(job),
        started=job.started,
        time=now,
        master_generation=parts.ledger.generation,
        master_metrics_port=job.metrics_port,
        workers_wanted=table.wanted,
        workers_min=job.spec.worker.min,
        workers_max=job.spec.worker.max,
        grant=_grant(job),
        tasks_left=table.tasks_left,
        progress=progress(job, now=now),
        replicas=[
            _replica(member)
            for member in [
                *(m for m in table.ps() if m is not None),
                *table.workers(),
                *table.past,
            ]
        ],
        relaunches=(shown := list(parts.relaunches.records)[-_MOST_RELAUNCHES:]),
        relaunches_before=parts.relaunches.total - len(shown),
        relaunch_causes=parts.relaunches.causes_by_role(),
        relaunch_counts=parts.relaunches.counts_by_role(),
        group=parts.holder.group,
        last_loss=job.last_loss,
        last_evaluation=parts.rounds.last,
        goodput_seconds=parts.goodput.seconds(now=now),
        checkpoint_version=newest.manifest.version if newest else None,
        checkpoint_age_seconds=(
            round(max(0.0, now - newest.manifest.time), 1) if newest else None
        ),
        checkpoint_seconds=parts.checkpoints.newest_seconds,
        checkpoint_failures=parts.checkpoints.failures,
        checkpoint_problem=parts.checkpoints.problem,
        lost_updates=parts.holder.lost_updates,
        rewinds=parts.ledger.rewinds,
        happened=list(parts.signals.diary.told),
        happened_before=parts.signals.diary.told_before,
    )


def _grant(job: Job) -> GrantStatus | None:
    held = job.parts.granted.grant
    if held is None:
        return None
    return GrantStatus(workers=held.workers, why=held.why, by=held.by, until=held.until)


def master_restarts(job: Job) -> int:
    """Return how many masters replaced a lost one."""
    ledger = job.parts.ledger
    # The first master of each launch took nobody's place.
    return ledger.generation - ledger.count_of(facts.RunFact)


def message(job: Job) -> str:
    """Return the most urgent message for the user."""
    parts = job.parts
    if job.ending:
        waits = not (job.state.ended or parts.ledger.failed)
        trouble = parts.ledger.trouble if waits else ""
        return "; ".join(filter(None, (job.ending.message, trouble)))
    return (
        parts.ledger.trouble
        or job.message
        or job.storage_trouble(now=job.clock())
        or parts.checkpoints.problem
        or _below_minimum(job)
    )


def _below_minimum(job: Job) -> str:
    if job.parts.table.settling:
        return ""
    workers = list(job.parts.table.workers())
    if not workers:
        return ""  # the first ones are not started yet
    running = sum(member.alive for member in workers)
    least, holder = job.spec.worker.min, job.parts.holder
    if job.state is JobState.PAUSED or job.state.ended:
        return ""
    text = "1 worker runs" if running == 1 else f"{running} workers run"
    waits, ready = holder.waits_for_minimum, holder.num_waiting
    if running >= least:
        if ready is None or not (holder.group and holder.group.round):
            return ""  # enough, or they begin
        text = f"{ready} workers can make steps together"
        if ready == 1:
            text = "1 worker can make steps"
    text = f"{text}, fewer than worker.min ({least})"
    return f"{text}: no step is made before there are more" if waits else text


def progress(job: Job, *, now: float) -> Progress:
    """Return the job's progress."""
    ledger = job.parts.ledger
    queue, plan = ledger.queue, ledger.plan
    if queue is None or plan is None:
        if job.spec.type is not JobType.EVALUATE:
            return Progress(version=_version(job))
        done, total = job.parts.rounds.records()
        return Progress(
            epochs=1,
            records_per_epoch=total,
            records_done=done,
            version=_version(job),
            records_per_second=round(job.speed.per_second(done, now=now), 1),
            eta_seconds=_seconds(total - done, job.pace),
        )
    speed = job.speed.per_second(queue.done_records, now=now)
    epoch_left, left = _left(queue)
    return Progress(
        epoch=queue.epoch,
        epochs=plan.epochs,
        records_per_epoch=plan.records_per_epoch,
        records_done=queue.done_records,
        tasks_done=queue.done_tasks,
        tasks_total=queue.total_tasks,
        tasks_leased=len(queue.leased),
        tasks_waiting=len(queue.waiting),
        replayed_records=ledger.replayed_records,
        steps=queue.steps,
        version=_version(job),
        records_per_second=round(speed, 1),
        eta_seconds=_seconds(left, job.pace),
        epoch_eta_seconds=_seconds(epoch_left, job.pace),
    )


def _version(job: Job) -> int:
    """Return the newest version that is known, at least that of the newest checkpoint.

    A master that has just begun was told of no other one yet.
    """
    newest = job.parts.checkpoints.newest
    return max(job.version, newest.manifest.version if newest else 0)


def _left(queue: TaskQueue) -> tuple[int, int | None]:
    """Return the records left in this epoch, and in the job; None: endless."""
    plan, done = queue.plan, queue.done_records
    # Some of the next epoch may be done already.
    epoch = max(0, plan.records_per_epoch * (queue.epoch + 1) - done)
    ends = []
    if plan.epochs:
        ends.append(max(0, plan.records_per_epoch * plan.epochs - done))
    if plan.max_steps:
        ends.append(max(0, plan.max_steps - queue.done_steps) * plan.batch_size)
    return min([epoch, *ends]), min(ends, default=None)


def _seconds(records: int | None, pace: Pace) -> float | None:
    rate = pace.per_second()
    return None if records is None or rate is None else round(records / rate, 1)


def _replica(member: Member) -> ReplicaStatus:
    worker = member.worker
    state, reason = member.state, member.reason
    if member.drain and member.state is not ReplicaState.ENDED:
        state = ReplicaState.DRAINING
        reason = member.reason or member.why_it_goes
    return ReplicaStatus(
        name=member.name,
        role=str(member.key.role),
        index=member.key.index,
        generation=member.generation,
        state=str(state),
        reason=reason,
        since=member.since,
        pid=member.pid,
        phase=member.phase,
        step=worker.step if worker else 0,
        steps_per_second=(
            round(1 / worker.step_seconds, 2) if worker and worker.step_seconds else 0.0
        ),
        step_seconds=round(worker.step_seconds, 6) if worker else 0.0,
        wait_seconds=round(worker.group_figures.wait_seconds, 6) if worker else 0.0,
        step_bytes=worker.group_figures.step_bytes if worker else 0,
        loss=worker.loss if worker and worker.step else None,
        version=member.version(),
        memory_bytes=member.used_bytes,
        metrics_port=member.metrics_port,
    )


def report(job: Job, *, now: float) -> JobReport:
    """Return the final report of an ended job."""
    parts = job.parts
    queue = parts.ledger.queue
    plan = parts.ledger.plan
    seconds = parts.goodput.seconds(now=now)
    last = parts.rounds.last
    newest = parts.checkpoints.newest_there
    records = queue.done_records if queue else (last.records if last else 0)
    run = parts.ledger.all_of(facts.RunFact)[-1]
    spent = run.before + now - run.time
    ending = job.ending
    group = parts.holder.group
    return JobReport(
        name=job.spec.name,
        type=str(job.spec.type),
        strategy=str(job.spec.strategy),
        status=job.state,
        message=ending.message if ending else job.message,
        started=job.started,
        seconds=round(spent, 3),
        epochs=queue.epoch if queue and plan else 0,
        steps=queue.steps if queue else 0,
        version=_version(job),
        records=records,
        records_per_second=round(records / spent, 1) if spent > 0 else 0.0,
        replayed_records=parts.ledger.replayed_records,
        replays=list(parts.ledger.replays),
        bad_records=_bad_records(parts.ledger),
        skipped_batches=sum(
            fact.batches for fact in parts.ledger.all_of(facts.SkippedFact)
        ),
        lost_updates=parts.holder.lost_updates,
        rewinds=parts.ledger.rewinds,
        rounds=group.round if group else 0,
        changes_seconds=group.changes_seconds if group else 0.0,
        repairs=group.repairs if group else 0,
        warnings=job.warnings,
        master_restarts=master_restarts(job),
        goodput_seconds=seconds,
        goodput=round(goodput.share(seconds), 4),
        last_loss=job.last_loss,
        metrics=last.metrics if last else {},
        evaluations=parts.rounds.results,
        relaunches=list(parts.relaunches.records),
        relaunches_before=parts.relaunches.total - len(parts.relaunches.records),
        checkpoint=newest.dir if newest else "",
        best=parts.rounds.kept.best,
        restored=parts.rounds.kept.restored,
        exports=job.exports,
        predictions=_predictions(job),
    )


def _bad_records(ledger: Ledger) -> list[dict[str, Any]]:
    """Return each record once, however many epochs and rewinds it was met in."""
    noted = ledger.all_of(facts.BadRecordFact)
    return list({(one.source, one.record): one.tree() for one in noted}.values())


def _predictions(job: Job) -> str:
    if job.spec.type is not JobType.PREDICT:
        return ""
    return job.spec.prediction_output or str(job.job_dir.predictions_dir)
