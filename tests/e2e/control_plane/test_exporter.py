"""The platform exporter as a process of its own, on a real API server.

Nodes and pods are made by hand: nothing runs on them. The exporter is the account
of the chart with the rights of the chart, so what it does is what it may in a cluster.
"""

import json
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import contextmanager

import pytest
import yaml
from elasticdl.kube.api import MERGE_PATCH
from elasticdl.kube.errors import ApiError
from prometheus_client.parser import text_string_to_metric_families

from tests.chart.rendering import render

BOUND_SECONDS = 60.0
CLASS = "elasticdl-test-serving"
GI = 2**30


class Exporter:
    """The process, and what it shows."""

    def __init__(self, process: subprocess.Popen, port: int) -> None:
        self.process, self.port = process, port

    def get(self, path: str) -> tuple[int, str]:
        url = f"http://127.0.0.1:{self.port}{path}"
        try:
            with urllib.request.urlopen(url, timeout=10) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def shown(self) -> dict[tuple[str, ...], float]:
        """Values by name (less the common beginning) and labels' values."""
        status, text = self.get("/metrics")
        assert status == 200, text
        return {
            (
                sample.name.removeprefix("elasticdl_cluster_"),
                *(value for _, value in sorted(sample.labels.items())),
            ): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }


def wait_until(condition, what: str):
    deadline = time.monotonic() + BOUND_SECONDS
    while not (found := condition()):
        assert time.monotonic() < deadline, f"{what} did not come about"
        time.sleep(0.1)
    return found


class Nodes:
    """Nodes that only the API knows; a test says when they are heard of."""

    def __init__(self, rig) -> None:
        self.rig = rig
        self.names: list[str] = []

    def make(self, name: str, *, pool: str = "", **allocatable: str) -> None:
        """Make a node; from the start, one of a pool takes only who tolerates it."""
        body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}
        if pool:
            body["metadata"]["labels"] = {"pool": pool}
            taint = {"key": "pool", "value": pool, "effect": "NoSchedule"}
            body["spec"] = {"taints": [taint]}
        self.rig.admin.call("POST", "/api/v1/nodes", body=body)
        self.names.append(name)
        self.say(name, ready="True", allocatable=allocatable, capacity=allocatable)

    def say(self, name: str, *, ready: str, **status: dict[str, str]) -> None:
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        ready_condition = {
            "type": "Ready",
            "status": ready,
            "reason": "Test",
            "lastHeartbeatTime": now,
            "lastTransitionTime": now,
        }
        self.rig.admin.call(
            "PATCH",
            f"/api/v1/nodes/{name}/status",
            body={"status": {"conditions": [ready_condition], **status}},
            content_type=MERGE_PATCH,
        )

    def close(self) -> None:
        for name in self.names:
            self.rig.admin.call("DELETE", f"/api/v1/nodes/{name}")


@pytest.fixture
def nodes(rig):
    made = Nodes(rig)
    yield made
    made.close()


@pytest.fixture
def serving(rig):
    rig.control_plane.kubectl("create", "priorityclass", CLASS, "--value=1000000")
    yield
    rig.control_plane.kubectl("delete", "priorityclass", CLASS)


def install(rig) -> str:
    """Make the chart's account and rights; return a kubeconfig for them."""
    values = {"monitoring": {"exporter": {"enabled": True}}}
    text = render(values, namespace=rig.namespace)["platform/exporter.yaml"]
    rights = ("ServiceAccount", "ClusterRole", "ClusterRoleBinding")
    rig.apply(*(o for o in yaml.safe_load_all(text) if o and o["kind"] in rights))
    kubectl = rig.control_plane.kubectl
    token = kubectl("-n", rig.namespace, "create", "token", "elasticdl-exporter")
    config = json.loads(rig.link.kubeconfig.read_text())
    for user in config["users"]:
        user["user"] = {"token": token.strip()}
    path = rig.link.kubeconfig.with_suffix(".exporter")
    path.write_text(json.dumps(config))
    return str(path)


@contextmanager
def exporting(kubeconfig: str, port: int):
    command = [
        sys.executable, "-m", "elasticdl.exporter.main",
        f"--kubeconfig={kubeconfig}", f"--port={port}",
    ]  # fmt: skip
    process = subprocess.Popen(command)
    try:
        yield Exporter(process, port)
    finally:
        process.terminate()
        assert process.wait(20) == 0


def listening(exporter: Exporter) -> bool:
    try:
        return exporter.get("/healthz")[0] == 200
    except OSError:
        assert exporter.process.poll() is None
        return False


def asks(cpu: str, memory: str, **more: str):
    requests = {"cpu": cpu, "memory": memory, **more}
    resources = {"requests": requests, "limits": requests}
    return {"name": f"c{cpu}", "image": "x", "resources": resources}


def pod(name: str, *containers, node: str = "", job: str = "", **spec):
    labels = {"elasticdl-job-name": job} if job else {}
    placed = {"nodeName": node} if node else {}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": labels},
        "spec": {"containers": list(containers), **placed, **spec},
    }


def run(rig, name: str) -> None:
    """Say what a kubelet would of a pod whose container runs."""
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    running = {"name": "c", "image": "x", "imageID": "", "ready": True}
    running |= {"restartCount": 0, "state": {"running": {"startedAt": now}}}
    status = {"phase": "Running", "containerStatuses": [running]}
    rig.patch(f"pods/{name}", {"status": status}, status=True)


def account_is_there(rig) -> bool:
    items = rig.get("serviceaccounts")["items"]
    return "default" in {item["metadata"]["name"] for item in items}


@pytest.mark.usefixtures("serving")
def test_figures_are_those_of_the_cluster_through_outages(rig, nodes) -> None:
    from tests.e2e.control_plane.conftest import free_port

    wait_until(lambda: account_is_there(rig), "the namespace's account")
    kubeconfig = install(rig)
    first, second = f"{rig.namespace}-n1", f"{rig.namespace}-n2"
    with exporting(kubeconfig, free_port()) as exporter:
        wait_until(lambda: listening(exporter), "an exporter that listens")
        wait_until(lambda: exporter.get("/readyz")[0] == 200, "the first lists")
        empty = exporter.shown()

        # What other tests left waiting takes no room on nodes of a pool.
        gpus = {"nvidia.com/gpu": "2"}
        pool = rig.namespace
        nodes.make(first, pool=pool, cpu="4", memory="8Gi", **gpus, pods="110")
        nodes.make(second, pool=pool, cpu="8", memory="16Gi", pods="110")
        sidecar = asks("500m", "64Mi") | {"restartPolicy": "Always"}
        rig.apply(
            pod("web", asks("1", "1Gi"), node=first, priorityClassName=CLASS),
            pod(
                "d-worker-0",
                asks("2", "1Gi", **{"nvidia.com/gpu": "1"}),
                node=first,
                job="digits",
                initContainers=[sidecar, asks("3", "128Mi")],
            ),
            pod("d-ps-0", asks("1", "2Gi"), node=second, job="digits"),
            pod("d-worker-1", asks("1000", "1Gi"), job="digits"),
            pod("agent", asks("250m", "256Mi"), node=second),
        )

        def held(what: str, kind: str, job: str = "") -> float:
            namespace = rig.namespace if job else ""
            return exporter.shown().get((what, kind, job, namespace), 0.0)

        def grew(what: str) -> float:
            return exporter.shown()[what,] - empty.get((what,), 0.0)

        def told(reason: str) -> float:
            key = ("pending_pods", reason, "digits", rig.namespace)
            return exporter.shown().get(key, 0.0)

        cpu, memory = "requested_cpu_cores", "requested_memory_bytes"
        wait_until(lambda: told("Unschedulable") == 1, "a scheduler's refusal")
        wait_until(lambda: grew("allocatable_cpu_cores") == 12, "two nodes")
        assert grew("allocatable_memory_bytes") == 24 * GI
        assert grew("allocatable_gpus") == 2
        assert held(cpu, "serving") == 1
        # The init container beside the sidecar asks for more than what runs later.
        assert held(cpu, "training", "digits") == 3.5 + 1
        assert held(memory, "training", "digits") == 3 * GI + 64 * 2**20
        assert held("requested_gpus", "training", "digits") == 1
        assert held(cpu, "other") == 0.25
        assert told("Starting") == 2  # on nodes, and no kubelet says that they run
        assert not [key for key in exporter.shown() if key[0].startswith("used_")]

        for name in ("d-worker-0", "d-ps-0"):
            run(rig, name)
        wait_until(lambda: told("Starting") == 0, "pods that run")
        waited = ("pending_seconds_total", "digits", rig.namespace)
        before = exporter.shown()[waited]
        assert before > 0

        # Through a cut line and a killed server the last figures stay, marked as old.
        rig.link.cut()
        wait_until(lambda: exporter.shown()["api_up",] == 0, "an outage that is told")
        assert held(cpu, "training", "digits") == 4.5
        assert exporter.get("/healthz")[0] == 200
        rig.apply(pod("e-worker-0", asks("1", "1Gi"), node=second, job="evening"))
        rig.delete_named("web")
        rig.link.join()
        wait_until(lambda: held(cpu, "training", "evening") == 1, "what came meanwhile")
        wait_until(lambda: held(cpu, "serving") == 0, "what went meanwhile")
        assert exporter.shown()["api_up",] == 1
        assert exporter.shown()[waited] >= before

        rig.control_plane.end_api_server()

        def answers() -> bool:
            try:
                return bool(rig.get("pods"))
            except ApiError:
                return False

        wait_until(answers, "an API server that is back")
        for name in ("d-worker-0", "d-ps-0", "d-worker-1"):
            rig.delete_named(name)
        wait_until(
            lambda: (
                held(cpu, "training", "digits") == 0 and waited not in exporter.shown()
            ),
            "a job that is gone",
        )
        assert held(cpu, "training", "evening") == 1
        assert exporter.process.poll() is None


def test_without_rights_the_exporter_ends_with_the_servers_words(rig) -> None:
    wait_until(lambda: account_is_there(rig), "the namespace's account")
    token = rig.control_plane.kubectl("-n", rig.namespace, "create", "token", "default")
    config = json.loads(rig.link.kubeconfig.read_text())
    for user in config["users"]:
        user["user"] = {"token": token.strip()}
    path = rig.link.kubeconfig.with_suffix(".stranger")
    path.write_text(json.dumps(config))
    done = subprocess.run(
        [sys.executable, "-m", "elasticdl.exporter.main", f"--kubeconfig={path}"],
        capture_output=True,
        text=True,
        timeout=BOUND_SECONDS,
        check=False,
    )
    assert done.returncode != 0
    assert "forbidden" in done.stderr
    assert "cannot list resource" in done.stderr
