"""Leases by number, by worker and by deadline; and which tasks are still to be done.

Owns the ways to find a lease, so that no call looks at all of them: what it costs to
give, renew, end or expire one does not depend on how many there are. Held by
`master.tasks.queue` and `master.tasks.side_tasks`. Pure: `now` is an argument; must not
know what is leased.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable, Mapping
from typing import Generic, TypeVar

Held = TypeVar("Held")

# Entries of heaps that mean nothing any more are dropped when there are more of them
# than of the others, and more than this.
_FEW = 64


class Leases(Generic[Held]):
    """Leases by id, with holder and deadline."""

    def __init__(self) -> None:
        """Begin without leases."""
        self._all: dict[int, Held] = {}
        self._worker: dict[int, int] = {}
        self._by_worker: dict[int, dict[int, None]] = {}
        self._deadline: dict[int, float] = {}
        # (time, lease); the time may have moved on, and the lease may have ended.
        self._ends: list[tuple[float, int]] = []

    @property
    def all(self) -> Mapping[int, Held]:
        """All leases by id, the oldest first."""
        return self._all

    @property
    def holders(self) -> Collection[int]:
        """The workers that hold leases."""
        return self._by_worker.keys()

    def of(self, worker: int) -> list[int]:
        """Return a worker's leases, the oldest first."""
        return list(self._by_worker.get(worker, ()))

    def deadline_of(self, lease_id: int) -> float:
        """Return the deadline of a lease."""
        return self._deadline[lease_id]

    def add(self, lease_id: int, held: Held, *, worker: int, deadline: float) -> None:
        """Add a lease."""
        self._all[lease_id] = held
        self._worker[lease_id] = worker
        self._by_worker.setdefault(worker, {})[lease_id] = None
        self._deadline[lease_id] = deadline
        heapq.heappush(self._ends, (deadline, lease_id))
        if len(self._ends) > _FEW + 2 * len(self._all):
            self._ends = [(end, i) for i, end in self._deadline.items()]
            heapq.heapify(self._ends)

    def pop(self, lease_id: int) -> Held | None:
        """End a lease; return None if it does not exist any more."""
        held = self._all.pop(lease_id, None)
        if held is not None:
            worker = self._worker.pop(lease_id)
            mine = self._by_worker[worker]
            del mine[lease_id], self._deadline[lease_id]
            if not mine:
                del self._by_worker[worker]
        return held

    def hand_over(self, lease_id: int, held: Held, *, worker: int) -> None:
        """Give a lease to another worker."""
        deadline = self._deadline[lease_id]
        self.pop(lease_id)
        self.add(lease_id, held, worker=worker, deadline=deadline)

    def clear(self) -> None:
        """End all leases."""
        for table in (self._all, self._worker, self._by_worker, self._deadline):
            table.clear()
        self._ends.clear()

    def renew(
        self, lease_ids: Iterable[int], *, worker: int, deadline: float
    ) -> list[int]:
        """Move the deadlines of a worker's leases; return those it does not hold."""
        lost = []
        for lease_id in lease_ids:
            if self._worker.get(lease_id) != worker:
                lost.append(lease_id)
            else:
                self._deadline[lease_id] = deadline
        return lost

    def renew_all(self, deadline: float) -> None:
        """Set the deadline of every lease."""
        self._deadline = dict.fromkeys(self._deadline, deadline)

    def expired(self, now: float) -> list[int]:
        """Return the expired leases, by number."""
        found = set()
        while self._ends and self._ends[0][0] <= now:
            _, lease_id = heapq.heappop(self._ends)
            if self._deadline.get(lease_id, now + 1.0) <= now:
                found.add(lease_id)
            elif lease_id in self._deadline:
                heapq.heappush(self._ends, (self._deadline[lease_id], lease_id))
        for lease_id in found:  # until somebody ends them
            heapq.heappush(self._ends, (self._deadline[lease_id], lease_id))
        return sorted(found)

    def next_deadline(self) -> float | None:
        """Return a time before which no lease expires; None if there are none."""
        while self._ends and self._ends[0][1] not in self._deadline:
            heapq.heappop(self._ends)
        return self._ends[0][0] if self._ends else None


class Outstanding:
    """Ids of unfinished leased tasks; finds the oldest quickly."""

    def __init__(self, numbers: Iterable[int] = ()) -> None:
        """Begin with these."""
        self._numbers = set(numbers)
        self._heap = sorted(self._numbers)  # a heap; some are done already

    def add(self, number: int) -> None:
        """Add a task that is leased for the first time."""
        self._numbers.add(number)
        heapq.heappush(self._heap, number)
        if len(self._heap) > _FEW + 2 * len(self._numbers):
            self._heap = sorted(self._numbers)

    def discard(self, number: int) -> None:
        """Remove a finished task."""
        self._numbers.discard(number)
        while self._heap and self._heap[0] not in self._numbers:
            heapq.heappop(self._heap)

    def oldest(self) -> int | None:
        """Return the smallest id; None if there is none."""
        return self._heap[0] if self._heap else None
