"""Jobs that need fewer workers than they were granted: their last tasks are few.

Owns when a job's status is looked at for that, and what it said. Asked by
`controller.watching`, which reads the status. Pure: `now` is an argument. Only a job
whose master makes fewer workers than were granted is looked at: a status is large.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from elasticdl.planner.view import JobKey

# Between two looks at a job that is stuck, at most.
LAST_SECONDS = 60.0


@dataclass(frozen=True)
class _Tail:
    of: str  # uid of the ConfigMap
    at: float  # when to look
    pause: float  # until the look after that, where it tells nothing
    left: int | None = None  # tasks; None: not known, or enough


class Tails:
    """What is known of tasks that are left, by job."""

    def __init__(self, first_seconds: float) -> None:
        """Begin with nothing known.

        `first_seconds` is longer than a master needs to make workers.
        """
        self._first = first_seconds
        self._known: dict[JobKey, _Tail] = {}

    def due(self, short: Mapping[JobKey, str], now: float) -> list[JobKey]:
        """Return the jobs to look at, of those that lack workers, by their uids.

        What is known of a job lasts until its status says otherwise.
        """
        for key, uid in short.items():
            if key not in self._known or self._known[key].of != uid:
                self._known[key] = _Tail(uid, now + self._first, self._first)
        for key, tail in list(self._known.items()):
            if key not in short and tail.left is None:
                del self._known[key]
        return [key for key, tail in self._known.items() if now >= tail.at]

    def told(self, key: JobKey, left: int | None, now: float) -> bool:
        """Note how many tasks are left of a job; return whether that is news."""
        tail = self._known.get(key)
        if tail is None:
            return False
        # Who has few tasks left has fewer soon, or many again after an edit.
        pause = self._first if left is not None else tail.pause
        later = min(2 * pause, LAST_SECONDS) if left is None else self._first
        self._known[key] = _Tail(tail.of, now + pause, later, left)
        return left != tail.left

    def left(self, key: JobKey, uid: str) -> int | None:
        """Return how many tasks are left of a job; None where that is not known."""
        tail = self._known.get(key)
        return tail.left if tail is not None and tail.of == uid else None

    def forget(self, key: JobKey) -> None:
        """Drop a job that is gone, or has no master."""
        self._known.pop(key, None)
