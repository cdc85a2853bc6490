"""A member's part in the steps of its group.

Owns what a step means for the model and for what is shown of it: the own share is
computed, the sum of all shares applied, a failure told. Called by `worker.group.loop`,
in the main thread. Must not know rounds or how members reach each other.
"""

from __future__ import annotations

import logging
from collections import deque
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import NoReturn, TypeVar, cast

from elasticdl.errors import ElasticDLError, ExitCode, UserCodeError, with_records
from elasticdl.job.tasks import Task, TaskReport, TaskType
from elasticdl.job.words import GoodputCause, WorkerPhase
from elasticdl.worker.group.link import GroupLink
from elasticdl.worker.group.plan import GroupTask, Outcome, StepPlan, share, shares
from elasticdl.worker.group.position import GroupParts, Position
from elasticdl.worker.group.shares import (
    STEPS_AHEAD,
    LeftError,
    NotReadError,
    OwnRecords,
)
from elasticdl.worker.group.step import Floats, Ready, ShareBatches
from elasticdl.worker.tasks.reports import failure, unread, with_trace
from elasticdl.worker.trainer import BatchDone, NanLossError

log = logging.getLogger(__name__)

_Read = TypeVar("_Read")


@dataclass(frozen=True)
class OwnShare:
    """A member's records of a step."""

    plan: StepPlan
    task: GroupTask
    batches: ShareBatches
    fits_one: bool  # all of it can be one step of strategy local


class Stepping:
    """Computes shares and applies steps."""

    def __init__(self, parts: GroupParts, position: Position, link: GroupLink) -> None:
        """Take the member's parts."""
        self._parts = parts
        self._position = position
        self._link = link
        self._began = 0.0  # of the step under way, by the clock of `shows`
        self._rows = 0  # of the own share of the step under way
        self._cause = GoodputCause.TRAIN  # of the step under way
        # Seconds of the last updates; the shorter one counts, since the first traces.
        self._updates: deque[float] = deque([0.0], maxlen=2)
        self.trained = False  # the model has other values than at the beginning

    def share(self, plan: StepPlan, rank: int, members: int) -> OwnShare | None:
        """Return the own share of a step; what follows is read meanwhile.

        None where the worker leaves while it waits for storage. Raises UserCodeError
        once it is told that the records cannot be used.
        """
        parts, shows = self._parts, self._parts.shows
        with self._position.lock:
            task = self._position.work.tasks[plan.lease_id]
        self._cause = GoodputCause.REPLAY if task.replay else GoodputCause.TRAIN
        shows.progress.enter(WorkerPhase.TRAIN)
        shows.goodput.switch(self._cause)
        self._began = shows.clock()
        made = parts.shares.ask(task, *share(plan, rank, members))
        with shows.goodput.cause(GoodputCause.WAIT_DATA):
            batches = self.read(task, made)
        if batches is None:
            return None
        self._ask_ahead(plan, rank, members)
        self._rows = sum(batch.num_records for batch in batches.batches)
        for batch in batches.batches[:1]:
            shows.begins(batch)
        fits = members == 1 and parts.step.can_be_alone(batches)
        return OwnShare(plan, task, batches, fits)

    def read(self, task: GroupTask, made: Future[_Read]) -> _Read | None:
        """Return what was read of a task, once it is there.

        None where the worker leaves while it waits for storage. Raises UserCodeError
        once it is told that the records cannot be used.
        """
        try:
            return made.result()
        except LeftError:
            return None
        except NotReadError as error:
            why = cast("BaseException", error.__cause__)
            self._end(unread(_task(task), why, self._parts.describe))
        except Exception as error:  # noqa: BLE001 - border: the user's feed and reader
            self._fail(task, error)

    def _ask_ahead(self, plan: StepPlan, rank: int, members: int) -> None:
        """Ask for the own shares of the steps that follow, as far as is known."""
        wanted: list[OwnRecords] = []
        with self._position.lock:
            work = self._position.work
            for following in work.following(plan, self._link.step_records):
                task = work.tasks[following.lease_id]
                wanted.append((task, *share(following, rank, members)))
                if len(wanted) == STEPS_AHEAD:
                    break
        if wanted:
            self._parts.shares.ask_ahead(wanted)

    def compute(self, own: OwnShare, ready: Ready) -> None:
        """Compute the own part of a step. Raises UserCodeError once that is told.

        `ready` is called with each bucket of it, perhaps in another thread.
        """
        clock = self._parts.shows.clock
        began = clock()
        try:
            with self._parts.rate.during(own.plan.rate):
                self._parts.step.compute(own.batches, ready, of=own.plan.records)
        except Exception as error:  # noqa: BLE001 - border: the user's model
            self._fail(own.task, error)
        if self._rows or not own.batches.records:
            seconds = clock() - began + min(self._updates)
            self._parts.speeds.computed(own.batches.records, seconds)
        # Else the feed made nothing of them, which takes no time: that is no speed.

    def alone(self, own: OwnShare, members: tuple[int, ...]) -> None:
        """Make a step without others. Raises UserCodeError once that is told."""
        self._parts.rate.set(own.plan.rate)
        self.trained = True
        try:
            outcome = self._parts.step.alone(own.batches)
        except Exception as error:  # noqa: BLE001 - border: the user's model
            self._fail(own.task, error)
        outcome = replace(outcome, shares=shares(own.plan, members))
        self._made(own.plan, own.task, outcome)
        self._show(outcome)

    def apply(self, plan: StepPlan, summed: Floats, members: tuple[int, ...]) -> None:
        """Apply the sum of all shares. Raises UserCodeError once that is told.

        `members`: those that the records were divided among.
        """
        if plan.lease_id:
            self._waits_no_more()
        outcome = self._applied(plan, summed, members)
        if outcome is not None:
            self._show(outcome)

    def follow(self, plan: StepPlan, summed: Floats, members: tuple[int, ...]) -> None:
        """Apply a step that others made; it is none of this worker's work."""
        self._applied(plan, summed, members)

    def _waits_no_more(self) -> None:
        """Note that the rest of the step is the own work."""
        shows = self._parts.shows
        if shows.progress.phase is not WorkerPhase.TRAIN:
            shows.progress.enter(WorkerPhase.TRAIN)
        shows.goodput.switch(self._cause)

    def _applied(
        self, plan: StepPlan, summed: Floats, members: tuple[int, ...]
    ) -> Outcome | None:
        if not plan.lease_id:
            return None
        with self._position.lock:
            self._position.work.follow(plan, leads=self._link.leads)
            task = self._position.work.tasks[plan.lease_id]
        self._parts.rate.set(plan.rate)
        self.trained = True
        clock = self._parts.shows.clock
        began = clock()
        try:
            outcome = self._parts.step.apply(summed, of=plan.records)
        except Exception as error:  # noqa: BLE001 - border: the user's optimizer
            self._fail(task, error)
        if outcome.rows:
            self._updates.append(clock() - began)
        outcome = replace(outcome, shares=shares(plan, members) if members else ())
        self._made(plan, task, outcome)
        return outcome

    def _made(self, plan: StepPlan, task: GroupTask, outcome: Outcome) -> None:
        if outcome.skipped and not self._parts.skip_nan:
            self._fail(task, NanLossError(_nan_message(outcome, plan, task)))
        with self._position.lock:
            self._position.work.made(plan, outcome)

    def _show(self, outcome: Outcome) -> None:
        with self._position.lock:
            version = self._position.work.version
        if outcome.rows:
            shows = self._parts.shows
            done = BatchDone(outcome.loss, version, outcome.skipped)
            shows.step(done, self._rows, shows.clock() - self._began)

    def _fail(self, task: GroupTask, error: Exception) -> NoReturn:
        """Report that a task fails in the same way for everybody. Raises."""
        parts = self._parts
        if isinstance(error, ElasticDLError):
            text, code = str(error), error.exit_code
        else:
            text = parts.describe("training", error)
            text, code = with_trace(text, error), ExitCode.USER_CODE
        if task.source not in text:
            at = f"{task.source} records {task.start} to {task.end}"
            text = with_records(text, at)
        loss = float("nan") if isinstance(error, NanLossError) else 0.0
        self._end(replace(failure(_task(task), text, exit_code=code), loss=loss))

    def _end(self, report: TaskReport) -> NoReturn:
        """Send a report that ends the job. Raises UserCodeError."""
        log.error("%s", report.error)
        self._parts.stream.report(replace(report, fatal=True))
        raise UserCodeError(report.error.partition("\n")[0])


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


def _nan_message(outcome: Outcome, plan: StepPlan, task: GroupTask) -> str:
    return (
        f"loss is {outcome.loss} in a step of {task.source}: records {plan.start} to "
        f"{plan.end - 1}; expected a finite number. Lower the learning rate, look at "
        "these records, or set training.onNanLoss: skip to leave such steps out"
    )
