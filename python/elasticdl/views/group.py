"""What people read of a group of workers: its round, its cost, who is last, who is out.

Owns these sentences. Called by the views in terminal and browser. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from elasticdl.job.status import GroupOut, GroupStatus, ReplicaStatus
from elasticdl.job.words import OutCause
from elasticdl.views import formatting as text

_OUT = {
    OutCause.LEFT_OUT: "left out: other members did not reach it",
    OutCause.LEAVING: "leaving",
    OutCause.PREPARING: "preparing its model",
    OutCause.COPYING: "copying the group's state",
    OutCause.MINIMUM: "waiting for more workers (worker.min)",
    OutCause.JOINING: "joining with the next round",
}


def group_lines(group: GroupStatus, replicas: Sequence[ReplicaStatus]) -> Iterator[str]:
    """Yield all that is known, a line for each thing."""
    if words := round_words(group):
        yield f"round {words}"
    if words := cost_words(group):
        yield words
    if words := _shares(group, replicas):
        yield words
    if words := out_words(group):
        yield words


def round_words(group: GroupStatus) -> str:
    """Return number, members by age and why it began; "" before the first round."""
    if not group.members:
        return ""
    leader, *others = group.members
    members = ", ".join([f"{leader} (leads)", *others])
    return f"{group.round} of {members}: {group.why}"


def cost_words(group: GroupStatus) -> str:
    """Return what changes of rounds cost, and who is waited for."""
    parts = []
    if group.change_seconds is not None:
        cost = text.duration(group.change_seconds)
        total = text.duration(group.changes_seconds)
        parts.append(f"the change to it cost {cost}, all changes {total}")
    elif group.changes_seconds:
        parts.append(f"changes of rounds cost {text.duration(group.changes_seconds)}")
    if group.repairs:
        parts.append(f"values of members differed {_times(group.repairs)}")
    if group.last:
        parts.append(f"the others wait for {group.last}")
    return "; ".join(parts)


def _times(number: int) -> str:
    return "once" if number == 1 else f"{text.count(number)} times"


def _shares(group: GroupStatus, replicas: Sequence[ReplicaStatus]) -> str:
    """Return what a step with others costs each member; "" for one that is alone."""
    if len(group.members) < 2:
        return ""  # what it said is of the round before
    parts = [
        f"{one.name} waits {text.short_duration(one.wait_seconds)} and sends "
        f"{text.size(one.step_bytes)}"
        for one in replicas
        if one.name in group.members and one.step_bytes
    ]
    return f"in a step {', '.join(parts)}" if parts else ""


def out_words(group: GroupStatus) -> str:
    """Return who runs and is in no round, and why; "" if all are in."""
    return "; ".join(f"{one.name}: {_why_out(one)}" for one in group.out)


def _why_out(out: GroupOut) -> str:
    words = _OUT[out.cause]
    if out.seconds is None:
        return words
    return f"{words}; may come back in {text.duration(out.seconds)}"
