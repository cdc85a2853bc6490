"""Reports in, tasks out: what the Lease call does.

Owns who gets which task next, what follows from each report, and which leases a
heartbeat renews. Called by `master.calls.servicer` and `master.calls.heartbeats`. Must
not know RPC, nor what becomes of the tasks of a lost worker, which is
`master.calls.lost_leases`'s; failing tasks end the job through `Job.end`.

Order of giving out: what has to be done before training (prepare, shards), tasks of an
evaluation round, summaries and exports, then training. A worker that has not built the
model yet gets only the first kind; of those that have, in a group, only the leader.
"""

from __future__ import annotations

import json
import logging
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TypeVar

from elasticdl.data.reader import Shard
from elasticdl.errors import DataError, ExitCode, UserCodeError
from elasticdl.job.tasks import (
    ExportTarget,
    LeaseRequest,
    ReportResult,
    Task,
    TaskOutcome,
    TaskReport,
    TaskType,
)
from elasticdl.job.words import JobState
from elasticdl.master.calls import shares
from elasticdl.master.job_state import Job
from elasticdl.master.members.member import Member
from elasticdl.master.members.relaunch_rules import error_first
from elasticdl.master.model import checkpoint_identity
from elasticdl.master.tasks import facts, model_facts
from elasticdl.master.tasks.ledger import Made
from elasticdl.master.tasks.queued import LeasedTask
from elasticdl.master.tasks.side_tasks import is_side
from elasticdl.metrics.registry import MasterMetrics

log = logging.getLogger(__name__)

V = TypeVar("V")

_BEFORE_MODEL = frozenset({TaskType.PREPARE, TaskType.SHARDS})
# More than the workers whose late reports can still be on their way.
_REMEMBERED = 4096
# A lease that its worker does not name in heartbeats for so long was lost on the way.
UNNAMED_SECONDS = 5.0


class Leasing:
    """Leases tasks to workers and takes their reports."""

    def __init__(self, job: Job, metrics: MasterMetrics) -> None:
        """Lease the tasks of this job."""
        self._job = job
        self._metrics = metrics
        self._parts = job.parts
        # Reports that were answered, so that a repeated one gets the same answer.
        self._answered: OrderedDict[int, bool] = OrderedDict()
        # When each lease was given, by this master; of one before it is not known.
        self._given: OrderedDict[int, float] = OrderedDict()
        # Leases of answers that wait for the journal: nobody can name them yet.
        self._unanswered: set[int] = set()

    # -- out ----------------------------------------------------------------------

    @contextmanager
    def answering(self, tasks: Iterable[Task]) -> Iterator[None]:
        """Wait for no worker to name these leases while their answer is not sent."""
        leases = {task.lease_id for task in tasks}
        self._unanswered |= leases
        try:
            yield
        finally:
            self._unanswered -= leases

    def held_by(
        self, member: Member, request: LeaseRequest, *, now: float
    ) -> list[Task]:
        """Return training tasks that a worker holds, and says that it does not know.

        It took them over from another one.
        """
        queue = self._parts.ledger.queue
        if not request.resumes or queue is None:
            return []
        unknown = [
            lease_id
            for lease_id in queue.leases_of(member.key.index)
            if lease_id not in request.held
        ]
        for lease_id in unknown:
            member.unnamed.pop(lease_id, None)
            _remember(self._given, lease_id, now)
        return [self._message(queue.leased[lease_id]) for lease_id in unknown]

    def give(self, member: Member, want: int, *, now: float) -> list[Task]:
        """Lease up to `want` tasks to a worker."""
        tasks: list[Task] = []
        workers = self._parts.table.num_at_work
        fair = shares.of_training(self._parts.ledger.queue, workers=workers)
        share = shares.of_round(self._parts.rounds.current, workers=workers)
        while len(tasks) < want:
            fairly = len(tasks) < share, not tasks or len(tasks) < fair
            task = self._next(member, fairly, now=now)
            if task is None:
                break
            tasks.append(task)
            _remember(self._given, task.lease_id, now)
        # Asked and answered: from now on it counts by the leases it holds.
        self._parts.holder.admission.asked(member.key.index)
        if tasks:
            self._parts.membership.works(member, now=now)
        return tasks

    def _next(
        self, member: Member, fairly: tuple[bool, bool], *, now: float
    ) -> Task | None:
        """Lease a task; `fairly`: whether one beside training, and one of it, is."""
        beside, may_train = fairly
        job = self._job
        if job.ending or member.drain or job.finished:
            return None
        seconds = job.spec.tasks.lease_seconds
        task = self._parts.side.lease(
            member.key.index,
            types=self._types(member, beside=beside),
            deadline=now + seconds,
        )
        if task is not None and task.type is TaskType.EXPORT:
            return replace(task, life=round(1000 * self._parts.ledger.started))
        if task is not None or not member.ready or not (may_train and job.may_train):
            return task
        ledger, admission = self._parts.ledger, self._parts.holder.admission
        if not ledger.can_lease:
            return None
        if not admission.may_begin(member.key.index):
            return None
        leased = ledger.lease(member.key.index, now=now, lease_seconds=seconds)
        return self._message(leased) if leased else None

    def _types(self, member: Member, *, beside: bool) -> frozenset[int] | None:
        """Return the types of tasks beside training that a worker does; None: all."""
        if not member.ready:
            return _BEFORE_MODEL
        admission, worker = self._parts.holder.admission, member.key.index
        if beside and admission.may_evaluate(worker):
            return None
        return _BEFORE_MODEL if admission.may_look_for_data(worker) else frozenset()

    def _message(self, leased: LeasedTask) -> Task:
        task = leased.task
        kind = TaskType.TRAINING if self._job.trains else TaskType.PREDICTION
        return Task(
            task_id=task.task_id,
            lease_id=leased.lease_id,
            type=kind,
            source=task.source,
            start=task.start,
            end=task.end,
            epoch=task.epoch,
            # The same for whoever trains it, another one in the next epoch.
            seed=self._job.spec.training.seed * 1_000_003 + task.task_id,
            replay=task.replay,
        )

    # -- in -----------------------------------------------------------------------

    def report(self, member: Member, report: TaskReport, *, now: float) -> ReportResult:
        """Take a report; the caller commits the ledger before it answers."""
        accepted = self._answered.get(report.lease_id)
        if accepted is None and self._repeats(report):
            accepted = True  # to a master before this one, which could not answer
        if accepted is None:
            accepted = self._take(member, report, now=now)
            # Of a lease that another one has now, that one's report is still to come.
            if accepted or not self._is_leased(report.lease_id):
                _remember(self._answered, report.lease_id, accepted)
            self._count(report, accepted, now=now)
            self._parts.holder.admission.count([member.key.index])
            self._parts.signals.wake()
        return ReportResult(
            lease_id=report.lease_id,
            accepted=accepted,
            reason="" if accepted else "the lease had moved on to another worker",
        )

    def _count(self, report: TaskReport, accepted: bool, *, now: float) -> None:
        given = self._given.pop(report.lease_id, None)
        reports = self._metrics.task_reports
        if not accepted:
            reports.labels("late").inc()
        elif report.outcome == TaskOutcome.DONE:
            self._job.count_report()
            reports.labels("done").inc()
            if given is not None:
                self._metrics.task_seconds.observe(now - given)
        else:
            failed = report.outcome == TaskOutcome.FAILED
            reports.labels("failed" if failed else "returned").inc()

    def _take(self, member: Member, report: TaskReport, *, now: float) -> bool:
        self._note_trouble(member, report, now=now)
        if is_side(report.lease_id):
            return self._take_side(member, report, now=now)
        ledger = self._parts.ledger
        if report.outcome == TaskOutcome.DONE:
            done = ledger.finish(
                report.lease_id,
                records=report.records,
                steps=report.steps,
                made=_made(report),
                now=now,
            )
            if done is not None:
                self._parts.membership.nobody_hangs()
                if not member.drain:
                    self._parts.holder.admission.finished(member.key.index)
                if self._job.trains:
                    version = report.model_version
                    self._parts.holder.trained(version=version, now=now)
                    self._job.take_loss(report.loss)
            return done is not None
        return self._take_back(member, report, now=now)

    def _take_back(self, member: Member, report: TaskReport, *, now: float) -> bool:
        ledger = self._parts.ledger
        failed = report.outcome == TaskOutcome.FAILED
        if not failed and not self._holds(member, report.lease_id):
            return False  # another one goes on with it
        untouched = not failed and not report.records and not report.steps
        task = ledger.give_back(
            report.lease_id,
            cause="user code raised" if failed else "handed back",
            now=now,
            failed=failed,
            untouched=untouched,
            in_order=untouched and not report.error,
        )
        if task is None:
            return False
        what = f"{task.source} records {task.start} to {task.end}"
        if failed:
            self._failed(member, report, task.failures, what)
        self._parts.signals.work()
        return True

    def _repeats(self, report: TaskReport) -> bool:
        queue = self._parts.ledger.queue
        done = report.outcome == TaskOutcome.DONE
        known = queue.reported(report.lease_id) if queue and done else None
        return known is not None and known == report.records

    def _is_leased(self, lease_id: int) -> bool:
        queue = self._parts.ledger.queue
        return queue is not None and lease_id in queue.leased

    def _holds(self, member: Member, lease_id: int) -> bool:
        queue = self._parts.ledger.queue
        leased = queue.leased.get(lease_id) if queue else None
        return leased is not None and leased.worker == member.key.index

    def _failed(
        self, member: Member, report: TaskReport, failures: int, what: str
    ) -> None:
        lines = error_first(report.error)
        most = self._job.spec.tasks.max_failures
        log.warning("%s failed on %s (%d): %s", member.name, what, failures, lines)
        self._job.count_fatal_loss(report.loss)
        if report.fatal:
            self._job.end(JobState.FAILED, f"{member.name}: {lines}", _code(report))
        elif failures >= most:
            self._job.end(
                JobState.FAILED,
                f"{what} failed {failures} times (tasks.maxFailures {most}), last on "
                f"{member.name}: {lines}",
                _code(report),
            )

    def _take_side(self, member: Member, report: TaskReport, *, now: float) -> bool:
        side = self._parts.side
        if report.outcome == TaskOutcome.DONE:
            task = side.finish(report.lease_id)
            if task is None:
                return False
            self._side_done(task, report, now=now)
            self._parts.holder.admission.side_done()
            return True
        failed = report.outcome == TaskOutcome.FAILED
        failures = side.give_back(report.lease_id, failed=failed)
        if failures is None:
            return False
        if failed:
            self._failed(member, report, failures, "a task beside training")
        self._parts.signals.work()
        return True

    def _side_done(self, task: Task, report: TaskReport, *, now: float) -> None:
        parts = self._parts
        if task.type == TaskType.PREPARE:
            parts.ledger.record(facts.PreparedFact(time=now))
            parts.data.prepared()
        elif task.type == TaskType.SHARDS:
            parts.data.asked(
                task.target, [Shard(s.source, s.start, s.end) for s in report.shards]
            )
        else:
            try:
                parts.rounds.done(task, report, now=now)
            except (DataError, UserCodeError) as error:
                self._job.end(JobState.FAILED, str(error), error.exit_code)
            if task.type == TaskType.EXPORT and (task.move or not task.round):
                self._exported(task, report)

    def _exported(self, task: Task, report: TaskReport) -> None:
        """Note that a model is in its place."""
        paths = json.loads(report.results_json or "{}").get("paths", [])
        what = {ExportTarget.BEST: " the best model"}.get(
            ExportTarget(task.target), " the model that is restored" * task.move
        )
        log.info("exported%s: %s", what, ", ".join(paths))
        ledger = self._parts.ledger
        ledger.record(
            model_facts.ExportFact(
                target=task.target,
                paths=paths,
                point=checkpoint_identity.point(ledger),
                round=task.round,
            )
        )
        self._job.add_exports(paths)

    def _note_trouble(self, member: Member, report: TaskReport, *, now: float) -> None:
        ledger = self._parts.ledger
        if report.error and report.outcome == TaskOutcome.RETURNED:
            self._job.storage_refused(member.name, report.error, now=now)
        for bad in report.bad_records:
            ledger.record(
                facts.BadRecordFact(
                    source=bad.source, record=bad.record, reason=bad.reason
                )
            )
        if report.skipped_batches:
            ledger.record(
                facts.SkippedFact(worker=member.name, batches=report.skipped_batches)
            )

    # -- kept ---------------------------------------------------------------------

    def renew(self, member: Member, named: list[int], *, now: float) -> list[int]:
        """Renew the leases that a heartbeat names; return those it does not hold.

        A lease that the ledger gives to the worker but that it never names was in an
        answer that got lost: it goes back after a while.
        """
        seconds = self._job.spec.tasks.lease_seconds
        index = member.key.index
        parts = self._parts
        side = [i for i in named if is_side(i)]
        lost = parts.ledger.renew(
            index,
            [i for i in named if not is_side(i)],
            now=now,
            lease_seconds=seconds,
        )
        if parts.holder.hands_over and parts.ledger.queue is not None:
            # What another member has now, the group still has: a leader that drops it
            # from its last plans makes all others forget how far it is.
            lost = [i for i in lost if i not in parts.ledger.queue.leased]
        lost += parts.side.renew(index, side, deadline=now + seconds)
        held = [i for i in self._leases_of(member) if i not in self._unanswered]
        member.know_leases(held, named, now=now)
        for lease_id, since in list(member.unnamed.items()):
            # Where tasks are handed over the next lease call brings it.
            again = parts.holder.hands_over and not is_side(lease_id)
            if now - since >= UNNAMED_SECONDS and not again:
                log.info("%s does not know of lease %d: back", member.name, lease_id)
                del member.unnamed[lease_id]
                self._back(lease_id, now=now)
                parts.holder.admission.count([index])
        return [i for i in lost if not self._is_known(i)]

    def _is_known(self, lease_id: int) -> bool:
        """Whether a report of the lease, which its holder may repeat, was taken."""
        queue = self._parts.ledger.queue
        known = queue is not None and queue.reported(lease_id) is not None
        return known or lease_id in self._answered

    def _leases_of(self, member: Member) -> list[int]:
        index, queue = member.key.index, self._parts.ledger.queue
        mine = queue.leases_of(index) if queue else []
        return [*mine, *self._parts.side.leases_of(index)]

    def _back(self, lease_id: int, *, now: float) -> None:
        if is_side(lease_id):
            self._parts.side.give_back(lease_id)
        else:
            self._parts.ledger.give_back(
                lease_id, cause="answer lost", now=now, untouched=True
            )
        self._parts.signals.work()


def _remember(table: OrderedDict[int, V], key: int, value: V) -> None:
    table[key] = value
    while len(table) > _REMEMBERED:
        table.popitem(last=False)


def _made(report: TaskReport) -> Made | None:
    """Return what was made of a task's records; None from an older worker."""
    if report.rows is None:
        return None
    shares = tuple((one.worker, one.records) for one in report.shares)
    return Made(report.rows, len(report.bad_records), report.skipped_rows, shares)


def _code(report: TaskReport) -> ExitCode:
    """Return the exit code that a report implies; older workers report none."""
    known = {ExitCode.USER_CODE, ExitCode.DATA, ExitCode.STORAGE, ExitCode.PLATFORM}
    return next((c for c in known if c == report.exit_code), ExitCode.JOB_FAILED)
