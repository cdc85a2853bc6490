"""A small API server whose answers are scripted, for tests of controllers."""

import asyncio
import json
import socket
import threading
from collections import defaultdict
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from elasticdl.kube.api import ApiServer
from kubernetes.client.configuration import Configuration

BREAK = "BREAK"  # instead of an event: the connection
ENDS = "ENDS"  # the watch, in good order


class Server:
    """Answers each path by its own script; the last answer stays.

    A watch whose script is over stays open.
    """

    def __init__(self) -> None:
        self.scripts: dict[str, list[Any]] = {}
        self.asked: dict[str, int] = defaultdict(int)
        self.sent: dict[str, list[Any]] = defaultdict(list)  # bodies, by path
        self.over = threading.Event()
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                server.answer(self)

            do_POST = do_PUT = do_PATCH = do_DELETE = do_GET

            def log_message(self, *_: object) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.daemon_threads = True
        self.thread = threading.Thread(
            target=self.http.serve_forever, kwargs={"poll_interval": 0.01}
        )
        self.thread.start()

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        path, _, query = handler.path.partition("?")
        if handler.command != "GET":
            body = handler.rfile.read(int(handler.headers["Content-Length"]))
            path = f"{handler.command} {path}"
            self.sent[path].append(json.loads(body) if body else None)
        watch = "watch=true" in query
        key = f"{path}?watch" if watch else path
        script = self.scripts.get(key, [])
        number = self.asked[key]
        self.asked[key] += 1
        if watch:
            status, content = script[number] if number < len(script) else (200, [])
        else:
            last = min(number, len(script) - 1)
            status, content = script[last] if script else (404, {})
        self.send(handler, status, content)

    def send(self, handler: BaseHTTPRequestHandler, status: int, content: Any) -> None:
        """Answer with a document, or with the events of a watch that stays open."""
        handler.send_response(status)
        if isinstance(content, list):  # the events of a watch, then nothing
            handler.send_header("Transfer-Encoding", "chunked")
            handler.end_headers()
            for event in content:
                if event == BREAK:
                    handler.close_connection = True
                    handler.connection.shutdown(socket.SHUT_RDWR)
                    return
                if event == ENDS:
                    handler.wfile.write(b"0\r\n\r\n")
                    return
                text = event if isinstance(event, str) else json.dumps(event) + "\n"
                data = text.encode()
                handler.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
            self.over.wait()
            handler.wfile.write(b"0\r\n\r\n")
            return
        data = json.dumps(content).encode()
        handler.send_header("Content-Length", str(len(data)))
        handler.end_headers()
        handler.wfile.write(data)

    def close(self) -> None:
        self.over.set()
        self.http.shutdown()
        self.thread.join()
        self.http.server_close()

    def connection(self) -> ApiServer:
        configuration = Configuration()
        configuration.host = f"http://127.0.0.1:{self.http.server_port}"
        return ApiServer(configuration)


def listing(*items: Any) -> Any:
    return 200, {"metadata": {"resourceVersion": "5"}, "items": list(items)}


async def until(holds: Callable[[], bool]) -> None:
    while not holds():
        await asyncio.sleep(0.02)
