"""What happened in a job, as lines while somebody looks on.

Owns which happenings are worth a line, and its words. Called by the progress views.
Pure: must not print nor ask the time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from elasticdl.job.decision import Decision
from elasticdl.job.status import EvaluationResult, JobStatus
from elasticdl.job.words import HappeningKind, JobState
from elasticdl.views import formatting as text

_STATES = {
    JobState.STARTING: "starting the processes",
    JobState.PREPARING: "preparing the data",
}
_BACK = "the master is back; it read its journal and goes on"
_FAILS = "the job fails: its processes are ended"


@dataclass(frozen=True)
class EventCursor:
    """Which of a master's decisions were printed."""

    master_generation: int = 0
    happened: int = 0
    state: str = ""  # of the newest line about it
    fails: bool = False


def events(seen: EventCursor, status: JobStatus) -> tuple[list[str], EventCursor]:
    """Return a line for each new event, and the new cursor."""
    fails = status.ending == JobState.FAILED
    lines, state = _new_lines(seen, status, fails=fails)
    if fails and not seen.fails:
        lines.insert(0, _FAILS)  # why is told once, at the end
    now = EventCursor(
        master_generation=status.master_generation,
        happened=status.happened_before + len(status.happened),
        state=state,
        fails=fails,
    )
    return lines, now


def _new_lines(
    seen: EventCursor, status: JobStatus, *, fails: bool
) -> tuple[list[str], str]:
    """Return the new lines, and the job's state in the last of them."""
    if not seen.master_generation:
        # A job that goes on has a history that its own launch does not repeat.
        line = _state_line(status.state, status.message)
        return ([] if fails else [line]), str(status.state)
    same = seen.master_generation == status.master_generation
    told = seen.happened if same else 0
    lines: list[str] = []
    if told < status.happened_before:
        count = text.plural(status.happened_before - told, "happening")
        lines.append(f"{count} left out here; `elasticdl explain` has all")
    state, said = seen.state, ""
    for one in status.happened[max(0, told - status.happened_before) :]:
        if one.kind == HappeningKind.STATE:
            if one.cause != state and not fails:
                lines.append(_state_line(JobState(one.cause), one.detail))
                said = one.detail
            state = one.cause
        elif one.kind != HappeningKind.ATTENTION or (one.text != said and not fails):
            lines += _line(one, fails=fails)
    return lines, state


def _line(one: Decision, *, fails: bool) -> Sequence[str]:
    if one.kind == HappeningKind.ENDED:
        return [_ended_line(one)] if one.replacement or not fails else []
    if one.kind == HappeningKind.ATTENTION:
        return [text.first_line(one.text)]
    if one.kind == HappeningKind.EVALUATED:
        return [one.text]
    if one.kind == HappeningKind.MASTER:
        return [_BACK]
    return [one.text] if one.kind == HappeningKind.REWOUND else []


def evaluation_line(evaluation: EvaluationResult) -> str:
    """`evaluation at version 400: accuracy 0.9781`."""
    return (
        f"evaluation at version {evaluation.version}: "
        f"{text.metrics(evaluation.metrics)}"
    )


def _ended_line(ended: Decision) -> str:
    after = (
        f"{ended.replacement} takes its place"
        if ended.replacement and ended.replacement != ended.replica
        else "it is started again"
        if ended.replacement
        else "it is not replaced"
    )
    detail = text.first_line(ended.detail)
    why = f"{ended.cause} ({detail})" if detail else ended.cause
    return f"{ended.replica} {why}: {after}"


def _state_line(state: JobState, message: str) -> str:
    if message:
        return f"{state}: {text.first_line(message)}"
    return _STATES.get(state, str(state))
