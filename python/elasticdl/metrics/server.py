"""`/metrics`, `/healthz` and `/readyz` of a process, on a thread of their own.

Owns the HTTP server. Started by every role's main. Knows nothing of what is measured.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from elasticdl.errors import ElasticDLError, PlatformError

# How often the thread looks whether it is to end: what a process waits when it leaves.
_LOOK_SECONDS = 0.1


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
    ) -> None:
        """Serve at once; port 0 takes a free one.

        `refresh` runs before each scrape, to set what is known elsewhere; an
        ElasticDLError that it raises is the scrape's failure.
        Raises PlatformError when the port is in use.
        """

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:  # the name http.server asks for
                path = self.path.partition("?")[0]
                if path == "/metrics":
                    try:
                        refresh()
                    except ElasticDLError as error:
                        self._send(503, "text/plain", f"{error}\n".encode())
                        return
                    self._send(200, CONTENT_TYPE_LATEST, generate_latest(registry))
                elif path in ("/healthz", "/readyz"):
                    good = healthy() if path == "/healthz" else ready()
                    text = b"ok\n" if good else b"not yet\n"
                    self._send(200 if good else 503, "text/plain", text)
                else:
                    text = b"try /metrics, /healthz or /readyz\n"
                    self._send(404, "text/plain", text)

            def _send(self, status: int, kind: str, body: bytes) -> None:
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Stay silent: a scrape every few seconds is no news."""

        try:
            self._server = ThreadingHTTPServer((host, port), Handler)
        except OSError as error:
            raise PlatformError(
                f"cannot listen on {host}:{port} for metrics ({error.strerror}); "
                "choose another port, or 0 for any free one"
            ) from error
        self._server.daemon_threads = True
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
