"""How members of a group make steps together, and lose none of them: decisions alone.

Owns the order of messages in a round: hello, hand-over, header, pieces, reduced parts.
Called by `collective.group` with what arrived, under its lock, and by the schedules of
tests. Must not know sockets, threads, time or what a plan, a gradient and a state are.

There is no barrier at a step's end. Before a step each member sends all others a
header, and a step needs a piece of every member. So whoever finishes step s knows that
all have made the steps before it, and survivors of any loss are at most one step apart.
The one ahead still has the reduced gradient and hands it over in the next round, so
that all are equal to the last bit. The records of step s are acknowledged when the
headers of step s + 1 are complete: then every member has made step s, and any survivor
has it.

A round to which members are only added begins between two steps: each member finishes
the step that it computes, says that it makes no more, and waits in the new round.

A newcomer listens before it is a member: it takes a copy of a member's state, its
sponsor's, and follows the steps after it. In its first round it is handed the few steps
that it has not. The copy counts while the sponsor is there: without it the others may
make its last step anew, perhaps with another sum.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from math import inf
from typing import Any

from elasticdl.collective.handing import Made, lacking, newest, sponsor_of
from elasticdl.collective.messages import (
    Acknowledge,
    Action,
    Apply,
    Begin,
    Broken,
    Compute,
    Copy,
    Entered,
    Finished,
    Follow,
    HandOver,
    Header,
    Hello,
    Message,
    Piece,
    Reduced,
    Round,
    Send,
    Snapshot,
    Stateless,
    Take,
)
from elasticdl.collective.summing import Summing


def _no_steps(version: int) -> None:
    """Return that no steps are kept for newcomers."""
    del version


class Participant:
    """One member. Every method returns what its process has to do, in this order.

    After `Apply`, `Follow` and `Take` the next call is `applied`, after `Begin` it is
    `began`; others wait for it. `Compute` and `Add` may take their time meanwhile.
    """

    def __init__(
        self,
        me: int,
        *,
        make_plan: Callable[[int], Any],
        state: Callable[[], Any],
        kept: Callable[[int], Sequence[HandOver] | None] = _no_steps,
        buckets: int = 1,
        direct: bool = False,
    ) -> None:
        """Take the own number and what a leader needs.

        Args:
            me: Number of this worker.
            make_plan: step -> which records it has; called while this member leads.
            state: Returns the whole own state, for newcomers.
            kept: version -> all steps made since, for a newcomer that this member is
                the sponsor of; None if they are not there any more.
            buckets: Into how many a gradient is cut; each has a part for each member.
            direct: Two members exchange whole buckets. Of all members alike.
        """
        self._me = me
        self._version: int | None = None  # until it is the group's own
        self._level_in = 0  # the last round in which it was
        self._make_plan = make_plan
        self._state = state
        self._kept = kept
        self._buckets, self._direct = buckets, direct
        self._round: Round | None = None
        self._next: Round | None = None  # entered when the present step is made
        self._listens = False
        self._copy: Copy | None = None
        self._made: Made | None = None
        self._acknowledges = False  # that step, when all have made it
        self._level_with: set[int] = set()  # members that have had this one's state
        self._leaves = False
        self._reset()

    def _reset(self) -> None:
        self._broken = False
        self._level = False  # all hellos are there, and the own state is the group's
        self._begun = -1  # the step that is being computed
        self._end = inf  # the first step that some member has no part in
        self._hellos: dict[int, Hello] = {}
        # Steps in the own copy while it is not level, and steps that came too early.
        self._at: int | None = None
        self._early: dict[int, HandOver] = {}
        self._headers: dict[int, dict[int, Header]] = defaultdict(dict)
        self._summing = Summing(
            self._me, self._round, buckets=self._buckets, direct=self._direct
        )

    @property
    def version(self) -> int | None:
        """Steps that are in the own state; None while there is no state that counts."""
        return self._version

    @property
    def copied(self) -> bool:
        """Whether this newcomer has a copy of its sponsor's state."""
        return self._listens and self._copy is not None

    @property
    def level(self) -> bool:
        """Whether all members of the round were heard and the own state is theirs."""
        return self._level and not self._broken

    @property
    def round(self) -> Round | None:
        """The round that this member has entered."""
        return self._round

    @property
    def is_last(self) -> bool:
        """Whether this member has the state and knows nobody else who has it."""
        return self._version is not None and not self._level_with

    # -- inputs ------------------------------------------------------------------------

    def enter(self, entered: Round, *, later: bool = False) -> list[Action]:
        """Begin a round. One that is not newer, or without this member, is ignored.

        It is entered after the step under way where that can be made; `later`: what
        changes the own state is being carried out. `Entered` says when.
        """
        newest = self._next or self._round
        if newest is not None and entered.number <= newest.number:
            return []
        if self._me not in entered.members:
            return []
        if later or self._finishes(entered):
            self._next = entered
            return []
        return self._enter(entered)

    def _finishes(self, entered: Round) -> bool:
        """Whether the step under way is to be made before a round begins."""
        return (
            self.level
            and not self._leaves
            and self._begun == self._version
            and self._begun < self._end
            and set(self._members) <= set(entered.members)
            and not self._is_void(entered)
        )

    def _is_void(self, entered: Round) -> bool:
        """Whether others made steps without this member since it had the state."""
        return self._level_in < entered.since[entered.members.index(self._me)]

    def _enter(self, entered: Round) -> list[Action]:
        lingers = self.level and set(self._members) <= set(entered.members)
        said = self._to_others(Finished(self._version or 0)) if lingers else []
        if self._is_void(entered):
            self._version = self._made = None
        self._round, self._next = entered, None
        self._level_with.intersection_update(entered.members)
        self._reset()
        self._listens = False
        if self._version is not None:
            self._copy = None
        self._at = self._copy.version if self._copy else None
        hello = self._hellos[self._me] = Hello(self._version, self._copy)
        begun = Entered(entered, lingers)
        return [*said, begun, *self._to_others(hello), *self._agree()]

    def leave(self) -> list[Action]:
        """Make no step any more; a round that waits begins: others get the state."""
        self._leaves = True
        return self._enter_next()

    def _enter_next(self) -> list[Action]:
        return self._enter(self._next) if self._next is not None else []

    def listen(self) -> list[Action]:
        """Begin to get a copy beside a round without this worker; its state is void."""
        self._listens, self._copy, self._next = True, None, None
        self._version = self._made = None
        self._reset()
        self._broken = True
        return []

    def listened(
        self, sponsor: int, number: int, message: HandOver | Snapshot
    ) -> list[Action]:
        """Take what a sponsor sends to this newcomer; `number`: its round at first."""
        if not self._listens:
            return []
        if isinstance(message, Snapshot):
            self._copy = Copy(sponsor, number, message.version)
            return [Take(message.version, message.state)]
        copy = self._copy
        if copy != Copy(sponsor, number, message.step):
            return []
        self._copy = replace(copy, version=message.step + 1)
        return [Follow(message.step, message.plan, message.parts, message.members)]

    def received(self, sender: int, number: int, message: Message) -> list[Action]:
        """Take a member's message of a round; one of another round is ignored."""
        if self._is_over(number) or sender not in self._members:
            return []
        match message:
            case Hello():
                self._hellos[sender] = message
                return self._agree()
            case HandOver() | Snapshot():
                return self._caught_up(message)
            case Header(step):
                self._headers[step][sender] = message
                self._level_with.add(sender)
                return [*self._acknowledged(step), *self._compute()]
            case Piece():
                return self._summing.piece(sender, message)
            case Reduced(step, part, data):
                self._summing.reduced(step, part, data)
                return self._finish(step)
            case Finished(step):
                self._end, mine = min(self._end, step), self._version
                return self._enter_next() if mine is not None and step <= mine else []

    def _caught_up(self, message: HandOver | Snapshot) -> list[Action]:
        if self._level:
            return []
        if isinstance(message, Snapshot):
            self._copy = self._at = None
            self._version, self._made = message.version, None
            return [Take(message.version, message.state)]
        self._early[message.step] = message
        return self._follow()

    def _follow(self) -> list[Action]:
        """Make the next of the steps that this member was handed in this round."""
        mine = self._version if self._version is not None else self._at
        message = self._early.pop(mine, None) if mine is not None else None
        if message is None:
            return self._arrived()
        if self._version is not None:
            return [self._make(message)]
        self._at = message.step + 1
        if self._copy is not None:
            self._copy = replace(self._copy, version=self._at)
        self._made, self._acknowledges = Made.by(message), True
        return [Follow(message.step, message.plan, message.parts, message.members)]

    def lost(self, member: int, number: int) -> list[Action]:
        """Give round `number` up: a member's connection has ended."""
        if self._is_over(number):
            return []
        self._broken = True
        return self._enter_next() or [Broken(number, member)]

    def computed(
        self, step: int, number: int, parts: tuple[Any, ...], *, bucket: int = 0
    ) -> list[Action]:
        """Take a bucket of the own gradient, cut into its parts.

        Each bucket of a step comes once, in any order.
        """
        if self._is_over(number) or step != self._version:
            return []
        return self._summing.computed(step, bucket, parts)

    def alone(self, step: int, number: int) -> bool:
        """Whether this member is the only one in round `number` and is at this step."""
        return (
            not self._is_over(number)
            and self._level
            and self._members == (self._me,)
            and step == self._version
        )

    def made_alone(self, step: int, plan: Any) -> None:
        """Note a step that this member made in one go; then call `applied`.

        Nobody else was in it, so that there are no parts to hand over.
        """
        self._note_made(Made(step, plan, (), (self._me,)))

    def added(self, step: int, number: int, part: int, data: Any) -> list[Action]:
        """Take the sum of one of the own parts."""
        if self._is_over(number):
            return []
        return [*self._summing.added(step, part, data), *self._finish(step)]

    def began(self) -> list[Action]:
        """Go on after a `Begin` was carried out: the own state is the group's."""
        if self._round is None:
            return []
        if not self._broken:
            self._version = 0
        if self._next is not None:
            return self._enter_next()
        if self._broken:
            return []
        self._hellos[self._me] = Hello(0)
        return self._agree()

    def not_begun(self) -> list[Action]:
        """Give the round up after a `Begin` that was not possible."""
        self._broken = True
        return self._enter_next()

    def applied(self) -> list[Action]:
        """Go on after an `Apply`, a `Follow` or a `Take` was carried out."""
        if self._next is not None:
            return self._enter_next()
        if self._broken:
            return []
        return self._begin() if self._level else self._follow()

    # -- decisions ---------------------------------------------------------------------

    def _is_over(self, number: int) -> bool:
        """Whether nothing of round `number` counts (any more)."""
        return self._broken or self._round is None or number != self._round.number

    @property
    def _members(self) -> tuple[int, ...]:
        return self._round.members if self._round is not None else ()

    def _to_others(self, message: Message) -> list[Action]:
        return [Send(member, message) for member in self._members if member != self._me]

    def _agree(self) -> list[Action]:
        """Return what makes all members level, once all of them were heard."""
        if self._level or len(self._hellos) < len(self._members):
            return []
        target = newest(self._hellos)
        if target is None and self._version is None:
            return self._without_state()
        if sponsor_of(self._me, self._hellos, self._round) is None:
            self._at = None  # the whole state is on the way
        handed: list[Action] = []
        if target is not None:
            handed = [
                Send(member, message)
                for member, hello in self._hellos.items()
                if member != self._me and hello.version != target
                for message in self._handed(member, target)
            ]
        return [*handed, *self._arrived()]

    def _arrived(self) -> list[Action]:
        """Begin to make steps, if all were heard and nothing is lacking any more."""
        if len(self._hellos) < len(self._members):
            return []
        target, mine = newest(self._hellos), self._version
        if mine is None and target is not None:
            mine = self._at
        if mine is None or mine < (target or 0):
            return []
        self._version, self._copy = mine, None
        return self._begin()

    def _without_state(self) -> list[Action]:
        entered = self._round
        if entered is None or not entered.begins:
            self._broken = True
            return [Stateless(entered.number)] if entered else []
        if self._me != entered.leader:
            return []  # its state is on the way
        return [Begin(entered.number)]

    def _handed(self, member: int, target: int) -> Sequence[Message]:
        """Return what this member gives to another one that is behind.

        That is the first member of those ahead, and for a newcomer its sponsor, which
        may be a step behind itself: then the first one adds this step.
        """
        hello = self._hellos[member]
        first = next(m for m in self._members if self._hellos[m].version == target)
        sponsor = sponsor_of(member, self._hellos, self._round)
        if sponsor == self._me and hello.copy is not None:
            kept = self._kept(hello.copy.version)
            if kept is not None:
                return kept
            return [Snapshot(self._version or 0, self._state())]
        if first != self._me:
            return []
        behind = hello.version
        if sponsor is not None:
            behind = self._hellos[sponsor].version
            if behind == target:
                return []
        return [lacking(behind, target, self._made, self._state)]

    def _begin(self) -> list[Action]:
        """Begin the next step: its header goes to all, its plan with the leader's."""
        step = self._version
        if step is None or self._round is None:
            raise RuntimeError("a step begins without a state or a round")
        self._level, self._level_in = True, self._round.number
        plan = self._make_plan(step) if self._me == self._round.leader else None
        header = Header(step, plan)
        self._headers[step][self._me] = header
        return [
            *self._to_others(header),
            *self._acknowledged(step),
            *self._compute(),
        ]

    def _acknowledged(self, step: int) -> list[Action]:
        """Return the acknowledgement of the step before, if all have made it."""
        made = self._made
        if made is None or not self._acknowledges or made.step != step - 1:
            return []
        if len(self._headers[step]) < len(self._members):
            return []
        self._acknowledges = False
        return [Acknowledge(made.step, made.plan)]

    def _compute(self) -> list[Action]:
        """Compute the present step, once its plan is there."""
        step = self._version
        if not self._level or step is None or self._begun == step or not self._round:
            return []
        header = self._headers[step].get(self._round.leader)
        if header is None:
            return []
        self._begun = step
        return [Compute(step, header.plan, self._round.number)]

    def _finish(self, step: int) -> list[Action]:
        parts = self._summing.whole(step) if step == self._version else None
        if parts is None:
            return []
        header = self._headers[step][self._members[0]]
        return [self._make(HandOver(step, header.plan, parts, self._members))]

    def _make(self, made: HandOver) -> Apply:
        self._note_made(Made.by(made))
        return Apply(made.step, made.plan, made.parts, made.members)

    def _note_made(self, made: Made) -> None:
        self._made, self._acknowledges = made, True
        self._version = made.step + 1
        self._headers.pop(made.step, None)
        self._summing.forget(made.step)
