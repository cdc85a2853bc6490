"""Training tasks: batch after batch, and the reports of what was trained.

Owns which tasks are trained but not yet acknowledged by the PS: a task's report leaves
only when the last of its gradients is safe. Called by the loop, from one thread. Knows
nothing of how gradients travel.
"""

from __future__ import annotations

import itertools
import logging
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from elasticdl.job.tasks import SkippedRecord, Task, TaskOutcome, TaskReport, TaskType
from elasticdl.job.words import GoodputCause
from elasticdl.model.feed.unparsed import FeedError
from elasticdl.model.feeding import Batch, Feeder
from elasticdl.worker.shows import Shows
from elasticdl.worker.tasks.feed_ahead import FeedAhead
from elasticdl.worker.tasks.outbox import LaterReport
from elasticdl.worker.tasks.records import LoadedTask
from elasticdl.worker.tasks.reports import returned
from elasticdl.worker.tasks.stream import TaskStream
from elasticdl.worker.trainer import BatchDone, BatchPosition, NanLossError, Trainer

log = logging.getLogger(__name__)


@dataclass
class _Run:
    """A task in training, or trained and not acknowledged."""

    loaded: LoadedTask
    in_order: bool
    steps: int = 0
    records: int = 0  # rows of the batches that were tried
    begun: bool = False  # a batch may have been applied, whatever came of the call
    skipped: int = 0
    skipped_rows: int = 0
    loss_sum: float = 0.0
    version: int = 0
    bad: Sequence[SkippedRecord] = ()  # that did not parse
    last_batch: int = -1  # Trainer.trained after its last batch; -1 is under way

    @property
    def task(self) -> Task:
        return self.loaded.task

    def count(self, done: BatchDone, records: int) -> None:
        self.records += records
        self.version = done.version
        if done.skipped:
            self.skipped += 1
            self.skipped_rows += records
        else:
            self.steps += 1
            self.loss_sum += done.loss

    def report(self) -> TaskReport:
        task = self.task
        return TaskReport(
            task_id=task.task_id,
            lease_id=task.lease_id,
            outcome=TaskOutcome.DONE,
            # What was really read of its range; `audit` compares it with the task.
            records=len(self.loaded.records)
            + len(self.loaded.bad)
            - self.loaded.unplanned,
            rows=self.records - self.skipped_rows,
            skipped_rows=self.skipped_rows,
            steps=self.steps,
            loss=self.loss_sum / max(1, self.steps),
            model_version=self.version,
            bad_records=(*self.loaded.bad, *self.bad),
            skipped_batches=self.skipped,
        )


class Orders(Protocol):
    """The master's orders during training (worker.heartbeat)."""

    def is_lost(self, lease_id: int) -> bool:
        """Whether a lease was given to another worker."""


class Training:
    """Trains leased tasks and reports them."""

    def __init__(
        self,
        trainer: Trainer,
        feeder: Feeder,
        stream: TaskStream,
        orders: Orders,
        *,
        leaving: threading.Event,
        shows: Shows,
        in_order: bool,
    ) -> None:
        """Take the parts.

        Args:
            trainer: Trains batches.
            feeder: In training mode.
            stream: Takes the reports.
            orders: Tells of lost leases.
            leaving: Set when the step under way is to be the last.
            shows: Where progress is counted.
            in_order: Whether batches follow the order of a task's records.
        """
        self._trainer = trainer
        self._ahead = FeedAhead(
            feeder, lambda: shows.goodput.cause(GoodputCause.WAIT_DATA)
        )
        self._stream = stream
        self._orders = orders
        self._leaving = leaving
        self._shows = shows
        self._in_order = in_order
        self._runs: list[_Run] = []

    def run(self, loaded: LoadedTask) -> None:
        """Train a task. Its report follows when its gradients are acknowledged."""
        run = _Run(loaded, self._in_order and loaded.is_as_planned)
        self._runs.append(run)
        try:
            finished = self._steps(run, self._ahead.batches(loaded))
        except FeedError as error:
            raise loaded.unparsed(error.bad) from error
        if not finished:
            return
        run.last_batch = self._trainer.trained
        run.bad = [loaded.bad_record(b.index, b.reason) for b in self._ahead.bad]
        if bad := len(run.bad) + len(loaded.bad):
            self._shows.metrics.bad_records.inc(bad)
        self.report_acknowledged()

    def settle(self) -> None:
        """Wait for all acknowledgements and report. Raises as Trainer.flush."""
        if self._runs:
            self._trainer.flush()
            self.report_acknowledged()

    def hand_back(self, *, keep: Task | None = None) -> None:
        """Return all unacknowledged tasks to the master, except `keep`."""
        for run in self._runs:
            if keep is None or run.task.lease_id != keep.lease_id:
                touched = max(run.records, int(run.begun))
                self._stream.report(returned(run.task, touched))
        self._runs.clear()

    def report_acknowledged(self) -> None:
        """Report the tasks whose gradients are all acknowledged."""
        if not self._runs or self._runs[0].last_batch < 0:
            return  # most steps are in the middle of the oldest task
        safe = self._trainer.acknowledged
        done = [r for r in self._runs if 0 <= r.last_batch <= safe]
        for run in done:
            self._runs.remove(run)
            report = LaterReport(run.task.lease_id, run.report)
            self._stream.report(report, can_wait=True)

    # -- parts --------------------------------------------------------------------

    def _steps(self, run: _Run, batches: Iterator[Batch]) -> bool:
        """Train the batches of a task; return whether all of them were tried."""
        task, batch = run.task, next(batches, None)
        while batch is not None:
            if self._leaving.is_set():
                return False
            if self._orders.is_lost(task.lease_id):
                log.info("lease of task %d was lost", task.task_id)
                self._runs.remove(run)
                self._stream.forget(task.lease_id)
                return False
            following = next(batches, None)
            if self._ahead.idle:
                self._feed_ahead()
            self._step(run, batch, last=following is None)
            if len(self._runs) > 1:  # of older tasks
                self.report_acknowledged()
            batch = following
        return True

    def _feed_ahead(self) -> None:
        following = itertools.takewhile(
            lambda loaded: loaded.task.type == TaskType.TRAINING,
            self._stream.ready(),
        )
        self._ahead.begin(list(following))

    def _step(self, run: _Run, batch: Batch, *, last: bool) -> None:
        covered = run.records + batch.num_records
        task = run.loaded.task
        at = BatchPosition(
            task.task_id,
            task.epoch,
            covered if run.in_order else 0,
            batch.num_records,
            last,
            batch.shapes,
        )
        self._shows.begins(batch)
        run.begun = True
        try:
            done = self._trainer.train_batch(batch.features, batch.labels, at)
        except NanLossError as error:
            raise NanLossError(self._nan_message(error, at)) from error
        run.count(done, batch.num_records)
        self._shows.step(done, batch.num_records)

    def _nan_message(self, error: NanLossError, given: BatchPosition) -> str:
        # A batch that was refused is computed again while the next one is trained.
        at = error.at or given
        run = next(r for r in self._runs if r.task.task_id == at.task_id)
        task = run.task
        if run.in_order:
            end = task.start + at.records_done
            where = f"records {end - at.num_records} to {end - 1}"
        else:
            where = f"records among {task.start} to {task.end - 1}"
        return (
            f"{error} at step {self._shows.progress.steps + 1}, in a batch of "
            f"{task.source}: {where}; expected a finite number. Lower the learning "
            "rate, look at these records, or set training.onNanLoss: skip to leave "
            "such batches out"
        )
