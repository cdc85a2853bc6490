"""Serves the local platform over gRPC on loopback.

Owns the translation between messages (proto/platform.proto) and `LocalPlatform`.
Started by `client.local.launcher`; called by `runner.local.runner` and by the CLI.
Decides nothing.
"""

from __future__ import annotations

from collections.abc import Iterator

import grpc

from elasticdl.errors import PlatformError
from elasticdl.job.names import Role
from elasticdl.proto import platform_pb2, platform_pb2_grpc
from elasticdl.rpc.server import bind, threaded_server
from elasticdl.runner.base import Launch, ObservedReplica, Phase, ReplicaKey
from elasticdl.runner.local.platform import LocalPlatform
from elasticdl.runner.local.table import TableChange

# Each watcher keeps a thread: the master, and for moments the CLI and an old master.
_THREADS = 16
_LOOK_AGAIN_SECONDS = 5.0


class PlatformServer:
    """The gRPC server of one platform; it serves until `close`."""

    def __init__(self, platform: LocalPlatform, *, token: str, port: int = 0) -> None:
        """Listen on loopback (0: any free port) and announce the address."""
        self._platform = platform
        self._server = threaded_server(_THREADS, token)
        platform_pb2_grpc.add_LocalPlatformServicer_to_server(
            PlatformServicer(platform), self._server
        )
        bound = bind(self._server, "127.0.0.1", port)
        self.address = f"127.0.0.1:{bound}"
        platform.announce(self.address)
        self._server.start()

    def close(self) -> None:
        """Stop serving; calls in progress are cut."""
        stopped = self._server.stop(grace=0)
        self._platform.wake()
        stopped.wait(5.0)


class PlatformServicer(platform_pb2_grpc.LocalPlatformServicer):
    """Maps RPCs to the platform's methods."""

    def __init__(self, platform: LocalPlatform) -> None:
        self._platform = platform

    def Start(  # noqa: N802 - the name is the RPC's
        self, request: platform_pb2.StartRequest, context: grpc.ServicerContext
    ) -> platform_pb2.StartReply:
        launch = Launch(
            key=_key(request.role, request.index, context),
            generation=request.generation,
            cpu=request.cpu,
            memory="",
            priority=request.priority,
            grace_seconds=request.grace_seconds,
            env=dict(request.env),
        )
        try:
            self._platform.start(launch)
        except PlatformError as error:
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))
        return platform_pb2.StartReply()

    def Stop(  # noqa: N802 - the name is the RPC's
        self, request: platform_pb2.StopProcessRequest, context: grpc.ServicerContext
    ) -> platform_pb2.StopProcessReply:
        found = self._platform.stop(
            _key(request.role, request.index, context),
            grace_seconds=request.grace_seconds,
            reason=request.reason,
        )
        return platform_pb2.StopProcessReply(found=found)

    def Signal(  # noqa: N802 - the name is the RPC's
        self, request: platform_pb2.SignalRequest, context: grpc.ServicerContext
    ) -> platform_pb2.SignalReply:
        pid = self._platform.signal(
            _key(request.role, request.index, context), request.signal
        )
        return platform_pb2.SignalReply(found=pid != 0, pid=pid)

    def SetCapacity(  # noqa: N802 - the name is the RPC's
        self, request: platform_pb2.CapacityRequest, context: grpc.ServicerContext
    ) -> platform_pb2.CapacityReply:
        if request.cpus < 0:
            context.abort(
                grpc.StatusCode.INVALID_ARGUMENT,
                f"capacity: got {request.cpus:g} CPUs, expected 0 or more",
            )
        running, preempted, pending = self._platform.set_capacity(
            None if request.unlimited else request.cpus
        )
        return platform_pb2.CapacityReply(
            running=running, preempted=preempted, pending=pending
        )

    def Watch(  # noqa: N802 - the name is the RPC's
        self,
        request: platform_pb2.WatchRequest,  # noqa: ARG002 - empty, given by gRPC
        context: grpc.ServicerContext,
    ) -> Iterator[platform_pb2.WatchEvent]:
        context.add_callback(self._platform.wake)
        change = self._platform.states()
        yield _event(change, resync=True)
        seen, capacity = change.revision, change.capacity
        while context.is_active() and not self._platform.closed:
            change = self._platform.next_change(
                seen, timeout_seconds=_LOOK_AGAIN_SECONDS
            )
            if change.states or change.capacity != capacity:
                yield _event(change, resync=False)
            seen, capacity = change.revision, change.capacity


def _key(role: str, index: int, context: grpc.ServicerContext) -> ReplicaKey:
    if role not in list(Role):
        context.abort(
            grpc.StatusCode.INVALID_ARGUMENT,
            f"role: got {role!r}, expected one of {', '.join(Role)}",
        )
    return ReplicaKey(Role(role), index)


def _event(change: TableChange, *, resync: bool) -> platform_pb2.WatchEvent:
    return platform_pb2.WatchEvent(
        resync=resync,
        states=[_state(state) for state in change.states],
        capacity=-1.0 if change.capacity is None else change.capacity,
    )


def _state(state: ObservedReplica) -> platform_pb2.ProcessState:
    pending = state.phase is Phase.PENDING
    return platform_pb2.ProcessState(
        role=state.key.role,
        index=state.key.index,
        generation=state.generation,
        phase=state.phase,
        reason=state.pending_reason if pending else state.reason,
        exit_code=state.exit_code,
        pid=state.pid,
        since=state.since,
        message=state.message,
    )
