"""What a controller at rest costs: its CPU, its memory, its writes.

Owns an API server that serves one list of each kind and then only what is written to
it, with as many nodes, pods and jobs as a large cluster has. The controller is a
process of its own, with the arguments that the chart gives it.
"""

from __future__ import annotations

import json
import queue
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import psutil
from frame import Benchmark, Row, progress

Json = dict[str, Any]
NODES, JOBS, WORKERS = 1000, 500, 8  # with a master and a PS each: 5,000 pods
SETTLE_SECONDS, SECONDS = 20.0, 60.0
_JOB = """\
kind: job
job:
  name: {name}
  model: {{definition: net.custom_model}}
  data: {{training: train}}
  master: {{resources: {{cpu: 0.1, memory: 64Mi}}}}
  ps: {{replicas: 1, resources: {{cpu: 1, memory: 64Mi}}}}
  worker: {{replicas: 1, min: 1, max: 8, resources: {{cpu: 1, memory: 64Mi}}}}
"""
_POD = "apiVersion: v1\nkind: Pod\nspec: {containers: [{name: main, image: x}]}\n"


def _nodes() -> list[Json]:
    ready = {
        "type": "Ready",
        "status": "True",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    amounts = {"cpu": "8", "memory": "64Gi", "pods": "110"}
    return [
        {
            "metadata": {"name": f"n{n}", "uid": f"n{n}", "resourceVersion": "1"},
            "spec": {},
            "status": {"allocatable": amounts, "conditions": [ready]},
        }
        for n in range(NODES)
    ]


def _pods() -> list[Json]:
    roles = [("master", 1, "100m"), ("ps", 1, "1"), ("worker", WORKERS, "1")]
    made: list[Json] = []
    for job in range(JOBS):
        for role, count, cpu in roles:
            for index in range(count):
                made.append(_pod(f"j{job}", role, index, cpu, len(made) % NODES))
    return made


def _pod(job: str, role: str, index: int, cpu: str, node: int) -> Json:
    name = f"elasticdl-{job}-{role}-{index}"
    low = role == "worker"
    return {
        "metadata": {
            "name": name,
            "namespace": "ml",
            "uid": name,
            "resourceVersion": "1",
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {
                "elasticdl-job-name": job,
                "elasticdl-replica-type": role,
                "elasticdl-replica-index": str(index),
            },
        },
        "spec": {
            "nodeName": f"n{node}",
            "priority": 1000 if low else 1_000_000,
            "priorityClassName": "elasticdl-low" if low else "elasticdl-high",
            "containers": [
                {"name": "main",
                 "resources": {"requests": {"cpu": cpu, "memory": "64Mi"}}}
            ],
        },
        "status": {"phase": "Running"},
    }  # fmt: skip


def _jobs() -> list[Json]:
    from elasticdl.job.grant import Grant, format_grant
    from elasticdl.job.names import ANNOTATION_WORKERS

    now, made = time.time(), []
    for n in range(JOBS):
        name = f"j{n}"
        # Written over the last third of the time after which they are renewed.
        until = now + 1200 + 600 * (n + 0.5) / JOBS
        grant = Grant(WORKERS, (), until, "ml/elasticdl-controller", "room was free")
        metadata = {
            "name": f"elasticdl-{name}",
            "namespace": "ml",
            "uid": f"map-{name}",
            "resourceVersion": "1",
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {"elasticdl-job-name": name},
            "annotations": {ANNOTATION_WORKERS: format_grant(grant)},
        }
        data = {
            "job.yaml": _JOB.format(name=name),
            "ps.yaml": _POD,
            "worker.yaml": _POD,
        }
        made.append({"metadata": metadata, "data": data})
    return made


class _Server(ThreadingHTTPServer):
    """The lists, the Lease, and what a watch of each kind is to be told."""

    daemon_threads = True

    def __init__(self) -> None:
        self.lists = {"nodes": _nodes(), "pods": _pods(), "configmaps": _jobs()}
        self.maps = {one["metadata"]["name"]: one for one in self.lists["configmaps"]}
        self.version, self.lease = 1, dict[str, Any]()
        self.events: dict[str, queue.Queue[Json]] = {
            k: queue.Queue() for k in self.lists
        }
        self.grants = self.renewals = 0
        super().__init__(("127.0.0.1", 0), _Handler)


class _Handler(BaseHTTPRequestHandler):
    """Answers as an API server does, as far as the controller asks."""

    server: _Server
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""

    def _answer(self, item: Json, status: int = 200) -> None:
        body = json.dumps(item).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _body(self) -> Json:
        length = int(self.headers.get("Content-Length") or 0)
        body: Json = json.loads(self.rfile.read(length))
        return body

    def do_GET(self) -> None:
        path, _, query = self.path.partition("?")
        kind = path.rpartition("/")[2]
        if "/leases/" in path:
            lease = self.server.lease
            self._answer(
                lease or {"kind": "Status", "code": 404}, 200 if lease else 404
            )
        elif kind not in self.server.lists:
            self._answer({"kind": "Status", "code": 404, "message": path}, 404)
        elif "watch=" in query:
            self._watch(kind, float(parse_qs(query)["timeoutSeconds"][0]))
        else:
            metadata = {"resourceVersion": str(self.server.version)}
            self._answer({"metadata": metadata, "items": self.server.lists[kind]})

    def _watch(self, kind: str, seconds: float) -> None:
        """Tell what comes, and end in good order; the next watch hears the rest."""
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        events, end = self.server.events[kind], time.monotonic() + seconds
        with suppress(OSError):
            while True:
                try:
                    event = events.get(timeout=max(0.0, end - time.monotonic()))
                except queue.Empty:
                    break
                line = json.dumps(event).encode() + b"\n"
                self.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))
            self.wfile.write(b"0\r\n\r\n")

    def _keep_lease(self) -> None:
        lease = self._body()
        self.server.version += 1
        lease["metadata"]["resourceVersion"] = str(self.server.version)
        self.server.lease = lease
        self.server.renewals += 1
        self._answer(lease)

    def do_POST(self) -> None:
        self._keep_lease()

    def do_PUT(self) -> None:
        self._keep_lease()

    def do_PATCH(self) -> None:
        item = self.server.maps[self.path.partition("?")[0].rpartition("/")[2]]
        change = self._body()["metadata"]["annotations"]
        self.server.version += 1
        self.server.grants += 1
        item["metadata"]["annotations"].update(change)
        item["metadata"]["resourceVersion"] = str(self.server.version)
        self.server.events["configmaps"].put({"type": "MODIFIED", "object": item})
        self._answer(item)


@contextmanager
def _controlled() -> Iterator[tuple[_Server, psutil.Process]]:
    server = _Server()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "kubeconfig"
        url = f"http://127.0.0.1:{server.server_port}"
        config.write_text(
            json.dumps(
                {
                    "apiVersion": "v1",
                    "kind": "Config",
                    "current-context": "here",
                    "clusters": [{"name": "c", "cluster": {"server": url}}],
                    "users": [{"name": "u", "user": {"token": "t"}}],
                    "contexts": [
                        {"name": "here", "context": {"cluster": "c", "user": "u"}}
                    ],
                }
            )
        )
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "elasticdl.controller.main"),
                *(f"--kubeconfig={config}", "--namespace=ml"),
            ],
            stderr=subprocess.PIPE,
            text=True,
        )
        said: list[str] = []
        stream = process.stderr or []
        threading.Thread(target=lambda: said.extend(stream), daemon=True).start()
        try:
            yield server, psutil.Process(process.pid)
        finally:
            process.terminate()
            code = process.wait(30)
            server.shutdown()
            server.server_close()
        if code:
            raise RuntimeError(f"the controller ended with {code}: {''.join(said)}")


def at_rest() -> list[Row]:
    """Let a controller rest for a while, and measure it."""
    with _controlled() as (server, process):
        progress("a controller that settles")
        time.sleep(SETTLE_SECONDS)
        if not server.renewals:
            raise RuntimeError("the controller does not hold the Lease")
        before, grants, renewals = process.cpu_times(), server.grants, server.renewals
        began = time.monotonic()
        time.sleep(SECONDS)
        took = time.monotonic() - began
        after, memory = process.cpu_times(), process.memory_info().rss / 2**20
        grants, renewals = server.grants - grants, server.renewals - renewals
    used = after.user + after.system - before.user - before.system
    size = f"{NODES:,} nodes, {JOBS * (WORKERS + 2):,} pods, {JOBS} jobs at rest"
    progress(f"{renewals} renewals of the Lease")
    return [
        _row("controller_cpu", f"cores that it uses; {size}", used / took, 0.01),
        _row("controller_mib", f"its resident MiB; {size}", memory, 150.0),
        _row("controller_writes", f"grants that it writes in a second; {size}",
             grants / took, 1.0),
    ]  # fmt: skip


def _row(name: str, what: str, value: float, bar: float) -> Row:
    return Row(name, what, value, value, value, bar, "lower", value <= bar)


BENCHMARKS = {"controller": Benchmark(at_rest, seconds=85, short=False)}
