"""Tasks beside training, done by the member that leads a group.

Owns what each outcome means for the report. Called by `worker.group.loop`, between two
steps. Must not know other members.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping
from dataclasses import replace

from elasticdl.errors import DataError, ElasticDLError, ExitCode, UserCodeError
from elasticdl.job.tasks import Task, TaskReport
from elasticdl.worker.shows import Shows
from elasticdl.worker.tasks.phases import phase_of
from elasticdl.worker.tasks.records import LoadedTask
from elasticdl.worker.tasks.reports import failure, storage_away, with_trace
from elasticdl.worker.tasks.stream import TaskStream
from elasticdl.worker.trainer import NanLossError

log = logging.getLogger(__name__)

Handler = Callable[[LoadedTask], TaskReport]


class Beside:
    """Does tasks and reports them."""

    def __init__(
        self,
        handlers: Mapping[int, Handler],
        stream: TaskStream,
        describe: Callable[[str, BaseException], str],
        shows: Shows,
    ) -> None:
        """Take a handler for each type, and where reports go."""
        self._handlers = handlers
        self._stream = stream
        self._describe = describe
        self._shows = shows

    def do(self, loaded: LoadedTask, version: int) -> None:
        """Do a task with the values of this version in the model.

        Raises UserCodeError once a task that the user's code failed is reported.
        """
        task = loaded.task
        handler = self._handlers.get(task.type)
        if handler is None:
            text = f"this worker knows no type {task.type}"
            self._stream.report(failure(task, text))
            return
        phase, cause = phase_of(task.type)
        self._shows.progress.enter(phase)
        with self._shows.goodput.cause(cause):
            try:
                report = replace(handler(loaded), model_version=version)
            except OSError as error:
                log.warning("Handing a task back: %s", error)
                report = storage_away(task, str(error))
            except ElasticDLError as error:
                log.error("%s", error)
                report = _failure(task, error)
            except Exception as error:
                text = self._describe("a task beside training", error)
                text = with_trace(text, error)
                code = ExitCode.USER_CODE
                self._stream.report(failure(task, text, exit_code=code))
                raise UserCodeError(text) from error
            self._stream.report(report)


def _failure(task: Task, error: ElasticDLError) -> TaskReport:
    """Return the report of a task; the same values and records fail it each time."""
    is_nan = isinstance(error, NanLossError)
    fatal = is_nan or isinstance(error, DataError)
    report = failure(task, str(error), fatal=fatal, exit_code=error.exit_code)
    return replace(report, loss=math.nan) if is_nan else report
