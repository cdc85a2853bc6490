"""One real job, scraped by a real Prometheus from its first second to its end.

Everything that dashboards tell of happens to it: a worker is killed, capacity is taken
away and given back, the master is killed, it is scaled, it evaluates and checkpoints,
and it rests.
"""

import signal
import threading
import time
import urllib.request
from dataclasses import dataclass
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from elasticdl.client import Scaling
from elasticdl.controller import showing
from elasticdl.exporter.figures import Waits, figures, show
from elasticdl.job.names import LABEL_JOB
from elasticdl.job.status import JobReport, JobStatus
from elasticdl.job.values.file import edit_values
from elasticdl.kube.amounts import Amounts
from elasticdl.kube.inventory import Serving, node_of, pod_of
from elasticdl.metrics.registry import ClusterMetrics, ControllerMetrics
from elasticdl.testing.job import JobUnderTest
from prometheus_client import generate_latest

from tests.prometheus.boards import Seen
from tests.prometheus.server import Prometheus
from tests.unit.planner import build

NAME = "watched"
SERVING = Serving(1_000_000)


@dataclass
class Watched(Seen):
    """What is left of the job that was at rest in the end."""

    at_rest: JobStatus
    report: JobReport
    shown: dict[str, str]  # text of /metrics by role
    fired: dict[str, Any]  # alerts of the job at rest by name


def node(name, cpu, gpus):
    amounts = {"cpu": cpu, "memory": "16Gi", "nvidia.com/gpu": gpus}
    ready = {"type": "Ready", "status": "True"}
    return node_of(
        {
            "metadata": {"name": name},
            "status": {"allocatable": amounts, "conditions": [ready]},
        }
    )


def pod(name, cpu, *, job="", priority=0, gpus="0", where="n1"):
    asks = {"cpu": cpu, "memory": "2Gi", "nvidia.com/gpu": gpus}
    unschedulable = {
        "type": "PodScheduled", "status": "False", "reason": "Unschedulable",
    }  # fmt: skip
    return pod_of(
        {
            "metadata": {
                "name": name,
                "namespace": "local",
                "uid": name,
                "creationTimestamp": datetime.now(UTC).isoformat(),
                "labels": {LABEL_JOB: job} if job else {},
            },
            "spec": {
                "containers": [{"name": "c", "resources": {"requests": asks}}],
                "priority": priority,
                **({"nodeName": where} if where else {}),
            },
            "status": {
                "phase": "Running" if where else "Pending",
                "conditions": [] if where else [unschedulable],
            },
        },
        SERVING,
    )


class Cluster:
    """What the exporter says of a small cluster that is looked at for a while."""

    def __init__(self):
        self.metrics = ClusterMetrics()
        self.waits = Waits()
        self.nodes = [node("n1", "6", "1"), node("n2", "4", "0")]
        self.pods = [
            pod("web", "3", priority=1_000_000),
            pod("agent", "500m", where="n2"),
            pod("worker-0", "2", job=NAME, gpus="1"),
            pod("worker-1", "2", job=NAME, where="n2"),
            pod("worker-2", "2", job=NAME, where=""),
        ]
        measured = Amounts(cpu=0.5, memory=1e9)
        self.usage = {(one.namespace, one.name): measured for one in self.pods}

    def text(self):
        made = figures(self.nodes, self.pods, self.usage)
        waited = self.waits.seconds(self.pods, now=time.time())
        show(self.metrics, made, waited, up=True)
        return generate_latest(self.metrics.registry)

    def beyond_processes(self):
        """What is shown in a cluster alone: limits of memory, and a grant."""
        labels = f'namespace="local",training_job="{NAME}"'
        lines = [
            f'elasticdl_{role}_memory_limit_bytes{{{labels},index="{index}"}} 2e9'
            for role in ("ps", "worker")
            for index in range(2)
        ]
        granted = (
            f'elasticdl_workers_granted{{namespace="local",training_job="{NAME}"}}'
        )
        lines.append(f"{granted} 3")
        return ("\n".join(lines) + "\n").encode()


class Controller:
    """What the controller says of the job, which it has given three workers."""

    def __init__(self):
        self.metrics = ControllerMetrics()
        job = build.job(NAME, 2, 4, 3, namespace="local")
        view = build.cluster(build.node("n1", 6), job, build.workers(job, n1=3))
        showing.show(self.metrics, build.made(view), 0)
        self.metrics.leader.set(1)
        self.metrics.view_age.set_one(0.5)
        self.metrics.plan_age.set_one(2.0)
        self.metrics.plans.inc()
        self.metrics.grants_written.labels("changed").inc()

    def text(self):
        return generate_latest(self.metrics.registry)


@pytest.fixture(scope="module")
def exporter(tmp_path_factory):
    """Serves those figures; the file that leads Prometheus there."""
    cluster, controller = Cluster(), Controller()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.end_headers()
            self.wfile.write(cluster.text() + controller.text())
            self.wfile.write(cluster.beyond_processes())

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    file = tmp_path_factory.mktemp("exporter") / "targets.json"
    file.write_text(f'[{{"targets": ["127.0.0.1:{server.server_port}"]}}]')
    yield file
    server.shutdown()
    thread.join()
    server.server_close()


def running(status, role):
    return [r for r in status.replicas if r.role == role and r.state == "running"]


def at_work(status, count):
    workers = running(status, "worker")
    return len(workers) == count and all(r.phase == "train" for r in workers)


def living(status):
    return sum(r.role == "worker" and r.state != "ended" for r in status.replicas)


def go_through_it(job, prometheus):
    """Let everything happen to the job that dashboards tell of; it is at rest then."""
    job.wait_for_step(50)
    job.wait_until(lambda s: at_work(s, 3), "three workers at work")
    killed = job.fault("worker")
    job.wait_until(
        lambda s: any(r.replica == killed and r.seconds for r in s.relaunches),
        "a replacement that works",
    )
    job.handle.set_capacity(1)
    status = job.wait_until(lambda s: at_work(s, 1), "one worker alone")
    job.wait_for_step(status.progress.steps + 100)
    prometheus.wait_until(
        lambda: prometheus.series(
            "count_over_time(elasticdl_pending_replicas[1m]) > 3"
        ),
        "some scrapes of pending workers",
    )
    job.handle.set_capacity(None)
    job.wait_until(lambda s: at_work(s, 3), "three workers again")
    job.handle.scale(Scaling(workers=2))
    # A worker that leaves while there is no master takes its seconds along.
    job.wait_until(lambda s: at_work(s, 2) and living(s) == 2, "two workers")
    job.fault("master", signal.SIGKILL)
    status = job.wait_until(
        lambda s: s.master_generation == 2 and at_work(s, 2), "a second master"
    )
    status = job.wait_for_step(status.progress.steps + 200)
    job.wait_until(
        lambda s: s.last_evaluation and s.progress.eta_seconds is not None,
        "an evaluation and an end in sight",
    )
    edit_values(job.job_dir.spec_file, {"job.paused": True})
    job.wait_until(
        lambda s: (
            s.state == "paused"
            and not s.progress.tasks_leased
            and all(r.phase == "idle" for r in running(s, "worker"))
        ),
        "a job at rest",
    )
    # Twice: the scrape after the one that saw it has what all others have seen, too.
    for _ in range(2):
        wait_for_scrape(prometheus)


def wait_for_scrape(prometheus):
    """Wait until the master was scraped after now."""
    now = time.time()
    prometheus.wait_until(
        lambda: any(
            at > now
            for _, at in prometheus.series("timestamp(elasticdl_job_records_done)")
        ),
        "a scrape of the job at rest",
    )


@pytest.fixture(scope="module")
def watched(digits, digits_values, exporter, tmp_path_factory):
    folder = tmp_path_factory.mktemp("watched")
    values = digits_values(
        NAME,
        training={"epochs": 1_000},
        alerts={"masterRestarts": 0},  # one is heard of, too
        evaluation={"everySteps": 40, "atEpochEnd": False},
        worker={
            "replicas": 3,
            "min": 2,
            "max": 4,
            "pauseSeconds": 600.0,  # they stay to be looked at
        },
    )
    targets = [folder / "jobs" / NAME / "targets.json", exporter]
    with (
        pytest.MonkeyPatch.context() as patch,
        Prometheus(folder / "prometheus", targets) as prometheus,
    ):
        for name in ("COVERAGE_PROCESS_CONFIG", "COVERAGE_PROCESS_START"):
            patch.delenv(name, raising=False)
        started = time.time()
        with JobUnderTest(values, folder / "jobs", digits) as job:
            go_through_it(job, prometheus)
            at_rest = job.status_now()
            wait_for_scrape(prometheus)
            alive = [r for r in at_rest.replicas if r.state == "running"]
            ports = {r.role: r.metrics_port for r in alive}
            ports["master"] = at_rest.master_metrics_port
            shown = {role: fetch(port) for role, port in ports.items()}
            shown["exporter"] = Cluster().text().decode()
            shown["controller"] = Controller().text().decode()
            fired = prometheus.firing()
            ended = time.time()
            job.handle.stop()
            report = job.finish(expected=130)
        yield Watched(
            prometheus, "local", NAME, started, ended, at_rest, report, shown, fired
        )


def fetch(port):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as made:
        return made.read().decode()
