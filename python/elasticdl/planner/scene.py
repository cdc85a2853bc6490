"""The cluster while a plan is made: room, crews, and pods that ask for room.

Owns the few ways in which a plan changes it, and takes back what was only tried. Made
by `planner.carry`; each step of a plan works on it. Must not decide anything.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from elasticdl.planner.crew import Crew, Worker
from elasticdl.planner.memory import Pause, Vain
from elasticdl.planner.room import NOWHERE, Room, Shape
from elasticdl.planner.view import JobKey, Pod, Settings

# Nodes that a step of a plan looks at for workers that could leave them; each takes
# some 20 microseconds, and a plan that takes too long is none. What is left is for the
# next plan.
MOST_LOOKS = 50_000


@dataclass(frozen=True, eq=False)
class Ask:
    """A pod that goes before workers and has no node, or is not made yet."""

    shape: Shape
    priority: int
    since: float
    who: str
    pods: str  # all that are alike: of the same job and role
    kind: str = ""  # what an equal pod under another name asks for
    job: JobKey | None = None  # whose master or PS it is
    crew: Crew | None = None  # of that job
    nominated: int = NOWHERE
    made: bool = True  # there is a pod


@dataclass(eq=False)
class Scene:
    """All that a plan works on."""

    room: Room
    settings: Settings
    now: float
    frame: str
    situation: str
    crews: dict[JobKey, Crew] = field(default_factory=dict)
    asks: list[Ask] = field(default_factory=list)  # those without room yet
    asked: tuple[Ask, ...] = ()  # all of them
    on_node: list[list[Worker]] = field(default_factory=list)  # those that could go
    # Where there was room at the last plan, for workers, and for others by `Ask.pods`.
    remembered: dict[JobKey | str, list[int]] = field(default_factory=dict)
    kept: dict[str, list[int]] = field(default_factory=dict)  # by this plan, of asks
    rooms: list[tuple[Ask, int]] = field(default_factory=list)  # the same, and more
    lost: set[str] = field(default_factory=set)  # `Ask.pods` whose room others took
    waiting: dict[str, str] = field(default_factory=dict)  # `Ask.kind` by `Ask.pods`,
    # of those that are made; and those that wait in vain, or did, by `Ask.pods`.
    vains: dict[str, Vain] = field(default_factory=dict)
    pauses: dict[JobKey, Pause] = field(default_factory=dict)  # in force, or lately
    left: list[Pause] = field(default_factory=list)  # by jobs that are gone
    # Rooms that are being made for workers: a smaller one could take a part of one.
    made_rooms: list[tuple[int, Shape]] = field(default_factory=list)
    grown: int = 0  # workers added by this plan
    looks_left: int = MOST_LOOKS  # of this step
    passed: dict[str, frozenset[JobKey | str]] = field(default_factory=dict)
    were_going: dict[str, float] = field(default_factory=dict)  # since when, by pod
    going: dict[str, float] = field(default_factory=dict)  # the same, of this plan
    _trail: list[tuple[bool, Worker]] | None = None

    def may_look(self) -> bool:
        """Return whether there is time to look at one more node, and note that."""
        self.looks_left -= 1
        return self.looks_left >= 0

    def lingers(self, pod: Pod) -> bool:
        """Note a pod that is to leave; return whether it was to long ago.

        Its process may hang, or be given an hour, or the master is dead that should let
        it go: nobody waits for its room any more.
        """
        name = f"{pod.namespace}/{pod.name}"
        since = self.going[name] = self.were_going.get(name, self.now)
        return self.now - since >= self.settings.leave_seconds

    def never_ends(self, pod: Pod) -> bool:
        """Return whether a pod was to leave so long ago that it may never do."""
        since = self.going[f"{pod.namespace}/{pod.name}"]
        return self.now - since >= self.settings.max_pause_seconds

    def pass_over(self, step: str, whose: set[JobKey | str], *, in_time: bool) -> None:
        """Let others go first in the next plan, where there was no time for all.

        Else whoever finds no room took the same time from the same others each time.
        """
        passed = self.passed.pop(step, frozenset())
        if not in_time and whose:
            self.passed[step] = passed | whose

    def by_arrival(self) -> list[Crew]:
        """Return the crews in the order of floors: by priority, then arrival."""
        return sorted(self.crews.values(), key=lambda one: (-one.rank, *one.order))

    def node_for(self, shape: Shape) -> int:
        """Return where a pod finds room: now, else once those that leave are gone."""
        node = self.room.best(shape, now=True)
        return node if node != NOWHERE else self.room.best(shape, now=False)

    def same_node(self, shape: Shape, whose: JobKey | str) -> int:
        """Return where the last plan saw room for a pod, if it is there still."""
        nodes = self.remembered.get(whose, [])
        for node in nodes:
            if node in shape.nodes and self.room.fits(shape, node, now=False):
                nodes.remove(node)
                return node
        return NOWHERE

    def keep(self, ask: Ask, node: int) -> None:
        """Give room to a pod that goes before workers."""
        self.room.take(ask.shape, node)
        self.asks.remove(ask)
        if node != ask.nominated:
            self.kept.setdefault(ask.pods, []).append(node)
            self.rooms.append((ask, node))

    def put(self, worker: Worker, node: int) -> None:
        """Give a worker room on a node."""
        worker.node = node
        worker.tried = worker.tried or (self._trail is not None and not worker.bound)
        self.room.take(worker.shape, node)
        worker.crew.placed.append(worker)
        if worker.crew.part:
            self.on_node[node].append(worker)
        if self._trail is not None:
            self._trail.append((True, worker))

    def remove(self, worker: Worker) -> None:
        """Take a worker away. What only is tried frees its room at once."""
        crew = worker.crew
        crew.placed.remove(worker)
        if worker.node != NOWHERE:
            trying = self._trail is not None
            self.room.give(worker.shape, worker.node, held=worker.bound and not trying)
            if crew.part:
                self.on_node[worker.node].remove(worker)
        if self._trail is not None:
            self._trail.append((False, worker))

    def send_away(self, worker: Worker, cause: str) -> None:
        """Ask a worker to leave, for good."""
        crew = worker.crew
        if worker in crew.unplaced:
            crew.unplaced.remove(worker)
        else:
            self.remove(worker)
        crew.cause = cause
        if worker.index < 0:
            return
        crew.leave.append(worker.index)
        # A master lets nobody go while it has fewer than it was granted.
        for other in crew.unmade:
            if other in crew.unplaced:
                crew.unplaced.remove(other)
            else:
                self.remove(other)

    # What is tried.

    def begin(self) -> None:
        """Note from here on what is done, so that it can be taken back."""
        self._trail = []

    def mark(self) -> int:
        """Return the place that `rewind` goes back to."""
        assert self._trail is not None  # noqa: S101 - between `begin` and `end`
        return len(self._trail)

    def rewind(self, mark: int) -> None:
        """Take back what was done since a mark."""
        trail, self._trail = self._trail or [], None
        while len(trail) > mark:
            added, worker = trail.pop()
            if added:
                self.remove_tried(worker)
            elif worker.node == NOWHERE:
                worker.crew.placed.append(worker)
            else:
                self.put(worker, worker.node)
        self._trail = trail

    def remove_tried(self, worker: Worker) -> None:
        """Take away a worker that was added on trial."""
        worker.crew.placed.remove(worker)
        self.room.give(worker.shape, worker.node, held=False)
        if worker.crew.part:
            self.on_node[worker.node].remove(worker)

    def end(self) -> None:
        """Take back everything since `begin`."""
        self.rewind(0)
        self._trail = None

    def shares(self) -> tuple[float, ...]:
        """Return the shares of all jobs that want workers, the smallest first."""
        return tuple(
            sorted(
                round(crew.share, 9)
                for crew in self.crews.values()
                if not crew.job.resting
            )
        )
