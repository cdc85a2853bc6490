"""A small API server whose answers are scripted, for tests of controllers."""

import asyncio
import json
import threading
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from elasticdl.kube.api import ApiServer
from kubernetes.client.configuration import Configuration


class Server:
    """Answers each path by its own script; the last answer stays.

    A watch whose script is over stays open.
    """

    def __init__(self) -> None:
        self.scripts: dict[str, list[Any]] = {}
        self.asked: dict[str, int] = defaultdict(int)
        self.over = threading.Event()
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                server.answer(self)

            do_PATCH = do_GET

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
            path = f"{handler.command} {path}"
        watch = "watch=true" in query
        key = f"{path}?watch" if watch else path
        script = self.scripts.get(key, [])
        number = self.asked[key]
        self.asked[key] += 1
        if watch and number >= len(script):
            handler.send_response(200)
            handler.end_headers()
            handler.wfile.flush()
            self.over.wait()
            return
        status, content = script[min(number, len(script) - 1)] if script else (404, {})
        handler.send_response(status)
        handler.end_headers()
        with suppress(OSError):
            if status == 200 and watch:
                handler.wfile.write("".join(content).encode())
                handler.wfile.flush()
                self.over.wait()
            else:
                handler.wfile.write(json.dumps(content).encode())

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
