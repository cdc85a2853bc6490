"""`/metrics`, `/healthz` and `/readyz` of a process, on threads of their own.

Owns the HTTP server and its bounds. Started by every role's main. Knows nothing of what
is measured.

The port may be reached by anybody whom the network lets through, and the kubelet's
probes come in by it: connections that ask nothing must neither fill the process with
threads nor keep a probe out. So there are a few threads, a connection that is silent
ends soon, and where all threads are taken the one that has been silent longest ends.
"""

from __future__ import annotations

import contextlib
import errno
import hmac
import socket
import ssl
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from elasticdl.errors import ElasticDLError, PlatformError

# How often the thread looks whether it is to end: what a process waits when it leaves.
_LOOK_SECONDS = 0.25
# What may be open at a time: two Prometheus, two probes, and as many again.
MAX_CONNECTIONS = 8
# How long a peer may take for its request, or to take the answer. A Prometheus that
# asks less often opens another connection.
SILENT_SECONDS = 5.0
# How long the thread of a connection that was ended may take to notice it.
_ENDING_SECONDS = 1.0


@dataclass(frozen=True)
class Secure:
    """TLS and token that restrict who may read metrics."""

    context: Callable[[], ssl.SSLContext]  # of the certificate in force
    token: str = field(repr=False)  # `/metrics` asks for it; probes have none


class _Server(ThreadingHTTPServer):
    """Serves at most MAX_CONNECTIONS connections at a time."""

    daemon_threads = True
    request_queue_size = 128  # who comes in a crowd waits, and need not call again

    def __init__(
        self,
        address: tuple[str, int],
        handler: type[BaseHTTPRequestHandler],
        secure: Secure | None,
    ) -> None:
        self._secure = secure
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        super().__init__(address, handler)
        self._free = threading.BoundedSemaphore(MAX_CONNECTIONS)
        self._lock = threading.Lock()
        self._silent: dict[socket.socket, None] = {}  # longest silent first

    def server_bind(self) -> None:
        """Bind; to addresses of both families if the host is `::`."""
        if self.address_family == socket.AF_INET6:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        super().server_bind()

    def process_request(self, request: Any, client_address: Any) -> None:
        """Give a connection a thread; if none is free, close a silent connection."""
        if not self._free.acquire(blocking=False):
            self._end_silent()
            if not self._free.acquire(timeout=_ENDING_SECONDS):
                self.shutdown_request(request)  # all are being answered
                return
        self.silent(request)
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Serve a connection on the thread that it was given."""
        try:
            if self._secure is not None:
                request = self._encrypted(request, self._secure.context())
            if request is not None:
                super().process_request_thread(request, client_address)
        finally:
            if request is not None:
                self.speaks(request)
            self._free.release()

    def _encrypted(self, plain: Any, context: ssl.SSLContext) -> Any:
        """Return the connection after its TLS handshake; None, closed, on failure."""
        connection = context.wrap_socket(
            plain, server_side=True, do_handshake_on_connect=False
        )
        with self._lock:  # `plain` is of no use any more; it may have been ended
            if plain in self._silent:
                del self._silent[plain]
                self._silent[connection] = None
        try:
            connection.settimeout(SILENT_SECONDS)
            connection.do_handshake()
        except OSError:  # also of TLS: a stranger, or nobody
            self.speaks(connection)
            connection.close()
            return None
        return connection

    def silent(self, connection: socket.socket) -> None:
        """Note that a connection waits for its peer: to ask, or to take an answer."""
        with self._lock:
            self._silent[connection] = None

    def speaks(self, connection: socket.socket) -> None:
        """Note that an answer for a connection is being made, or that it has ended."""
        with self._lock:
            self._silent.pop(connection, None)

    def _end_silent(self) -> None:
        with self._lock:
            connection = next(iter(self._silent), None)
            # Its thread, which waits for it, closes it; the peer may be gone already.
            if connection is not None:
                del self._silent[connection]
                with contextlib.suppress(OSError):
                    # Not that of `ssl`, after which a thread would send in the clear.
                    socket.socket.shutdown(connection, socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log what went wrong, except disconnecting peers."""
        if not isinstance(sys.exception(), ConnectionError | ssl.SSLError):
            super().handle_error(request, client_address)


# Errors of a machine without IPv6.
_NO_IPV6 = (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL)


def _listening(
    host: str,
    port: int,
    handler: type[BaseHTTPRequestHandler],
    secure: Secure | None,
) -> _Server:
    """Return a server; `::` is every address of the machine, whichever family.

    Raises OSError.
    """
    try:
        return _Server((host, port), handler, secure)
    except OSError as error:
        if host != "::" or error.errno not in _NO_IPV6:
            raise
        return _Server(("0.0.0.0", port), handler, secure)


_Answer = tuple[int, str, bytes]  # status, content type, body
_NO_TOKEN = b"bring the job's token of metrics, as `Authorization: Bearer TOKEN`\n"
_PATHS = b"try /metrics, /healthz or /readyz\n"


def _written(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _may_read(said: str, secure: Secure | None) -> bool:
    if secure is None:
        return True
    return hmac.compare_digest(said.encode(), f"Bearer {secure.token}".encode())


def _scraped(registry: CollectorRegistry, refresh: Callable[[], None]) -> _Answer:
    try:
        refresh()
    except ElasticDLError as error:
        return 503, "text/plain", f"{error}\n".encode()
    return 200, CONTENT_TYPE_LATEST, generate_latest(registry)


def _probed(good: bool) -> _Answer:
    return 200 if good else 503, "text/plain", b"ok\n" if good else b"not yet\n"


class MetricsServer:
    """A started server; `port` is the one it got. `close` ends it."""

    def __init__(
        self,
        registry: CollectorRegistry,
        *,
        ready: Callable[[], bool],
        healthy: Callable[[], bool],
        refresh: Callable[[], None] = lambda: None,
        port: int = 0,
        host: str = "127.0.0.1",
        secure: Secure | None = None,
    ) -> None:
        """Start serving; port 0 takes a free one.

        `secure`: by TLS, and `/metrics` to who brings the token.

        `refresh` runs before each scrape, to set what is known elsewhere; an
        ElasticDLError that it raises is the scrape's failure.
        Raises PlatformError when the port is in use.
        """

        class MetricsHandler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            timeout = SILENT_SECONDS

            def do_GET(self) -> None:  # the name http.server asks for
                metrics_server.speaks(self.connection)
                path = self.path.partition("?")[0]
                if path == "/metrics":
                    answer = (
                        _scraped(registry, refresh)
                        if _may_read(self.headers.get("Authorization", ""), secure)
                        else (401, "text/plain", _NO_TOKEN)
                    )
                elif path in ("/healthz", "/readyz"):
                    answer = _probed(healthy() if path == "/healthz" else ready())
                else:
                    answer = 404, "text/plain", _PATHS
                # Who takes nothing of the answer gives way as who asks nothing.
                metrics_server.silent(self.connection)
                self._send(*answer)

            def _send(self, status: int, kind: str, body: bytes) -> None:
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Do nothing: scrapes every few seconds would fill the log."""

        try:
            metrics_server = _listening(host, port, MetricsHandler, secure)
        except OSError as error:
            raise PlatformError(
                f"cannot listen on {_written(host)}:{port} for metrics "
                f"({error.strerror}); choose another port, or 0 for any free one"
            ) from error
        self._server = metrics_server
        self.port = int(self._server.server_address[1])
        self._thread = threading.Thread(
            target=self._server.serve_forever,
            args=(_LOOK_SECONDS,),
            name="metrics",
            daemon=True,
        )
        self._thread.start()

    def close(self) -> None:
        """Stop serving and free the port."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
