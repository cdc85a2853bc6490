"""Tasks beside the training data: prepare, shards, evaluation, summaries, exports.

Owns those that wait and those that are leased. They are not journaled: a restarted
master makes them again. Called by `master.calls.leasing`, `master.calls.lost_leases`
and the parts that need something done. Pure: `now` is an argument.

Their ids are negative, so that none is ever taken for a task of the ledger, and carry
the master's generation, so that none is used twice.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import replace

from elasticdl.job.tasks import Task, TaskType
from elasticdl.master.tasks.leases import Leases


class SideTasks:
    """Waiting and leased tasks of all types except training and prediction."""

    def __init__(self, master_generation: int) -> None:
        self._next_id = -(master_generation << 32)
        self._waiting: deque[Task] = deque()
        self._lazy: Iterator[Task] = iter(())
        self._leased: Leases[Task] = Leases()
        self._failures: dict[int, int] = {}
        self._deaths: dict[int, int] = {}  # workers that were lost at it, by task
        self.leased_records = 0  # of the tasks that workers hold

    def _id(self) -> int:
        self._next_id -= 1
        return self._next_id

    def add(self, task: Task) -> None:
        """Add a task and assign its ids."""
        self._waiting.append(replace(task, task_id=self._id()))

    def add_lazily(self, tasks: Iterable[Task]) -> None:
        """Add tasks that are created when leased; one such run at a time."""
        self._lazy = iter(tasks)

    def lease(
        self,
        worker: int,
        *,
        types: frozenset[int] | None,
        deadline: float,
    ) -> Task | None:
        """Lease the first waiting task of these types (None: of any)."""
        task = self._take(types)
        if task is None:
            return None
        task = replace(task, lease_id=self._id())
        self._leased.add(task.lease_id, task, worker=worker, deadline=deadline)
        self.leased_records += task.end - task.start
        return task

    def _take(self, types: frozenset[int] | None) -> Task | None:
        for place, task in enumerate(self._waiting):
            if types is None or task.type in types:
                del self._waiting[place]
                return task
        if types is not None and TaskType.EVALUATION not in types:
            return None
        made = next(self._lazy, None)
        return None if made is None else replace(made, task_id=self._id())

    def finish(self, lease_id: int) -> Task | None:
        """Remove a finished task; None if its lease has moved on."""
        task = self._end(lease_id)
        if task is not None:
            self._failures.pop(task.task_id, None)
            self._deaths.pop(task.task_id, None)
        return task

    def _end(self, lease_id: int) -> Task | None:
        task = self._leased.pop(lease_id)
        if task is not None:
            self.leased_records -= task.end - task.start
        return task

    def give_back(self, lease_id: int, *, failed: bool = False) -> int | None:
        """Put a task back; return how often it failed, None if the lease moved on."""
        task = self._end(lease_id)
        if task is None:
            return None
        failures = self._failures.get(task.task_id, 0) + failed
        self._failures[task.task_id] = failures
        self._waiting.appendleft(task)
        return failures

    def held_by(self, worker: int) -> list[int]:
        """Return the numbers of a worker's tasks."""
        return [self._leased.all[one].task_id for one in self._leased.of(worker)]

    def recover(self, worker: int, *, died: bool = False) -> int:
        """Put back all tasks of a lost worker; return how many.

        `died`: it hung or crashed at work on one of them.
        """
        leases = self._leased.of(worker)
        for lease_id in leases:
            task_id = self._leased.all[lease_id].task_id
            self._deaths[task_id] = self._deaths.get(task_id, 0) + died
        return self._give_back(leases)

    def most_deaths(self) -> int:
        """Return the largest number of workers lost at one task."""
        return max(self._deaths.values(), default=0)

    def expire(self, now: float) -> int:
        """Put back all tasks whose leases expired; return how many."""
        return self._give_back(self._leased.expired(now))

    def _give_back(self, lease_ids: list[int]) -> int:
        for lease_id in lease_ids:
            self.give_back(lease_id)
        return len(lease_ids)

    def renew(
        self, worker: int, lease_ids: Iterable[int], *, deadline: float
    ) -> list[int]:
        """Move the deadlines of a worker's leases; return those it does not hold."""
        return self._leased.renew(lease_ids, worker=worker, deadline=deadline)

    def drop(self, *types: int, target: str | None = None) -> None:
        """Remove all tasks of these types (and this target), leased ones too."""

        def goes(task: Task) -> bool:
            return task.type in types and target in (None, task.target)

        self._waiting = deque(t for t in self._waiting if not goes(t))
        for lease_id, task in list(self._leased.all.items()):
            if goes(task):
                self._end(lease_id)
        if TaskType.EVALUATION in types:
            self._lazy = iter(())

    def drop_round(self, number: int) -> None:
        """Remove all tasks of an evaluation round, leased ones too."""
        self._waiting = deque(t for t in self._waiting if t.round != number)
        for lease_id, task in list(self._leased.all.items()):
            if task.round == number:
                self._end(lease_id)
        self._lazy = iter(())

    @property
    def open(self) -> int:
        """Number of tasks that are leased or wait; those made lazily are not known."""
        return len(self._waiting) + len(self._leased.all)

    def leases_of(self, worker: int) -> list[int]:
        """Return a worker's leases."""
        return self._leased.of(worker)

    def renew_all(self, *, deadline: float) -> None:
        """Move the deadlines of all leases."""
        self._leased.renew_all(deadline)

    def next_deadline(self) -> float | None:
        """Return a time before which no lease expires."""
        return self._leased.next_deadline()


def is_side(lease_id: int) -> bool:
    """Whether a lease is of a side task."""
    return lease_id < 0
