"""How far a member is, for the threads in which its group asks.

Owns the parts of a member and the lock around its `Work`: plans while it leads, and
copies of the state for newcomers. Called by `collective.group` under the group's lock,
and by `worker.group.loop`; so it calls nobody who could wait for the group.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from elasticdl.collective.wire import Buffer
from elasticdl.worker.group.beside import Handler
from elasticdl.worker.group.digests import Digests
from elasticdl.worker.group.link import GroupLink
from elasticdl.worker.group.plan import Work
from elasticdl.worker.group.shares import Shares
from elasticdl.worker.group.speeds import Speeds
from elasticdl.worker.group.state import MemberState
from elasticdl.worker.group.step import GroupStep
from elasticdl.worker.shows import Shows
from elasticdl.worker.steps.learning_rate import LearningRate
from elasticdl.worker.tasks.stream import TaskStream

# A checkpoint, "" for the job's initial values -> its version. Raises CheckpointError
# once the master knows that it cannot be loaded.
Restore = Callable[[str], int]


class Orders(Protocol):
    """The master's orders (worker.heartbeat)."""

    def is_lost(self, lease_id: int) -> bool:
        """Whether a lease was given to another worker."""

    def regain(self, leases: Iterable[int]) -> None:
        """Forget that these leases were lost."""

    def hurry(self) -> None:
        """Have the master told at once what it waits for."""


@dataclass(frozen=True)
class GroupParts:
    """The parts of the loop."""

    step: GroupStep
    state: MemberState
    rate: LearningRate
    restore: Restore
    shares: Shares
    stream: TaskStream
    handlers: Mapping[int, Handler]  # of every type but TRAINING
    # Writes a checkpoint if one is wanted; returns whether it does.
    between_steps: Callable[[int, Mapping[int, int]], bool]
    # The job stops, and its last checkpoint is copied: no step is made any more.
    holds: Callable[[], bool]
    copies: Callable[[], bool]  # a checkpoint is wanted of which there is no copy yet
    describe: Callable[[str, BaseException], str]
    orders: Orders
    leaving: threading.Event
    shows: Shows
    speeds: Speeds
    skip_nan: bool
    hand_over_seconds: float  # a worker that leaves stays for others to get its state
    unit: int = 1  # records: of a share that are computed together, or none of them


class Position:
    """Plans and states for the group, which asks from threads of its own.

    Holds the lock around `Work`; calls nobody who could wait for the group.
    """

    def __init__(self, parts: GroupParts) -> None:
        """Begin without tasks."""
        self._parts = parts
        self.lock = threading.Lock()
        self.work = Work()
        self.link: GroupLink | None = None
        self.digests = Digests(lambda: parts.state.digest(parts.step.state_before))

    @property
    def version(self) -> int:
        """Steps with records that are in the model."""
        with self.lock:
            return self.work.version

    def plan(self, step: int) -> bytes:
        """Return which records a step has; called while this member leads."""
        del step
        parts = self._parts
        held = set(parts.stream.held)
        with self.lock:
            work = self.work
            work.keep(
                [
                    lease_id
                    for lease_id, totals in work.totals.items()
                    if not parts.orders.is_lost(lease_id)
                    and (lease_id in held or not totals.reported)
                ]
            )
            records = self.link.step_records if self.link else 0
            if parts.holds() or (self.link is not None and self.link.waits):
                records = 0
            plan = work.plan(records)
            if plan.lease_id:
                epoch = work.tasks[plan.lease_id].epoch
                rate = parts.rate.at(work.version, epoch)
                if rate is not None and self.link is not None:
                    rate *= self.link.rate_scale
                weights = self.link.weights(parts.speeds) if self.link else ()
                plan = replace(plan, rate=rate, unit=parts.unit, weights=weights)
        if self.link is not None and self.digests.asks(*self.link.size):
            plan = replace(plan, compares=True)
        return plan.encoded()

    def goes_on(self, lease_id: int) -> bool:
        """Whether the group has begun the task of a lease, and knows how far it is."""
        with self.lock:
            return lease_id in self.work.tasks

    def state(self) -> Sequence[Buffer]:
        """Return the whole state. Asked for while no step is applied.

        The lock is held for the position alone: heartbeats wait for it.
        """
        with self.lock:
            work = copy.deepcopy(self.work)
        return self._parts.state.copied(work, self._parts.step.state_before)
