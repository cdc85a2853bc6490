"""A task of the queue, and one that is leased: what is known of it beside its range.

Owns their form in a snapshot or a manifest. Used by the queue, the ledger and what
looks at either. Pure; must not know where a task stands in the queue.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class QueuedTask:
    """A range of one source in one epoch.

    `start` moves up when a rewind finds leading records applied already; `credit`
    counts those, so that they are not lost from the totals.
    """

    task_id: int
    source: str
    start: int
    end: int
    epoch: int
    credit: int = 0
    failures: int = 0  # times user code raised on it
    deaths: int = 0  # workers that hung or crashed while they held it
    replay: bool = False  # may have been trained, in part, before
    cause: str = ""  # why it came back
    last_lease: int = -1
    workers: tuple[int, ...] = ()  # who held it

    def tree(self) -> dict[str, Any]:
        """Return the task as plain data, for a snapshot or a manifest.

        Not by `dataclasses.asdict`, which takes 25 µs: a master of a thousand workers
        stood still for a quarter of a second at each snapshot.
        """
        return dict(vars(self))

    @property
    def records(self) -> int:
        """Records still to be trained."""
        return self.end - self.start


@dataclass(frozen=True)
class LeasedTask:
    """A task leased to a worker."""

    task: QueuedTask
    lease_id: int
    worker: int

    @property
    def task_id(self) -> int:
        """The task's number: counts up over all epochs, by first leases."""
        return self.task.task_id


def task_from_json(tree: Mapping[str, Any]) -> QueuedTask:
    """Return the task with this `tree`."""
    return QueuedTask(**{**tree, "workers": tuple(tree["workers"])})
