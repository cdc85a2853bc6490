"""What the controller sees, against a small API server whose answers are scripted."""

import asyncio
import json
import threading
from collections import defaultdict
from collections.abc import Awaitable, Callable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from elasticdl.controller.watching import WatchedCluster, Watches
from elasticdl.kube.api import ApiServer
from elasticdl.kube.inventory import Serving
from elasticdl.planner.view import JobKey
from kubernetes.client.configuration import Configuration

from tests.unit.controller.test_reading import config_map, pod

NODES, PODS = "/api/v1/nodes", "/api/v1/pods"
JOBS = "/api/v1/namespaces/ml/configmaps"
DIGITS = JobKey("ml", "digits")
BOUND_SECONDS = 20.0
FORBIDDEN = (403, {"kind": "Status", "message": "forbidden", "reason": "Forbidden"})


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


@pytest.fixture
def server():
    one = Server()
    one.scripts |= {NODES: [listing()], PODS: [listing(master())]}
    yield one
    one.close()


def listing(*items: Any) -> Any:
    return 200, {"metadata": {"resourceVersion": "5"}, "items": list(items)}


def event(kind: str, item: Any) -> str:
    item["metadata"]["resourceVersion"] = "6"
    return json.dumps({"type": kind, "object": item}) + "\n"


def master() -> Any:
    labels = {"elasticdl-job-name": "digits", "elasticdl-replica-type": "master"}
    return pod(labels=labels, nodeName="n1", priority=0)


Story = Callable[[WatchedCluster], Awaitable[None]]


def watching(server: Server, story: Story) -> None:
    """Run a story while the cluster is followed."""

    async def main() -> None:
        configuration = Configuration()
        configuration.host = f"http://127.0.0.1:{server.http.server_port}"
        api = ApiServer(configuration)
        watches = Watches(Serving(1_000_000), namespaces=("ml",), by="ops/controller")
        cluster = WatchedCluster(api, watches)
        watch = asyncio.create_task(cluster.watch())
        try:
            await asyncio.wait_for(story(cluster), BOUND_SECONDS)
        finally:
            watch.cancel()
            with suppress(asyncio.CancelledError):
                await watch
            await api.close()

    asyncio.run(main())


async def until(holds: Callable[[], bool]) -> None:
    while not holds():
        await asyncio.sleep(0.02)


def test_a_namespace_that_may_no_longer_be_read_holds_up_no_plan(server):
    server.scripts |= {
        JOBS: [listing(config_map()), FORBIDDEN],
        f"{JOBS}?watch": [FORBIDDEN],
    }

    async def story(cluster: WatchedCluster) -> None:
        await until(lambda: server.asked[JOBS] == 2 and not cluster.jobs())
        await until(lambda: cluster.age == 0.0)

    watching(server, story)


def test_a_namespace_whose_watch_broke_keeps_its_jobs(server):
    server.scripts |= {
        JOBS: [listing(config_map()), listing(config_map())],
        f"{JOBS}?watch": [FORBIDDEN],
    }

    async def story(cluster: WatchedCluster) -> None:
        await until(lambda: DIGITS in cluster.jobs())
        await until(lambda: server.asked[JOBS] == 2 and cluster.age == 0.0)
        assert DIGITS in cluster.jobs()

    watching(server, story)
