"""The last change of who is there in a job, and what it cost.

Owns which of the losses and new sizes it is. Called by `views.top.model`. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from elasticdl.job.history import Decision
from elasticdl.job.status import JobStatus
from elasticdl.job.words import Happening, ReplicaState
from elasticdl.views import formatting as text

_RESIZED = (Happening.GROWN, Happening.SHRUNK)
_CAME, _LEFT = Happening.JOINED, Happening.LEFT
_OTHERWISE = (*_RESIZED, Happening.ENDED, Happening.STATE, Happening.MASTER)


@dataclass(frozen=True)
class Change:
    """The last change of who is there."""

    ago_seconds: float
    text: str
    cost: str  # until a replacement worked, or until all are there
    open: bool  # that time is not over


def last_change(
    status: JobStatus, decisions: Sequence[Decision], *, now: float
) -> Change | None:
    """Return what last changed who is there: a replica lost, or another size."""
    lost = status.relaunches[-1] if status.relaunches else None
    resized = [d for d in decisions if d.kind in _RESIZED]
    if resized and (lost is None or resized[-1].time > lost.time):
        return _resized(resized[-1], decisions, now=now)
    if lost is None:
        return None
    replaced = (
        "not replaced"
        if not lost.replacement
        else "started again"
        if lost.replacement == lost.replica
        else f"{lost.replacement} in its place"
    )
    ago = max(0.0, now - lost.time)
    living = any(
        r.name == lost.replacement and r.state != ReplicaState.ENDED
        for r in status.replicas
    )
    going = living and lost.seconds is None
    cost = ""
    if going:
        cost = f"cost {text.duration(ago)} so far"
    elif lost.seconds is not None:
        cost = f"cost {text.duration(lost.seconds)}"
    return Change(ago, f"{lost.replica} {lost.reason}, {replaced}", cost, going)


def _resized(change: Decision, decisions: Sequence[Decision], *, now: float) -> Change:
    """Return a resize, with how long it took until the last worker joined or left."""
    came = _LEFT if change.kind == Happening.SHRUNK else _CAME
    last = None
    for decision in decisions[decisions.index(change) + 1 :]:
        if decision.kind == came:
            last = decision.time
        elif decision.kind in _OTHERWISE:
            break  # who comes now comes for another reason
    cost = ""
    if last is not None:
        word = "gone" if came == _LEFT else "there"
        cost = f"{word} after {text.duration(max(0.0, last - change.time))}"
    ago = max(0.0, now - change.time)
    return Change(ago, change.cause or change.text, cost, open=False)
