"""Servers: ports, limits, threads and the checks of who calls what roles serve.

Owns how a server is built. Called by `ps.main` and `runner.local.platform_server`
(threads) and by `master.main` (event loop). Knows nothing of services.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import cast

import grpc
import grpc.aio

from elasticdl.errors import PlatformError
from elasticdl.job.context import join_address
from elasticdl.rpc.channel import server_options
from elasticdl.rpc.tls.identity import Identity, server_credentials
from elasticdl.rpc.tls.peers import CheckedPeers
from elasticdl.rpc.token import CheckedServer, TokenCheck, Wrap, header_value


@dataclass(frozen=True)
class ThreadedServer:
    """A started server and the `host:port` it listens on."""

    server: grpc.Server
    address: str
    port: int
    pool: ThreadPoolExecutor

    def stop(self, grace_seconds: float) -> None:
        """Refuse new calls, wait `grace_seconds` for running ones, then cancel them."""
        self.server.stop(grace_seconds).wait()
        # A cancelled call's thread may still be at work; gRPC itself ends none.
        self.pool.shutdown(wait=False)


def serve(
    handlers: Sequence[grpc.GenericRpcHandler],
    *,
    host: str,
    port: int,
    threads: int,
    token: str,
    identity: Identity | None = None,
) -> ThreadedServer:
    """Start a server with a pool of threads; port 0 takes a free one.

    Calls without the job's `token` are refused; with an identity, also those that are
    not encrypted, or not of a replica of this job that may make them. Raises
    PlatformError when the port is in use.
    """
    pool = _pool(threads)
    server = _server_on(pool, token)
    checked = _peers_checked(identity)
    server.add_generic_rpc_handlers(tuple(checked(inner) for inner in handlers))
    bound = bind(server, host, port, identity)
    server.start()
    return ThreadedServer(server, join_address(host, bound), bound, pool)


def threaded_server(threads: int, token: str) -> grpc.Server:
    """Return a server with a pool of threads; add services, then `bind`, `start`."""
    return _server_on(_pool(threads), token)


def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, thread_name_prefix="rpc")


def _server_on(pool: ThreadPoolExecutor, token: str) -> grpc.Server:
    return grpc.server(pool, interceptors=[TokenCheck(token)], options=server_options())


def aio_server(token: str, identity: Identity | None = None) -> grpc.aio.Server:
    """Return a server of the running event loop; add services, then `bind`, `start`."""
    header_value(token)  # an empty one is refused before anything is made
    server = grpc.aio.server(options=server_options())
    checked = CheckedServer(server, token, _peers_checked(identity))
    return cast("grpc.aio.Server", checked)


def _peers_checked(identity: Identity | None) -> Wrap:
    if identity is None:
        return lambda inner: inner
    return lambda inner: CheckedPeers(inner, identity.name)


def bind(
    server: grpc.Server | grpc.aio.Server,
    host: str,
    port: int,
    identity: Identity | None = None,
) -> int:
    """Listen on `host:port` and return the port. Raises PlatformError.

    With an identity, of connections that are encrypted and show a certificate.
    """
    address = join_address(host, port)
    try:
        if identity is None:
            bound = server.add_insecure_port(address)
        else:
            bound = server.add_secure_port(address, server_credentials(identity))
    except RuntimeError as error:
        raise PlatformError(
            f"cannot listen on {host}:{port} ({error}); it is in use or not ours: "
            "choose another port, or 0 for any free one"
        ) from error
    if bound == 0:
        raise PlatformError(
            f"cannot listen on {host}:{port}; it is in use or not ours: choose another "
            "port, or 0 for any free one"
        )
    return bound
