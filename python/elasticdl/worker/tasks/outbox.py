"""Reports that the master has not acknowledged yet.

Owns them from the moment a task ends until its report is in the journal: each is sent
again until then, whatever happens to the master. Pure. Called by the task stream.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from elasticdl.job.tasks import TaskReport


class LaterReport(NamedTuple):
    """A report that is written when it is sent, and not between two steps."""

    lease_id: int
    write: Callable[[], TaskReport]


class Outbox:
    """Reports that wait or are in transit. The caller holds the lock."""

    def __init__(self) -> None:
        self._waiting: list[TaskReport | LaterReport] = []
        self._under_way: list[TaskReport] = []

    def __len__(self) -> int:
        """Number of unacknowledged reports."""
        return len(self._waiting) + len(self._under_way)

    @property
    def waiting(self) -> int:
        """Number of reports that no call carries now."""
        return len(self._waiting)

    @property
    def lease_ids(self) -> list[int]:
        """The leases of all reports."""
        return [r.lease_id for r in (*self._under_way, *self._waiting)]

    def add(self, report: TaskReport | LaterReport) -> None:
        """Add a report; it is sent with the next call."""
        self._waiting.append(report)

    def take(self) -> list[TaskReport]:
        """Return all waiting reports; in transit until acknowledged or put back."""
        waiting, self._waiting = self._waiting, []
        taken = [r.write() if isinstance(r, LaterReport) else r for r in waiting]
        self._under_way += taken
        return taken

    def acknowledge(self, reports: list[TaskReport]) -> None:
        """Remove reports that the master has journaled."""
        done = {id(r) for r in reports}
        self._under_way = [r for r in self._under_way if id(r) not in done]

    def put_back(self, reports: list[TaskReport]) -> None:
        """Return the reports of a failed call to their places."""
        self.acknowledge(reports)
        self._waiting[:0] = reports
