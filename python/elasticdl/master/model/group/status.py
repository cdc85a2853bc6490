"""What is shown of a group: what its changes cost, who is last, who is out and why.

Owns these figures and the rule of who is last. Fed and asked by `group.holder`.
Must not decide who is in a round.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from elasticdl.job.heartbeats import GroupFigures
from elasticdl.job.status import GroupOut
from elasticdl.job.words import OutCause
from elasticdl.master.members.member import Member

# A member is last while each other one waits longer than it by this share of a step.
_LAST = 0.2


class Changes:
    """What changes of rounds cost, as leaders tell."""

    def __init__(self, number: int = 0, seconds: float = 0.0) -> None:
        """Continue at a round, and the seconds that those before it cost."""
        self._number = number
        self._before = seconds
        self.seconds: float | None = None  # of the change to the present round

    @property
    def all_seconds(self) -> float:
        """Seconds that all changes cost."""
        return round(self._before + (self.seconds or 0.0), 3)

    def began(self, number: int) -> None:
        """Note that a round was formed."""
        self._before, self.seconds = self.all_seconds, None
        self._number = number

    def heard(self, said: GroupFigures) -> bool:
        """Take what the leader says; return whether that is news."""
        known = self.seconds is not None
        if known or said.round != self._number or not said.change_seconds:
            return False
        self.seconds = said.change_seconds
        return True


def last_of(members: Iterable[Member]) -> str:
    """Return the member that the others wait for; "" if they wait for nobody."""
    waits = sorted(
        (one.worker.group_figures.wait_seconds, one.worker.step_seconds, one.name)
        for one in members
        if one.worker and one.worker.group_figures.round
    )
    if len(waits) < 2:
        return ""
    (least, step, name), (next_least, _, _), *_ = waits
    return name if next_least - least > _LAST * step else ""


@dataclass(frozen=True)
class Outside:
    """What decides over who is out."""

    ready: Mapping[int, float]  # number of each that is ready -> until when left out
    copying: frozenset[int]  # of these, who gets the state beside the steps
    short: bool  # fewer are ready than have to be
    now: float


def out_of(members: Iterable[Member], around: Outside) -> list[GroupOut]:
    """Return why each of these running workers is out."""
    return [_out(one, around) for one in members]


def _out(member: Member, around: Outside) -> GroupOut:
    until = around.ready.get(member.generation)
    if member.drain:
        return GroupOut(name=member.name, cause=OutCause.LEAVING)
    if until is None:
        return GroupOut(name=member.name, cause=OutCause.PREPARING)
    if until > around.now:
        left = round(until - around.now, 1)
        return GroupOut(name=member.name, cause=OutCause.LEFT_OUT, seconds=left)
    return GroupOut(name=member.name, cause=_waits_for(member, around))


def _waits_for(member: Member, around: Outside) -> OutCause:
    if around.short:
        return OutCause.MINIMUM
    copying = member.generation in around.copying
    return OutCause.COPYING if copying else OutCause.JOINING
