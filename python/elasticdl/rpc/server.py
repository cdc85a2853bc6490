"""Servers: ports, limits and threads of what roles serve.

Owns how a server is built. Called by `ps.main` (threads), `master.main` and
`runner.platform` (event loop). Knows nothing of services.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import grpc
import grpc.aio

from elasticdl.errors import PlatformError
from elasticdl.rpc.channel import server_options


@dataclass(frozen=True)
class ThreadedServer:
    """A started server and the `host:port` it listens on."""

    server: grpc.Server
    address: str

    def stop(self, grace_seconds: float) -> None:
        """Refuse new calls, wait so long for those that run, then end them."""
        self.server.stop(grace_seconds).wait()


def serve(
    handlers: Sequence[grpc.GenericRpcHandler],
    *,
    host: str,
    port: int,
    threads: int,
) -> ThreadedServer:
    """Start a server with a pool of threads; port 0 takes a free one.

    Raises PlatformError when the port is in use.
    """
    server = grpc.server(
        ThreadPoolExecutor(threads, thread_name_prefix="rpc"), options=server_options()
    )
    server.add_generic_rpc_handlers(tuple(handlers))
    bound = bind(server, host, port)
    server.start()
    return ThreadedServer(server, f"{host}:{bound}")


def aio_server() -> grpc.aio.Server:
    """Return a server of the running event loop; add services, then `bind`, `start`."""
    return grpc.aio.server(options=server_options())


def bind(server: grpc.Server | grpc.aio.Server, host: str, port: int) -> int:
    """Listen on `host:port` and return the port. Raises PlatformError."""
    try:
        bound = server.add_insecure_port(f"{host}:{port}")
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
