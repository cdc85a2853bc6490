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
from elasticdl.job.plain import plain_json
from elasticdl.job.status import JobStatus
from elasticdl.rpc.asked_master import AskedMaster
from elasticdl.rpc.channel import connect
from elasticdl.rpc.platform import PlatformClient, PlatformView
from elasticdl.runner.base import Phase, ReplicaKey

_STOP_SECONDS = 5.0  # A clean end is acknowledged at once, before anything is written.
_PLATFORM_SECONDS = 10.0  # The platform may hold its lock while it starts processes.


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
    """The calls that launcher and command line make to a master."""

    def __init__(self, address: str, token: str) -> None:
        super().__init__(address, token)
        self._master = AskedMaster(self._channel)

    def status(self, *, timeout_seconds: float) -> JobStatus:
        """Return the job's status. Raises RpcError when there is no answer."""
        try:
            document = self._master.status(timeout_seconds=timeout_seconds)
        except grpc.RpcError as error:
            raise RpcError(f"the master does not answer: {_details(error)}") from error
        try:
            return JobStatus.model_validate_json(plain_json(document))
        except ValidationError as error:
            raise RpcError(
                f"the master's status cannot be read, is it of another version? {error}"
            ) from error

    def stop(self, reason: str) -> None:
        """Ask for a clean end of the job. Raises RpcError when there is no answer."""
        try:
            self._master.stop(reason, timeout_seconds=_STOP_SECONDS)
        except grpc.RpcError as error:
            raise RpcError(f"the master does not answer: {_details(error)}") from error


class PlatformCalls(_Connection):
    """The calls that the command line makes to a job's local platform."""

    def __init__(self, address: str, token: str) -> None:
        super().__init__(address, token)
        self._platform = PlatformClient(
            self._channel, timeout_seconds=_PLATFORM_SECONDS
        )

    def signal(self, key: ReplicaKey, number: int) -> int:
        """Send a signal; the pid, or 0 if that replica does not run."""
        try:
            return self._platform.signal(key.role, key.index, number)
        except grpc.RpcError as error:
            raise _unanswered(error) from error

    def set_capacity(self, cpus: float | None) -> tuple[int, int, int]:
        """Set all workers' CPUs; return running, newly preempted, pending workers."""
        try:
            return self._platform.set_capacity(cpus)
        except grpc.RpcError as error:
            raise _unanswered(error) from error

    def running(self) -> list[ReplicaKey]:
        """Return the replicas that have a process now, the master first."""
        return _running(self._look())

    def capacity(self) -> tuple[int, float | None]:
        """Return the number of running workers and their CPUs (None: no limit)."""
        view = self._look()
        workers = sum(key.role is Role.WORKER for key in _running(view))
        return workers, view.capacity

    def _look(self) -> PlatformView:
        try:
            return self._platform.look()
        except grpc.RpcError as error:
            raise _unanswered(error) from error


def _running(view: PlatformView) -> list[ReplicaKey]:
    keys = {
        ReplicaKey(Role(state.role), state.index)
        for state in view.states
        if state.phase == Phase.RUNNING
    }
    order = list(Role)
    return sorted(keys, key=lambda key: (order.index(key.role), key.index))


def _unanswered(error: grpc.RpcError) -> PlatformError:
    return PlatformError(f"the job's launcher does not answer: {_details(error)}")


def _details(error: grpc.RpcError) -> str:
    # The concrete classes of both kinds of calls have it, the base class has not.
    return error.details() or "" if isinstance(error, grpc.Call) else str(error)
