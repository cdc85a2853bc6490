"""Random schedules of a group: losses at any moment, newcomers, masters that restart.

Newcomers listen to the leader before they are members, or come without a copy. Members
leave in order, too; they freeze, are counted out and come back with their old round;
they lose their connection to one another while both live.

Runs rendezvous, plan and protocol as they are: see `schedules_master` for the one, and
`schedules_process` for the others. The network keeps the order of each connection and
nothing else; a member dies between any two of its actions; the master hears of it
later, and words to it are late. Time is simulated. A gradient is the records of a
share, counted in each part, so that what was applied how often can be read off the
state.

    python -m tests.unit.collective.schedules 0:10000
"""

from __future__ import annotations

import logging
import random
import sys
from collections import Counter, deque
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from elasticdl.collective.messages import Message, Round
from elasticdl.collective.protocol import Participant
from elasticdl.worker.group.plan import StepPlan

from tests.unit.collective.schedules_master import Master
from tests.unit.collective.schedules_process import Process
from tests.unit.collective.schedules_state import State, random_events, totals

_NOTICED_SECONDS = 5.0  # after which a dead connection ends
_STILL_SECONDS = 200.0  # a time in which nobody does anything but talk to the master
_EVENT = 0.015  # how often something happens from outside
_LOSS_AHEAD = 0.06
_WORD = 0.35  # how often it is one of a word's ways, though the group could go on

Move = Callable[[], object]


class World:
    """Members, links and a master; `rng` decides what happens next."""

    def __init__(
        self,
        seed: int,
        kind: type[Participant] = Participant,
        master: type[Master] = Master,
    ) -> None:
        self.rng = random.Random(seed)
        self.direct = seed % 2 == 1  # two members exchange whole buckets
        self.kind = kind
        self.now = 1000.0
        self.moved_at = self.now
        self.processes: dict[int, Process] = {}
        # By sender, receiver and round: each has a connection of its own.
        self.links: dict[tuple[int, int, int], deque[Message]] = {}
        self.cuts: dict[frozenset[int], tuple[float, float]] = {}  # from when, to when
        self.ended: set[tuple[int, frozenset[int]]] = set()  # connections, by round
        self.acknowledged: set[int] = set()
        self.saved: State | None = None  # the newest checkpoint
        self.round = Round(0, (), ())
        self.next_index = 1  # the master takes 0 for "not known"
        self.next_key = 0
        self.went_back = False
        self.changed = False  # states, versions or the round
        self.disturbed = False  # a process is frozen, or a connection ended or cut
        self.wrong = ""
        self.master = master(self)
        # How often these happened.
        self.deaths = self.freezes = self.thawed = self.lost_links = 0
        self.left = self.left_unanswered = self.handed_over = self.unreported = 0

    # -- what happens from outside -----------------------------------------------------

    def spawn(self) -> None:
        self.processes[self.next_index] = Process(self, self.next_index, self.kind)
        self.next_index += 1

    def chance(self, event: str) -> float:
        """Return how often something happens; a loss while one member is ahead more."""
        if event == "kill" and len(set(self.counting().values())) > 1:
            return _LOSS_AHEAD
        return _EVENT

    def happen(self, event: str) -> None:
        """Let something happen, if there is whom it can happen to."""
        here = sorted(self.processes)
        match event:
            case "kill":
                several = min(len(here), self.rng.choice((1, 1, 2)))
                for victim in self.rng.sample(here, several):
                    if len(self.processes) > 1:
                        self._end(victim)
                        self.deaths += 1
            case "spawn":
                self.spawn()
            case "restart":
                self.master.restart(self.rng.uniform(0.0, 8.0))
            case "leave" if len(here) > 1:
                self._leave(self.processes[self.rng.choice(here)])
            case "freeze" if len(here) > 1:
                self._freeze(self.processes[self.rng.choice(here)])
            case "cut" if len(here) > 1:
                until = self.now + self.rng.choice((3.0, 12.0, 30.0))
                self.cuts[frozenset(self.rng.sample(here, 2))] = self.now, until
            case "differ":
                self._differ()

    def _leave(self, process: Process) -> None:
        if process.leaving is None and process.begin_to_leave():
            self._end(process.index)

    def _end(self, index: int) -> None:
        self.processes.pop(index).stop_listening()

    def _freeze(self, process: Process) -> None:
        if not process.thaws_at:
            seconds = self.rng.choice((3.0, 12.0, 25.0, 35.0))
            process.frozen_at, process.thaws_at = self.now, self.now + seconds
            self.freezes += 1

    def _differ(self) -> None:
        """Let the leader say that another member's state differs from its own."""
        leader = self.processes.get(self.round.leader)
        others = [m for m in self.round.members[1:] if m in self.processes]
        if leader and leader.level and leader.at == self.round.number and others:
            leader.link.differ((self.rng.choice(others),))

    @property
    def ordered(self) -> bool:
        """Whether all who are gone left in order, and all others are there."""
        lost = self.deaths + self.freezes + self.lost_links + self.left_unanswered
        return not (lost or self.master.kept_out or self.master.back)

    # -- what processes and the master tell --------------------------------------------

    def send(self, sender: int, to: int, number: int, message: Message) -> None:
        self.links.setdefault((sender, to, number), deque()).append(message)

    def open(self, one: int, other: int) -> bool:
        """Whether two that are there reach each other now."""
        both = [self.processes.get(index) for index in (one, other)]
        there = all(process and not process.thaws_at for process in both)
        return there and frozenset((one, other)) not in self.cuts

    def reaches(self, one: int, other: int, number: int) -> bool:
        """Whether another process connects for a round."""
        process = self.processes.get(other)
        if process is None or number not in process.begun - process.closed:
            return False
        return one == other or self.open(one, other)

    def formed(self, formed: Round) -> None:
        """Take a new round."""
        if formed.number <= self.round.number:
            self.wrong = f"round {formed.number} comes after {self.round.number}"
        self.round, self.changed = formed, True

    def acknowledge(self, process: Process, plan: StepPlan) -> None:
        """Note records, unless their leader is out: then the master takes no report."""
        entered = process.participant.round
        leads = entered is not None and entered.leader == process.index
        if leads and process.at >= self.since(process.index):
            self.acknowledged.update(range(plan.start, plan.end))
            self.changed = True

    def begins(self, process: Process) -> None:
        """Note that a member begins with initial values; who is out alone does so."""
        if process.at < self.since(process.index):
            return
        if self.master.accepted:
            self.wrong = "a member begins anew after records were reported"
        # What a leader meant to report and never did is lost with all who had it.
        self.unreported += len(self.acknowledged)
        self.acknowledged.clear()
        self.changed = True

    def since(self, index: int) -> float:
        """Return the first round in which a member's state counts."""
        if index not in self.round.members:
            return float("inf")
        return self.round.since[self.round.members.index(index)]

    def counting(self) -> dict[int, int]:
        """Return the versions of the states that count."""
        return {
            index: process.participant.version
            for index, process in self.processes.items()
            if process.participant.version is not None
            and process.at >= self.since(index)
        }

    # -- moves -------------------------------------------------------------------------

    def moves(self) -> list[Move]:
        """Return what can happen now in the group."""
        self._heal()
        frozen = any(process.thaws_at for process in self.processes.values())
        self.disturbed = bool(frozen or self.ended or self.cuts)
        found: list[Move] = []
        for process in self.processes.values():
            if not process.thaws_at:
                found += self._moves_of(process)
            elif self.now >= process.thaws_at:
                found.append(partial(self._thaw, process))
        return [*found, *self._deliveries()]

    def words(self) -> list[Move]:
        """Return what can happen now between the group and the master."""
        found = [*self._moves_of_master()]
        for process in self.processes.values():
            if not process.thaws_at:
                found += self._words_of(process)
        return found

    def _heal(self) -> None:
        for pair in [p for p, (_, until) in self.cuts.items() if self.now >= until]:
            del self.cuts[pair]
            for sender, to, number in list(self.links):
                if (number, pair) in self.ended and pair == {sender, to}:
                    del self.links[sender, to, number]

    def _thaw(self, process: Process) -> None:
        process.frozen_at = process.thaws_at = 0.0
        self.thawed += 1

    def _moves_of(self, process: Process) -> Iterator[Move]:
        if process.todo:
            yield process.step
        for place, (at, _) in enumerate(process.work):
            if self.now >= at:
                yield partial(self._work, process, place)
        if process.connects():
            yield process.connect
        elif process.gives_up():
            yield process.not_reached
        gone = self._lost_by(process)
        if gone is not None:
            yield partial(self._lose, process, gone)
        if process.can_listen():
            yield process.start_listening
        if process.can_hear():
            yield process.hear
        if process.goes():
            yield partial(self._left, process)

    def _work(self, process: Process, place: int) -> None:
        _, call = process.work.pop(place)
        process.do(call())

    def _left(self, process: Process) -> None:
        self._end(process.index)
        self.left += 1
        self.left_unanswered += not process.link.goes
        self.handed_over += process.stayed

    def _lost_by(self, process: Process) -> int | None:
        """Return a member whose connection with a process has ended."""
        entered = process.participant.round
        if entered is None or not process.hears_losses:
            return None
        return next(
            (m for m in entered.members if self._is_lost(process, m, entered.number)),
            None,
        )

    def _is_lost(self, process: Process, member: int, number: int) -> bool:
        other = self.processes.get(member)
        if other is None or number in other.closed:
            return True
        if not self.disturbed or other is process:
            return False
        pair = frozenset((process.index, member))
        if (number, pair) in self.ended:
            return True
        since = other.frozen_at if other.thaws_at else self.now
        cut_at, _ = self.cuts.get(pair, (self.now, 0.0))
        return self.now - min(since, cut_at) > _NOTICED_SECONDS

    def _lose(self, process: Process, member: int) -> None:
        pair = frozenset((process.index, member))
        if member in self.processes:
            self.lost_links += pair in self.cuts
            self.ended.add((process.at, pair))
        process.hears_losses = False
        process.do(process.participant.lost(member, process.at))

    def _deliveries(self) -> Iterator[Move]:
        for key, link in list(self.links.items()):
            sender, to, number = key
            receiver = self.processes.get(to)
            if receiver is None or not link:
                del self.links[key]
            elif receiver.thaws_at or frozenset((sender, to)) in self.cuts:
                continue
            elif number <= receiver.at:
                yield partial(self._deliver, sender, receiver, number, link)

    def _deliver(
        self, sender: int, receiver: Process, number: int, link: deque[Any]
    ) -> None:
        # What is of an older round comes at once: it has to be ignored.
        for _ in range(1 if number == receiver.at else len(link)):
            receiver.do(receiver.participant.received(sender, number, link.popleft()))

    # -- words -------------------------------------------------------------------------

    def _words_of(self, process: Process) -> Iterator[Move]:
        if process.can_say():
            yield process.say
        elif process.said is not None:
            yield process.told if process.answer else partial(self._hear, process)
        if process.can_ask():
            yield process.ask
        elif process.asked is not None:
            yield process.answered if process.reply else partial(self._serve, process)

    def _hear(self, process: Process) -> None:
        if self.master.away:
            process.answer = (None,)
            return
        if self._is_sent_away(process):
            return
        report, version = process.said
        process.answer = (self.master.hear(process.index, report, version),)

    def _serve(self, process: Process) -> None:
        held, reports, wants = process.asked
        if self.master.away:
            process.asked = None
            return
        if self._is_sent_away(process):
            return
        process.reply = self.master.call(process.index, held, reports, wants=wants)

    def _is_sent_away(self, process: Process) -> bool:
        """End a process that comes back from the dead: the master refuses its calls."""
        if process.index not in self.master.fenced:
            return False
        self._end(process.index)
        self.master.back += 1
        return True

    def _moves_of_master(self) -> Iterator[Move]:
        master = self.master
        if master.away:
            return
        if self.now >= master.ticks_at:
            yield master.tick
        gone = [number for number in master.alive if number not in self.processes]
        if gone and self.now >= master.settles_until:
            yield partial(master.lost, self.rng.choice(sorted(gone)))
        saves = self.processes.get(master.asks_to_save() or 0)
        if saves is not None and saves.leaving and not saves.thaws_at:
            yield partial(self._save, saves)

    def _save(self, process: Process) -> None:
        self.saved = process.state.copy()
        self.master.saved = self.saved.work.version

    def move(self) -> bool:
        """Let the next thing happen; return False where nothing ever will."""
        found = self.moves()
        if found:
            self.moved_at = self.now
        elif self.now - self.moved_at > _STILL_SECONDS:
            return False
        self.now += self.rng.choice((0.0, 0.02, 0.05, 0.2))
        if not found or self.rng.random() < _WORD:
            found = self.words() or found
        if found:
            self.rng.choice(found)()
        else:
            self.now += 0.3
        return True


def run(
    seed: int,
    *,
    kind: type[Participant] = Participant,
    master: type[Master] = Master,
    steps: int = 6,
) -> tuple[World, str]:
    """Run one schedule; return the world and what is wrong with it, "" if nothing."""
    world = World(seed, kind, master)
    rng = world.rng
    for _ in range(rng.randint(1, 5)):
        world.spawn()
    events = random_events(rng)
    for _ in range(30_000):
        if events and world.round.number and rng.random() < world.chance(events[-1]):
            world.happen(events.pop())
        elif not world.move():
            return world, "nothing can move"
        wrong = _wrong_now(world)
        if wrong:
            return world, wrong
        if world.went_back or not world.processes:
            return world, _wrong_where_all_left(world)
        if not events and _is_over(world, steps):
            return world, _wrong_at_end(world)
    return world, "it does not come to its end"


def _is_over(world: World, steps: int) -> bool:
    """Whether all who live make steps together, and have made enough."""
    return all(
        process.at == world.round.number
        and not process.leaving
        and process.level
        and process.state.work.version >= steps
        for process in world.processes.values()
    )


def _wrong_now(world: World) -> str:
    if world.wrong or not world.changed:
        return world.wrong
    world.changed = False
    versions = world.counting()
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


def _wrong_where_all_left(world: World) -> str:
    """Return what is wrong where the job is over, or goes back to a checkpoint."""
    stays = {n for n in world.master.alive if not world.master.words.may_go(n)}
    has = [index for index in world.counting() if index in stays]
    if has:
        return f"the job goes back though {has} have the state"
    if not world.ordered or not world.acknowledged:
        return ""
    if world.saved is None:
        return "the state is lost, though all who left did so in order"
    return _wrong_in(world, world.saved)


def _wrong_at_end(world: World) -> str:
    versions = world.counting()
    if not versions:
        return "nobody has a state"
    best = max(versions, key=lambda index: versions[index])
    return _wrong_in(world, world.processes[best].state)


def _wrong_in(world: World, state: State) -> str:
    for place, part in enumerate(state.parts):
        twice = [record for record, count in part.items() if count != 1]
        if twice:
            return f"records {twice} are in part {place} more than once"
        lost = [r for r in world.acknowledged | world.master.accepted if r not in part]
        if lost:
            return f"acknowledged records {lost} are not in part {place}"
    return ""


def main() -> int:
    """Run the schedules of a range of seeds (`0:10000`); print those that are wrong."""
    logging.disable(logging.CRITICAL)
    first, end = (int(number) for number in sys.argv[1].split(":"))
    failed, found = 0, Counter[str]()
    for seed in range(first, end):
        world, wrong = run(seed)
        found.update(totals(world))
        if wrong:
            failed += 1
            print(f"seed {seed}: {wrong}")
    told = ", ".join(f"{count} {what}" for what, count in found.items())
    print(f"{end - first} schedules, {told}: {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
