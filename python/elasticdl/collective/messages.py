"""What members of a group say to each other, and what a member is told to do.

Owns these values. Made and read by `collective.protocol`; encoded by `collective.wire`.
A plan, a gradient and a state are opaque here: the group's user makes them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Round:
    """Who is in, by the master's word. Numbers never repeat, also over masters.

    Attributes:
        number: Above that of every earlier round.
        members: Worker indexes, the oldest first; the first one leads.
        since: By member, the first of the rounds that it has been in without a gap. A
            state that a member got before that round does not count: the others have
            made steps without it.
        begins: No record is acknowledged yet. If nobody has a state that counts, the
            leader makes one: the job's initial state or a checkpoint's.
    """

    number: int
    members: tuple[int, ...]
    since: tuple[int, ...]
    begins: bool = False

    @property
    def leader(self) -> int:
        """The member that makes the plans."""
        return self.members[0]

    def parts_of_bucket(self, *, direct: bool) -> int:
        """Return into how many parts a bucket of a gradient is cut.

        One for each member, which adds it up; `direct`: two members exchange whole
        buckets, and each adds up all of it.
        """
        num_members = len(self.members)
        return 1 if direct and num_members == 2 else num_members


# -- between members ------------------------------------------------------------------


@dataclass(frozen=True)
class Copy:
    """What a newcomer has of the group's state before it is a member.

    Attributes:
        sponsor: The member that it has it from.
        round: The one in which the sponsor was when the newcomer began to listen.
        version: Steps in it.
    """

    sponsor: int
    round: int
    version: int


@dataclass(frozen=True)
class Hello:
    """The first word in a round: the version of the sender; None without a state.

    `copy`: of a newcomer, so that it only needs the steps that it has not.
    """

    version: int | None
    copy: Copy | None = None


@dataclass(frozen=True)
class HandOver:
    """The reduced gradient of a step, for a member that has not made that step.

    `members`: of the round in which it was computed, which the plan was divided among.
    """

    step: int
    plan: Any
    parts: tuple[Any, ...]
    members: tuple[int, ...] = ()


@dataclass(frozen=True)
class Snapshot:
    """The whole state at a version, for a newcomer.

    Also for a member one step behind, where whoever is ahead has not made that step
    itself: it was a newcomer.
    """

    version: int
    state: Any


@dataclass(frozen=True)
class Header:
    """The sender has made all steps before this one and begins it.

    `plan`: of the leader alone; which records are in the step, and who takes which.
    `word`: of the others; what their worker says to the leader's.
    """

    step: int
    plan: Any = None
    word: bytes = b""


@dataclass(frozen=True)
class Piece:
    """The sender's part of its gradient, for a member that adds this part up."""

    step: int
    part: int
    data: Any


@dataclass(frozen=True)
class Reduced:
    """A part that is added up, from the member that has added it."""

    step: int
    part: int
    data: Any


@dataclass(frozen=True)
class Finished:
    """The sender goes into a newer round, in which all members of this one are.

    It has made all steps before `step` and makes no other one here. Others may still
    make the step before it, and `step` itself if the sender has given its parts of it.
    """

    step: int


Message = Hello | HandOver | Snapshot | Header | Piece | Reduced | Finished


# -- to the member's own process ------------------------------------------------------


@dataclass(frozen=True)
class Send:
    """Send a message to a member."""

    to: int
    message: Message


@dataclass(frozen=True)
class Entered:
    """Messages are of this round from now on.

    `lingers`: others may still need what was sent in the round before.
    """

    round: Round
    lingers: bool


@dataclass(frozen=True)
class Compute:
    """Compute the own share of a step; answer with `Participant.computed`.

    A plan belongs to a round: the next one may have another leader, and other records.
    """

    step: int
    plan: Any
    round: int


@dataclass(frozen=True)
class Add:
    """Add pieces up, in this order; answer with `Participant.added`."""

    step: int
    part: int
    pieces: tuple[Any, ...]


@dataclass(frozen=True)
class Apply:
    """Apply a step's reduced gradient to the own state, then call `applied`.

    `members`: those that the plan was divided among.
    """

    step: int
    plan: Any
    parts: tuple[Any, ...]
    members: tuple[int, ...] = ()


@dataclass(frozen=True)
class Follow:
    """As `Apply`, of a step that this process had no part in: it is a newcomer."""

    step: int
    plan: Any
    parts: tuple[Any, ...]
    members: tuple[int, ...] = ()


@dataclass(frozen=True)
class Take:
    """Take this state in place of the own one, then call `applied`."""

    version: int
    state: Any


@dataclass(frozen=True)
class Begin:
    """Make the state with which all begin, then call `began`: nobody has one."""

    round: int


@dataclass(frozen=True)
class Acknowledge:
    """The records of a step are in the state of every member: report them."""

    step: int
    plan: Any


@dataclass(frozen=True)
class Broken:
    """The round cannot go on without a member: tell the master."""

    round: int
    member: int


@dataclass(frozen=True)
class Stateless:
    """No member of the round has a state: only a checkpoint helps."""

    round: int


Action = (
    Send
    | Entered
    | Compute
    | Add
    | Apply
    | Follow
    | Take
    | Begin
    | Acknowledge
    | Broken
    | Stateless
)
