"""Calls to a running job: to its master and to its platform.

Owns deadlines and the translation of answers. Called by `client.local.launcher` and
`client.local.job`. Must not decide what an answer means.
"""

from __future__ import annotations

from types import TracebackType
from typing import Self

import grpc
from pydantic import ValidationError

from elasticdl.errors import PlatformError, RpcError
from elasticdl.job.names import Role
from elasticdl.job.status import JobStatus
from elasticdl.proto import (
    master_pb2,
    master_pb2_grpc,
    platform_pb2,
    platform_pb2_grpc,
)
from elasticdl.rpc.channel import connect
from elasticdl.runner.base import Phase, ReplicaKey

_STOP_SECONDS = 5.0
_PLATFORM_SECONDS = 10.0


class _Connection:
    """A channel that is closed at the end of a `with` block."""

    def __init__(self, address: str, token: str) -> None:
        self._channel = connect(address, token)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the connection."""
        self._channel.close()


class MasterCalls(_Connection):
    """What launcher and CLI ask of a master."""

    def __init__(self, address: str, token: str) -> None:
        super().__init__(address, token)
        self._stub = master_pb2_grpc.MasterStub(self._channel)

    def status(self, *, timeout_seconds: float) -> JobStatus:
        """Return the job's status. Raises RpcError when there is no answer."""
        try:
            reply = self._stub.Status(
                master_pb2.StatusRequest(), timeout=timeout_seconds
            )
        except grpc.RpcError as error:
            raise RpcError(f"the master does not answer: {_details(error)}") from error
        try:
            return JobStatus.model_validate_json(reply.json)
        except ValidationError as error:
            raise RpcError(
                f"the master's status cannot be read, is it of another version? {error}"
            ) from error

    def stop(self, reason: str) -> None:
        """Ask for a clean end of the job. Raises RpcError when there is no answer."""
        try:
            self._stub.Stop(
                master_pb2.StopRequest(reason=reason), timeout=_STOP_SECONDS
            )
        except grpc.RpcError as error:
            raise RpcError(f"the master does not answer: {_details(error)}") from error


class PlatformCalls(_Connection):
    """What the CLI asks of a job's local platform."""

    def __init__(self, address: str, token: str) -> None:
        super().__init__(address, token)
        self._stub = platform_pb2_grpc.LocalPlatformStub(self._channel)

    def signal(self, key: ReplicaKey, number: int) -> int:
        """Send a signal; the pid, or 0 if that replica does not run."""
        try:
            reply = self._stub.Signal(
                platform_pb2.SignalRequest(
                    role=key.role, index=key.index, signal=number
                ),
                timeout=_PLATFORM_SECONDS,
            )
        except grpc.RpcError as error:
            raise _unanswered(error) from error
        return reply.pid

    def set_capacity(self, cpus: float | None) -> tuple[int, int, int]:
        """Change the workers' CPUs; running, newly preempted, pending workers."""
        try:
            reply = self._stub.SetCapacity(
                platform_pb2.CapacityRequest(cpus=cpus or 0.0, unlimited=cpus is None),
                timeout=_PLATFORM_SECONDS,
            )
        except grpc.RpcError as error:
            raise _unanswered(error) from error
        return reply.running, reply.preempted, reply.pending

    def running(self) -> list[ReplicaKey]:
        """Return the replicas that have a process now, the master first."""
        return _running(self._look())

    def capacity(self) -> tuple[int, float | None]:
        """Return the workers that have a process, and all workers' CPUs; None: any."""
        event = self._look()
        workers = sum(key.role is Role.WORKER for key in _running(event))
        return workers, None if event.capacity < 0 else event.capacity

    def _look(self) -> platform_pb2.WatchEvent:
        try:
            stream = self._stub.Watch(
                platform_pb2.WatchRequest(), timeout=_PLATFORM_SECONDS
            )
            event = next(iter(stream))
            stream.cancel()
        except grpc.RpcError as error:
            raise _unanswered(error) from error
        return event


def _running(event: platform_pb2.WatchEvent) -> list[ReplicaKey]:
    keys = {
        ReplicaKey(Role(state.role), state.index)
        for state in event.states
        if state.phase == Phase.RUNNING
    }
    order = list(Role)
    return sorted(keys, key=lambda key: (order.index(key.role), key.index))


def _unanswered(error: grpc.RpcError) -> PlatformError:
    return PlatformError(f"the job's launcher does not answer: {_details(error)}")


def _details(error: grpc.RpcError) -> str:
    # The concrete classes of both kinds of calls have it, the base class has not.
    return error.details() or "" if isinstance(error, grpc.Call) else str(error)
