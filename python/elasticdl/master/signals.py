"""What wakes whom inside the master: the loop, held heartbeats, parked leases.

Owns the revisions that heartbeats wait on, and the diary of what happened. Used by
every part of the master that changes something others wait for. Must not know what
changed. Not thread-safe: it belongs to the master's event loop.

A bell that all workers wait on costs as much as there are workers: it is for what all
of them have to know at once (where the PS are, the learning rate, the end). What only
the PS are asked for rings theirs.
"""

from __future__ import annotations

import asyncio
import contextlib

from elasticdl.master.happenings import Diary


class Broadcast:
    """Wakes all present waiters."""

    def __init__(self) -> None:
        """Begin without waiters."""
        # A dict, for its order: who has waited longest is woken first.
        self._waiting: dict[asyncio.Future[None], None] = {}

    def notify(self) -> None:
        """Wake all waiters."""
        waiting, self._waiting = self._waiting, {}
        for future in waiting:
            _end(future)

    async def wait(self, seconds: float) -> None:
        """Return at the next `notify`, or after `seconds`."""
        # A thousand heartbeats are held at a time: a future each, and a timer, is
        # half of what an event and `asyncio.timeout` cost.
        loop = asyncio.get_running_loop()
        future = loop.create_future()
        timer = loop.call_later(max(0.0, seconds), _end, future)
        self._waiting[future] = None
        try:
            await future
        finally:
            timer.cancel()
            self._waiting.pop(future, None)


def _end(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


class Signals:
    """Events between the master's coroutines: work, revisions, wake-ups."""

    def __init__(self, master_generation: int, *, workers_hold: bool = False) -> None:
        """Begin; revisions of a later master are higher than those of an earlier one.

        `workers_hold`: the parameters are in the worker (strategy local), not in PS.
        """
        self.diary = Diary()  # what happened, for the loop to collect
        self._workers_hold = workers_hold
        self.revision = (master_generation << 32) + 1
        self.ps_revision = self.revision
        self._loop = asyncio.Event()
        self._revisions = Broadcast()
        self._ps_revisions = Broadcast()
        self._work = Broadcast()

    def wake(self) -> None:
        """Wake the loop."""
        self._loop.set()

    def bump(self) -> None:
        """Wake the heartbeats of all replicas: the answers have changed."""
        self.revision += 1
        self._revisions.notify()
        self.bump_ps()

    def bump_ps(self) -> None:
        """Wake the heartbeats of the PS: their answers have changed."""
        self.ps_revision += 1
        self._ps_revisions.notify()
        self._loop.set()

    def bump_holders(self) -> None:
        """Wake the heartbeats of the replicas that hold the model."""
        if self._workers_hold:
            self.bump()
        else:
            self.bump_ps()

    def work(self) -> None:
        """Wake the parked lease calls: there may be a task."""
        self._work.notify()

    async def wait_for_loop(self, seconds: float) -> None:
        """Return after a `wake` since the last call, or after `seconds`."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, seconds)):
                await self._loop.wait()
        self._loop.clear()

    async def wait_for_revision(self, seconds: float) -> None:
        """Return at the next `bump`, or after `seconds`."""
        await self._revisions.wait(seconds)

    async def wait_for_ps_revision(self, seconds: float) -> None:
        """Return at the next `bump` or `bump_ps`, or after `seconds`."""
        await self._ps_revisions.wait(seconds)

    async def wait_for_work(self, seconds: float) -> None:
        """Return when there may be a task, or after `seconds`."""
        await self._work.wait(seconds)
