"""The workers of one job, while a plan is made.

Owns what a plan changes about a job: which workers it has, where, and why that changes.
Made by `planner.carry`, changed through `planner.scene`. Must not know other jobs.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

from elasticdl.planner.memory import Newest, Pause
from elasticdl.planner.room import NOWHERE, Shape
from elasticdl.planner.view import Job, JobKey

BLOCKED = "no node has room for all of its master and PS"


@dataclass(eq=False)
class Worker:
    """A worker that a job has or is given."""

    crew: Crew
    node: int = NOWHERE  # of the supply; where it is, or where there is room for it
    index: int = -1  # of its pod; -1: its master has not made it yet
    bound: bool = False  # its pod has a node, of the supply or not
    running: bool = False
    gated: bool = False
    tried: bool = False  # added to see what would come of it
    priority: int = 0
    since: float = 0.0  # it waits for a node since then
    why: str = ""  # the scheduler's words
    asks: Shape | None = None  # what its pod asks for; None: what a new one would

    @property
    def shape(self) -> Shape:
        """Return what it asks for."""
        return self.asks or self.crew.shape


@dataclass(eq=False)
class Crew:
    """A job and its workers."""

    job: Job
    shape: Shape  # of a worker that would be made
    parts: tuple[tuple[float, float], ...]  # of each supply: PS and master, one worker
    tie: tuple[int, int, int]  # GPUs, CPU, memory of a worker
    floor: int
    cap: int
    placed: list[Worker] = field(default_factory=list)  # with a node, or room on one
    unplaced: list[Worker] = field(default_factory=list)  # asked for, without room
    before: int = 0  # its size when the plan began
    given: bool = False  # room was made for it, and it is not there yet
    waiting_since: float = 0.0  # of a fixed job's oldest pod without a node
    waiting_why: str = ""
    unseen: int = 0  # of master and PS, of a fixed job's workers too: those without pod
    newest: Newest | None = None  # of its workers, also of those that are gone
    granted_leave: tuple[int, ...] = ()
    still_there: tuple[int, ...] = ()  # indexes of those that are to leave and have not
    leave: list[int] = field(default_factory=list)  # that this plan adds
    chances: dict[str, int] = field(default_factory=dict)  # where it waited lately
    pause: Pause | None = None  # in force
    probes: bool = False  # a pause was over lately: one worker at a time
    waits: bool = False  # some of its pods have no node yet
    goes: bool = False  # some that are to leave have not begun to
    strays: bool = False  # one of its pods may not be where there is room for one
    deaf: bool = False  # some have not begun to, long after they were to, or cannot
    slow: bool = False  # some have begun to, and take minutes
    frozen: bool = False
    blocked: str = ""  # what of it has no room, though it goes before its workers
    cause: str = ""  # of its last change in this plan
    _shares: list[float] = field(default_factory=list)

    @property
    def key(self) -> JobKey:
        """Return the job's name in the cluster."""
        return self.job.key

    @cached_property
    def part(self) -> bool:
        """Return whether the planner decides its size."""
        return self.job.takes_part

    @cached_property
    def rank(self) -> int:
        """Return the priority of its workers."""
        return self.job.worker.priority

    @property
    def size(self) -> int:
        """Return how many workers it is to have."""
        return len(self.placed) + len(self.unplaced)

    @property
    def spare(self) -> int:
        """Return how many workers it could give."""
        # Another one of it would take as long, and the room that comes is not used yet.
        if not self.part or self.deaf or self.slow:
            return 0
        return max(0, len(self.placed) - self.floor)

    @property
    def unmade(self) -> list[Worker]:
        """Return the workers that its master has not made yet."""
        return [
            one
            for one in (*self.unplaced, *self.placed)
            if one.index < 0 and not one.bound and not one.tried
        ]

    @property
    def lacks(self) -> int:
        """Return how many pods it is sure of and nobody has made."""
        if not self.part:
            return self.unseen
        made = sum(one.index >= 0 for one in (*self.placed, *self.unplaced))
        return self.unseen + max(0, self.floor - made)

    @property
    def given_up(self) -> bool:
        """Return whether nobody makes its pods, so that no room is kept for them."""
        return self.pause is not None and self.pause.unmade > 0

    @property
    def spare_made(self) -> int:
        """Return how many of those that are there it could give.

        A master lets nobody go while it has fewer than it was granted: before one
        leaves, nothing may be asked for that is not there.
        """
        return max(0, self.size - len(self.unmade) - self.floor) if self.part else 0

    @property
    def spare_running(self) -> int:
        """Return how many of those that run it could give.

        Others of it may be starting: until they run, its floor is those that do.
        """
        running = sum(one.running for one in self.placed)
        return max(0, running - self.floor) if self.part else 0

    @property
    def share(self) -> float:
        """Return its weighted dominant share."""
        return self.share_of(len(self.placed))

    @property
    def grows(self) -> bool:
        """Return whether one more worker would be of use to it."""
        return (
            len(self.placed) < self.cap
            and not self.unplaced
            and not self.pause
            and not self.waits
            # A master that may have more again lets nobody go.
            and not self.goes
            and not self.leave
            and not (self.probes and any(not one.bound for one in self.placed))
            and not self.blocked
            and not self.job.refused
            and not self.job.resting
        )

    @property
    def order(self) -> tuple[float, JobKey]:
        """Return its place among those that came."""
        return (self.job.arrived, self.key)

    def share_of(self, num_workers: int) -> float:
        """Return the share it would have with so many workers."""
        while len(self._shares) <= num_workers:
            n = len(self._shares)
            most = max((base + n * one for base, one in self.parts), default=0.0)
            self._shares.append(most / self.job.weight)
        return self._shares[num_workers]
