"""What wakes whom inside the master: the loop, held heartbeats, parked leases.

Owns the revision that heartbeats wait on. Used by every part of the master that
changes something others wait for. Must not know what changed. Not thread-safe: it
belongs to the master's event loop.
"""

from __future__ import annotations

import asyncio
import contextlib


class Broadcast:
    """Wakes all that wait now; those that come later wait for the next time."""

    def __init__(self) -> None:
        """Nobody waits yet."""
        self._event = asyncio.Event()

    def notify(self) -> None:
        """Wake everybody."""
        self._event.set()
        self._event = asyncio.Event()

    async def wait(self, seconds: float) -> None:
        """Return at the next `notify`, or after `seconds`."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, seconds)):
                await self._event.wait()


class Signals:
    """The master's bells."""

    def __init__(self, master_generation: int) -> None:
        """Revisions of a later master are higher than any of an earlier one."""
        self.revision = (master_generation << 32) + 1
        self._loop = asyncio.Event()
        self._revisions = Broadcast()
        self._work = Broadcast()

    def wake(self) -> None:
        """Let the loop look again."""
        self._loop.set()

    def bump(self) -> None:
        """Tell all replicas that what heartbeats answer has changed."""
        self.revision += 1
        self._revisions.notify()
        self._loop.set()

    def work(self) -> None:
        """Tell parked leases that there may be something to do."""
        self._work.notify()

    async def wait_for_loop(self, seconds: float) -> None:
        """Return when `wake` was called since the last time, or after `seconds`."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, seconds)):
                await self._loop.wait()
        self._loop.clear()

    async def wait_for_revision(self, seconds: float) -> None:
        """Return at the next `bump`, or after `seconds`."""
        await self._revisions.wait(seconds)

    async def wait_for_work(self, seconds: float) -> None:
        """Return when there may be work, or after `seconds`."""
        await self._work.wait(seconds)
