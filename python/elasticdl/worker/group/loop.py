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
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NoReturn, Protocol

from elasticdl.collective.group import Group
from elasticdl.collective.messages import (
    Acknowledge,
    Apply,
    Begin,
    Broken,
    Compute,
    Stateless,
    Take,
)
from elasticdl.collective.wire import Buffer
from elasticdl.errors import (
    CheckpointError,
    ElasticDLError,
    ExitCode,
    JobError,
    UserCodeError,
)
from elasticdl.job.tasks import Task, TaskOutcome, TaskReport, TaskType
from elasticdl.job.words import GoodputCause, WorkerPhase
from elasticdl.worker.group.beside import Beside, Handler
from elasticdl.worker.group.link import GroupLink
from elasticdl.worker.group.plan import (
    GroupTask,
    Outcome,
    StepPlan,
    Totals,
    Work,
    share,
)
from elasticdl.worker.group.shares import Shares
from elasticdl.worker.group.state import MemberState
from elasticdl.worker.group.step import Floats, GroupStep
from elasticdl.worker.shows import Shows
from elasticdl.worker.steps.learning_rate import LearningRate
from elasticdl.worker.tasks.stream import TaskStream, failure, with_trace
from elasticdl.worker.trainer import BatchDone, NanLossError

log = logging.getLogger(__name__)

# How long the loop waits for an order, or for a task, before it looks around again.
LOOK_SECONDS = 0.2
# How long members without a task wait for one before they exchange again: whoever is
# away is found by that.
_IDLE_SECONDS = 1.0
# Steps whose records the leader knows: the one under way, and the one that is read.
_KNOWN_STEPS = 2
# Tasks beside training that belong together come one after the other: so long apart.
_BESIDE_SECONDS = 1.0

# A checkpoint, "" for the job's initial values -> its version. Raises CheckpointError
# once the master knows that it cannot be loaded.
Restore = Callable[[str], int]


class Orders(Protocol):
    """The master's orders (worker.heartbeat)."""

    def is_lost(self, lease_id: int) -> bool:
        """Whether a lease was given to another worker."""

    def regain(self, leases: Iterable[int]) -> None:
        """Forget that these leases were lost."""


@dataclass(frozen=True)
class GroupParts:
    """The parts of the loop."""

    step: GroupStep
    state: MemberState
    rate: LearningRate
    restore: Restore
    shares: Shares
    stream: TaskStream
    handlers: Mapping[int, Handler]  # of every type but TRAINING
    between_steps: Callable[[int, dict[int, int]], None]
    describe: Callable[[str, BaseException], str]
    orders: Orders
    leaving: threading.Event
    shows: Shows
    skip_nan: bool


class Position:
    """Plans and states for the group, which asks from threads of its own.

    Holds the lock around `Work`; calls nobody who could wait for the group.
    """

    def __init__(self, parts: GroupParts) -> None:
        """Begin without tasks."""
        self._parts = parts
        self.lock = threading.Lock()
        self.work = Work()
        self.link: GroupLink | None = None

    def plan(self, step: int) -> bytes:
        """Return which records a step has; called while this member leads."""
        del step
        parts = self._parts
        held = set(parts.stream.held)
        with self.lock:
            work = self.work
            work.keep(
                [
                    lease_id
                    for lease_id, totals in work.totals.items()
                    if not parts.orders.is_lost(lease_id)
                    and (lease_id in held or not totals.reported)
                ]
            )
            records = self.link.step_records if self.link else 0
            plan = work.plan(records)
            if plan.lease_id:
                epoch = work.tasks[plan.lease_id].epoch
                plan = replace(plan, rate=parts.rate.at(work.version, epoch))
        return plan.encoded()

    def state(self) -> Sequence[Buffer]:
        """Return the whole state."""
        with self.lock:
            return self._parts.state.copied(self.work, self._parts.step.state_before)


class GroupLoop:
    """Carries out the group's orders until the job is over or the worker leaves."""

    def __init__(
        self, parts: GroupParts, group: Group, link: GroupLink, position: Position
    ) -> None:
        """Take the finished parts."""
        self._parts = parts
        self._group = group
        self._link = link
        self._position = position
        position.link = link
        self._began = 0.0  # of the step under way, by the clock of `shows`
        self._led = False
        self._beside = Beside(parts.handlers, parts.stream, parts.describe, parts.shows)
        self._rows = 0  # of the own share of the step under way
        self._trained = False  # the model has other values than at the beginning

    def run(self) -> None:
        """Run the loop. Raises UserCodeError once the failed task is reported."""
        parts = self._parts
        try:
            while not parts.leaving.is_set() and not self._is_over:
                order = self._next()
                if order is not None:
                    self._carry_out(order)
        finally:
            self._group.close()
            parts.shares.close()
        parts.stream.drain()

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
            order = self._group.next(LOOK_SECONDS)
        return order

    def _wait_for_others(self) -> None:
        shows = self._parts.shows
        if self._position.work.tasks:
            shows.progress.enter(WorkerPhase.WAIT)
            shows.goodput.switch(GoodputCause.WAIT_PEERS)
        else:
            shows.progress.enter(WorkerPhase.IDLE)
            shows.goodput.switch(GoodputCause.IDLE)

    def _carry_out(self, order: object) -> None:
        match order:
            case Compute(step, plan, number):
                self._compute(step, StepPlan.decoded(plan), number)
            case Apply(_, plan, (summed,)):
                self._apply(StepPlan.decoded(plan), summed)
                self._between_steps()
                self._group.applied()
            case Take(_, raw):
                self._take(raw)
                self._group.applied()
            case Begin(number):
                self._begin(number)
                self._between_steps()
                self._group.began()
            case Acknowledge():
                self._report()
            case Broken(number, member):
                self._link.broke(number, member)
            case Stateless(number):
                self._link.stateless(number)

    # -- states -------------------------------------------------------------------

    def _begin(self, number: int) -> None:
        """Make the state with which all begin.

        Where that is not possible a newer round is waited for, in which all begin with
        another checkpoint.
        """
        told = self._link.round(number)
        directory = told.restore_dir if told else ""
        if self._trained and not directory:
            raise JobError(
                "this worker has trained already, and the job begins again with its "
                "initial values: another process has to take its place"
            )
        try:
            with self._parts.shows.goodput.cause(GoodputCause.RESTORE):
                version = self._parts.restore(directory)
        except CheckpointError as error:
            log.error("%s", error)
            version = 0
            while self._link.is_newest(number) and not self._parts.leaving.is_set():
                self._parts.leaving.wait(LOOK_SECONDS)
        self._parts.step.begin()
        # Tasks of before a rewind are void; others come again.
        self._parts.stream.hand_back()
        with self._position.lock:
            self._position.work = Work(version)

    def _take(self, raw: bytes | bytearray) -> None:
        with self._parts.shows.goodput.cause(GoodputCause.RESTORE):
            work = self._parts.state.take(raw)
        self._parts.step.begin()
        self._trained = True
        with self._position.lock:
            self._position.work = work
        log.info("Got version %d from the group", work.version)

    # -- steps --------------------------------------------------------------------

    def _compute(self, step: int, plan: StepPlan, number: int) -> None:
        place = self._link.place(number)
        if place is None or number != self._group.round:
            return
        with self._position.lock:
            self._position.work.follow(plan)
        self._group.computed(step, number, self._share(plan, *place))

    def _share(self, plan: StepPlan, rank: int, members: int) -> Floats:
        parts = self._parts
        task = self._position.work.tasks.get(plan.lease_id)
        if task is None:
            if rank == 0:
                self._refill(_IDLE_SECONDS)
            return parts.step.nothing()
        shows = parts.shows
        shows.progress.enter(WorkerPhase.TRAIN)
        shows.goodput.switch(GoodputCause.REPLAY if task.replay else GoodputCause.TRAIN)
        self._began = shows.clock()
        try:
            made = parts.shares.ask(task, *share(plan, rank, members))
            with shows.goodput.cause(GoodputCause.WAIT_DATA):
                batches = made.result()
            self._ask_ahead(plan, rank, members)
            self._rows = sum(batch.num_records for batch in batches.batches)
            for batch in batches.batches[:1]:
                shows.begins(batch)
            return parts.step.compute(batches)
        except Exception as error:  # noqa: BLE001 - border: the user's code
            self._fail(task, error)

    def _ask_ahead(self, plan: StepPlan, rank: int, members: int) -> None:
        with self._position.lock:
            work = self._position.work
            following = work.after(plan, self._link.step_records)
            task = work.tasks.get(following.lease_id)
        if task is not None:
            self._parts.shares.ask(task, *share(following, rank, members))

    def _apply(self, plan: StepPlan, summed: Floats) -> None:
        if not plan.lease_id:
            return
        parts = self._parts
        with self._position.lock:
            self._position.work.follow(plan)
            task = self._position.work.tasks[plan.lease_id]
        parts.rate.set(plan.rate)
        self._trained = True
        try:
            outcome = parts.step.apply(summed)
        except Exception as error:  # noqa: BLE001 - border: the user's optimizer
            self._fail(task, error)
        if outcome.skipped and not parts.skip_nan:
            self._fail(task, NanLossError(_nan_message(outcome, plan, task)))
        with self._position.lock:
            self._position.work.made(plan, outcome)
            version = self._position.work.version
        if outcome.rows:
            seconds = parts.shows.clock() - self._began
            done = BatchDone(outcome.loss, version, outcome.skipped)
            parts.shows.step(done, self._rows, seconds)

    def _fail(self, task: GroupTask, error: Exception) -> NoReturn:
        """Report that a task fails in the same way for everybody. Raises."""
        parts = self._parts
        if isinstance(error, ElasticDLError):
            text, code = str(error), error.exit_code
        else:
            text = parts.describe("training", error)
            text, code = with_trace(text, error), ExitCode.USER_CODE
        log.error("%s", text)
        loss = float("nan") if isinstance(error, NanLossError) else 0.0
        report = failure(_task(task), text, fatal=True, exit_code=code)
        parts.stream.report(replace(report, loss=loss))
        raise UserCodeError(text) from error

    # -- between steps ------------------------------------------------------------

    def _between_steps(self) -> None:
        """Do what the leader does while all members have the same values."""
        if not self._link.leads:
            self._follow()
            return
        parts = self._parts
        if not self._led:
            self._led = True
            mine = self._unreported()
            parts.orders.regain(mine)
            parts.stream.adopt(mine)
        self._refill(0.0)
        with self._position.lock:
            work = self._position.work
            version, applied = work.version, dict(work.applied)
        parts.between_steps(version, applied)

    def _follow(self) -> None:
        """Leave tasks to the member that leads."""
        if self._parts.stream.has_next:
            self._parts.stream.hand_back()
        if not self._led:
            return
        self._led = False
        for lease_id in list(self._position.work.tasks):
            self._parts.stream.forget(lease_id)

    def _refill(self, seconds: float) -> None:
        """Take tasks over from the stream; do those that are not of training.

        Of these the next one is waited for, so that all tasks of an evaluation see the
        same values.
        """
        parts = self._parts
        beside = False
        while beside or self._needs_tasks():
            loaded = parts.stream.next(seconds)
            if loaded is None:
                if not (beside and parts.stream.reading):
                    return
            elif loaded.task.type == TaskType.TRAINING:
                with self._position.lock:
                    self._position.work.add([_group_task(loaded.task)])
                seconds, beside = 0.0, False
            else:
                self._beside.do(loaded, self._position.work.version)
                seconds, beside = _BESIDE_SECONDS, True

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
        with self._position.lock:
            work = self._position.work
            safe = [t for t in work.finished() if not work.totals[t.lease_id].reported]
            reports = [
                _done(task, work.totals[task.lease_id], work.version) for task in safe
            ]
            for task in safe:
                work.totals[task.lease_id].reported = True
        for report in reports:
            self._parts.stream.report(report, can_wait=True)


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


def _task(task: GroupTask) -> Task:
    return Task(
        task_id=task.task_id,
        lease_id=task.lease_id,
        type=TaskType.TRAINING,
        source=task.source,
        start=task.start,
        end=task.end,
        epoch=task.epoch,
    )


def _done(task: GroupTask, totals: Totals, version: int) -> TaskReport:
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
    )


def _nan_message(outcome: Outcome, plan: StepPlan, task: GroupTask) -> str:
    return (
        f"loss is {outcome.loss} in a step of {task.source}: records {plan.start} to "
        f"{plan.end - 1}; expected a finite number. Lower the learning rate, look at "
        "these records, or set training.onNanLoss: skip to leave such steps out"
    )
