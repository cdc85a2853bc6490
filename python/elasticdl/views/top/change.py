"""The last change of who is there in a job, and what it cost.

Owns which of the losses and new sizes it is. Called by `views.top.model`. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from elasticdl.job.decision import Decision
from elasticdl.job.words import HappeningKind
from elasticdl.views import formatting as text

_RESIZED = (HappeningKind.GROWN, HappeningKind.SHRUNK)
_CAME, _LEFT = HappeningKind.JOINED, HappeningKind.LEFT
_OTHERWISE = (*_RESIZED, HappeningKind.ENDED, HappeningKind.STATE, HappeningKind.MASTER)


@dataclass(frozen=True)
class LastChange:
    """The last change of the replicas."""

    ago_seconds: float
    text: str
    cost: str  # until a replacement worked, or until all are there
    open: bool  # that time is not over


def last_change(decisions: Sequence[Decision], *, now: float) -> LastChange | None:
    """Return the last loss of a replica or change of size; None if there was none.

    `decisions`: what happened to the job, in the order of time.
    """
    for place in reversed(range(len(decisions))):
        one, later = decisions[place], decisions[place + 1 :]
        if one.kind in _RESIZED:
            return _resized(one, later, now=now)
        if one.kind == HappeningKind.ENDED:
            return _lost(one, later, now=now)
    return None


def _lost(lost: Decision, later: Sequence[Decision], *, now: float) -> LastChange:
    """Return a loss, with the time until the replacement worked."""
    replaced = (
        "not replaced"
        if not lost.replacement
        else "started again"
        if lost.replacement == lost.replica
        else f"{lost.replacement} in its place"
    )
    ago = max(0.0, now - lost.time)
    works = [
        one.cost_seconds
        for one in later
        if one.kind == HappeningKind.RELAUNCHED
        and (one.replica, one.replacement) == (lost.replica, lost.replacement)
    ]
    gone = any(one.kind == _LEFT and one.replica == lost.replacement for one in later)
    going = bool(lost.replacement) and not (works or gone)
    cost = ""
    if going:
        cost = f"cost {text.duration(ago)} so far"
    elif works:
        cost = f"cost {text.duration(works[-1] or 0.0)}"
    return LastChange(ago, f"{lost.replica} {lost.cause}, {replaced}", cost, going)


def _resized(change: Decision, later: Sequence[Decision], *, now: float) -> LastChange:
    """Return a resize, with how long it took until the last worker joined or left."""
    came = _LEFT if change.kind == HappeningKind.SHRUNK else _CAME
    last = None
    for decision in later:
        if decision.kind == came:
            last = decision.time
        elif decision.kind in _OTHERWISE:
            break  # who comes now comes for another reason
    cost = ""
    if last is not None:
        word = "gone" if came == _LEFT else "there"
        cost = f"{word} after {text.duration(max(0.0, last - change.time))}"
    ago = max(0.0, now - change.time)
    return LastChange(ago, change.cause or change.text, cost, open=False)
