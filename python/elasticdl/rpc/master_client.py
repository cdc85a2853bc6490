"""Calls to the master, with deadlines and ElasticDL's errors.

Owns how long each call may take. Called by workers, PS and the CLI. Must not retry:
the caller knows for how long it makes sense (`rpc.retry`).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import TypeVar

import grpc

from elasticdl import __version__
from elasticdl.errors import FencedError, RpcError
from elasticdl.job.names import Role
from elasticdl.proto import master_pb2, master_pb2_grpc
from elasticdl.rpc.channel import Peer, connect
from elasticdl.rpc.errors import raise_for
from elasticdl.rpc.tls.identity import Identity

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
        replica: master_pb2.Replica,
        *,
        token: str,
        identity: Identity | None = None,
        most_silence_seconds: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Take `host:port` of the master, who calls, and the job's token.

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
    def replica(self) -> master_pb2.Replica:
        """Who calls; put into every request that has no replica."""
        return self._replica

    def register(self, request: master_pb2.RegisterRequest) -> master_pb2.RegisterReply:
        request.replica.CopyFrom(self._replica)
        request.version = __version__
        return self._call(
            "register", lambda: self._stub.Register(request, timeout=CALL_SECONDS)
        )

    def model_ready(
        self, request: master_pb2.ModelReadyRequest
    ) -> master_pb2.ModelReadyReply:
        request.replica.CopyFrom(self._replica)
        return self._call(
            "model ready", lambda: self._stub.ModelReady(request, timeout=CALL_SECONDS)
        )

    def lease(self, request: master_pb2.LeaseRequest) -> master_pb2.LeaseReply:
        request.replica.CopyFrom(self._replica)
        seconds = request.wait_seconds + JOURNAL_SECONDS
        return self._call("lease", lambda: self._stub.Lease(request, timeout=seconds))

    def worker_sync(
        self, request: master_pb2.WorkerSyncRequest
    ) -> master_pb2.WorkerSyncReply:
        request.replica.CopyFrom(self._replica)
        seconds = request.hold_seconds + CALL_SECONDS
        return self._call(
            "heartbeat", lambda: self._stub.WorkerSync(request, timeout=seconds)
        )

    def ps_sync(self, request: master_pb2.PsSyncRequest) -> master_pb2.PsSyncReply:
        request.replica.CopyFrom(self._replica)
        seconds = request.hold_seconds + CALL_SECONDS
        return self._call(
            "heartbeat", lambda: self._stub.PsSync(request, timeout=seconds)
        )

    def status(
        self, request: master_pb2.StatusRequest | None = None
    ) -> master_pb2.StatusReply:
        message = request or master_pb2.StatusRequest()
        return self._call(
            "status", lambda: self._stub.Status(message, timeout=CALL_SECONDS)
        )

    def stop(self, request: master_pb2.StopRequest) -> master_pb2.StopReply:
        return self._call(
            "stop", lambda: self._stub.Stop(request, timeout=JOURNAL_SECONDS)
        )

    def close(self) -> None:
        """Close the connection; calls in flight fail with RpcError."""
        self._channel.close()

    def _call(self, name: str, call: Callable[[], Reply]) -> Reply:
        try:
            reply = call()
        except grpc.RpcError as error:
            if self._clock() - self._answered >= self._most_silence:
                raise FencedError(
                    f"no master answered for {self._most_silence:.0f} s: the job is "
                    "given up, and replicas of no job must not hold CPUs"
                ) from error
            raise_for(error, f"{name} at master {self._address}")
        except ValueError as error:
            # gRPC's answer to a call on a channel that was closed meanwhile.
            raise RpcError(f"{name} at master {self._address}: {error}") from error
        self._answered = self._clock()
        return reply
