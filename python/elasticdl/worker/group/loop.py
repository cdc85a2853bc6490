"""The loop of a worker that makes steps with others (strategy allReduce).

Owns what the group's orders mean for the model and for the tasks: shares of steps are
computed, means applied, states taken, tasks reported when all members have their
records. Made by worker.assemble, called by main, in the main thread. Must not know how
members reach each other.

The member that leads also leases the tasks, plans the steps and does what is beside
training (evaluations, exports, checkpoints), between two steps: all members have the
same values then, and wait.
"""

from __future__ import annotations

import logging
from collections import deque
from functools import partial

from elasticdl.collective.buffers import Floats
from elasticdl.collective.collective import Collective
from elasticdl.collective.messages import (
    Acknowledge,
    Apply,
    Begin,
    Broken,
    Compute,
    Follow,
    Stateless,
    Take,
)
from elasticdl.errors import CheckpointError, FencedError, UnfitError
from elasticdl.job.tasks import (
    RecordShare,
    SkippedRecord,
    Task,
    TaskOutcome,
    TaskReport,
    TaskType,
)
from elasticdl.job.words import GoodputCause, WorkerPhase
from elasticdl.worker.group.beside import Beside
from elasticdl.worker.group.leaving import Leaving
from elasticdl.worker.group.link import GroupLink
from elasticdl.worker.group.plan import GroupTask, StepPlan, Totals, Work
from elasticdl.worker.group.position import GroupParts, Position
from elasticdl.worker.group.stepping import Stepping

log = logging.getLogger(__name__)

# How long the loop waits for an order, or for a task, before it looks around again.
LOOK_SECONDS = 0.2
# How long members without a task wait for one before they exchange again: whoever is
# away is found by that.
_IDLE_SECONDS = 1.0
# The same while something is to be reported, which takes one more exchange: the master
# may have tasks for after it, or an evaluation.
_OWING_SECONDS = 0.02
# Steps whose records the leader knows: the one under way, and the one that is read.
_KNOWN_STEPS = 2
# Tasks beside training that belong together come one after the other: so long apart.
_BESIDE_SECONDS = 1.0
_LEAVING_SECONDS = 0.02  # the same of a worker that leaves, for the master's answer
_MOST_REPORTED = 256  # more than are reported while a lease call is under way


class GroupLoop:
    """Carries out the group's orders until the job is over or the worker leaves."""

    def __init__(
        self,
        parts: GroupParts,
        group: Collective[Floats],
        link: GroupLink,
        position: Position,
    ) -> None:
        """Take the finished parts."""
        self._parts = parts
        self._group = group
        self._link = link
        self._position = position
        position.link = link
        parts.stream.take_over(position.goes_on)
        self._stepping = Stepping(parts, position, link)
        self._led = False
        self._made_in = 0  # the round of the last step, also of one without records
        self._beside = Beside(parts.handlers, parts.stream, parts.describe, parts.shows)
        self._given = False  # the model has had values of another member's steps
        # The newest leases that were reported. A lease call that was under way brings
        # them once more.
        self._reported: deque[int] = deque(maxlen=_MOST_REPORTED)

    def run(self) -> None:
        """Run the loop.

        Raises UserCodeError once the failed task is reported, and FencedError where
        another process has to take the place of this one.
        """
        parts = self._parts
        try:
            while not parts.leaving.is_set() and not self._is_over:
                order = self._next()
                if order is not None:
                    self._carry_out(order)
            self._hand_over()
        finally:
            self._group.close()
            parts.shares.close()
        parts.stream.drain()

    def _hand_over(self) -> None:
        """Stay while nobody else has the state, and no checkpoint; make no step."""
        parts, group = self._parts, self._group
        if parts.stream.ended or group.version is None:
            return
        leaving = Leaving(
            group,
            self._link,
            version=lambda: self._position.version,
            most_seconds=parts.hand_over_seconds,
        )
        parts.orders.hurry()
        clock = parts.shows.clock
        began = clock()
        while leaving.stays(clock() - began) and not parts.stream.ended:
            order = group.next(_LEAVING_SECONDS)
            if order is not None and not isinstance(order, Compute):
                self._carry_out(order)
            if self._link.leads and parts.copies():
                self._write_checkpoint()

    @property
    def held(self) -> list[int]:
        """The leases that heartbeats name.

        Those of the group from the moment on in which the master lets this worker lead,
        however long the step under way takes: a lease that nobody names goes back.
        """
        mine = self._parts.stream.held
        if not self._link.will_lead:
            return mine
        return sorted({*mine, *self._unreported()})

    def _num_unfinished(self) -> int:
        with self._position.lock:
            return len(self._position.work.unfinished())

    def _unreported(self) -> list[int]:
        with self._position.lock:
            totals = dict(self._position.work.totals)
        return [lease_id for lease_id, of in totals.items() if not of.reported]

    @property
    def _is_over(self) -> bool:
        return self._parts.stream.ended and not self._num_unfinished()

    def _next(self) -> object:
        order = self._group.next(0.0)
        if order is None:
            self._wait_for_others()
            clock = self._parts.shows.clock
            began = clock()
            order = self._group.next(LOOK_SECONDS)
            self._link.measures.waited(clock() - began)
        return order

    def _wait_for_others(self) -> None:
        shows = self._parts.shows
        if self._link.changes(self._made_in):
            shows.progress.enter(WorkerPhase.WAIT)
            shows.goodput.switch(GoodputCause.REGROUP)
        elif self._position.work.tasks:
            shows.progress.enter(WorkerPhase.WAIT)
            shows.goodput.switch(GoodputCause.WAIT_PEERS)
        else:
            shows.progress.enter(WorkerPhase.IDLE)
            shows.goodput.switch(GoodputCause.IDLE)

    def _carry_out(self, order: object) -> None:
        match order:
            case Compute(step, plan, number):
                self._compute(step, plan, number)
            case Apply() | Follow():
                self._apply(order)
                self._group.applied()
            case Take(_, raw):
                self._take(raw)
                self._group.applied()
            case Begin(number):
                self._begin(number)
            case Acknowledge():
                self._report()
            case Broken(number, member):
                self._link.broke(number, member)
            case Stateless(number):
                self._link.stateless(number)

    def _compute(self, step: int, raw: bytes, number: int) -> None:
        """Compute the own share of a step, or make it in one go where nobody helps."""
        place = self._link.place(number)
        if place is None or number != self._group.round:
            return
        plan = StepPlan.decoded(raw)
        with self._position.lock:
            self._position.work.follow(plan, leads=self._link.leads)
        if plan.compares:
            self._position.digests.take(step)
        if not plan.lease_id:
            if self._link.leads:
                self._idle()
            self._group.computed(step, number, self._parts.step.nothing())
            return
        share = self._stepping.share(plan, *place)
        if share is None:
            return  # the worker leaves
        if share.fits_one and self._group.alone(step, number):
            self._stepping.alone(share, self._link.numbers(number))
            self._made(plan)
            self._between_steps()
            self._group.made_alone(step, raw)
        else:
            ready = partial(self._group.has_bucket, step, number)
            self._stepping.compute(share, ready)

    def _idle(self) -> None:
        """Wait for what a step needs: a task, or more members.

        There may be tasks enough while no step is made: members that are too few, or
        whose last checkpoint is written, do not exchange words all the time.
        """
        self._wait_for_others()
        owes, holds = bool(self._finished()), self._parts.holds()
        if owes:
            self._refill(_OWING_SECONDS)
        elif not holds:
            self._rest(_IDLE_SECONDS)
        if self._link.waits or holds:
            self._wait_for_others()
            self._parts.leaving.wait(_OWING_SECONDS if owes else LOOK_SECONDS)

    def _rest(self, seconds: float) -> None:
        """Wait so long for a task; not while a copy is due, made between two steps."""
        parts = self._parts
        until = parts.shows.clock() + seconds
        while not (parts.copies() or parts.stream.ended or parts.leaving.is_set()):
            left = until - parts.shows.clock()
            if left <= 0 or self._refill(min(left, LOOK_SECONDS)):
                return

    def _apply(self, order: Apply | Follow) -> None:
        plan, (summed,) = StepPlan.decoded(order.plan), order.parts
        if isinstance(order, Follow):
            self._stepping.follow(plan, summed, order.members)
            return
        self._stepping.apply(plan, summed, order.members)
        self._made(plan)
        self._between_steps()

    def _made(self, plan: StepPlan) -> None:
        self._made_in = self._group.round
        if plan.lease_id:
            self._link.measures.made(self._group.round)
        else:
            self._link.measures.idled()

    # -- states -------------------------------------------------------------------

    def _begin(self, number: int) -> None:
        if self._restored(number):
            self._between_steps()
            self._group.began()
        else:
            self._group.not_begun()

    def _restored(self, number: int) -> bool:
        """Make the state with which all begin; return whether there is one now.

        Where that is not possible a newer round is waited for, in which all begin with
        another checkpoint.
        """
        told = self._link.round(number)
        if told is None:
            return False  # it is long over
        directory = told.restore_dir
        if (self._given or self._stepping.trained) and not directory:
            # No fault of its own: what it began with is kept nowhere, and a new
            # process makes it again.
            raise FencedError(
                "it has values of steps made already, and the job, which has no "
                "checkpoint yet, begins again with its initial ones: another process "
                "takes its place"
            )
        try:
            with self._parts.shows.goodput.cause(GoodputCause.RESTORE):
                version = self._parts.restore(directory)
        except UnfitError:
            raise
        except CheckpointError as error:
            log.error("%s", error)
            while self._link.is_newest(number) and not self._parts.leaving.is_set():
                self._parts.leaving.wait(LOOK_SECONDS)
            return False
        self._parts.step.begin()
        # Tasks of before a rewind are void; others come again.
        self._parts.stream.hand_back()
        with self._position.lock:
            self._position.work = Work(version, self._parts.rate.last)
        return True

    def _take(self, raw: bytes | bytearray) -> None:
        with self._parts.shows.goodput.cause(GoodputCause.RESTORE):
            work = self._parts.state.take(raw)
        self._parts.rate.took(work.rate)
        self._parts.step.begin()
        self._given |= work.version > 0
        with self._position.lock:
            self._position.work = work
        log.info("Got version %d from the group", work.version)

    # -- between steps ------------------------------------------------------------

    def _between_steps(self) -> None:
        """Do what the leader does while all members have the same values."""
        if not self._link.leads:
            self._follow()
            return
        parts = self._parts
        self._compare()
        if not self._led:
            self._led = True
            mine = self._unreported()
            parts.orders.regain(mine)
            parts.stream.adopt(mine)
        self._refill(0.0)
        self._write_checkpoint()

    def _write_checkpoint(self) -> None:
        """Write a checkpoint, if one is wanted."""
        with self._position.lock:
            work = self._position.work
            version, applied = work.version, work.applied
        if self._parts.between_steps(version, applied):
            self._position.digests.due()

    def _compare(self) -> None:
        """Tell who has other values than this worker, which leads."""
        differing = self._position.digests.differing(self._group.words)
        if differing:
            names = ", ".join(f"member {member}" for member in differing)
            log.warning("The state of %s differs from that of the leader", names)
            self._link.differ(differing)

    def _follow(self) -> None:
        """Leave tasks to the member that leads."""
        if self._parts.stream.has_next:
            self._parts.stream.hand_back()
        if not self._led:
            return
        self._led = False
        for lease_id in list(self._position.work.tasks):
            self._parts.stream.forget(lease_id)

    def _refill(self, seconds: float) -> bool:
        """Take tasks over from the stream; do those that are not of training.

        Returns whether there were any, or are enough.

        Of these the next one is waited for, also while the master is away, so that all
        tasks of an evaluation see the same values, and the best model is the one that
        was measured.
        """
        parts = self._parts
        beside = came = False
        while beside or self._needs_tasks():
            loaded = parts.stream.next(seconds, in_round=beside)
            if loaded is None:
                if not (beside and self._more_comes()):
                    return came
                continue
            came = True
            if loaded.task.type == TaskType.TRAINING:
                self._admit(loaded.task)
                seconds, beside = 0.0, False
            else:
                self._beside.do(loaded, self._position.work.version)
                self._position.digests.due()
                seconds, beside = _BESIDE_SECONDS, True
        return True

    def _more_comes(self) -> bool:
        """Whether the next task beside training is still to be waited for."""
        parts = self._parts
        if parts.stream.reading:
            return True
        parts.shows.progress.touch()
        over = parts.stream.ended or parts.leaving.is_set() or parts.holds()
        return parts.stream.steps_wait and self._link.will_lead and not over

    def _admit(self, task: Task) -> None:
        if task.lease_id in self._reported:
            self._parts.stream.forget(task.lease_id)
            return
        with self._position.lock:
            self._position.work.add([_group_task(task)])

    def _needs_tasks(self) -> bool:
        with self._position.lock:
            work = self._position.work
            left = sum(
                task.end - work.totals[task.lease_id].reached
                for task in work.unfinished()
            )
        return left < max(1, _KNOWN_STEPS * self._link.step_records)

    # -- reports ------------------------------------------------------------------

    def _report(self) -> None:
        """Report the tasks whose records all members have, if this one leads.

        All members have made the last step that this one has made.
        """
        if not self._link.leads:
            return
        reports = []
        for task in self._finished():
            with self._position.lock:
                work = self._position.work
                totals = work.totals[task.lease_id]
            bad = self._bad_of(task, totals)
            if bad is not None:
                totals.reported = True
                reports.append(_done(task, totals, work.version, bad))
        for report in reports:
            self._reported.append(report.lease_id)
            self._parts.shows.metrics.bad_records.inc(len(report.bad_records))
            self._parts.stream.report(report, can_wait=True)

    def _finished(self) -> list[GroupTask]:
        """Return the tasks that are trained and not reported yet."""
        with self._position.lock:
            work = self._position.work
            return [t for t in work.finished() if not work.totals[t.lease_id].reported]

    def _bad_of(
        self, task: GroupTask, totals: Totals
    ) -> tuple[SkippedRecord, ...] | None:
        """Return a task's bad records; None while they are being found.

        Raises UserCodeError once it is told that they cannot be read again.
        """
        if not totals.bad:
            return ()
        found = self._parts.shares.ask_bad(task, totals.bad)
        if self._parts.leaving.is_set() or not found.done():
            return None
        return self._stepping.read(task, found)


def _group_task(task: Task) -> GroupTask:
    return GroupTask(
        lease_id=task.lease_id,
        task_id=task.task_id,
        epoch=task.epoch,
        source=task.source,
        start=task.start,
        end=task.end,
        seed=task.seed,
        replay=task.replay,
    )


def _done(
    task: GroupTask, totals: Totals, version: int, bad: tuple[SkippedRecord, ...]
) -> TaskReport:
    return TaskReport(
        task_id=task.task_id,
        lease_id=task.lease_id,
        outcome=TaskOutcome.DONE,
        records=totals.records,
        rows=totals.rows,
        skipped_rows=totals.skipped_rows,
        steps=totals.steps,
        loss=totals.loss_sum / max(1, totals.steps),
        model_version=version,
        skipped_batches=totals.skipped_steps,
        bad_records=bad,
        shares=tuple(RecordShare(*one) for one in sorted(totals.shares.items())),
    )
