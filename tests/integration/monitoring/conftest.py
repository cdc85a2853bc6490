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
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from elasticdl.client import Scaling
from elasticdl.job.status import JobReport, JobStatus
from elasticdl.job.values import edit_values
from elasticdl.metrics.registry import ClusterMetrics
from elasticdl.testing.job import JobUnderTest
from prometheus_client import generate_latest

from tests.prometheus.server import Prometheus

NAME = "watched"


@dataclass
class Watched:
    """What is left of the job, and the Prometheus that has it all."""

    prometheus: Prometheus
    started: float
    ended: float  # of what is looked at: the job was at rest
    at_rest: JobStatus
    report: JobReport
    shown: dict[str, str]  # text of /metrics by role


def cluster_metrics():
    """Return what a cluster's exporter shows of a cluster with one job of ours."""
    metrics = ClusterMetrics()
    metrics.nodes.set_by({"ready": 2})
    metrics.allocatable_cpu.set_one(8)
    metrics.allocatable_memory.set_one(32e9)
    metrics.allocatable_gpus.set_one(1)
    holders = {
        ("serving", "", ""): (3, 8e9, 0),
        ("training", "local", NAME): (4, 6e9, 1),
        ("other", "", ""): (0.5, 1e9, 0),
    }
    requested = metrics.requested_cpu, metrics.requested_memory, metrics.requested_gpus
    for index, metric in enumerate(requested):
        metric.set({who: amounts[index] for who, amounts in holders.items()})
    metrics.used_cpu.set({who: cpu * 0.7 for who, (cpu, *_) in holders.items()})
    metrics.used_memory.set({who: size * 0.6 for who, (_, size, _) in holders.items()})
    metrics.pending_pods.set({("local", NAME, "Unschedulable"): 2})
    return metrics


@pytest.fixture(scope="module")
def exporter(tmp_path_factory):
    """Serves those figures; the file that leads Prometheus there."""
    metrics, began = cluster_metrics(), time.time()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            waited = 2 * (time.time() - began)
            metrics.pending_seconds.set({("local", NAME): waited})
            self.send_response(200)
            self.end_headers()
            self.wfile.write(generate_latest(metrics.registry))

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
    job.handle.set_capacity(None)
    job.wait_until(lambda s: at_work(s, 3), "three workers again")
    job.handle.scale(Scaling(workers=2))
    job.wait_until(lambda s: at_work(s, 2), "two workers")
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
        seen = time.time()
        prometheus.wait_until(
            lambda after=seen: any(
                at > after
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
        evaluation={"everySteps": 40, "atEpochEnd": False},
        ps={"replicas": 2, "resources": {"memory": "2Gi"}},
        worker={
            "replicas": 3,
            "min": 2,
            "max": 4,
            "pauseSeconds": 600.0,  # they stay to be looked at
            "resources": {"memory": "2Gi"},
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
            alive = [r for r in at_rest.replicas if r.state == "running"]
            ports = {r.role: r.metrics_port for r in alive}
            ports["master"] = at_rest.master_metrics_port
            shown = {role: fetch(port) for role, port in ports.items()}
            ended = time.time()
            job.handle.stop()
            report = job.finish(expected=130)
        yield Watched(prometheus, started, ended, at_rest, report, shown)


def fetch(port):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as made:
        return made.read().decode()
