"""Whose turn it is: one piece of work per name at a time, several names at once.

Owns the order. Used by `training_jobs.controller`. Must not know what the work is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

# More than charts that are rendered at once: what needs none does not wait for those.
MOST = 16


class Turns:
    """Works on names in a group of tasks; the work must not raise."""

    def __init__(
        self, tasks: asyncio.TaskGroup, work: Callable[[str], Awaitable[None]]
    ) -> None:
        """Take the group, which lives as long as this is used."""
        self._tasks = tasks
        self._work = work
        self._room = asyncio.Semaphore(MOST)
        # Those at work or in the line, and whether they are to be worked on once more.
        self._again: dict[str, bool] = {}

    def give(self, name: str) -> None:
        """Have a name worked on as it is from now on."""
        if name in self._again:
            self._again[name] = True
            return
        self._again[name] = False
        self._tasks.create_task(self._turn(name), name=f"turn of {name}")

    async def _turn(self, name: str) -> None:
        async with self._room:
            self._again[name] = False  # what came while it waited is seen now
            await self._work(name)
        # Behind all that wait: one that is new all the time is no reason to wait.
        if self._again.pop(name):
            self.give(name)
