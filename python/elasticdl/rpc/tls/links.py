"""Connections between the workers of a group, encrypted, each end known by name.

Owns who is believed: workers of the same job alone. Given to `collective.group` by
`worker.group_maker`. Knows nothing of what is sent.
"""

from __future__ import annotations

import socket
import ssl
from typing import TYPE_CHECKING, cast

from elasticdl.errors import RpcError
from elasticdl.job.names import Role
from elasticdl.rpc.tls.contexts import CurrentContext, show
from elasticdl.rpc.tls.identity import Identity
from elasticdl.rpc.tls.peer_name import PeerName

if TYPE_CHECKING:
    from elasticdl.rpc.tls.certificates import Credentials

_Names = tuple[tuple[str, str], ...]


class EncryptedLinks:
    """Encrypts connections with this process's identity. Thread-safe."""

    def __init__(self, identity: Identity) -> None:
        """Take a worker's identity."""
        self._own = identity.name
        self._server = CurrentContext(identity, _server)
        self._client = CurrentContext(identity, _client)

    def encrypted(
        self, connection: socket.socket, *, accepted: bool
    ) -> tuple[socket.socket, int]:
        """Return the connection encrypted, and the generation at its other end.

        Raises RpcError if no worker of this job is there; the connection is closed.
        """
        context = self._server() if accepted else self._client()
        try:
            made = context.wrap_socket(connection, server_side=accepted)
        except OSError as error:  # also of TLS
            raise RpcError(f"the connection cannot be encrypted: {error}") from error
        try:
            return made, self._worker(made)
        except RpcError:
            made.close()
            raise

    def _worker(self, connection: ssl.SSLSocket) -> int:
        name = _name(connection)
        if name is None:
            raise RpcError("the other end's certificate names nobody of a job")
        own = self._own
        same_job = (name.namespace, name.job) == (own.namespace, own.job)
        if not same_job or name.role is not Role.WORKER or name.enrolling:
            raise RpcError(f"the other end is {name}; expected a worker of this job")
        return name.generation


def _name(connection: ssl.SSLSocket) -> PeerName | None:
    shown = connection.getpeercert() or {}
    for kind, said in cast(_Names, shown.get("subjectAltName", ())):
        name = PeerName.parse(said) if kind == "URI" else None
        if name is not None:
            return name
    return None


def _server(credentials: Credentials) -> ssl.SSLContext:
    context = _context(ssl.PROTOCOL_TLS_SERVER, credentials)
    # A client that never reads would not take them.
    context.num_tickets = 0
    return context


def _client(credentials: Credentials) -> ssl.SSLContext:
    return _context(ssl.PROTOCOL_TLS_CLIENT, credentials)


def _context(protocol: ssl._SSLMethod, credentials: Credentials) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    # Addresses change; who is there is asked of the certificate's name.
    context.check_hostname = False
    context.verify_mode = ssl.CERT_REQUIRED
    # The job's authority may be of another one, which nobody here has to know.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.load_verify_locations(cadata=credentials.authority.decode())
    show(context, credentials)
    return context
