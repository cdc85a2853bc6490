"""A member's process in the random schedules: protocol, plan and words as they are.

It stands for `collective.group` and `worker.group.loop`: it does what the protocol
tells it, one action at a time, with a `Work`, a `Feed`, a `GroupLink` and `Leaving`.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from elasticdl.collective.feed import Feed
from elasticdl.collective.messages import (
    Acknowledge,
    Action,
    Add,
    Apply,
    Begin,
    Broken,
    Compute,
    Entered,
    Follow,
    HandOver,
    Round,
    Send,
    Snapshot,
    Stateless,
    Take,
)
from elasticdl.collective.protocol import Participant
from elasticdl.worker.group.leaving import Leaving
from elasticdl.worker.group.link import GroupLink
from elasticdl.worker.group.plan import StepPlan, share

from tests.unit.collective.schedules_master import Reply
from tests.unit.collective.schedules_state import PARTS, RECORDS, State

if TYPE_CHECKING:
    from tests.unit.collective.schedules import World

BUCKETS = 2  # of a gradient
_MOST_KEPT = 3  # steps, for newcomers
_CONNECT_SECONDS = 5.0
_IDLE_SECONDS = 0.5  # without a task
_KNOWN_STEPS = 2


class Process:
    """A member's process; also the group that its link and its leaving see."""

    def __init__(self, world: World, index: int, kind: type[Participant]) -> None:
        self.world = world
        self.index = index
        self.state = State()
        self.todo: deque[tuple[int, Action]] = deque()  # (round, action)
        # What takes its time: from when on it may be there.
        self.work: list[tuple[float, Callable[[], list[Action]]]] = []
        self.feed = Feed(_MOST_KEPT)
        self.followed = 0  # steps, as a newcomer
        self.at = 0  # the round that messages are of
        # Rounds.
        self.wanted: Round | None = None  # its members are being connected to
        self.wanted_at = 0.0
        self.entry: Round | None = None  # what is copied is waited for
        self.begun: set[int] = set()  # rounds that it connects, or has connected
        self.connected: set[int] = set()  # and has not entered
        self.lingering: set[int] = set()
        self.closed: set[int] = set()
        self.hears_losses = True  # it has heard of none in the round
        # A newcomer's.
        self.sponsor: int | None = None
        self.sponsor_at = 0.0
        self.key: int | None = None  # under which the sponsor knows it
        self.copied = False  # nearly level, or it gave up
        # Words.
        self.link = GroupLink(self, index, f"at {index}", None)
        self.said: Any = None  # a word that is on its way
        self.answer: tuple[Any] | None = None  # to it
        self.says_at = 0.0
        self.asked: Any = None  # a call for tasks that is on its way
        self.reply: Reply | None = None
        self.outbox: set[int] = set()  # tasks whose report has not arrived
        self.reported: set[int] = set()
        self.leaving: Leaving | None = None
        self.left_at = 0.0
        self.stayed = False  # it was told to stay until others have its state
        self.frozen_at = self.thaws_at = 0.0  # 0: it is not
        self.participant = kind(
            index,
            make_plan=self._plan,
            state=self._copy,
            kept=self.feed.since,
            buckets=BUCKETS,
            direct=world.direct,
        )

    def _plan(self, step: int) -> bytes:
        """As `worker.group.position` does."""
        del step
        work = self.state.work
        totals = work.totals.items()
        work.keep([i for i, of in totals if i in self.outbox or not of.reported])
        return work.plan(RECORDS).encoded()

    def _copy(self) -> State:
        return self.state.copy()

    # -- as a group --------------------------------------------------------------------

    @property
    def round(self) -> int:
        return self.participant.round.number if self.participant.round else 0

    version = property(lambda self: self.participant.version)
    level = property(lambda self: self.participant.level)

    @property
    def is_last(self) -> bool:
        return self.participant.is_last

    @property
    def sponsors(self) -> bool:
        return self.feed.is_heard

    def leave(self) -> None:
        self.work.clear()
        self.do(self.participant.leave())

    def enter(self, wanted: Round, addresses: Mapping[int, str]) -> None:
        """Begin to connect to the members of a round."""
        del addresses
        newest = self.wanted.number if self.wanted else self.round
        if wanted.number <= newest:
            return
        self._give_up_wanted()
        self.wanted, self.wanted_at = wanted, self.world.now
        self.begun.add(wanted.number)
        if not self._copies_for(wanted):
            self.stop_listening()

    def listen(self, told: Round, addresses: Mapping[int, str]) -> None:
        """Begin to copy the leader's state beside a round without this process."""
        del addresses
        if told.number <= self.round:
            return
        if self.wanted is not None:
            if self.wanted.number > told.number:
                return
            self._give_up_wanted()
        self.entry = None
        if self.sponsor in told.members and not self.copied:
            return
        self.stop_listening()
        self.sponsor, self.sponsor_at = told.leader, self.world.now

    def _give_up_wanted(self) -> None:
        if self.wanted is not None:
            self.closed.add(self.wanted.number)
            self.wanted = None

    # -- rounds ------------------------------------------------------------------------

    def connects(self) -> bool:
        """Whether all members of the round that is wanted connect to each other."""
        wanted = self.wanted
        return wanted is not None and all(
            self.world.reaches(self.index, other, wanted.number)
            for other in wanted.members
        )

    def connect(self) -> None:
        """Have connections to all members of the round that is wanted."""
        entered, self.wanted = self.wanted, None
        assert entered is not None
        self.connected.add(entered.number)
        self.entry = entered
        if not self._copies_for(entered):
            self.stop_listening()
            self._enter()

    def gives_up(self) -> bool:
        late = self.world.now - self.wanted_at > _CONNECT_SECONDS
        return self.wanted is not None and late and not self.connects()

    def not_reached(self) -> None:
        """Tell the master that a round cannot begin."""
        wanted = self.wanted
        assert wanted is not None
        self._give_up_wanted()
        member = next(
            other
            for other in wanted.members
            if not self.world.reaches(self.index, other, wanted.number)
        )
        self.todo.append((wanted.number, Broken(wanted.number, member)))

    def _enter(self) -> None:
        entered, self.entry = self.entry, None
        if entered is None:
            return
        early = {number for number in self.connected if number < entered.number}
        self.closed |= early
        self.connected -= early
        self.do(self.participant.enter(entered))

    def _entered(self, entered: Round, *, lingers: bool) -> None:
        (self.lingering if lingers else self.closed).add(self.at)
        self.connected.discard(entered.number)
        self.at, self.hears_losses = entered.number, True
        self.world.changed = True
        self.feed.entered(entered.members)

    # -- as a newcomer -----------------------------------------------------------------

    def _copies_for(self, wanted: Round) -> bool:
        return (
            self.key is not None
            and self.participant.copied
            and self.sponsor in wanted.members
        )

    def stop_listening(self) -> None:
        sponsor = self._sponsor()
        if sponsor is not None and self.key is not None:
            sponsor.feed.ended(self.key, now=self.world.now)
        self.sponsor, self.key, self.copied = None, None, False

    def _sponsor(self) -> Process | None:
        return self.world.processes.get(self.sponsor or 0)

    def can_listen(self) -> bool:
        sponsor = self._sponsor()
        return (
            self.key is None
            and not self.copied
            and self.wanted is None
            and sponsor is not None
            and self.world.open(self.index, sponsor.index)
            and sponsor.participant.version is not None
        )

    def start_listening(self) -> None:
        sponsor = self._sponsor()
        assert sponsor is not None
        copy = None
        if sponsor.feed.needs_copy:
            version = sponsor.participant.version or 0
            copy = Snapshot(version, sponsor.state.copy())
        self.world.next_key += 1
        self.key = self.world.next_key
        sponsor.feed.open(self.key, self.index, copy)
        self.listens_in = sponsor.at
        self.feed.clear()
        self.do(self.participant.listen())

    def can_hear(self) -> bool:
        """Whether there is something to hear, or no more will be."""
        sponsor = self._sponsor()
        if self.key is None:
            waits = self.sponsor is not None and not self.copied
            return waits and self.world.now - self.sponsor_at > _CONNECT_SECONDS
        if sponsor is None or not sponsor.feed.listens(self.key):
            return True
        if not self.world.open(self.index, sponsor.index):
            return False
        if self.entry is not None and sponsor.feed.over(self.key):
            return True
        return sponsor.feed.next(self.key) is not None or (
            self.participant.copied and not self.copied
        )

    def hear(self) -> None:
        """Take the next thing that the sponsor sends; without one it is level."""
        sponsor = self._sponsor()
        if sponsor is None or self.key is None or not sponsor.feed.listens(self.key):
            self._hears_no_more()
            return
        message = sponsor.feed.next(self.key)
        # Now and then it is let in as it is: it came no nearer.
        self.copied |= message is None or self.world.rng.random() < 0.1
        if message is None:
            if sponsor.feed.over(self.key):
                self._hears_no_more()
            return
        self.do(self.participant.listened(sponsor.index, self.listens_in, message))
        copied = isinstance(message, Snapshot)
        has = message.version if copied else message.step + 1
        sponsor.feed.has(self.key, has)

    def _hears_no_more(self) -> None:
        sponsor = self._sponsor()
        if sponsor is not None and self.key is not None:
            sponsor.feed.ended(self.key, now=self.world.now)
        self.key, self.copied = None, True
        self._enter()

    # -- words to the master -----------------------------------------------------------

    def can_say(self) -> bool:
        return self.said is None and self.world.now >= self.says_at

    def say(self) -> None:
        self.said, self.answer = (self.link.report(), self.state.work.version), None

    def told(self) -> None:
        assert self.answer is not None
        (order,), self.said = self.answer, None
        self.answer = None
        self.says_at = self.world.now + self.world.rng.uniform(0.2, 1.0)
        if order is not None:
            self.link.told(order)
            self.stayed |= self.link.stays

    def can_ask(self) -> bool:
        return self.asked is None and bool(self.outbox or self._needs_tasks())

    def _needs_tasks(self) -> bool:
        if self.leaving or not self._leads:
            return False
        work = self.state.work
        left = sum(t.end - work.totals[t.lease_id].reached for t in work.unfinished())
        return left < _KNOWN_STEPS * RECORDS

    @property
    def _leads(self) -> bool:
        entered, version = self.participant.round, self.participant.version
        return (
            entered is not None and entered.leader == self.index and version is not None
        )

    def ask(self) -> None:
        """Call for tasks and report, in one."""
        held = {*self.state.work.tasks, *self.outbox}
        self.asked, self.reply = (held, set(self.outbox), self._needs_tasks()), None

    def answered(self) -> None:
        assert self.reply is not None
        reply, self.asked, self.reply = self.reply, None, None
        self.outbox.difference_update(reply.arrived)
        if self._leads:
            self.state.work.add(
                t for t in reply.tasks if t.lease_id not in self.reported
            )

    def _report(self) -> None:
        """Report the tasks whose records all members have, as `GroupLoop` does."""
        work = self.state.work
        for task in work.finished() if self.link.leads else ():
            if not work.totals[task.lease_id].reported:
                work.totals[task.lease_id].reported = True
                self.outbox.add(task.lease_id)
                self.reported.add(task.lease_id)

    # -- leaving -----------------------------------------------------------------------

    def begin_to_leave(self) -> bool:
        """Make no step any more; return whether it goes at once: it has no state."""
        if self.participant.version is None:
            return True
        self.left_at, self.says_at = self.world.now, 0.0
        self.leaving = Leaving(
            self, self.link, version=lambda: self.state.work.version, most_seconds=1e9
        )
        return False

    def goes(self) -> bool:
        seconds = self.world.now - self.left_at
        return self.leaving is not None and not self.leaving.stays(seconds)

    # -- actions -----------------------------------------------------------------------

    def do(self, actions: list[Action]) -> None:
        # What changes the state happens in the call itself; the rest may be cut off.
        for action in actions:
            match action:
                case Entered(entered, lingers):
                    self._entered(entered, lingers=lingers)
                case Apply(step, plan, parts, members):
                    self._apply(plan, parts, members)
                    self.world.changed = True
                    self.feed.made(
                        HandOver(step, plan, parts, members), now=self.world.now
                    )
                    self.do(self.participant.applied())
                case Follow(_, plan, parts, members):
                    self.followed += 1
                    self._apply(plan, parts, members)
                    self.do(self.participant.applied())
                case Begin():
                    self.feed.clear()
                    self.state = State()
                    self._drop_computes()
                    self.world.begins(self)
                    self.do(self.participant.began())
                case Take(_, state):
                    self.feed.clear()
                    self.state = state.copy()
                    self._drop_computes()
                    self.world.changed = True
                    self.do(self.participant.applied())
                case Compute() if self.participant.round:
                    self.feed.joined(self.participant.round.members)
                    self.closed |= self.lingering
                    self.lingering.clear()
                    self.todo.append((self.at, action))
                case _:
                    self.todo.append((self.at, action))

    def _drop_computes(self) -> None:
        """Drop what would be done before the state is another: all are in one queue."""
        self.todo = deque(one for one in self.todo if not isinstance(one[1], Compute))

    def step(self) -> None:
        """Carry out the next action."""
        number, action = self.todo.popleft()
        match action:
            case Send(to, message):
                self.world.send(self.index, to, number, message)
            case Compute(step, plan, number):
                self._begin_step(step, plan, number)
            case Add(step, part, pieces):
                self.work.append((0.0, lambda: self._add(number, step, part, pieces)))
            case Acknowledge(_, plan):
                self.world.acknowledge(self, StepPlan.decoded(plan))
                self._report()
            case Broken(broken, member):
                self.link.broke(broken, member)
            case Stateless(broken):
                self.link.stateless(broken)

    def _begin_step(self, step: int, raw: bytes, number: int) -> None:
        if self.leaving or number != self.round:
            return
        plan = StepPlan.decoded(raw)
        self.state.work.follow(plan, leads=self.link.leads)
        if plan.lease_id and self._makes_alone(step, number):
            for part in self.state.parts:
                part.update(range(plan.start, plan.end))
            self._note(plan, (self.index,))
            self.world.changed = True
            self.participant.made_alone(step, raw)
            self.do(self.participant.applied())
            return
        idle = not plan.lease_id and self.link.leads
        at = self.world.now + _IDLE_SECONDS if idle else 0.0
        self.work += [
            (at, partial(self._compute, number, step, plan, bucket))
            for bucket in range(BUCKETS)
        ]

    def _makes_alone(self, step: int, number: int) -> bool:
        """Make the step in one go, now and then."""
        if self.feed.active or not self.participant.alone(step, number):
            return False
        return self.world.rng.random() < 0.7

    def _apply(
        self, raw: bytes, parts: tuple[Any, ...], members: tuple[int, ...]
    ) -> None:
        plan = StepPlan.decoded(raw)
        if not plan.lease_id:
            return
        self.state.work.follow(plan, leads=self.link.leads)
        for part in parts:
            for place, counts in part:
                self.state.parts[place].update(counts)
        self._note(plan, members)

    def _note(self, plan: StepPlan, members: tuple[int, ...]) -> None:
        self.world.wrong = self.state.made(plan, members) or self.world.wrong

    def _compute(
        self, number: int, step: int, plan: StepPlan, bucket: int
    ) -> list[Action]:
        entered = self.participant.round
        if entered is None or entered.number != number:
            return []
        n = len(entered.members)
        counts = Counter(range(*share(plan, entered.members.index(self.index), n)))
        # A part of the gradient has the places of the state that belong to it.
        cut = entered.parts_of_bucket(direct=self.world.direct)
        first = bucket * cut
        parts = tuple(
            tuple((place, counts) for place in range(part, PARTS, cut * BUCKETS))
            for part in range(first, first + cut)
        )
        return self.participant.computed(step, number, parts, bucket=bucket)

    def _add(
        self, number: int, step: int, part: int, pieces: tuple[Any, ...]
    ) -> list[Action]:
        total: dict[int, Counter[int]] = {}
        for piece in pieces:
            for place, counts in piece:
                total[place] = total.get(place, Counter()) + counts
        return self.participant.added(step, number, part, tuple(total.items()))
