"""Workers that were killed by nobody known, one after the other, at the same task.

Owns these counts. Called by `master.calls.lost_leases` when a worker is lost. Pure;
must not know why a process ends.

A kill says nothing about a task: machines, people and tests kill workers. But a record
that ends the process by a signal, in native code or by its size, looks the same, and it
would meet each worker for ever. So many kills in a row at a task that gets nowhere are
no accident. The counts are this master's: the next one begins anew.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable

# Of a task, in a row. Several times what fails a job that crashes.
LEAST_KILLS = 10
_REMEMBERED = 4096


class Kills:
    """Counts by task."""

    def __init__(self) -> None:
        """Begin without kills."""
        self._counts: OrderedDict[int, tuple[int, int]] = OrderedDict()

    def at(self, tasks: Iterable[int], *, reached: int) -> None:
        """Count a worker that was killed with these tasks in its hands.

        `reached`: how far those are who go on with them where they stand. Whoever gets
        further begins a new row. The same for all where a task is begun again.
        """
        for task in tasks:
            count, before = self._counts.get(task, (0, reached))
            count = count if reached <= before else 0
            self._counts[task] = count + 1, max(before, reached)
            self._counts.move_to_end(task)
        while len(self._counts) > _REMEMBERED:
            self._counts.popitem(last=False)

    def of(self, task: int) -> int:
        """Return how many workers in a row were killed at a task."""
        return self._counts.get(task, (0, 0))[0]
