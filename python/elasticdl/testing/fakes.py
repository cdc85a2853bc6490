"""A Runner whose replicas are entries in a table, and a Publisher that keeps all.

Own the table, the stream of what is seen of it, and what was shown. Used in place of
`runner.local.runner` where real processes would only cost time; shipped, because a
program that embeds a master can test with it as well. Must not decide what a platform
does not.

Belongs to the event loop it is made in; `end`, `preempt` and the like may be called
from there only.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, replace

from elasticdl.errors import PlatformError
from elasticdl.job.names import Role
from elasticdl.job.words import ExitReason
from elasticdl.runner.base import (
    Launch,
    Observation,
    ObservedReplica,
    Phase,
    ReplicaKey,
)
from elasticdl.runner.publisher import Notice


@dataclass(frozen=True)
class Stopped:
    """A stop that the master asked for."""

    key: ReplicaKey
    grace_seconds: float
    reason: str


class InMemoryRunner:
    """Implements runner.base.Runner without processes."""

    def __init__(
        self,
        *,
        on_start: Callable[[Launch], None] = lambda _: None,
        on_stop: Callable[[ReplicaKey], None] = lambda _: None,
    ) -> None:
        """`on_start` and `on_stop` let a test run a scripted replica."""
        self._on_start = on_start
        self._on_stop = on_stop
        self.states: dict[ReplicaKey, ObservedReplica] = {}
        self.launches: list[Launch] = []
        self.checked: list[Launch] = []
        self.stops: list[Stopped] = []
        self.hold = False  # replicas stay pending
        self.refuse = ""  # starting fails with this message
        self.refuse_check = ""  # the job is refused with this message
        self._watchers: list[asyncio.Queue[Observation]] = []

    async def check(self, launches: Sequence[Launch]) -> None:
        """Accept all launches except refused ones."""
        self.checked += launches
        if self.refuse_check:
            raise PlatformError(self.refuse_check)

    async def start(self, launch: Launch) -> None:
        """Run a replica, or keep it pending."""
        if self.refuse:
            raise PlatformError(self.refuse)
        known = self.states.get(launch.key)
        if known is not None and known.generation == launch.generation:
            return
        self.launches.append(launch)
        phase = Phase.PENDING if self.hold else Phase.RUNNING
        self._show(
            ObservedReplica(
                launch.key,
                launch.generation,
                phase,
                pending_reason="no room" if self.hold else "",
                pid=len(self.launches),
            )
        )
        if phase is Phase.RUNNING:
            self._on_start(launch)

    async def stop(self, key: ReplicaKey, *, grace_seconds: float, reason: str) -> None:
        """End a replica; no effect if it is gone."""
        self.stops.append(Stopped(key, grace_seconds, reason))
        self._on_stop(key)
        self.end(key, ExitReason.DELETED)

    async def watch(self) -> AsyncIterator[Observation]:
        """Yield the whole list, then changes."""
        queue: asyncio.Queue[Observation] = asyncio.Queue()
        self._watchers.append(queue)
        try:
            yield Observation(tuple(self.states.values()), resync=True)
            while True:
                yield await queue.get()
        finally:
            self._watchers.remove(queue)

    # -- what a test does to replicas -----------------------------------------------

    def end(
        self,
        key: ReplicaKey,
        reason: ExitReason = ExitReason.ERROR,
        *,
        exit_code: int = 0,
        message: str = "",
    ) -> None:
        """End a living replica."""
        state = self.states.get(key)
        if state is None or state.phase in (Phase.SUCCEEDED, Phase.FAILED):
            return
        done = reason is ExitReason.COMPLETED
        self._show(
            replace(
                state,
                phase=Phase.SUCCEEDED if done else Phase.FAILED,
                reason=reason,
                exit_code=exit_code,
                message=message,
            )
        )

    def take_away(self, key: ReplicaKey, reason: ExitReason) -> None:
        """Report that a running replica has only its grace period left."""
        self._show(replace(self.states[key], reason=reason))

    def vanish(self, key: ReplicaKey) -> None:
        """Remove a replica without an event (defect D14)."""
        del self.states[key]

    def list_again(self) -> None:
        """Send the whole list to all watchers, as after a broken watch."""
        self._tell(Observation(tuple(self.states.values()), resync=True))

    def release(self) -> None:
        """Let pending replicas run."""
        self.hold = False
        for launch in self.launches:
            state = self.states.get(launch.key)
            if (
                state is not None
                and state.phase is Phase.PENDING
                and state.generation == launch.generation
            ):
                self._show(replace(state, phase=Phase.RUNNING, pending_reason=""))
                self._on_start(launch)

    def running(self, role: Role) -> list[int]:
        """Return the indexes of the running replicas of a role."""
        return sorted(
            key.index
            for key, state in self.states.items()
            if key.role is role and state.phase is Phase.RUNNING
        )

    def _show(self, state: ObservedReplica) -> None:
        self.states[state.key] = state
        self._tell(Observation((state,)))

    def _tell(self, observation: Observation) -> None:
        for queue in self._watchers:
            queue.put_nowait(observation)


class InMemoryPublisher:
    """A runner.publisher.Publisher that keeps everything in memory."""

    period_seconds = 0.0
    history_period_seconds = 0.0

    def __init__(self) -> None:
        """Nothing was shown yet."""
        self.shown = ""
        self.packed_history = b""
        self.notices: list[Notice] = []
        self.report = ""

    def status(self, document: str) -> None:
        """Keep it in place of the one before."""
        self.shown = document

    def headline(self, state: str, message: str) -> None:
        """Forget it."""

    def history(self, document: bytes) -> None:
        """Keep it in place of the one before."""
        self.packed_history = document

    def notice(self, notice: Notice) -> None:
        """Keep it."""
        self.notices.append(notice)

    async def close(self, *, status: str, report: str) -> None:
        """Keep both."""
        self.shown, self.report = status, report
