"""The worker's loop: a task, what it asks for, its report; until there is no more.

Owns the dispatch by task type, and what each kind of error means for the tasks in
hand. Called by main, in the main thread. Knows only protocols: no TensorFlow, no PS.
"""

from __future__ import annotations

import contextlib
import logging
import math
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from elasticdl.errors import (
    DataError,
    ElasticDLError,
    ExitCode,
    FencedError,
    RefusedError,
    RpcError,
    UserCodeError,
    is_storage_away,
)
from elasticdl.job.tasks import Task, TaskReport, TaskType
from elasticdl.job.words import GoodputCause, WorkerPhase
from elasticdl.metrics.goodput import GoodputLedger
from elasticdl.worker.progress import WorkerProgress
from elasticdl.worker.tasks.phases import phase_of
from elasticdl.worker.tasks.records import LoadedTask
from elasticdl.worker.tasks.reports import failure, returned, storage_away, with_trace
from elasticdl.worker.tasks.stream import STORAGE_SECONDS, TaskStream
from elasticdl.worker.trainer import LeavingError, NanLossError, Trainer

log = logging.getLogger(__name__)

# How long the loop waits for a task before it looks around again.
LOOK_SECONDS = 0.2
# A task that a PS could not serve is not asked for again at once.
PAUSE_SECONDS = 0.2

Handler = Callable[[LoadedTask], TaskReport]


class TrainingTasks(Protocol):
    """What the loop needs of worker.training."""

    def run(self, loaded: LoadedTask) -> None:
        """Train a task."""

    def settle(self) -> None:
        """Wait for all acknowledgements and report."""

    def hand_back(self, *, keep: Task | None = None) -> None:
        """Return all unacknowledged tasks to the master, except `keep`."""


@dataclass(frozen=True)
class LoopParts:
    """The parts of the loop."""

    stream: TaskStream
    trainer: Trainer
    training: TrainingTasks
    handlers: Mapping[int, Handler]  # of every type but TRAINING
    on_rewind: Callable[[], None]
    # (what ran, what it raised) -> one line with the user's own file and line.
    describe: Callable[[str, BaseException], str]
    leaving: threading.Event
    goodput: GoodputLedger
    progress: WorkerProgress


# What the user's code was run for, in the message when it raised.
_NAMES = {
    TaskType.TRAINING: "training",
    TaskType.EVALUATION: "evaluation",
    TaskType.SUMMARIZE: "a metric's result",
    TaskType.PREDICTION: "prediction",
    TaskType.EXPORT: "the export",
}


class WorkerLoop:
    """Runs tasks until there are no more or the worker has to leave."""

    def __init__(self, parts: LoopParts) -> None:
        """Take the finished parts."""
        self._parts = parts

    def run(self) -> None:
        """Run the loop. Raises UserCodeError once the failed task is reported."""
        parts = self._parts
        while not parts.leaving.is_set():
            parts.trainer.between_steps()
            if not parts.stream.has_next:
                self._guarded(None, parts.training.settle)
            loaded = self._next()
            if loaded is not None:
                self._take(loaded)
            elif parts.stream.ended:
                break
        self._leave()

    def _next(self) -> LoadedTask | None:
        parts = self._parts
        reading = 0
        if not parts.stream.has_next:
            reading = parts.stream.reading
            if reading:
                parts.progress.waits_to_read(reading)
                parts.goodput.switch(GoodputCause.WAIT_DATA)
            else:
                parts.progress.enter(WorkerPhase.IDLE)
                parts.goodput.switch(GoodputCause.IDLE)
        return parts.stream.next(LOOK_SECONDS, reading=reading)

    def _take(self, loaded: LoadedTask) -> None:
        parts = self._parts
        task = loaded.task
        phase, cause = phase_of(task.type)
        if task.type == TaskType.TRAINING and task.replay:
            cause = GoodputCause.REPLAY
        parts.progress.enter(phase)
        parts.goodput.switch(cause)
        if task.type == TaskType.TRAINING:
            self._guarded(task, lambda: parts.training.run(loaded))
            return
        handler = parts.handlers.get(task.type)
        if handler is None:
            parts.stream.report(failure(task, f"this worker knows no type {task.type}"))
            return
        chosen = handler
        self._guarded(task, lambda: parts.stream.report(chosen(loaded)))

    def _guarded(self, task: Task | None, act: Callable[[], None]) -> None:
        """Run `act`; turn an exception into a report of the task."""
        try:
            act()
        except FencedError as error:
            self._begin_again(task, str(error))
        except LeavingError:
            self._give_back(task)
        except RpcError as error:
            self._not_served(task, error)
        except Exception as error:  # noqa: BLE001 - border: also the user's code
            if is_storage_away(error):
                self._without_storage(task, error)
            else:
                self._broken(task, error)

    def _broken(self, task: Task | None, error: Exception) -> None:
        """Report a task that fails the same way on each attempt."""
        if isinstance(error, (NanLossError, DataError)):
            text = self._with_source(task, error)
            loss = math.nan if isinstance(error, NanLossError) else 0.0
            self._fail(task, text, error.exit_code, fatal=True, loss=loss)
        elif isinstance(error, ElasticDLError):
            self._fail(task, str(error), error.exit_code)
            if isinstance(error, UserCodeError):
                raise error
        else:
            # Whatever else comes out of a step is the user's model, feed or metric.
            what = _NAMES.get(task.type, "") if task is not None else ""
            text = self._parts.describe(what or "the model's code", error)
            self._fail(task, with_trace(text, error), ExitCode.USER_CODE)
            raise UserCodeError(text) from error

    def _without_storage(self, task: Task | None, error: Exception) -> None:
        text = self._with_source(task, error)
        log.warning("Handing the task back, storage does not answer: %s", text)
        self._give_back(task, why=text)
        self._parts.leaving.wait(STORAGE_SECONDS)

    def _begin_again(self, task: Task | None, why: str) -> None:
        parts = self._parts
        log.info("Beginning again from the PS's checkpoint: %s", why)
        parts.progress.given_up()
        self._give_back(task)
        parts.training.hand_back()  # no gradient of before a rewind counts
        parts.stream.hand_back()
        parts.on_rewind()
        try:
            parts.trainer.recover()
        except LeavingError:
            log.info("told to leave while waiting for the PS")

    def _not_served(self, task: Task | None, error: RpcError) -> None:
        if isinstance(error, RefusedError):
            self._fail(task, str(error), error.exit_code)
            return
        log.warning("Handing the task back: %s", error)
        self._give_back(task)
        self._parts.leaving.wait(PAUSE_SECONDS)

    def _give_back(self, task: Task | None, *, why: str = "") -> None:
        """Return the task; for training, with all unacknowledged ones.

        What kept another task from being done says nothing of gradients that are on
        their way: these are good, and their tasks are reported when they have come.
        `why`: what storage said that does not answer.
        """
        parts = self._parts
        if task is None or task.type == TaskType.TRAINING:
            parts.training.hand_back()
        else:
            parts.stream.report(storage_away(task, why) if why else returned(task))

    def _fail(
        self,
        task: Task | None,
        error: str,
        exit_code: ExitCode,
        *,
        fatal: bool = False,
        loss: float = 0.0,
    ) -> None:
        parts = self._parts
        log.error("%s", error.strip())
        parts.progress.given_up()
        with contextlib.suppress(ElasticDLError):
            # Gradients of the task before may still be on their way; they are good.
            parts.training.settle()
        parts.training.hand_back(keep=task)
        if task is not None:
            report = failure(task, error, fatal=fatal, exit_code=exit_code)
            parts.stream.report(replace(report, loss=loss))

    @staticmethod
    def _with_source(task: Task | None, error: Exception) -> str:
        text = str(error)
        if task is None or not task.source or task.source in text:
            return text
        return f"{task.source}[{task.start}:{task.end}]: {text}"

    def _leave(self) -> None:
        """Finish the batch in progress and hand back the rest."""
        parts = self._parts
        parts.stream.drain()
        self._guarded(None, parts.training.settle)
        parts.training.hand_back()
        parts.trainer.between_steps()
