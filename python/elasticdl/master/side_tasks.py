"""Tasks beside the training data: prepare, shards, evaluation, summaries, exports.

Owns those that wait and those that are leased. They are not journaled: a restarted
master makes them again. Called by `master.leasing` and by the parts that need something
done. Pure: `now` is an argument.

Their ids are negative, so that none is ever taken for a task of the ledger, and carry
the master's generation, so that none is used twice.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from elasticdl.proto import master_pb2
from elasticdl.proto.master_pb2 import Task


@dataclass
class _Leased:
    task: Task
    worker: int
    deadline: float


class SideTasks:
    """Waiting and leased tasks of all types but training and prediction."""

    def __init__(self, master_generation: int) -> None:
        """Begin empty."""
        self._next_id = -(master_generation << 32)
        self._waiting: deque[Task] = deque()
        self._lazy: Iterator[Task] = iter(())
        self._leased: dict[int, _Leased] = {}
        self._failures: dict[int, int] = {}

    def _id(self) -> int:
        self._next_id -= 1
        return self._next_id

    def add(self, task: Task) -> None:
        """Add a task; its ids are given here."""
        task.task_id = self._id()
        self._waiting.append(task)

    def add_lazily(self, tasks: Iterable[Task]) -> None:
        """Add tasks that are made when they are leased; one such run at a time."""
        self._lazy = iter(tasks)

    def lease(
        self, worker: int, *, types: frozenset[int] | None, deadline: float
    ) -> Task | None:
        """Lease the first waiting task of these types (None: of any)."""
        task = self._take(types)
        if task is None:
            return None
        task.lease_id = self._id()
        self._leased[task.lease_id] = _Leased(task, worker, deadline)
        return task

    def _take(self, types: frozenset[int] | None) -> Task | None:
        for place, task in enumerate(self._waiting):
            if types is None or task.type in types:
                del self._waiting[place]
                return task
        if types is not None and master_pb2.EVALUATION not in types:
            return None
        made = next(self._lazy, None)
        if made is not None:
            made.task_id = self._id()
        return made

    def finish(self, lease_id: int) -> Task | None:
        """Take a finished task off; None if its lease has moved on."""
        leased = self._leased.pop(lease_id, None)
        if leased is None:
            return None
        self._failures.pop(leased.task.task_id, None)
        return leased.task

    def give_back(self, lease_id: int, *, failed: bool = False) -> int | None:
        """Put a task back; return how often it failed, None if the lease moved on."""
        leased = self._leased.pop(lease_id, None)
        if leased is None:
            return None
        task = leased.task
        failures = self._failures.get(task.task_id, 0) + failed
        self._failures[task.task_id] = failures
        self._waiting.appendleft(task)
        return failures

    def recover(self, worker: int) -> int:
        """Put back everything that a worker held; return how many."""
        return self._give_back_where(lambda leased: leased.worker == worker)

    def expire(self, now: float) -> int:
        """Put back everything whose deadline has passed; return how many."""
        return self._give_back_where(lambda leased: leased.deadline <= now)

    def _give_back_where(self, test: Callable[[_Leased], bool]) -> int:
        found = [lease_id for lease_id, leased in self._leased.items() if test(leased)]
        for lease_id in found:
            self.give_back(lease_id)
        return len(found)

    def renew(
        self, worker: int, lease_ids: Iterable[int], *, deadline: float
    ) -> list[int]:
        """Move deadlines of a worker's leases; return those it does not hold."""
        lost = []
        for lease_id in lease_ids:
            leased = self._leased.get(lease_id)
            if leased is None or leased.worker != worker:
                lost.append(lease_id)
            else:
                leased.deadline = deadline
        return lost

    def drop(self, *types: int) -> None:
        """Forget all tasks of these types, leased ones too."""
        self._waiting = deque(t for t in self._waiting if t.type not in types)
        self._leased = {
            i: leased
            for i, leased in self._leased.items()
            if leased.task.type not in types
        }
        if master_pb2.EVALUATION in types:
            self._lazy = iter(())

    @property
    def leased_records(self) -> int:
        """Records of the tasks that workers hold."""
        return sum(
            leased.task.end - leased.task.start for leased in self._leased.values()
        )

    def leases_of(self, worker: int) -> list[int]:
        """Return the leases that a worker holds."""
        return [i for i, leased in self._leased.items() if leased.worker == worker]

    def next_deadline(self) -> float | None:
        """Return when the first lease ends."""
        return min((leased.deadline for leased in self._leased.values()), default=None)


def is_side(lease_id: int) -> bool:
    """Whether a lease is of a side task."""
    return lease_id < 0
