"""How a PS or worker in a cluster gets its certificate, and the next ones.

Owns the calls. Used by `rpc.identity`, before a replica's other calls. Must not
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
from elasticdl.job.context import Enrolment, RoleContext
from elasticdl.job.names import Role
from elasticdl.proto import master_pb2, master_pb2_grpc
from elasticdl.rpc.certificates import Credentials, new_key, request_for, seeded_key
from elasticdl.rpc.channel import Peer, connect
from elasticdl.rpc.errors import raise_for
from elasticdl.rpc.identity import Identity
from elasticdl.rpc.master_client import CALL_SECONDS
from elasticdl.rpc.retry import retry


def enrolled(
    context: RoleContext, enrolment: Enrolment, leaving: threading.Event
) -> Identity:
    """Return this replica's identity, once the master has signed it; it renews itself.

    Waits for a master that is away. Raises
    FencedError if this replica is not the job's (any more), or no master has answered
    for too long; RefusedError if it may not enrol; RpcError when leaving.
    """
    begun = time.monotonic()
    most = context.most_silence_seconds
    first = shown_first(enrolment, context.token)

    def asked() -> Credentials:
        try:
            return _ask(context, first)
        except FencedError:
            raise
        except RpcError as error:
            if most is not None and time.monotonic() - begun >= most:
                raise FencedError(
                    f"no master signed this replica's certificate for {most:.0f} s: "
                    "the job is given up, and replicas of no job must not hold CPUs"
                ) from error
            raise

    # The next ones are asked for as the first one was: a replica that could not reach
    # the master for as long as a certificate is good has nothing else to show.
    identity = Identity(retry(asked, stop=leaving), lambda: _ask(context, first))
    identity.keep_young()
    return identity


def shown_first(enrolment: Enrolment, token: str) -> Credentials:
    """Return what a new pod shows, which is good for `Enrol` alone."""
    return Credentials.of(
        seeded_key(token, enrolment.seed),
        enrolment.certificate.encode(),
        enrolment.authority.encode(),
    )


def _ask(context: RoleContext, shown: Credentials) -> Credentials:
    """Ask for a certificate, by what this replica can show. Raises RpcError."""
    key = new_key()
    peer = Peer(Role.MASTER, 0, Identity(shown, lambda: shown))
    address = context.master_address
    with connect(address, context.token, peer) as channel:
        try:
            reply = master_pb2_grpc.EnrolmentStub(channel).Enrol(
                master_pb2.EnrolRequest(request=request_for(key)), timeout=CALL_SECONDS
            )
        except grpc.RpcError as error:
            raise_for(error, f"enrolment at master {address}")
    return Credentials.of(key, reply.certificate, reply.authority)
