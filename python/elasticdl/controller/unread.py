"""Texts of jobs that nobody has read yet: which one is next.

Owns their order. Asked by `controller.watching`, which reads one after the other beside
its loop. Pure. A text takes a second if it is large, and whoever may write one may
write a hundred, or one a hundred times: so the namespace goes first whose texts took
the least time lately, and of one namespace the shortest.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from elasticdl.planner.view import JobKey

# Then all begin anew.
FORGOTTEN_SECONDS = 60.0


class Unread:
    """ConfigMaps of jobs, by the job."""

    def __init__(self) -> None:
        """Begin with none."""
        self._items: dict[JobKey, tuple[dict[str, Any], int]] = {}
        self._spent: dict[str, float] = defaultdict(float)  # seconds, by namespace
        self._since = 0.0

    def add(self, key: JobKey, item: dict[str, Any], length: int) -> None:
        """Add one, in place of an earlier one of the job."""
        self._items[key] = (item, length)

    def drop(self, key: JobKey) -> None:
        """Take one out: it is gone, or needs no reading any more."""
        self._items.pop(key, None)

    def next(self, now: float) -> dict[str, Any] | None:
        """Take out the one that is to be read; None where there is none."""
        if not self._items:
            return None
        if now - self._since >= FORGOTTEN_SECONDS:
            self._since, self._spent = now, defaultdict(float)
        key = min(self._items, key=self._place)
        return self._items.pop(key)[0]

    def took(self, key: JobKey, seconds: float) -> None:
        """Note how long one was read."""
        self._spent[key.namespace] += seconds

    def _place(self, key: JobKey) -> tuple[float, int, JobKey]:
        return (self._spent.get(key.namespace, 0.0), self._items[key][1], key)
