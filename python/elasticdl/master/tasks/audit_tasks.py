"""What became of each task that the journal tells of, in a few bytes each.

Owns the rules that a task's life has to keep: given out, back or done, once, unless a
rewind undid it. Called by `master.tasks.audit`, event by event. Independent of the task
queue on purpose: ranges are compared with the sources' lengths, so that a mistake in
the queue shows here. Must not know files.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

import numpy as np
import numpy.typing as npt

from elasticdl.master.tasks.journal_files import Event
from elasticdl.master.tasks.queue_plan import QueuePlan

Range = tuple[int, int]

NEW, LEASED, WAITING, DONE = range(4)
# Enough to see what is wrong; a broken journal must not fill the report.
_MOST_FAULTS = 100


class Grid:
    """The portions of a plan's sources, each with an index."""

    def __init__(self, plan: QueuePlan) -> None:
        """Divide the sources of this plan."""
        self.plan = plan
        size = plan.batch_size * plan.batches_per_task
        counts = [-(-shard.num_records // size) for shard in plan.shards]
        self._size = size
        self._first = [0, *accumulate(counts)]
        self.places = self._first[-1]
        self._of_source: dict[str, list[tuple[int, int, int]]] = {}
        for shard, first in zip(plan.shards, self._first, strict=False):
            of_source = self._of_source.setdefault(shard.source, [])
            of_source.append((shard.start, shard.end, first))

    def place(self, source: str, record: int) -> int:
        """Return the index of the portion with a record; -1 if none has it."""
        for start, end, first in self._of_source.get(source, ()):
            if start <= record < end:
                return first + (record - start) // self._size
        return -1

    def portion(self, place: int) -> tuple[str, int, int]:
        """Return source, start and end of a portion."""
        index = bisect_right(self._first, place) - 1
        shard = self.plan.shards[index]
        start = shard.start + (place - self._first[index]) * self._size
        return shard.source, start, min(start + self._size, shard.end)

    def lengths(self) -> npt.NDArray[np.int64]:
        """Return how many records each portion has."""
        found = np.full(self.places, self._size, np.int64)
        for shard, after in zip(self.plan.shards, self._first[1:], strict=True):
            if shard.num_records % self._size:
                found[after - 1] = shard.num_records % self._size
        return found


@dataclass
class Odd:
    """A task that is not exactly one portion."""

    start: int  # what is still to be trained, or was at last
    end: int
    cut: bool = False  # by maxSteps
    parts: list[Range] = field(default_factory=list)  # trained before, and not undone


@dataclass(frozen=True)
class Left:
    """Records that a worker skipped in a task."""

    bad: int
    skipped: int  # rows of batches whose loss was not finite


class Tasks:
    """The tasks of one job."""

    def __init__(self, plan: QueuePlan, members: Mapping[int, int]) -> None:
        """Begin before the first lease.

        `members`: index of each worker that was in a round of its group so far, by
        generation.
        """
        self.grid = Grid(plan)
        self._members = members
        self._batch = plan.batch_size
        self._cuts = bool(plan.max_steps)
        self.state = bytearray()
        self.places = array("i")
        self._workers = array("i")  # who held it last
        self.rows = array("i")  # that `feed` made of it and were trained; -1: not told
        self.odd: dict[int, Odd] = {}
        self.left: dict[int, Left] = {}
        self._leases: dict[int, int] = {}  # the last lease of each that is outstanding
        self._lease_of: dict[int, int] = {}
        self.by_worker: dict[int, Counter[int]] = {}  # epoch -> worker -> records
        self.undone: Counter[int] = Counter()  # epoch -> records
        self.late = 0
        self.late_records = 0
        self.given_out = 0  # number of the task that comes next
        self.faults: list[str] = []
        self.faults_more = 0

    def __len__(self) -> int:
        return len(self.state)

    def epoch_of(self, task_id: int) -> int:
        """Return the epoch of a task."""
        return task_id // self.grid.places

    def range_of(self, task_id: int) -> Range:
        """Return the records of a task that are, or were last, to be trained."""
        odd = self.odd.get(task_id)
        if odd is not None:
            return odd.start, odd.end
        _, start, end = self.grid.portion(self.places[task_id])
        return start, end

    def name(self, task_id: int) -> str:
        """Return a task's name in words."""
        source, _, _ = self.grid.portion(max(0, self.places[task_id]))
        start, end = self.range_of(task_id)
        return (
            f"task {task_id} (epoch {self.epoch_of(task_id) + 1}, {source} records "
            f"{start} to {end - 1})"
        )

    def _fault(self, text: str) -> None:
        if len(self.faults) < _MOST_FAULTS:
            self.faults.append(text)
        else:
            self.faults_more += 1

    def _grow(self, size: int) -> None:
        more = size - len(self.state)
        if more > 0:
            self.state.extend(bytes(more))
            for column in (self.places, self._workers, self.rows):
                column.extend([-1] * more)

    # -- events -------------------------------------------------------------------

    def lease(self, event: Event) -> None:
        """Count a lease."""
        task_id, start, end = event["i"], event["a"], event["b"]
        if task_id >= len(self.state):
            self._grow(task_id + 1)
        state = self.state[task_id]
        place = self.grid.place(event["s"], start)
        if place < 0 or event["e"] != task_id // self.grid.places:
            self._fault(
                f"task {task_id} was given out as {event['s']} records {start} to "
                f"{end - 1} of epoch {event['e'] + 1}, which the plan does not have"
            )
            return
        if state == NEW:
            self._first_lease(task_id, place, start, end)
        elif state == WAITING:
            if self.places[task_id] != place or self.range_of(task_id) != (start, end):
                self._fault(
                    f"{self.name(task_id)} came back, and was given out again as "
                    f"{event['s']} records {start} to {end - 1}"
                )
            self._leases.pop(self._lease_of.pop(task_id, -1), None)
        else:
            why = "it had not come back" if state == LEASED else "it was done"
            self._fault(f"{self.name(task_id)} was given out twice though {why}")
            self._leases.pop(self._lease_of.pop(task_id, -1), None)
        self.state[task_id] = LEASED
        self._workers[task_id] = event["w"]
        self._leases[event["l"]] = task_id
        self._lease_of[task_id] = event["l"]

    def _first_lease(self, task_id: int, place: int, start: int, end: int) -> None:
        self.places[task_id] = place
        _, whole_start, whole_end = self.grid.portion(place)
        if (start, end) != (whole_start, whole_end):
            cut = self._cuts and start == whole_start and end < whole_end
            if not cut:
                self._fault(
                    f"task {task_id} was given out as records {start} to {end - 1}, "
                    f"expected {whole_start} to {whole_end - 1}"
                )
            self.odd[task_id] = Odd(start, end, cut)
        self.given_out = max(self.given_out, task_id + 1)

    def steps(self) -> int:
        """Return the steps of all leased tasks, each counted once."""
        places = np.array(self.places, np.int64)
        odd = sorted(self.odd)
        plain = places >= 0
        plain[odd] = False
        steps = int((-(-self.grid.lengths()[places[plain]] // self._batch)).sum())
        for task_id in odd:
            _, start, end = self.grid.portion(self.places[task_id])
            if self.odd[task_id].cut:
                end = self.odd[task_id].end
            steps += -(-(end - start) // self._batch)
        return steps

    def done(self, event: Event) -> int | None:
        """Count a finished task; return its id, None if the report does not count."""
        task_id = self._leases.get(event["l"])
        if task_id is None or "late" in event:
            self.late += 1
            self.late_records += event["n"]
            if "late" not in event:
                self._fault(
                    f"the report of lease {event['l']} was counted though another "
                    "worker had the task, or nobody"
                )
            return None
        del self._leases[event["l"]], self._lease_of[task_id]
        self.state[task_id] = DONE
        start, end = self.range_of(task_id)
        self._count_shares(task_id, end - start, event.get("sh", ()))
        self._take_figures(task_id, end - start, event)
        return task_id

    def _take_figures(self, task_id: int, records: int, event: Event) -> None:
        """Compare a worker's figures with its task."""
        bad, skipped, rows = event.get("b", 0), event.get("sk", 0), event.get("r")
        if event["n"] != records:
            self._fault(
                f"{self.name(task_id)} was reported done by worker-"
                f"{self._workers[task_id]} with {event['n']} records, expected "
                f"{records}"
            )
        if rows is not None and rows > 0 and not event["st"]:
            self._fault(f"{self.name(task_id)} was reported done without a step")
        self.rows[task_id] = -1 if rows is None else rows
        if bad or skipped:
            self.left[task_id] = Left(bad, skipped)
        else:
            self.left.pop(task_id, None)

    def _count_shares(
        self, task_id: int, records: int, shares: Sequence[Sequence[int]]
    ) -> None:
        """Count a task for those who took its records, the rest for its holder.

        Only the division is believed, and only among workers that the journal has in a
        round; how many records there are is known without it.
        """
        told = sum(count for _, count in shares)
        strange = [member for member, _ in shares if member not in self._members]
        if strange or told > records or any(count <= 0 for _, count in shares):
            self._fault(
                f"{self.name(task_id)} was reported done as {list(shares)} (worker's "
                f"number, records), expected members and {records} records"
            )
            shares, told = (), 0
        of_epoch = self.by_worker.setdefault(self.epoch_of(task_id), Counter())
        for member, count in shares:
            of_epoch[self._members[member]] += count
        if told < records:
            self._count_worker(task_id, records - told)

    def _count_worker(self, task_id: int, records: int) -> None:
        of_epoch = self.by_worker.setdefault(self.epoch_of(task_id), Counter())
        of_epoch[self._workers[task_id]] += records

    def task_of(self, lease_id: int) -> int | None:
        """Return the task of a lease; None if it does not exist any more."""
        return self._leases.get(lease_id)

    def back(self, event: Event) -> None:
        """Count a task that was handed back, or whose worker was lost."""
        task_id = self._leases.get(event["l"])
        if task_id is None or self.state[task_id] != LEASED:
            self._fault(f"lease {event['l']} came back though nobody held it")
            return
        self.state[task_id] = WAITING

    def rewind(self, event: Event) -> None:
        """Undo what is after the position, except what the parameters hold."""
        position, applied = event["p"], dict(event["a"])
        self._leases.clear()
        self._lease_of.clear()
        cursor: int = position["cursor"]
        waiting = {task["task_id"]: task for task in position["waiting"]}
        self._grow(cursor)
        after = max([cursor, *(task_id + 1 for task_id in applied)])
        for task_id in range(cursor, len(self.state)):
            self._undo(task_id, 0)
            self._forget(task_id, come_again=task_id >= after)
        self.given_out = after
        for task_id in self._outstanding(cursor):
            if task_id not in waiting:  # the position says it is done: it never was
                self.state[task_id] = NEW
        for task_id, task in waiting.items():
            self._undo(task_id, task["start"])
            self._wait(task_id, task["source"], task["start"], task["end"])
        for task_id in range(cursor, min(after, len(self.state))):
            if self.places[task_id] >= 0:
                self.state[task_id] = WAITING
        credited = [
            part
            for task_id in sorted(applied, key=lambda i: _order(i, waiting))
            for part in self._credit(task_id, applied[task_id])
        ]
        found = sorted([i, s, a, b] for i, s, a, b, _ in event["cr"])
        if sorted(credited) != found or event["cu"] != after:
            self._fault(
                f"a rewind kept {found} and went on at task {event['cu']}, expected "
                f"{sorted(credited)} and task {after}"
            )

    def _outstanding(self, end: int) -> Iterator[int]:
        if not end:
            return
        states = np.frombuffer(self.state, np.uint8, count=end)
        found = np.flatnonzero((states == LEASED) | (states == WAITING))
        del states  # else the bytes cannot grow
        yield from found.tolist()

    def _undo(self, task_id: int, kept_until: int) -> None:
        """Undo the training of a task beyond a record."""
        odd = self.odd.get(task_id)
        parts = list(odd.parts) if odd is not None else []
        if self.state[task_id] == DONE:
            parts.append(self.range_of(task_id))
        gone = sum(end - start for start, end in parts if end > kept_until)
        if gone:
            self.undone[self.epoch_of(task_id)] += gone
        if odd is not None:
            odd.parts = [part for part in odd.parts if part[1] <= kept_until]
        self.left.pop(task_id, None)
        self.rows[task_id] = -1

    def _forget(self, task_id: int, *, come_again: bool) -> None:
        """Treat a task as never leased; it comes again as new or as waiting."""
        self.state[task_id] = NEW
        odd = self.odd.get(task_id)
        if odd is not None and odd.cut and not come_again:
            _, odd.start, _ = self.grid.portion(self.places[task_id])
        else:
            self.odd.pop(task_id, None)
        if come_again:
            self.places[task_id] = -1

    def _wait(self, task_id: int, source: str, start: int, end: int) -> None:
        self.state[task_id] = WAITING
        place = self.grid.place(source, start)
        if place < 0:
            self._fault(
                f"a rewind goes back to {source} record {start}: not in the plan"
            )
            self.state[task_id] = NEW
            return
        self.places[task_id] = place
        odd = self.odd.get(task_id)
        if odd is not None:
            odd.start, odd.end = start, end
        elif self.grid.portion(place)[1:] != (start, end):
            self.odd[task_id] = Odd(start, end)

    def _credit(self, task_id: int, applied: int) -> list[list[object]]:
        """Credit the leading records that the parameters hold as trained."""
        if task_id >= len(self.state) or self.state[task_id] != WAITING:
            return []
        start, end = self.range_of(task_id)
        records = self.grid.plan.credit(applied, end - start)
        if not records:
            return []
        self._count_worker(task_id, records)
        source, _, _ = self.grid.portion(self.places[task_id])
        if records == end - start:
            self.state[task_id] = DONE
        else:
            odd = self.odd.setdefault(task_id, Odd(start, end))
            odd.parts.append((start, start + records))
            odd.start = start + records
        return [[task_id, source, start, start + records]]


def _order(task_id: int, waiting: Mapping[int, object]) -> tuple[bool, int]:
    return task_id not in waiting, task_id
