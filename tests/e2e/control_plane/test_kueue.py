"""Jobs in a queue of Kueue's real controller, on a control plane of their own.

The queue is the one of docs/clusters.md. The platform is locked. Pods are placed on
fake nodes and contain nothing; the master is a process, and its pod on no node.
"""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import helm_python
import pytest
from elasticdl.errors import ExitCode
from elasticdl.job.status import JobStatus
from elasticdl.job.words import JobState

from tests.e2e.control_plane.conftest import ControlPlane
from tests.e2e.control_plane.operators.kueue import Kueue
from tests.e2e.kube import wait_until

ROOT = Path(__file__).parents[3]
CHART = ROOT / "charts" / "elasticdl"
PAGE = ROOT / "docs" / "clusters.md"
NAMESPACE, QUEUE = "ml", "team-a"
GATE = "kueue.x-k8s.io/admission"
# The whole job wants seven CPUs, the queue of the page has five.
WORKERS, PS, QUOTA = 4, 2, 5
NOBODY = {"matchLabels": {"none": "here"}}
JOB = """\
kind: job
pods:
  # As if no node had been found for it yet: it must not end, as pods here would.
  master: {nodeSelector: {none: here}}
  ps: &on-fake-nodes
    nodeSelector: {type: fake}
  worker: *on-fake-nodes
job:
  name: NAME
  queue: team-a
  model: {definition: net.custom_model}
  data: {training: DATA}
  training: {epochs: 1}
  ps: {replicas: 2, priority: elasticdl-high, resources: {cpu: 1, memory: 64Mi}}
  worker:
    {replicas: 4, priority: elasticdl-low, graceSeconds: 2,
     resources: {cpu: 1, memory: 64Mi}}
"""


def until(what: str, probe: Callable[[], Any]) -> Any:
    return wait_until(what, probe, seconds=180)


def page_objects() -> str:
    """The objects that docs/clusters.md has an administrator make."""
    blocks = re.findall(r"(?s)```yaml\n(.*?)```", PAGE.read_text())
    (found,) = [block for block in blocks if "kind: ClusterQueue" in block]
    return found


@pytest.fixture(scope="module")
def control_plane(tmp_path_factory) -> Iterator[ControlPlane]:
    """One whose pods all pass through Kueue: not that of other tests."""
    one = ControlPlane(tmp_path_factory.mktemp("queued"))
    if not os.environ.get("E2E_QUEUES"):
        pytest.skip("takes long: tests/soak/part-queues runs it")
    # A plain kill ends the tests as Ctrl-C does: what was brought up is taken down.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    one.up()
    yield one
    one.run("down")


@pytest.fixture(scope="module")
def kueue(control_plane: ControlPlane) -> Iterator[Kueue]:
    one = Kueue(control_plane)
    one.install()
    try:
        one.start()
        yield one
    finally:
        one.stop()


@pytest.fixture(scope="module")
def platform(control_plane: ControlPlane, kueue: Kueue) -> None:
    control_plane.run("fake-nodes", "2", "32")
    control_plane.kubectl("create", "namespace", NAMESPACE)
    values = {
        "images": {"registry": "registry.example"},
        "platform": {"locked": True},
    }
    with helm(control_plane) as config:
        config.install(CHART, "elasticdl", values, namespace=NAMESPACE)


def helm(control_plane: ControlPlane) -> helm_python.Config:
    return helm_python.Config(
        kubeconfig_path=control_plane.kubeconfig, namespace=NAMESPACE
    )


class Queued:
    """A job of the queue, its master's process, and what both show."""

    def __init__(self, control_plane: ControlPlane, folder: Path, name: str) -> None:
        self.control_plane, self.name = control_plane, name
        self.folder = folder / name
        self.folder.mkdir()
        data = folder / "train.csv"
        data.write_text("a,b\n" + "1,2\n" * 64)
        self.file = folder / f"{name}.yaml"
        self.file.write_text(JOB.replace("NAME", name).replace("DATA", str(data)))
        self.log = folder / f"{name}.log"

    def kubectl(self, *words: str, text: str | None = None) -> str:
        return self.control_plane.kubectl("-n", NAMESPACE, *words, text=text)

    def get(self, *words: str) -> Any:
        return json.loads(self.kubectl("get", *words, "-ojson"))

    def elasticdl(self, *words: str, code: int = ExitCode.OK) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "elasticdl.cli.main", *words, "-n", NAMESPACE],
            env={
                **os.environ,
                "KUBECONFIG": str(self.control_plane.kubeconfig),
                "ELASTICDL_JOBS_DIR": str(self.folder / "none"),
                "COLUMNS": "200",
            },
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr

    @contextmanager
    def master(self) -> Iterator[None]:
        """Run what would be in the master's pod."""
        program = Path(__file__).parent / "master_process.py"
        kubeconfig = self.control_plane.kubeconfig
        with self.log.open("ab") as log:
            process = subprocess.Popen(
                [
                    sys.executable,
                    program,
                    kubeconfig,
                    NAMESPACE,
                    self.name,
                    self.folder,
                ],
                stderr=log,
            )
            try:
                yield
            finally:
                process.kill()
                process.wait()

    def master_job(self) -> Any:
        return self.get("job", f"elasticdl-{self.name}-master")

    def is_admitted(self) -> bool:
        return not self.master_job()["spec"].get("suspend")

    def status(self) -> JobStatus | None:
        words = ("configmap", f"elasticdl-{self.name}-status", "--ignore-not-found")
        text = self.kubectl("get", *words, "-ojson")
        found = json.loads(text)["data"] if text else None
        return JobStatus.model_validate_json(found["status.json"]) if found else None

    def pods(self, role: str) -> list[Any]:
        """Those of a role that are not being deleted."""
        selector = f"elasticdl-job-name={self.name},elasticdl-replica-type={role}"
        pods = self.get("pods", "-l", selector)["items"]
        return [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]

    def running(self, role: str = "worker") -> set[str]:
        return {
            pod["metadata"]["name"]
            for pod in self.pods(role)
            if pod["status"]["phase"] == "Running"
        }

    def gated(self, role: str = "worker") -> set[str]:
        return {
            pod["metadata"]["name"]
            for pod in self.pods(role)
            if {"name": GATE} in pod["spec"].get("schedulingGates", [])
        }

    def until_workers(self, running: int, gated: int) -> None:
        def so() -> bool:
            return (len(self.running()), len(self.gated())) == (running, gated)

        try:
            until(f"{running} workers run and {gated} wait", so)
        except AssertionError as error:
            shown = self.kubectl("get", "pods,workloads,localqueues", "-owide")
            raise AssertionError(f"{error}\n{shown}\n{self.log.read_text()}") from None


def set_queue(control_plane: ControlPlane, patch: list[dict[str, Any]]) -> None:
    words = ("patch", "clusterqueue", "training", "--type=json", "-p")
    control_plane.kubectl(*words, json.dumps(patch))


def set_cpus(control_plane: ControlPlane, cpus: int) -> None:
    path = "/spec/resourceGroups/0/flavors/0/resources/0/nominalQuota"
    set_queue(control_plane, [{"op": "replace", "path": path, "value": str(cpus)}])


@pytest.fixture
def queue(control_plane: ControlPlane, platform: None) -> Iterator[None]:
    control_plane.kubectl("apply", "-f-", text=page_objects())
    yield
    with helm(control_plane) as config:
        config.uninstall("digits", ignore_not_found=True)
    control_plane.kubectl("-n", NAMESPACE, "wait", "--for=delete", "pods", "--all")
    control_plane.kubectl("delete", "-f-", text=page_objects())


@pytest.fixture
def job(control_plane: ControlPlane, queue: None, tmp_path: Path) -> Queued:
    return Queued(control_plane, tmp_path, "digits")


def hold(control_plane: ControlPlane, policy: str) -> None:
    change = {"op": "add", "path": "/spec/stopPolicy", "value": policy}
    set_queue(control_plane, [change])


def test_nothing_of_a_job_runs_before_its_queue_admits_it(job, control_plane) -> None:
    hold(control_plane, "Hold")
    job.elasticdl("train", "-f", str(job.file))
    until("a workload", lambda: job.get("workloads")["items"])
    assert job.get("pods")["items"] == []
    assert job.master_job()["spec"]["suspend"] is True
    said = job.elasticdl("status", "digits")
    assert "pending: its Job has not been admitted by queue team-a" in said

    hold(control_plane, "None")
    until("admission", job.is_admitted)
    (pod,) = until("the master's pod", lambda: job.pods("master"))
    assert "schedulingGates" not in pod["spec"]  # the Job itself has waited


def test_a_job_that_is_stopped_in_the_queue_ends_when_its_turn_comes(
    job, control_plane
) -> None:
    hold(control_plane, "Hold")
    job.elasticdl("train", "-f", str(job.file))
    job.elasticdl("stop", "digits")
    said = job.elasticdl("status", "digits")
    assert "stopped before it began" in said
    hold(control_plane, "None")
    until("admission", job.is_admitted)
    with job.master():
        until("the end", lambda: (s := job.status()) and s.state is JobState.STOPPED)
    assert job.pods("worker") == []


def test_a_job_grows_and_shrinks_with_its_quota(job, control_plane) -> None:
    job.elasticdl("train", "-f", str(job.file))
    until("admission", job.is_admitted)
    with job.master():
        until("both PS", lambda: len(job.running("ps")) == PS)
        spare = QUOTA - 1 - PS
        job.until_workers(spare, WORKERS - spare)

        def waiting() -> list[str]:
            status = job.status()
            return [
                one.reason
                for one in (status.replicas if status else [])
                if one.state == "pending"
            ]

        until("two that wait", lambda: len(waiting()) == WORKERS - spare)
        for why in waiting():
            assert why.startswith(f"SchedulingGated: not admitted yet: {GATE}")
            assert why.endswith(f", queue {QUEUE}")
        assert f"not admitted yet: {GATE}" in job.elasticdl("status", "digits")

        # One more CPU is one more worker.
        for more in (1, 2):
            set_cpus(control_plane, QUOTA + more)
            job.until_workers(spare + more, WORKERS - spare - more)

        # A release of the running job passes Kueue's webhooks, and its master stays.
        before = job.master_job()["metadata"]["uid"]
        job.elasticdl("scale", "digits", "--workers", "5")
        job.until_workers(4, 1)
        assert job.master_job()["metadata"]["uid"] == before

        # Something more urgent in the same queue takes one worker's quota, no PS's.
        workers, servers = job.running(), job.running("ps")
        serve(job)
        until(
            "serving", lambda: job.get("pod", "serving")["status"]["phase"] == "Running"
        )
        job.until_workers(3, 2)
        assert len(workers - job.running()) == 1
        assert job.running("ps") == servers
        assert not job.master_job()["spec"]["suspend"]

        def relaunched() -> list[str]:
            status = job.status()
            return [one.reason for one in (status.relaunches if status else [])]

        until("a relaunch", relaunched)
        assert relaunched() == ["evicted"]
        job.kubectl("delete", "pod", "serving")
        job.until_workers(4, 1)

        # No pod of the job is kept by Kueue when it is stopped.
        job.elasticdl("stop", "digits")
        until("no pods", lambda: not job.get("pods", "-l", of_replicas())["items"])


@contextmanager
def controller(job: Queued) -> Iterator[None]:
    """Decide the sizes of the namespace's jobs, as the platform's controller does."""
    command = [
        *(sys.executable, "-m", "elasticdl.controller.main"),
        *(f"--kubeconfig={job.control_plane.kubeconfig}", f"--namespace={NAMESPACE}"),
        *("--priority-class=high=elasticdl-high:-1", "--port=0"),
        "--priority-class=low=elasticdl-low:-10",
    ]
    with (job.folder / "controller.log").open("wb") as log:
        process = subprocess.Popen(command, stderr=log)
        try:
            yield
        finally:
            process.terminate()
            process.wait()


@contextmanager
def placed(job: Queued, pod: str) -> Iterator[None]:
    """Put the master's pod on a node on which no pod ends."""
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "of-the-master"}}
    job.kubectl("apply", "-f-", text=json.dumps(node))
    binding = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": pod},
        "target": {"kind": "Node", "name": "of-the-master"},
    }
    path = f"/api/v1/namespaces/{NAMESPACE}/pods/{pod}/binding"
    job.kubectl("create", "--raw", path, "-f-", text=json.dumps(binding))
    try:
        yield
    finally:  # no kubelet is there to end it
        job.kubectl("delete", "pod", pod, "--force", "--grace-period=0")
        job.kubectl("delete", "node", "of-the-master")


def test_sizes_that_are_decided_take_a_queues_gate_for_no_room(
    job, control_plane
) -> None:
    values = job.file.read_text()
    job.file.write_text(
        values.replace("graceSeconds: 2,", "graceSeconds: 2, min: 1, max: 4,")
    )
    job.elasticdl("train", "-f", str(job.file))
    until("admission", job.is_admitted)
    spare = QUOTA - 1 - PS
    (pod,) = until("the master's pod", lambda: job.pods("master"))
    why = f"a worker waited in vain: not admitted yet: {GATE}"
    with placed(job, pod["metadata"]["name"]), controller(job), job.master():
        # The nodes have room for all four; what the queue keeps is taken back.
        until("the reason", lambda: why in job.log.read_text())
        job.until_workers(spare, 0)
        # Tried again after a pause, a minute or two.
        set_cpus(control_plane, QUOTA + 1)
        job.until_workers(spare + 1, 0)


@pytest.mark.soak
def test_a_job_outlives_a_kueue_that_is_away(job, control_plane, kueue) -> None:
    set_cpus(control_plane, 20)
    job.elasticdl("train", "-f", str(job.file))
    until("admission", job.is_admitted)
    with job.master():
        job.until_workers(WORKERS, 0)
        kueue.stop()
        try:
            lost = min(job.running())
            # Kueue's finalizer is on it: it is gone once Kueue is back.
            job.kubectl("delete", "pod", lost, "--wait=false")
            until("fewer", lambda: lost not in job.running())
            until("the refusal", lambda: "kueue" in job.log.read_text())
        finally:
            kueue.start()
        job.until_workers(WORKERS, 0)
        assert lost not in job.running()
        status = job.status()
        assert status is not None
        assert not status.state.ended


def of_replicas() -> str:
    return "elasticdl-replica-type in (ps, worker)"


def serve(job: Queued) -> None:
    """Make a pod of the queue that is more urgent than any of a job."""
    klass = {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": "serving"},
        "value": 1000,
    }
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "serving",
            "labels": {"kueue.x-k8s.io/queue-name": QUEUE},
        },
        "spec": {
            "priorityClassName": "serving",
            "nodeSelector": {"type": "fake"},
            "terminationGracePeriodSeconds": 0,
            "containers": [
                {
                    "name": "main",
                    "image": "serving",
                    "resources": {"requests": {"cpu": "1", "memory": "64Mi"}},
                }
            ],
        },
    }
    for thing in (klass, pod):
        job.kubectl("apply", "-f-", text=json.dumps(thing))
