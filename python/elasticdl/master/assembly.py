"""Puts the parts of a master together for one job.

Called by `master.main` and by tests. Decides nothing but what an earlier master left.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable
from dataclasses import dataclass

from elasticdl.data.reader import Shard
from elasticdl.errors import ExitCode, JournalError
from elasticdl.job.in_force import put_in_force
from elasticdl.job.names import JobDir
from elasticdl.job.spec.job import JobSpec, JobType
from elasticdl.job.words import JobState
from elasticdl.master import live_edits
from elasticdl.master.calls.heartbeats import Heartbeats
from elasticdl.master.calls.leasing import Leasing
from elasticdl.master.calls.lost_leases import LostLeases
from elasticdl.master.calls.ps_heartbeats import PsHeartbeats
from elasticdl.master.calls.servicer import MasterServicer
from elasticdl.master.course.loop import MasterLoop
from elasticdl.master.course.stages import Stages
from elasticdl.master.happenings import JobEdited
from elasticdl.master.job_state import Job, JobEnding, Parts
from elasticdl.master.master import Master
from elasticdl.master.members.changes import Changes
from elasticdl.master.members.goodput import Goodput
from elasticdl.master.members.granted import Granted
from elasticdl.master.members.membership import Membership
from elasticdl.master.members.relaunches import Relaunches
from elasticdl.master.members.table import MemberTable
from elasticdl.master.model.checkpoint_identity import Course, course_of
from elasticdl.master.model.checkpointing import Checkpoints
from elasticdl.master.model.evaluation_rounds import Rounds
from elasticdl.master.model.fixed_model import FixedModel
from elasticdl.master.model.group.holder import GroupHolder
from elasticdl.master.model.holder import Around, ModelHolder
from elasticdl.master.model.holding import Holding
from elasticdl.master.model.origin import Origin
from elasticdl.master.model.ps_group import PsGroup
from elasticdl.master.model.worker_holder import WorkerHolder
from elasticdl.master.patience import patiently
from elasticdl.master.signals import Signals
from elasticdl.master.tasks import facts, model_facts
from elasticdl.master.tasks.data_plan import DataStage, Shards
from elasticdl.master.tasks.ledger import Ledger
from elasticdl.master.tasks.side_tasks import SideTasks
from elasticdl.master.telling.gauges import Gauges
from elasticdl.master.telling.publishing import Publishing
from elasticdl.metrics.registry import MasterMetrics
from elasticdl.runner.publisher import Platform

log = logging.getLogger(__name__)


def edit_meanwhile(ledger: Ledger, spec: JobSpec) -> live_edits.Edit:
    """Return the edit of the file while no master ran: it is treated as a live one."""
    noted = ledger.newest_of(facts.SpecificationFact)
    if noted is None:
        return live_edits.Edit(spec, (), ())
    before = live_edits.by_the_file(JobSpec.model_validate(noted.job), spec)
    edit = live_edits.compare(before, spec)
    for change in edit.refused:
        log.error("refused on a running job: %s; the job goes on as it was", change)
    return edit


def _put_in_force(job_dir: JobDir, spec: JobSpec) -> None:
    try:
        put_in_force(job_dir, spec)
    except OSError as error:
        raise JournalError(
            f"{job_dir.in_force_file}: cannot be written: {error.strerror}; free some "
            "room on that disk, or make the folder writable"
        ) from error


def _seconds_before(ledger: Ledger) -> float:
    """Return how long earlier launches ran, without the pauses between them."""
    run = ledger.newest_of(facts.RunFact)
    if run is None:
        return 0.0
    # A launcher that was killed wrote no end: the last that is known of it counts.
    times = [fact.time for fact in ledger.all_of(facts.RunFact)]
    times += [fact.time for fact in ledger.all_of(facts.JobStateFact)]
    times += [fact.time for fact in ledger.all_of(facts.ReplicaFact)]
    times += [fact.time for fact in ledger.all_of(model_facts.EvaluationFact)]
    times += [fact.time for fact in ledger.all_of(facts.RelaunchFact)]
    return run.before + max(times) - run.time


def _take_back(ledger: Ledger, *, now: float) -> None:
    """Put back the tasks of an earlier launch's workers, which are all gone."""
    leases = list(ledger.queue.leased.values()) if ledger.queue else []
    for worker in sorted({lease.worker for lease in leases}):
        ledger.recover(worker, cause="the launcher was lost", now=now)


def _ending_of(noted: facts.JobStateFact | None, *, fresh: bool) -> JobEnding | None:
    """Return the job's end if an earlier master has recorded it.

    Who launches a job again that failed or was stopped wants it to go on.
    """
    if noted is None or not noted.state.ended:
        return None
    if fresh and noted.state is not JobState.SUCCEEDED:
        return None
    return JobEnding(noted.state, noted.message, ExitCode(noted.exit_code))


@dataclass(frozen=True)
class _Start:
    """The point from which a master continues."""

    course: Course
    begins: bool  # a training job was just launched
    origin: Origin
    known: Shards | None  # what an earlier master of this launch counted


def assemble(
    spec: JobSpec,
    job_dir: JobDir,
    ledger: Ledger,
    platform: Callable[[], Platform],
    *,
    clock: Callable[[], float],
    metrics: MasterMetrics | None = None,
    launched: bool = False,
) -> Master:
    """Return a master that continues from the ledger. Runs in the event loop.

    `launched`: somebody has just begun the job, or begun it anew, with this file; else
    this master takes the place of one that was lost.

    Raises CheckpointError if `checkpoint.initFrom` is needed and cannot be used.
    """
    now = clock()
    before = ledger.newest_of(facts.JobStateFact)
    course = course_of(ledger, spec.name, new_run=uuid.uuid4().hex[:16])
    patience = spec.master.journal_wait_seconds
    origin = Origin(ledger, spec.checkpoint.init_from, wait_seconds=patience)
    fresh = launched or not ledger.all_of(facts.RunFact)
    if launched:
        _take_back(ledger, now=now)
    edit = None if fresh else edit_meanwhile(ledger, spec)
    spec = edit.spec if edit else spec
    ended = _ending_of(before, fresh=fresh)
    if fresh and ended is None:
        ledger.record(facts.RunFact(time=now, before=_seconds_before(ledger)))
        ledger.record(facts.JobStateFact(state=JobState.STARTING, time=now))
    ledger.record(facts.SpecificationFact(job=spec.document()))
    patiently(lambda: _put_in_force(job_dir, spec), seconds=patience)
    begins = fresh and ended is None and spec.type is JobType.TRAIN
    job = _make_job(
        spec,
        job_dir,
        ledger,
        _Start(
            course,
            begins,
            origin,
            # Who launches a job again may have changed its data: counted again.
            known=None if fresh else _known_shards(ledger),
        ),
        clock=clock,
    )
    if ended is not None:
        job.has_ended(ended)
    metrics = metrics or MasterMetrics()
    leasing = Leasing(job, metrics)
    heartbeats = Heartbeats(job, leasing)
    heartbeats.take_model()
    runs_on = platform()
    publishing = Publishing(job, runs_on.publisher, takes_over=not fresh)
    for change in edit.accepted if edit else ():
        path, old, new = change.path, change.old, change.new
        taken = JobEdited(time=now, path=path, old=old, new=new)
        job.parts.signals.diary.say(taken)
    stages = Stages(job)
    holder = job.parts.holder
    holder.tell_rewinds(stages.rewound)
    lost_leases = LostLeases(job, metrics)
    loop = MasterLoop(job, runs_on.runner, lost_leases, stages, publishing)
    ps = PsHeartbeats(job, holder) if isinstance(holder, PsGroup) else None
    servicer = MasterServicer(job, leasing, heartbeats, ps)
    return Master(job, servicer, loop, Gauges(job, metrics), publishing)


def _make_job(
    spec: JobSpec,
    job_dir: JobDir,
    ledger: Ledger,
    start: _Start,
    *,
    clock: Callable[[], float],
) -> Job:
    now = clock()
    holding = Holding.of(spec)
    signals = Signals(ledger.generation, workers_hold=holding.in_worker)
    side = SideTasks(ledger.generation)
    table = MemberTable(spec, ledger, ps_seats=holding.num_ps)
    table.adopt(now=now)
    # Those that ended since they were noted are in the sums already.
    adopted = {member.generation for member in table.workers()}
    live = ledger.newest_of(facts.GoodputLiveFact)
    closed = ledger.newest_of(facts.GoodputFact)
    goodput = Goodput(
        closed.seconds if closed else None,
        {g: s for g, s in live.workers.items() if g in adopted} if live else {},
    )
    relaunches = Relaunches(ledger, signals.diary)
    checkpoints = Checkpoints(
        spec,
        job_dir,
        ledger,
        signals,
        holding=holding,
        course=start.course,
        launched=start.begins,
    )

    rounds = Rounds(
        spec,
        ledger,
        signals,
        side,
        pins=holding.pins,
        begins_at=start.origin.version,
        now=now,
    )
    around = Around(table, ledger, signals, side, checkpoints, rounds, start.origin)
    parts = Parts(
        ledger=ledger,
        signals=signals,
        side=side,
        table=table,
        membership=Membership(table, ledger, relaunches, goodput, signals.diary),
        granted=Granted(table, signals.diary),
        relaunches=relaunches,
        goodput=goodput,
        holder=_holder(spec, holding, around),
        rounds=rounds,
        changes=Changes(),
        checkpoints=checkpoints,
        data=DataStage(
            spec, known=start.known, prepared=bool(ledger.all_of(facts.PreparedFact))
        ),
    )
    return Job(spec, job_dir, parts, started=ledger.started, clock=clock)


def _holder(spec: JobSpec, holding: Holding, around: Around) -> ModelHolder:
    """Return the holder of the model for this kind of job."""
    if spec.type is not JobType.TRAIN:
        return FixedModel(around)
    if holding.in_group:
        return GroupHolder(around)
    return WorkerHolder(around) if holding.in_worker else PsGroup(around)


def _known_shards(ledger: Ledger) -> dict[str, tuple[Shard, ...]] | None:
    noted = ledger.newest_of(facts.ShardsFact)
    if noted is None:
        return None
    return {
        kind: tuple(Shard(*s) for s in of_kind)
        for kind, of_kind in noted.shards.items()
    }
