"""What a worker reports of a task that it does not finish.

Owns the reports of a task that failed and of one that is handed back, and how a trace
stands below a message. Called by whoever works on tasks: the stream, the loops, what
runs beside them; `worker.main` writes its last error so too. Pure; must not know who
sends a report, nor import TensorFlow.
"""

from __future__ import annotations

import textwrap
import traceback
from collections.abc import Callable
from dataclasses import replace

from elasticdl.errors import BadRecordError, ElasticDLError, ExitCode
from elasticdl.job.tasks import Task, TaskOutcome, TaskReport

_BAD_RECORD_HELP = (
    "make the file again, or set data.onBadRecord: skip to leave such records out and "
    "list them in the report"
)
# (What ran, what it raised) -> one line with the user's file and line.
Describe = Callable[[str, BaseException], str]


def with_trace(message: str, error: BaseException) -> str:
    """Return a one-line message with an indented stack trace below it.

    Indented, since a trace at the margin of a log is one that nobody has caught.
    """
    trace = "".join(traceback.format_exception(error))
    return f"{message}\n{textwrap.indent(trace.rstrip(), '    ')}"


def returned(task: Task, records_done: int = 0) -> TaskReport:
    """Return the report that hands a task back undone."""
    return TaskReport(
        task_id=task.task_id,
        lease_id=task.lease_id,
        outcome=TaskOutcome.RETURNED,
        records=records_done,
    )


def storage_away(task: Task, why: str) -> TaskReport:
    """Return the report that hands a task back until storage answers again."""
    return replace(returned(task), error=why)


def failure(
    task: Task,
    error: str,
    *,
    fatal: bool = False,
    exit_code: ExitCode = ExitCode.JOB_FAILED,
) -> TaskReport:
    """Return the report of a task that failed.

    Args:
        task: The task.
        error: One line; a trace may follow it.
        fatal: More tries are useless.
        exit_code: What the job ends with, should it end by this failure.
    """
    return TaskReport(
        task_id=task.task_id,
        lease_id=task.lease_id,
        outcome=TaskOutcome.FAILED,
        error=error,
        fatal=fatal,
        exit_code=exit_code,
    )


def unread(task: Task, error: BaseException, describe: Describe) -> TaskReport:
    """Return the report of a task whose records cannot be read.

    Fatal for a bad record, which is as bad the next time; anything else may be over
    then.
    """
    if isinstance(error, BadRecordError):
        text = f"{error}; {_BAD_RECORD_HELP}"
        return failure(task, text, fatal=True, exit_code=error.exit_code)
    if isinstance(error, (ElasticDLError, OSError)):
        text = str(error)
        if task.source not in text:
            text = f"{task.source}: {text}"
        code = error.exit_code if isinstance(error, ElasticDLError) else ExitCode.DATA
        return failure(task, text, exit_code=code)
    text = with_trace(describe(f"reading {task.source}", error), error)
    return failure(task, text, exit_code=ExitCode.USER_CODE)
