"""Runs replicas as processes of this machine, through the launcher's platform.

Owns the master's connection to `runner.local.platform_server`. Used by the master's
loop as its `runner.base.Runner`. Must not know what a replica does or why it is
relaunched.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import TypeVar

import grpc
import grpc.aio

from elasticdl.errors import PlatformError
from elasticdl.job.names import Role, replica_name
from elasticdl.job.words import ExitReason
from elasticdl.pauses import growing
from elasticdl.rpc.channel import connect_aio
from elasticdl.rpc.platform import (
    AioPlatformClient,
    PlatformView,
    ProcessState,
    StartProcess,
    StopProcess,
)
from elasticdl.runner.base import (
    Launch,
    Observation,
    ObservedReplica,
    Phase,
    ReplicaKey,
)

_Reply = TypeVar("_Reply")

_CALL_SECONDS = 5.0  # The platform answers in milliseconds, from the same machine.
_TRIES = 4  # A launcher that does not answer four times is gone, and ends this process.
_FIRST_PAUSE_SECONDS = 0.1
_LONGEST_PAUSE_SECONDS = 1.0
_AWAY = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)


class LocalRunner:
    """The Runner of local processes; `close` when the master ends.

    The platform is the parent of the master too: it outlives every call here, unless
    the launcher was killed, and then the lifeline ends this process.
    """

    def __init__(self, platform_address: str, *, token: str) -> None:
        """Connect lazily; created in the running event loop."""
        self._channel = connect_aio(platform_address, token)
        self._platform = AioPlatformClient(self._channel, timeout_seconds=_CALL_SECONDS)

    async def check(self, launches: Sequence[Launch]) -> None:
        """Do nothing: a process that cannot start reports it when started."""

    async def start(self, launch: Launch) -> None:
        """Ask for a replica; it may stay PENDING. Idempotent for a generation."""
        process = StartProcess(
            role=launch.key.role,
            index=launch.key.index,
            generation=launch.generation,
            cpu=launch.cpu,
            priority=launch.priority,
            env=launch.env,
            grace_seconds=launch.grace_seconds,
        )
        name = replica_name(launch.key.role, launch.key.index)
        await _retrying(lambda: self._platform.start(process), f"start {name}")

    async def stop(self, key: ReplicaKey, *, grace_seconds: float, reason: str) -> None:
        """SIGTERM, then SIGKILL after `grace_seconds`; not an error if it is gone."""
        process = StopProcess(key.role, key.index, grace_seconds, reason)
        name = replica_name(key.role, key.index)
        await _retrying(lambda: self._platform.stop(process), f"stop {name}")

    async def watch(self) -> AsyncIterator[Observation]:
        """Yield the whole list first, then changes; lists again after a break.

        The master itself is not in it. Ends only with the caller's own end.
        """
        tries = 0
        while True:
            try:
                async for view in self._platform.watch():
                    tries = 0
                    yield Observation(_states(view), resync=view.resync)
            except grpc.aio.AioRpcError as error:
                if error.code() not in (*_AWAY, grpc.StatusCode.CANCELLED):
                    raise PlatformError(
                        f"cannot watch the local platform: {error.details()}"
                    ) from error
            await asyncio.sleep(_pause(tries))
            tries += 1

    async def close(self) -> None:
        """End the connection."""
        await self._channel.close()


async def _retrying(call: Callable[[], Awaitable[_Reply]], what: str) -> _Reply:
    """Repeat a call until it is answered; all calls of a platform are idempotent."""
    for tries in range(_TRIES):
        try:
            return await call()
        except grpc.aio.AioRpcError as error:
            if error.code() not in _AWAY or tries == _TRIES - 1:
                raise PlatformError(
                    f"the local platform did not {what}: {error.details()}"
                ) from error
        await asyncio.sleep(_pause(tries))
    raise AssertionError("the last try returns or raises")


def _pause(tries: int) -> float:
    return growing(tries, first=_FIRST_PAUSE_SECONDS, most=_LONGEST_PAUSE_SECONDS)


def _states(view: PlatformView) -> tuple[ObservedReplica, ...]:
    return tuple(_state(state) for state in view.states if state.role != Role.MASTER)


def _state(state: ProcessState) -> ObservedReplica:
    phase = Phase(state.phase)
    pending = phase is Phase.PENDING
    return ObservedReplica(
        key=ReplicaKey(Role(state.role), state.index),
        generation=state.generation,
        phase=phase,
        reason=ExitReason.NONE if pending else ExitReason(state.reason),
        exit_code=state.exit_code,
        pending_reason=state.reason if pending else "",
        since=state.since,
        message=state.message,
        pid=state.pid,
    )
