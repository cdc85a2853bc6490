"""How a PS or worker in a cluster gets its certificate, and the next ones.

Owns the calls. Used by `rpc.tls.identity`, before a replica's other calls. Must not
decide whether a replica belongs to the job: the master does.

A pod comes with an enrolment: a certificate that is good for this call alone, and the
seed of its key. With it the replica asks the master to sign a key that never leaves
the process; the certificate that comes back is short-lived, and shown in all others.
"""

from __future__ import annotations

import threading
import time

import grpc

from elasticdl.errors import FencedError, RpcError
from elasticdl.job.context import EnrolmentKeys, RoleContext
from elasticdl.job.names import Role
from elasticdl.proto import master_pb2, master_pb2_grpc
from elasticdl.rpc.channel import Peer, connect
from elasticdl.rpc.errors import raise_for
from elasticdl.rpc.master_client import CALL_SECONDS
from elasticdl.rpc.retry import retry
from elasticdl.rpc.tls.certificates import Credentials, new_key, request_for, seeded_key
from elasticdl.rpc.tls.identity import Identity


def enrolled(
    context: RoleContext, enrolment: EnrolmentKeys, leaving: threading.Event
) -> Identity:
    """Return this replica's identity, signed by the master; it renews itself.

    Waits for a master that is away. Raises
    FencedError if this replica is not the job's (any more), or no master has answered
    for too long; RefusedError if it may not enrol; RpcError when leaving.
    """
    begun = time.monotonic()
    most = context.most_silence_seconds
    replica = _Replica(context, shown_first(enrolment, context.token))

    def asked() -> Credentials:
        try:
            return replica.next()
        except FencedError:
            raise
        except RpcError as error:
            if most is not None and time.monotonic() - begun >= most:
                raise FencedError(
                    f"no master signed this replica's certificate for {most:.0f} s: "
                    "the job is given up, and replicas of no job must not hold CPUs"
                ) from error
            raise

    identity = Identity(retry(asked, stop=leaving), replica.next)
    identity.keep_young()
    return identity


def shown_first(enrolment: EnrolmentKeys, token: str) -> Credentials:
    """Return the credentials of a new pod, valid for `Enrol` only."""
    return Credentials.of(
        seeded_key(token, enrolment.seed),
        enrolment.certificate.encode(),
        enrolment.authority.encode(),
    )


class _Replica:
    """What a replica presents for its next certificate; used by one thread."""

    def __init__(self, context: RoleContext, first: Credentials) -> None:
        self._context = context
        self._shown = first
        # For a replica that could not reach the master for as long as a certificate is
        # good. It is as young as the last one: an authority may be renewed meanwhile.
        self._spare = first

    def next(self) -> Credentials:
        """Return a new certificate from the master. Raises RpcError."""
        context, key = self._context, new_key()
        shown = self._spare if self._shown.ended() else self._shown
        peer = Peer(Role.MASTER, 0, Identity(shown, lambda: shown))
        address = context.master_address
        with connect(address, context.token, peer) as channel:
            stub = master_pb2_grpc.EnrolmentStub(channel)
            request = master_pb2.EnrolRequest(request=request_for(key))
            try:
                reply = stub.Enrol(request, timeout=CALL_SECONDS)
            except grpc.RpcError as error:
                raise_for(error, f"enrolment at master {address}")
        self._spare = Credentials.of(key, reply.enrolment, reply.authority)
        self._shown = Credentials.of(key, reply.certificate, reply.authority)
        return self._shown
