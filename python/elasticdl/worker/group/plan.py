"""Which records a step of a group has, and which member takes which: decisions alone.

Owns the division of a step's records, and how far each task of the group is. Made by
the member that leads, sent to the others with its header, and divided by each of them
in the same way. Pure; must not know leases' deadlines, readers or gradients. No
strategy uses it yet.

The sequence of steps depends on the tasks alone: not on how many members there are, nor
on when they came and went. So a run that lost members equals one that did not, but for
rounding.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace


@dataclass(frozen=True)
class Segment:
    """Records [start, end) of a leased task; `last` if they are its last ones."""

    lease_id: int
    task_id: int
    epoch: int
    source: str
    start: int
    end: int
    last: bool

    @property
    def records(self) -> int:
        """Number of records."""
        return self.end - self.start


@dataclass(frozen=True)
class StepPlan:
    """The records of one step, in their order; empty while there are none."""

    segments: tuple[Segment, ...] = ()

    @property
    def records(self) -> int:
        """Number of records of all members together."""
        return sum(segment.records for segment in self.segments)

    def encoded(self) -> bytes:
        """Return the plan as bytes; `decoded` reads them."""
        return json.dumps(
            [list(asdict(one).values()) for one in self.segments]
        ).encode()

    @staticmethod
    def decoded(raw: bytes) -> StepPlan:
        """Return the plan that `encoded` wrote. Raises ValueError for other bytes."""
        try:
            return StepPlan(tuple(Segment(*one) for one in json.loads(raw)))
        except TypeError as error:
            raise ValueError(f"got no plan of a step: {error}") from error


class Work:
    """How far the group is in the tasks that it holds."""

    def __init__(self) -> None:
        """Begin without tasks."""
        self._tasks: dict[int, Segment] = {}  # by lease; what is left of each
        self._reached: dict[int, int] = {}  # by lease: the record that comes next

    @property
    def records(self) -> int:
        """Records that are held and not in a step that was made."""
        return sum(task.records for task in self._tasks.values())

    def add(self, tasks: Iterable[Segment]) -> None:
        """Add tasks that the group was leased, whole; those it has are left alone.

        A member that begins to lead is given all leases of the group again: what steps
        have made of them is known here.
        """
        for task in tasks:
            start = self._reached.get(task.lease_id, task.start)
            if task.lease_id not in self._tasks and start < task.end:
                self._tasks[task.lease_id] = replace(task, start=start)

    def plan(self, records: int) -> StepPlan:
        """Return the next `records` records, or those that are left.

        Asked again before `made`, the answer is the same.
        """
        segments: list[Segment] = []
        left = records
        for task in self._tasks.values():
            if left <= 0:
                break
            taken = min(left, task.records)
            segments.append(
                replace(
                    task,
                    end=task.start + taken,
                    last=task.last and taken == task.records,
                )
            )
            left -= taken
        return StepPlan(tuple(segments))

    def made(self, plan: StepPlan) -> list[int]:
        """Note that a step was made; return the leases whose records are all in."""
        finished = []
        for segment in plan.segments:
            self._reached[segment.lease_id] = segment.end
            task = self._tasks.pop(segment.lease_id, None)
            if segment.last:
                self._reached.pop(segment.lease_id)
                finished.append(segment.lease_id)
            elif task is not None:
                # In its place, before the tasks that were leased later.
                rest = replace(task, start=segment.end)
                self._tasks = {segment.lease_id: rest, **self._tasks}
        return finished


def divide(records: int, weights: Sequence[float]) -> list[int]:
    """Divide a number of records by weights (largest remainder); earlier ones win ties.

    Every member computes the same from the same weights. Raises ValueError for weights
    that are no shares.
    """
    total = sum(weights)
    if not weights or min(weights) < 0 or total <= 0:
        raise ValueError(f"got the weights {list(weights)}; expected shares above 0")
    exact = [records * weight / total for weight in weights]
    counts = [int(share) for share in exact]
    by_rest = sorted(range(len(exact)), key=lambda i: (counts[i] - exact[i], i))
    for i in by_rest[: records - sum(counts)]:
        counts[i] += 1
    return counts


def shares(plan: StepPlan, counts: Sequence[int]) -> list[tuple[Segment, ...]]:
    """Return each member's records: neighbouring ones, `counts[rank]` of them."""
    rest = list(plan.segments)
    found = []
    for count in counts:
        mine: list[Segment] = []
        left = count
        while left and rest:
            segment = rest.pop(0)
            if segment.records > left:
                cut = segment.start + left
                rest.insert(0, replace(segment, start=cut))
                segment = replace(segment, end=cut, last=False)
            mine.append(segment)
            left -= segment.records
        found.append(tuple(mine))
    return found
