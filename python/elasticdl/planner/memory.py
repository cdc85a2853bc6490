"""What the planner remembers from one plan to the next.

Owns the frozen types of it. Whoever plans hands back what the last plan brought, and
`Memory()` after a start; nobody but the planner looks inside. It may be lost: then an
exchange is perhaps tried once more, and a pause is shorter.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from elasticdl.planner.view import JobKey, Placement, Resources


@dataclass(frozen=True)
class Asked:
    """What the last plan asked of a job, until the job's grant says so."""

    key: JobKey
    size: int
    leave: tuple[int, ...]
    at: float  # when this was first asked
    # The grant as it was seen then: while it is still that one, ours is on its way.
    before: tuple[int | None, tuple[int, ...]]


@dataclass(frozen=True)
class Expected:
    """Workers that a job was given and that have no node yet."""

    key: JobKey
    nodes: tuple[str, ...]  # where there was room for them
    unmade: int  # of them, those without a pod
    since: float  # since when none of them was made
    free_since: float = 0.0  # since when there has been room for one with a pod
    unseen: int = 0  # pods that others make (`Crew.unseen`), and since when none of
    unseen_since: float = 0.0  # them was made


@dataclass(frozen=True)
class Newest:
    """The newest worker of a job that was seen, which may be gone."""

    key: JobKey
    arrived: float  # when the job came: another one of its name numbers anew
    index: int
    more: Resources  # that its pod asked for than the template, when it came
    # Where the newest one may be that no gate holds, and its index; None: not seen.
    where: Placement | None = None
    where_index: int = -1
    told: Placement | None = None  # by the template then: another run may have another


@dataclass(frozen=True)
class Pause:
    """A job whose worker waited in vain: it does not grow for a while."""

    key: JobKey
    arrived: float  # when the job came: another one of its name has not waited
    since: float
    until: float
    seconds: float  # its length; the next one is twice as long
    why: str
    early: float  # seconds after which news may end it
    asks: tuple[object, ...]  # what the job was then
    stuck: bool  # whether one of its floor waits on
    # How many of its workers each node could hold at most, when one waited in vain.
    chances: tuple[tuple[str, int], ...]
    unmade: int = 0  # of its pods, without which it waits for nothing: nobody made them
    handed_on: bool = False  # by a job that is gone: until a pod of this one is made


@dataclass(frozen=True)
class Vain:
    """A pod that is there, or several alike, that no node takes though one has room.

    Or was there: an equal one that comes instead waits in vain as it did.
    """

    pods: str  # `Ask.pods`
    kind: str = ""  # `Ask.kind`: those are equal
    free_since: float = 0.0  # since when there has been room for it; 0: there is none
    waited: float = 0.0  # seconds that there was before, off and on
    until: float = 0.0  # no room is kept for it until then
    seconds: float = 0.0  # for so long; the next time twice as long
    lost_since: float = 0.0  # since when others have been coming to room made for it
    gone_since: float = 0.0  # since when it is there no more; 0: it is

    def in_vain_at(self, unseen_seconds: float) -> float:
        """Return when it has waited long enough beside free room."""
        return self.free_since + unseen_seconds - self.waited


@dataclass(frozen=True)
class Move:
    """One step of an exchange: who receives, and who gave for it."""

    to: JobKey
    node: str  # where the room is made
    givers: tuple[JobKey, ...]

    @property
    def kind(self) -> tuple[JobKey, ...]:
        """Return what is not repeated if it brings nothing."""
        return (self.to, *self.givers)


@dataclass(frozen=True)
class Tried:
    """A kind of moves that brought nothing."""

    kind: tuple[JobKey, ...]
    frame: str  # in any other one it may be tried at once
    situation: str  # in which it is not tried again; "" where that is not known
    until: float  # nor before that in any other one
    seconds: float  # between both; the next time twice as long


@dataclass(frozen=True)
class Fairness:
    """What exchanges have brought."""

    frame: str = ""  # nodes and jobs: in other ones other things bring nothing
    situation: str = ""  # these and the pods of others
    best: tuple[float, ...] = ()  # the best sorted shares that were reached in it
    tried: tuple[Tried, ...] = ()
    open: tuple[Move, ...] = ()  # whose room is not free yet
    judged: tuple[tuple[JobKey, ...], ...] = ()  # kinds whose result is not known yet
    since: float = 0.0  # of the open ones
    given: tuple[tuple[JobKey, float], ...] = ()  # who was given its room, and when
    frozen: tuple[tuple[JobKey, float], ...] = ()  # jobs that were moved, until when


@dataclass(frozen=True)
class Memory:
    """All of it."""

    asked: tuple[Asked, ...] = ()
    kept: tuple[tuple[str, tuple[str, ...]], ...] = ()  # nodes, for pods of others
    expected: tuple[Expected, ...] = ()
    pauses: tuple[Pause, ...] = ()
    vain: tuple[Vain, ...] = ()
    newest: tuple[Newest, ...] = ()
    fairness: Fairness = Fairness()
    # By step: who found no room in plans that had no time for all; others go first.
    passed: tuple[tuple[str, frozenset[JobKey | str]], ...] = ()
    going: tuple[tuple[str, float], ...] = ()  # pods that are to leave, and since when

    def as_of(self, now: float, *, freeze_seconds: float) -> Memory:
        """Return it without times to come: a clock may have been set back.

        What began then begins now, and ends no later than if it did.
        """
        fairness = self.fairness
        return replace(
            self,
            asked=tuple(replace(one, at=min(one.at, now)) for one in self.asked),
            expected=tuple(
                replace(
                    one,
                    since=min(one.since, now),
                    free_since=min(one.free_since, now),
                    unseen_since=min(one.unseen_since, now),
                )
                for one in self.expected
            ),
            pauses=tuple(
                replace(
                    one,
                    since=min(one.since, now),
                    until=min(one.until, now + one.seconds),
                )
                for one in self.pauses
            ),
            vain=tuple(
                replace(
                    one,
                    free_since=min(one.free_since, now),
                    until=min(one.until, now + one.seconds),
                    lost_since=min(one.lost_since, now),
                    gone_since=min(one.gone_since, now),
                )
                for one in self.vain
            ),
            going=tuple((pod, min(at, now)) for pod, at in self.going),
            fairness=replace(
                fairness,
                since=min(fairness.since, now),
                tried=tuple(
                    replace(one, until=min(one.until, now + one.seconds))
                    for one in fairness.tried
                ),
                given=tuple((key, min(at, now)) for key, at in fairness.given),
                frozen=tuple(
                    (key, min(until, now + freeze_seconds))
                    for key, until in fairness.frozen
                ),
            ),
        )
