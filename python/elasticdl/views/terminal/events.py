"""What happened between two statuses of a job, in sentences.

Owns which changes are worth a line. Called by the progress views. Pure: must not print
nor ask the time.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from elasticdl.job.spec.kinds import JobType
from elasticdl.job.status import EvaluationResult, JobStatus, Relaunch
from elasticdl.job.words import JobState
from elasticdl.views import formatting as text

_STATES = {
    JobState.STARTING: "starting the processes",
    JobState.PREPARING: "preparing the data",
}


@dataclass(frozen=True)
class Seen:
    """What was told already."""

    state: JobState | None = None
    relaunches: int = 0
    evaluation_time: float = 0.0
    master_generation: int = 0
    rewinds: int = 0
    checkpoint_version: int | None = None
    message: str = ""  # without its figures, which change while it stays the same
    fails: bool = False


def events(seen: Seen, status: JobStatus) -> tuple[list[str], Seen]:
    """Return a line for each thing that is new, and what is told with them."""
    lines: list[str] = []
    first = seen.state is None
    message = re.sub(r"\d+", "", status.message)
    fails = status.ending == JobState.FAILED
    if fails:
        # Why is told once, at the end.
        lines += [] if seen.fails else ["the job fails: its processes are ended"]
    elif status.state is not seen.state:
        lines.append(_state_line(status))
    elif message and message != seen.message:
        lines.append(text.first_line(status.message))
    if seen.master_generation and status.master_generation > seen.master_generation:
        lines.append("the master is back; it read its journal and goes on")
    if not first:
        # A job that goes on has a history that its own launch does not repeat.
        lines += [
            _relaunch_line(one)
            for one in status.relaunches[
                max(0, seen.relaunches - status.relaunches_before) :
            ]
            if one.replacement or not fails
        ]
        if status.rewinds > seen.rewinds:
            lines.append("rewound to the newest checkpoint, tasks after it come again")
    evaluation = status.last_evaluation
    evaluated = evaluation.time if evaluation else 0.0
    if evaluation and evaluated > seen.evaluation_time and not first:
        lines.append(evaluation_line(evaluation))
    return lines, Seen(
        state=status.state,
        relaunches=status.relaunches_before + len(status.relaunches),
        evaluation_time=max(evaluated, seen.evaluation_time),
        master_generation=status.master_generation,
        rewinds=status.rewinds,
        checkpoint_version=status.checkpoint_version,
        message=message,
        fails=fails,
    )


def evaluation_line(evaluation: EvaluationResult) -> str:
    """`evaluation at version 400: accuracy 0.9781`."""
    return (
        f"evaluation at version {evaluation.version}: "
        f"{text.metrics(evaluation.metrics)}"
    )


def _relaunch_line(relaunch: Relaunch) -> str:
    after = (
        f"{relaunch.replacement} takes its place"
        if relaunch.replacement and relaunch.replacement != relaunch.replica
        else "it is started again"
        if relaunch.replacement
        else "it is not replaced"
    )
    detail = text.first_line(relaunch.detail)
    why = f"{relaunch.reason} ({detail})" if detail else relaunch.reason
    return f"{relaunch.replica} {why}: {after}"


def _state_line(status: JobStatus) -> str:
    if status.message:
        return f"{status.state}: {text.first_line(status.message)}"
    if status.state is JobState.FINISHING and status.type == JobType.TRAIN:
        return "finishing: all records are trained; last evaluation and checkpoint"
    return _STATES.get(status.state, str(status.state))
