"""A whole master on a real scheduler and fake nodes: pods run, and contain nothing."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
from elasticdl.client.cluster.objects import history_of
from elasticdl.job.status import JobStatus
from elasticdl.job.words import JobState

from tests.e2e import figures
from tests.e2e.control_plane.conftest import TEMPLATE

BOUND_SECONDS = 120.0
ON_FAKE_NODES = TEMPLATE.replace(
    "spec:\n",
    "spec:\n  nodeSelector: {NODES}\n  tolerations: [{operator: Exists}]\n"
    "  priorityClassName: CLASS\n",
)
VALUES = """\
kind: job
job:
  name: digits
  model: {definition: net.custom_model}
  data: {training: DATA}
  training: {epochs: 1}
  ps: {replicas: 2, priority: tests-high}
  worker:
    {replicas: WORKERS, priority: tests-low, graceSeconds: 2, RESOURCES}
"""


@pytest.fixture(scope="module", autouse=True)
def nodes(control_plane):
    """17 nodes of 32 CPUs that run pods of these tests alone, and two priorities."""
    control_plane.run("fake-nodes", "17", "32")
    taint = ("taint", "nodes", "--selector=type=fake", "for=these:NoSchedule")
    control_plane.kubectl(*taint)
    for name, value in (("tests-high", "1000000"), ("tests-low", "1000")):
        control_plane.kubectl("create", "priorityclass", name, f"--value={value}")


class Master:
    """A master process and what it shows."""

    def __init__(self, rig, tmp_path: Path) -> None:
        self.rig, self.root = rig, tmp_path / "job"
        self.root.mkdir()
        self.data = tmp_path / "train.csv"
        self.data.write_text("a,b\n" + "1,2\n" * 64)
        self.log = tmp_path / "master.log"

    def configure(self, *, workers: int, nodes: str = "type: fake") -> None:
        self.rig.edit_config_map(
            {"data": self.documents(workers=workers, nodes=f"{{{nodes}}}")}
        )

    def documents(self, *, workers: int, nodes: str, resources: str = "") -> dict:
        template = ON_FAKE_NODES.replace("{NODES}", nodes)
        values = VALUES.replace("DATA", str(self.data))
        values = values.replace("WORKERS", str(workers))
        values = values.replace(
            "RESOURCES", resources or "resources: {cpu: 1, memory: 64Mi}"
        )
        # As the chart does: whoever takes room from workers takes none from a PS. (The
        # fake kubelet deletes by name, twice: it would end the next pod of a PS too.)
        return {
            "job.yaml": values,
            "ps.yaml": template.replace("CLASS", "tests-high"),
            "worker.yaml": template.replace("CLASS", "tests-low"),
        }

    @contextmanager
    def running(self, **parts) -> Iterator[None]:
        self.configure(**parts)
        program = Path(__file__).parent / "master_process.py"
        with self.log.open("wb") as log:
            process = subprocess.Popen(
                [
                    *(sys.executable, program, self.rig.link.kubeconfig),
                    *(self.rig.namespace, self.rig.job, self.root),
                ],
                stderr=log,
            )
            try:
                yield
            finally:
                process.kill()
                process.wait()

    def status(self) -> JobStatus | None:
        items = self.rig.get("configmaps")["items"]
        shown = {item["metadata"]["name"]: item.get("data") for item in items}
        data = shown.get("elasticdl-digits-status")
        return JobStatus.model_validate_json(data["status.json"]) if data else None

    def state(self) -> JobState | None:
        status = self.status()
        return status.state if status is not None else None

    def figures(self) -> list[dict]:
        text = (self.root / "figures.jsonl").read_text()
        return [json.loads(line) for line in text.splitlines()]

    def living(self, phase: str = "") -> list[str]:
        """Workers' pods that are not being deleted."""
        return [
            name
            for name, pod in self.rig.pods().items()
            if "-worker-" in name
            and "deletionTimestamp" not in pod["metadata"]
            and phase in ("", pod["status"]["phase"])
        ]

    def until(self, condition, what: str, pause: float = 0.05) -> None:
        until = time.monotonic() + BOUND_SECONDS
        while not condition():
            if time.monotonic() > until:
                pytest.fail(f"{what}: not so; {self.log.read_text()[-3000:]}")
            time.sleep(pause)

    def told(self, reason: str) -> list[str]:
        items = self.rig.get("events")["items"]
        return [one["message"] for one in items if one["reason"] == reason]


@pytest.fixture
def master(rig, tmp_path) -> Master:
    return Master(rig, tmp_path)


def test_thirty_of_32_workers_deleted_at_once_are_all_replaced(master, capsys) -> None:
    with master.running(workers=32):
        master.until(lambda: len(master.living("Running")) == 32, "32 workers run")
        time.sleep(1.1)  # the next line of figures
        calls = master.figures()[-1]["calls"]
        deleted = [f"worker-{index}" for index in range(30)]
        with ThreadPoolExecutor(8) as threads:
            began = time.monotonic()
            before = set(master.living())
            list(threads.map(master.rig.delete_pod, deleted))
            came: dict[str, float] = {}

            def all_came() -> bool:
                for name in set(master.living()) - before:
                    came.setdefault(name, time.monotonic() - began)
                return len(came) == 30

            master.until(all_came, "32 workers exist", 0.01)
            seconds = time.monotonic() - began
        figures.record("relaunch_seconds", list(came.values()))
        master.until(lambda: len(master.living("Running")) == 32, "32 workers run")
        names = master.living()
        assert {name.rpartition("-")[2] for name in names} == {
            str(index) for index in range(30, 62)
        }
        master.until(lambda: master.told("ReplicaDeleted"), "an event")
        time.sleep(1.1)  # the next line of figures
        calls = master.figures()[-1]["calls"] - calls
    with capsys.disabled():
        print(f"\n30 of 32 replaced in {seconds:.2f} s, with {calls} calls of the API")
    # One creation each, and a few for status and events.
    assert calls < 60


def test_500_workers_cost_the_master_little_and_nothing_is_polled(
    master, capsys
) -> None:
    began = time.monotonic()
    with master.running(workers=500):
        master.until(lambda: len(master.living("Running")) == 500, "500 run", 0.5)
        seconds = time.monotonic() - began
        after_start = master.figures()[-1]
        master.until(lambda: master.state() is not None, "a status", 1.0)
        time.sleep(5)
        first = master.figures()[-1]
        time.sleep(30)
        last = master.figures()[-1]
    spent = last["time"] - first["time"]
    calls = (last["calls"] - first["calls"]) / spent * 60
    share = (last["cpu"] - first["cpu"]) / spent
    figures.record("master_500_mib", last["mib"])
    with capsys.disabled():
        print(
            f"\n500 workers running in {seconds:.1f} s with {after_start['calls']} "
            f"calls and {after_start['cpu']:.1f} CPU s; then {calls:.0f} calls a "
            f"minute, {share:.1%} of a CPU, {last['mib']:.0f} MiB"
        )
    assert after_start["calls"] < 700
    assert calls <= 30


def test_preempted_workers_are_replaced_and_their_wait_is_explained(master) -> None:
    one_node = "kubernetes.io/hostname: fake-17"
    on_it = ("get", "pods", "-A", "--field-selector=spec.nodeName=fake-17", "-oname")
    kubectl = master.rig.control_plane.kubectl
    master.until(lambda: not kubectl(*on_it), "an empty node", 0.5)
    with master.running(workers=24, nodes=one_node):
        master.until(lambda: len(master.living("Running")) == 24, "24 run")
        resources = {"requests": {"cpu": "20"}}
        serving = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "serving"},
            "spec": {
                "priorityClassName": "tests-high",
                "nodeSelector": {"kubernetes.io/hostname": "fake-17"},
                "tolerations": [{"operator": "Exists"}],
                "containers": [{"name": "x", "image": "x", "resources": resources}],
            },
        }
        master.rig.apply(serving)

        def waiting() -> list[str]:
            status = master.status()
            return [
                replica.reason
                for replica in (status.replicas if status else [])
                if replica.state == "pending"
            ]

        master.until(lambda: len(waiting()) == 14, "14 wait", 0.5)
        assert all(why.startswith("Unschedulable: 0/17 nodes") for why in waiting())
        status = master.status()
        assert {one.reason for one in status.relaunches} == {"preempted"}
        assert len(status.relaunches) == 14
        assert not status.state.ended
        master.until(lambda: master.told("ReplicaPreempted"), "an event")
        master.until(lambda: master.told("Unschedulable"), "an event")
        master.rig.admin.call("DELETE", f"{master.rig.path}/pods/serving")
        master.until(lambda: len(master.living("Running")) == 24, "24 run again")


def test_an_edit_and_a_stop_through_the_config_map(master) -> None:
    with master.running(workers=2):
        master.until(lambda: len(master.living("Running")) == 2, "2 run")
        master.configure(workers=5)
        master.until(lambda: len(master.living("Running")) == 5, "5 run")
        master.configure(workers=1)
        master.until(lambda: len(master.living()) == 1, "1 runs")
        assert master.told("Edited")
        annotations = {"elasticdl.org/stop": "enough"}
        master.rig.edit_config_map({"metadata": {"annotations": annotations}})
        master.until(lambda: master.state() is JobState.STOPPED, "stopped", 0.2)
        master.until(lambda: master.living() == [], "no worker")
        data = master.rig.get("configmaps/elasticdl-digits-status")["data"]
        assert json.loads(data["report.json"])["message"] == "enough"
        # Events are calls of their own beside those that write the report.
        master.until(lambda: master.told("JobStopped"), "an event", 0.2)
        assert master.told("JobStopped") == ["job digits stopped: enough"]
        told = history_of(
            master.rig.get("configmaps/elasticdl-digits"),
            master.rig.get("configmaps/elasticdl-digits-history"),
        )
        changes = [d.cause for d in told.decisions if d.kind in ("grown", "shrunk")]
        assert changes == ["worker.replicas: 2 -> 5", "worker.replicas: 5 -> 1"]
        assert told.decisions[-1].text == "job digits stopped: enough"
        assert told.samples[-1].state == "stopped"


def test_a_job_that_is_refused_fails_at_once_and_says_why(master) -> None:
    rig = master.rig
    rig.apply(
        {
            "apiVersion": "v1",
            "kind": "ResourceQuota",
            "metadata": {"name": "small"},
            "spec": {"hard": {"requests.cpu": "500m"}},
        }
    )
    master.until(lambda: rig.get("resourcequotas/small").get("status"), "a quota")
    with master.running(workers=2):
        master.until(lambda: master.state() is JobState.FAILED, "it failed", 0.2)
        message = master.status().message
        assert message.startswith("Kubernetes refuses pod elasticdl-digits-")
        assert "exceeded quota: small, requested: requests.cpu=1" in message
        master.until(lambda: master.told("JobFailed"), "an event")
        assert master.told("JobFailed") == [f"job digits failed: {message}"]
        assert rig.pods() == {}


def test_a_master_without_rights_ends_at_once_and_says_whose_they_are(
    master, tmp_path
) -> None:
    control_plane, namespace = master.rig.control_plane, master.rig.namespace
    kubectl = control_plane.kubectl
    kubectl("-n", namespace, "create", "serviceaccount", "powerless")
    token = kubectl("-n", namespace, "create", "token", "powerless").strip()
    config = json.loads(kubectl("config", "view", "--raw", "-ojson"))
    config["users"][0]["user"] = {"token": token}
    without_rights = tmp_path / "powerless.kubeconfig"
    without_rights.write_text(json.dumps(config))
    program = Path(__file__).parent / "master_process.py"
    done = subprocess.run(
        [sys.executable, program, without_rights, namespace, master.rig.job, tmp_path],
        capture_output=True,
        text=True,
        timeout=BOUND_SECONDS,
        check=False,
    )
    assert done.returncode
    account = f'"system:serviceaccount:{namespace}:powerless"'
    assert f"{account} cannot get resource" in done.stderr
    assert "install the platform" in done.stderr
