"""Calls to the master, with deadlines and ElasticDL's errors.

Owns how long each call may take. Called by workers, PS and the CLI. Must not retry:
the caller knows for how long it makes sense (`rpc.retry`).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

import grpc

from elasticdl import __version__
from elasticdl.errors import FencedError, RpcError
from elasticdl.job.heartbeats import (
    ModelInfo,
    PsHeartbeat,
    PsOrders,
    Registration,
    RegistrationReply,
    WorkerHeartbeat,
    WorkerOrders,
)
from elasticdl.job.names import Role
from elasticdl.job.tasks import LeaseReply, LeaseRequest, ReplicaId
from elasticdl.proto import master_pb2, master_pb2_grpc
from elasticdl.rpc.channel import Peer, connect
from elasticdl.rpc.errors import raise_for
from elasticdl.rpc.heartbeat_messages import (
    model_to_wire,
    ps_beat_to_wire,
    ps_orders_from_wire,
    registration_reply_from_wire,
    registration_to_wire,
    worker_beat_to_wire,
    worker_orders_from_wire,
)
from elasticdl.rpc.held_call import HeldCall
from elasticdl.rpc.task_messages import lease_reply_from_wire, lease_request_to_wire
from elasticdl.rpc.tls.identity import Identity

# The master answers in milliseconds; held calls have limits of their own.
CALL_SECONDS = 5.0
# A report waits for the journal, whose disk may be slow or full for a while.
JOURNAL_SECONDS = 15.0

Reply = TypeVar("Reply")


class MasterClient:
    """The master as one replica sees it. Thread-safe.

    Every call raises RpcError when the master is away or late, FencedError when this
    replica's generation is old or no master has answered for too long (the job is given
    up), RefusedError when the call makes no sense.
    """

    def __init__(
        self,
        address: str,
        replica: ReplicaId,
        *,
        token: str,
        identity: Identity | None = None,
        most_silence_seconds: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Take the master's `host:port`, the calling replica and the job's token.

        `identity`: calls are encrypted with it; None where they are not.
        `most_silence_seconds`: how long a master may be away; None: for ever.
        """
        self._address = address
        self._replica = replica
        self._channel = connect(address, token, Peer(Role.MASTER, 0, identity))
        self._most_silence = (
            math.inf if most_silence_seconds is None else most_silence_seconds
        )
        self._clock = clock
        self._answered = clock()
        self._stub = master_pb2_grpc.MasterStub(self._channel)

    @property
    def replica(self) -> ReplicaId:
        """The calling replica; part of every request."""
        return self._replica

    def register(self, registration: Registration) -> RegistrationReply:
        """Register this replica, with the package's version."""
        message = registration_to_wire(
            replace(registration, replica=self._replica, version=__version__)
        )
        reply = self._call(
            "register", lambda: self._stub.Register(message, timeout=CALL_SECONDS)
        )
        return registration_reply_from_wire(reply)

    def model_ready(self, model: ModelInfo) -> None:
        """Report the model that this worker has built."""
        message = model_to_wire(replace(model, replica=self._replica))
        self._call(
            "model ready", lambda: self._stub.ModelReady(message, timeout=CALL_SECONDS)
        )

    def lease(self, request: LeaseRequest) -> LeaseReply:
        """Report finished tasks and lease new ones."""
        message = lease_request_to_wire(replace(request, replica=self._replica))
        seconds = request.wait_seconds + JOURNAL_SECONDS
        reply = self._call("lease", lambda: self._stub.Lease(message, timeout=seconds))
        return lease_reply_from_wire(reply)

    def worker_sync(
        self, beat: WorkerHeartbeat, held: HeldCall | None = None
    ) -> WorkerOrders | None:
        """Send a worker's heartbeat; None if it was withdrawn meanwhile."""
        message = worker_beat_to_wire(replace(beat, replica=self._replica))
        seconds = beat.hold_seconds + CALL_SECONDS
        reply = self._call(
            "heartbeat",
            lambda: (held or HeldCall()).answer(
                lambda: self._stub.WorkerSync.future(message, timeout=seconds)
            ),
        )
        return None if reply is None else worker_orders_from_wire(reply)

    def ps_sync(
        self, beat: PsHeartbeat, held: HeldCall | None = None
    ) -> PsOrders | None:
        """Send a PS's heartbeat; None if it was withdrawn meanwhile."""
        message = ps_beat_to_wire(replace(beat, replica=self._replica))
        seconds = beat.hold_seconds + CALL_SECONDS
        reply = self._call(
            "heartbeat",
            lambda: (held or HeldCall()).answer(
                lambda: self._stub.PsSync.future(message, timeout=seconds)
            ),
        )
        return None if reply is None else ps_orders_from_wire(reply)

    def status(self) -> str:
        """Return the job as JSON (job.status.JobStatus)."""
        message = master_pb2.StatusRequest()
        reply = self._call(
            "status", lambda: self._stub.Status(message, timeout=CALL_SECONDS)
        )
        return reply.json

    def stop(self, reason: str = "") -> None:
        """Ask for a clean end of the job."""
        message = master_pb2.StopRequest(reason=reason)
        self._call("stop", lambda: self._stub.Stop(message, timeout=JOURNAL_SECONDS))

    def close(self) -> None:
        """Close the connection; calls in flight fail with RpcError."""
        self._channel.close()

    def _is_there(self) -> bool:
        """Whether the master answers at all: other calls wait for its journal."""
        try:
            self._stub.Echo(master_pb2.EchoRequest(), timeout=CALL_SECONDS)
        except grpc.RpcError:
            return False
        self._answered = self._clock()
        return True

    def _call(self, name: str, call: Callable[[], Reply]) -> Reply:
        try:
            reply = call()
        except grpc.RpcError as error:
            silence = self._clock() - self._answered
            if silence >= self._most_silence and not self._is_there():
                raise FencedError(
                    f"no master answered for {self._most_silence:.0f} s: the job is "
                    "given up, and replicas of no job must not hold CPUs"
                ) from error
            raise_for(error, f"{name} at master {self._address}")
        except ValueError as error:
            # gRPC's answer to a call on a channel that was closed meanwhile.
            raise RpcError(f"{name} at master {self._address}: {error}") from error
        if reply is not None:  # a heartbeat that was withdrawn has no answer
            self._answered = self._clock()
        return reply
