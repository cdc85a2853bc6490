"""Random schedules of a group: losses at any moment, newcomers, masters that restart.

Newcomers listen to the leader before they are members, or come without a copy. Members
leave in order, too.

Runs the protocol as it is. The network keeps the order of each link and nothing else; a
member dies between any two of its actions; the master hears of it later. A gradient is
the records of a share, counted in each part, so that what was applied how often can be
read off the state.

    python -m tests.unit.collective.schedules 0:10000
"""

from __future__ import annotations

import random
import sys
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

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
    Message,
    Round,
    Send,
    Snapshot,
    Stateless,
    Take,
)
from elasticdl.collective.protocol import Participant

PARTS = 5  # a state has so many, whatever the number of members
RECORDS = 4  # of a step
BUCKETS = 2  # of a gradient
MOST_KEPT = 3  # steps, for newcomers


@dataclass
class State:
    """What a member has: per part, how often each record was applied; the position.

    `rounding` stands for what the order of a sum does to floats: it depends on who was
    in each step.
    """

    parts: list[Counter[int]] = field(
        default_factory=lambda: [Counter() for _ in range(PARTS)]
    )
    position: int = 0
    rounding: int = 0

    def copy(self) -> State:
        parts = [Counter(part) for part in self.parts]
        return State(parts, self.position, self.rounding)

    def key(self) -> Any:
        parts = [sorted(part.items()) for part in self.parts]
        return parts, self.position, self.rounding

    def moved(self, plan: tuple[int, ...], members: tuple[int, ...]) -> None:
        self.position += len(plan)
        self.rounding = hash((self.rounding, plan, members))


class Process:
    """A member's process: it does what the protocol tells it, one action at a time."""

    def __init__(self, world: World, index: int, kind: type[Participant]) -> None:
        self.world = world
        self.index = index
        self.state = State()
        self.todo: deque[tuple[int, Action]] = deque()  # (round, action)
        self.work: list[Callable[[], list[Action]]] = []  # takes its time
        self.feed = Feed(MOST_KEPT)
        self.listens_to: tuple[int, int] | None = None  # a process, its key there
        self.followed = 0  # steps, as a newcomer
        self.at = 0  # the round that messages are of
        self.closed: set[int] = set()  # rounds whose links it has closed
        self.waits = False  # a newer round waits for a step
        self.finished = 0  # steps made while a newer round waited
        self.leaves = False  # it makes no step any more
        self.participant = kind(
            index,
            make_plan=self._plan,
            state=self._copy,
            kept=self.feed.since,
            buckets=BUCKETS,
        )

    def _plan(self, step: int) -> tuple[int, ...]:
        del step
        at = self.state.position
        return tuple(range(at, at + RECORDS))

    def _copy(self) -> State:
        return self.state.copy()

    def number(self) -> int:
        return self.at

    def do(self, actions: list[Action]) -> None:
        # What changes the state happens in the call itself; the rest may be cut off.
        for action in actions:
            match action:
                case Entered(entered, lingers):
                    if not lingers:
                        self.closed.add(self.at)
                    self.at, self.waits = entered.number, False
                case Apply(step, plan, parts, members):
                    self.finished += self.waits
                    self._apply(plan, parts, members)
                    made = HandOver(step, plan, parts, members)
                    self.feed.made(made, now=0.0)
                    self.do(self.participant.applied())
                case Follow(_, plan, parts, members):
                    self.followed += 1
                    self._apply(plan, parts, members)
                    self.do(self.participant.applied())
                case Begin():
                    self.feed.clear()
                    self.do(self.participant.began())
                case Take(_, state):
                    self.feed.clear()
                    self.state = state.copy()
                    self.do(self.participant.applied())
                case _:
                    if isinstance(action, Compute) and self.participant.round:
                        self.feed.joined(self.participant.round.members)
                    self.todo.append((self.number(), action))

    # -- as a newcomer -----------------------------------------------------------------

    def can_listen(self) -> bool:
        """Whether the master has told this process of a round without it."""
        told = self.world.round
        sponsor = self.world.processes.get(told.leader) if told.members else None
        return (
            self.index not in told.members
            and self.number() < told.number
            and self.listens_to is None
            and sponsor is not None
            and sponsor.participant.version is not None
        )

    def listen(self) -> None:
        sponsor = self.world.processes[self.world.round.leader]
        participant = sponsor.participant
        version = participant.version or 0
        copy = None
        if sponsor.feed.needs_copy:
            copy = Snapshot(version, sponsor.state.copy())
        self.world.next_key += 1
        key = self.world.next_key
        sponsor.feed.open(key, self.index, copy)
        self.listens_to = sponsor.index, key
        self.listens_in = sponsor.number()
        self.do(self.participant.listen())

    def can_hear(self) -> bool:
        """Whether there is something to hear, or the sponsor is gone."""
        if self.listens_to is None:
            return False
        sponsor = self.world.processes.get(self.listens_to[0])
        if sponsor is None or not sponsor.feed.listens(self.listens_to[1]):
            return True
        return sponsor.feed.next(self.listens_to[1]) is not None

    def hear(self) -> None:
        assert self.listens_to is not None
        number, key = self.listens_to
        sponsor = self.world.processes.get(number)
        message = sponsor.feed.next(key) if sponsor is not None else None
        if sponsor is None or message is None:
            self.listens_to = None
            return
        self.do(self.participant.listened(number, self.listens_in, message))
        copied = isinstance(message, Snapshot)
        has = message.version if copied else message.step + 1
        sponsor.feed.has(key, has)

    def enter(self, entered: Round) -> None:
        if self.listens_to is not None:
            sponsor = self.world.processes.get(self.listens_to[0])
            if sponsor is not None:
                sponsor.feed.ended(self.listens_to[1], now=0.0)
        self.listens_to = None
        self.do(self.participant.enter(entered))
        # Else it finishes a step first.
        self.waits = self.at != entered.number

    def _apply(
        self, plan: tuple[int, ...], parts: tuple[Any, ...], members: tuple[int, ...]
    ) -> None:
        merged = [Counter[int]() for _ in range(PARTS)]
        for part in parts:
            for place, counts in part:
                merged[place] += counts
        for mine, more in zip(self.state.parts, merged, strict=True):
            mine.update(more)
        self.state.moved(plan, members)

    def step(self) -> None:
        """Carry out the next action."""
        number, action = self.todo.popleft()
        match action:
            case Send(to, message):
                self.world.send(self.index, to, number, message)
            case Compute() if self.leaves:
                pass
            case Compute(step, plan, number) if self._makes_alone(step, number):
                self.position_moved(plan)
                self.participant.made_alone(step, plan)
                self.do(self.participant.applied())
            case Compute(step, plan, number):
                self.work += [
                    partial(self._compute, number, step, plan, bucket)
                    for bucket in range(BUCKETS)
                ]
            case Add(step, part, pieces):
                self.work.append(lambda: self._add(number, step, part, pieces))
            case Acknowledge(_, plan):
                if self.participant.round and (
                    self.participant.round.leader == self.index
                ):
                    self.world.acknowledged.update(plan)
            case Broken(broken, _):
                self.world.broken.add((self.index, broken))
            case Stateless():
                self.world.stateless = True

    def _makes_alone(self, step: int, number: int) -> bool:
        """Make the step in one go, now and then."""
        if self.feed.active or not self.participant.alone(step, number):
            return False
        return self.world.rng.random() < 0.7

    def position_moved(self, plan: tuple[int, ...]) -> None:
        """Apply a step of this member alone."""
        for part in self.state.parts:
            part.update(plan)
        self.state.moved(plan, (self.index,))

    def _compute(
        self, number: int, step: int, plan: tuple[int, ...], bucket: int
    ) -> list[Action]:
        entered = self.participant.round
        if entered is None or entered.number != number:
            return []
        n = len(entered.members)
        share = plan[entered.members.index(self.index) :: n]
        # A part of the gradient has the places of the state that belong to it.
        first = bucket * n
        parts = tuple(
            tuple((place, Counter(share)) for place in range(part, PARTS, n * BUCKETS))
            for part in range(first, first + n)
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


class World:
    """Members, links and a master; `rng` decides what happens next."""

    def __init__(self, seed: int, kind: type[Participant] = Participant) -> None:
        self.rng = random.Random(seed)
        self.kind = kind
        self.processes: dict[int, Process] = {}
        self.links: dict[tuple[int, int], deque[tuple[int, Message]]] = {}
        self.acknowledged: set[int] = set()
        self.broken: set[tuple[int, int]] = set()
        self.stateless = False
        self.round = Round(0, (), ())
        self.told: dict[int, int] = {}  # member -> round that it was told of
        self.rounds: dict[int, Round] = {}
        self.next_index = 0
        self.next_key = 0
        self.deaths = 0
        self.left_out = 0
        self.handed_over = 0  # states, by members that left

    def send(self, sender: int, to: int, number: int, message: Message) -> None:
        self.links.setdefault((sender, to), deque()).append((number, message))

    def spawn(self) -> None:
        self.processes[self.next_index] = Process(self, self.next_index, self.kind)
        self.next_index += 1

    def kill(self, index: int) -> None:
        del self.processes[index]
        self.deaths += 1

    def leave(self, index: int) -> None:
        """Let a member leave in order: the last one with the state hands it over."""
        process = self.processes[index]
        if process.participant.is_last:
            process.leaves = True
            process.work.clear()
            process.do(process.participant.leave())
        elif self._others_have_it(index):
            del self.processes[index]

    def _others_have_it(self, index: int) -> bool:
        return any(
            other.participant.version is not None
            for other in self.processes.values()
            if other.index != index and not other.leaves
        )

    def _left(self, process: Process) -> None:
        del self.processes[process.index]
        self.handed_over += 1

    def form(self) -> None:
        """Let the master name a new round.

        Newcomers are in now and then, however far they are. A member that lives is left
        out now and then, and may come back.
        """
        old = [m for m in self.round.members if m in self.processes]
        leaves = any(self.processes[m].leaves for m in old)
        if len(old) > 1 and not leaves and self.rng.random() < 0.1:
            old.remove(self.rng.choice(old))
            self.left_out += 1
        new = [m for m in self.processes if m not in old]
        if old and not leaves and self.rng.random() < 0.3:
            new = []
        members = tuple(sorted(old + new))
        number = self.round.number + self.rng.choice((1, 1, 1, 5))
        since = dict(zip(self.round.members, self.round.since, strict=True))
        self.round = Round(
            number,
            members,
            tuple(since.get(m, number) for m in members),
            begins=not self.acknowledged,
        )
        self.rounds[self.round.number] = self.round

    def moves(self) -> list[Callable[[], None]]:
        """Return everything that can happen now, but for losses and newcomers."""
        found: list[Callable[[], None]] = []
        for index, process in self.processes.items():
            if process.todo:
                found.append(process.step)
            if process.leaves and not process.participant.is_last:
                found.append(partial(self._left, process))
            if process.can_listen():
                found.append(process.listen)
            if process.can_hear():
                found.append(process.hear)
            found.extend(
                lambda p=process, a=at: p.do(p.work.pop(a)())
                for at in range(len(process.work))
            )
            if self.told.get(index, 0) < self.round.number and (
                index in self.round.members
            ):
                found.append(lambda p=process: self._tell(p))
        for (sender, to), link in self.links.items():
            receiver = self.processes.get(to)
            if receiver is None or not link:
                continue
            number, _ = link[0]
            if number <= receiver.number():
                found.append(
                    lambda s=sender, r=receiver, q=link: self._deliver(s, r, q)
                )
        for index, process in self.processes.items():
            gone = self._lost_by(process)
            if gone is not None and (index, process.at) not in self.broken:
                found.append(
                    lambda p=process, m=gone, n=process.at: p.do(
                        p.participant.lost(m, n)
                    )
                )
        if self._must_form():
            found.append(self.form)
        return found

    def _lost_by(self, process: Process) -> int | None:
        """Return a member whose links with a process have ended."""
        entered = process.participant.round
        if entered is None or entered.number != process.at:
            return None
        for member in entered.members:
            other = self.processes.get(member)
            if other is None or entered.number in other.closed:
                return member
        return None

    def _must_form(self) -> bool:
        if any(m not in self.processes for m in self.round.members):
            return bool(self.processes)
        waits = [p for m, p in self.processes.items() if m not in self.round.members]
        if any(process.leaves for process in self.processes.values()):
            return bool(waits)
        # A newcomer's copy may be old, or it may have none, when its round begins.
        return bool(waits) and self.rng.random() < 0.05

    def _tell(self, process: Process) -> None:
        self.told[process.index] = self.round.number
        process.enter(self.round)

    def _deliver(self, sender: int, receiver: Process, link: deque[Any]) -> None:
        number, message = link.popleft()
        receiver.do(receiver.participant.received(sender, number, message))


def run(
    seed: int, *, kind: type[Participant] = Participant, steps: int = 6
) -> tuple[World, str]:
    """Run one schedule; return the world and what is wrong with it, "" if nothing."""
    world = World(seed, kind)
    rng = world.rng
    for _ in range(rng.randint(1, 5)):
        world.spawn()
    world.form()
    losses = rng.randint(0, 4)
    joins = rng.randint(0, 3)
    leaves = rng.randint(0, 2)
    limit = 20_000
    while limit:
        limit -= 1
        chance = rng.random()
        if losses and chance < 0.012 and len(world.processes) > 1:
            losses -= 1
            for victim in rng.sample(sorted(world.processes), rng.choice((1, 1, 2))):
                if len(world.processes) > 1:
                    world.kill(victim)
            continue
        if joins and 0.012 <= chance < 0.02:
            joins -= 1
            world.spawn()
            if rng.random() < 0.3:
                world.form()
            continue
        if leaves and 0.02 <= chance < 0.03 and len(world.processes) > 1:
            leaves -= 1
            world.leave(rng.choice(sorted(world.processes)))
            continue
        moves = world.moves()
        if not moves:
            return world, "nothing can move"
        rng.choice(moves)()
        wrong = _wrong_now(world)
        if world.stateless and not (world.deaths or world.left_out):
            return world, "the state is lost, though all who left did so in order"
        if all(process.leaves for process in world.processes.values()):
            return world, ""  # the newcomers were lost meanwhile
        if wrong or world.stateless:
            return world, wrong
        done = [p.participant.version or 0 for p in world.processes.values()]
        over = not losses or len(world.processes) == 1
        if over and not joins and min(done) >= steps:
            break
    return world, _wrong_at_end(world) if limit else "it does not come to its end"


def _wrong_now(world: World) -> str:
    versions = {
        index: process.participant.version
        for index, process in world.processes.items()
        if process.participant.version is not None
        and process.number() >= _since(world, index)
    }
    if versions and max(versions.values()) - min(versions.values()) > 1:
        return f"versions {versions} are more than one step apart"
    last = max(world.acknowledged, default=-1)
    behind = [i for i in versions if world.processes[i].state.position <= last]
    if behind:
        return f"record {last} is acknowledged and not in the states of {behind}"
    by_version: dict[int, Any] = {}
    for index, version in versions.items():
        key = world.processes[index].state.key()
        if by_version.setdefault(version, key) != key:
            return f"states of version {version} differ"
    return ""


def _since(world: World, index: int) -> float:
    entered = world.round
    if index not in entered.members:
        return float("inf")
    return entered.since[entered.members.index(index)]


def _wrong_at_end(world: World) -> str:
    best = max(
        (p for p in world.processes.values() if p.participant.version is not None),
        key=lambda p: p.participant.version or 0,
        default=None,
    )
    if best is None:
        return "nobody has a state"
    for place, part in enumerate(best.state.parts):
        twice = [record for record, count in part.items() if count != 1]
        if twice:
            return f"records {twice} are in part {place} more than once"
        lost = [r for r in world.acknowledged if r not in part]
        if lost:
            return f"acknowledged records {lost} are not in part {place}"
    return ""


def main() -> int:
    """Run the schedules of a range of seeds (`0:10000`); print those that are wrong."""
    first, end = (int(number) for number in sys.argv[1].split(":"))
    failed = losses = acknowledged = handed_over = 0
    for seed in range(first, end):
        world, wrong = run(seed)
        losses += world.deaths
        acknowledged += len(world.acknowledged)
        handed_over += world.handed_over
        if wrong:
            failed += 1
            print(f"seed {seed}: {wrong}")
    print(
        f"{end - first} schedules, {losses} losses, {acknowledged} records "
        f"acknowledged, {handed_over} states left to newcomers: {failed} failed"
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
