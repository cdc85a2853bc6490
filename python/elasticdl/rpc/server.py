"""Servers: ports, limits, threads and the token check of what roles serve.

Owns how a server is built. Called by `ps.main` and `runner.platform_server` (threads)
and by `master.main` (event loop). Knows nothing of services.
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
from elasticdl.rpc.token import CheckedServer, TokenCheck, header_value


@dataclass(frozen=True)
class ThreadedServer:
    """A started server and the `host:port` it listens on."""

    server: grpc.Server
    address: str
    port: int

    def stop(self, grace_seconds: float) -> None:
        """Refuse new calls, wait so long for those that run, then end them."""
        self.server.stop(grace_seconds).wait()


def serve(
    handlers: Sequence[grpc.GenericRpcHandler],
    *,
    host: str,
    port: int,
    threads: int,
    token: str,
) -> ThreadedServer:
    """Start a server with a pool of threads; port 0 takes a free one.

    Calls without the job's `token` are refused. Raises PlatformError when the port is
    in use.
    """
    server = threaded_server(threads, token)
    server.add_generic_rpc_handlers(tuple(handlers))
    bound = bind(server, host, port)
    server.start()
    return ThreadedServer(server, join_address(host, bound), bound)


def threaded_server(threads: int, token: str) -> grpc.Server:
    """Return a server with a pool of threads; add services, then `bind`, `start`."""
    return grpc.server(
        ThreadPoolExecutor(threads, thread_name_prefix="rpc"),
        interceptors=[TokenCheck(token)],
        options=server_options(),
    )


def aio_server(token: str) -> grpc.aio.Server:
    """Return a server of the running event loop; add services, then `bind`, `start`."""
    header_value(token)  # an empty one is refused before anything is made
    server = grpc.aio.server(options=server_options())
    return cast("grpc.aio.Server", CheckedServer(server, token))


def bind(server: grpc.Server | grpc.aio.Server, host: str, port: int) -> int:
    """Listen on `host:port` and return the port. Raises PlatformError."""
    try:
        bound = server.add_insecure_port(join_address(host, port))
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
