"""Calls to the local platform: what is asked of it, and what it shows of processes.

Owns the translation between proto/platform.proto and frozen classes, on the callers'
side; the server has the other one (`runner.local.platform_server`). Called by
`runner.local.runner` and `client.local.calls`. Must not know what follows from an
answer, nor try again.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass

import grpc
import grpc.aio

from elasticdl.proto import platform_pb2, platform_pb2_grpc


@dataclass(frozen=True, slots=True)
class StartProcess:
    """Request for a replica's process."""

    role: str
    index: int
    generation: int
    cpu: float
    priority: str  # high or low
    env: Mapping[str, str]
    grace_seconds: float


@dataclass(frozen=True, slots=True)
class StopProcess:
    """Request to end a replica's process."""

    role: str
    index: int
    grace_seconds: float
    reason: str  # shown as the reason of its end


@dataclass(frozen=True, slots=True)
class ProcessState:
    """A process as the platform sees it."""

    role: str
    index: int
    generation: int
    phase: str  # runner.base.Phase
    reason: str  # runner.base's ExitReason, or why it is pending
    exit_code: int
    pid: int
    since: float  # Unix seconds of the last change
    message: str  # last lines of its log when it crashed


@dataclass(frozen=True, slots=True)
class PlatformView:
    """The state of a platform: all processes with `resync`, else the changed ones."""

    resync: bool
    states: tuple[ProcessState, ...]
    capacity: float | None  # CPUs for workers; None: not limited


class PlatformClient:
    """The platform's client for threads. All calls raise grpc.RpcError."""

    def __init__(self, channel: grpc.Channel, *, timeout_seconds: float) -> None:
        """Use this channel, which the caller closes."""
        self._stub = platform_pb2_grpc.LocalPlatformStub(channel)
        self._timeout = timeout_seconds

    def signal(self, role: str, index: int, number: int) -> int:
        """Send a signal; the pid, or 0 if that replica does not run."""
        request = platform_pb2.SignalRequest(role=role, index=index, signal=number)
        return self._stub.Signal(request, timeout=self._timeout).pid

    def set_capacity(self, cpus: float | None) -> tuple[int, int, int]:
        """Set all workers' CPUs; return running, newly preempted, pending workers."""
        request = platform_pb2.CapacityRequest(cpus=cpus or 0.0, unlimited=cpus is None)
        reply = self._stub.SetCapacity(request, timeout=self._timeout)
        return reply.running, reply.preempted, reply.pending

    def look(self) -> PlatformView:
        """Return the platform's whole state."""
        request = platform_pb2.WatchRequest()
        stream = self._stub.Watch(request, timeout=self._timeout)
        view = _view(next(iter(stream)))
        stream.cancel()
        return view


class AioPlatformClient:
    """The platform's client for an event loop. All calls raise AioRpcError."""

    def __init__(self, channel: grpc.aio.Channel, *, timeout_seconds: float) -> None:
        """Use this channel, which the caller closes."""
        self._stub: platform_pb2_grpc.LocalPlatformAsyncStub = (
            platform_pb2_grpc.LocalPlatformStub(channel)
        )
        self._timeout = timeout_seconds

    async def start(self, process: StartProcess) -> None:
        """Ask for a replica."""
        request = platform_pb2.StartRequest(
            role=process.role,
            index=process.index,
            generation=process.generation,
            cpu=process.cpu,
            priority=process.priority,
            env=process.env,
            grace_seconds=process.grace_seconds,
        )
        await self._stub.Start(request, timeout=self._timeout)

    async def stop(self, process: StopProcess) -> None:
        """Ask for the end of a replica."""
        request = platform_pb2.StopProcessRequest(
            role=process.role,
            index=process.index,
            grace_seconds=process.grace_seconds,
            reason=process.reason,
        )
        await self._stub.Stop(request, timeout=self._timeout)

    async def watch(self) -> AsyncIterator[PlatformView]:
        """Yield the whole state, then each change."""
        async for event in self._stub.Watch(platform_pb2.WatchRequest()):
            yield _view(event)


def _view(event: platform_pb2.WatchEvent) -> PlatformView:
    return PlatformView(
        resync=event.resync,
        states=tuple(_state(state) for state in event.states),
        capacity=None if event.capacity < 0 else event.capacity,
    )


def _state(state: platform_pb2.ProcessState) -> ProcessState:
    return ProcessState(
        role=state.role,
        index=state.index,
        generation=state.generation,
        phase=state.phase,
        reason=state.reason,
        exit_code=state.exit_code,
        pid=state.pid,
        since=state.since,
        message=state.message,
    )
