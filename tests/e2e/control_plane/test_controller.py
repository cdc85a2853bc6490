"""The controller as processes of their own, on a real API server and scheduler.

Each is the account of the chart with the rights of the chart. Nodes are made by hand or
are fake ones; masters are real, and pods contain nothing. Times that are minutes in a
cluster are seconds here, by the controller's own arguments.
"""

import contextlib
import json
import subprocess
import sys
import threading
import time
from contextlib import contextmanager

import pytest
import yaml
from elasticdl.job.grant import Grant, format_grant, parse_grant
from elasticdl.kube.api import MERGE_PATCH
from elasticdl.kube.errors import ApiError

from tests.chart.rendering import render
from tests.e2e.control_plane.conftest import Link, free_port
from tests.e2e.control_plane.test_exporter import Exporter, Nodes, wait_until

WORKERS = "elasticdl.org/workers"
# What takes 15 s in a cluster takes 3 s here.
QUICK = (
    "--lease-seconds=3", "--renew-seconds=0.5", "--fence-seconds=2",
    "--stale-seconds=3", "--rest-seconds=0.5", "--freeze-seconds=1",
)  # fmt: skip
TEMPLATE = """\
spec:
  nodeSelector: {{pool: {pool}}}
  tolerations: [{{key: pool, operator: Exists}}]
  containers:
  - name: main
    image: x
    resources: {{requests: {{cpu: "1", memory: 64Mi}}}}
"""
VALUES = """\
kind: job
job:
  name: {name}
  model: {{definition: net.custom_model}}
  data: {{training: train.csv}}
  master: {{resources: {{cpu: 0.1, memory: 64Mi}}}}
  ps: {{replicas: 1, resources: {{cpu: 1, memory: 64Mi}}}}
  worker: {{replicas: 1, min: 1, max: {most}, resources: {{cpu: 1, memory: 64Mi}}}}
"""


class Stage:
    """A namespace whose platform has a controller, and jobs in it."""

    def __init__(self, rig) -> None:
        self.rig = rig
        self.nodes = Nodes(rig)
        self.links = []
        self.lease = "elasticdl-controller"
        values = {"controller": {"enabled": True}}
        text = render(values, namespace=rig.namespace)["platform/controller.yaml"]
        made = [o for o in yaml.safe_load_all(text) if o]
        rights = ("ServiceAccount", "Role", "RoleBinding", "ClusterRole")
        rights += ("ClusterRoleBinding",)
        rig.apply(*(o for o in made if o["kind"] in rights))
        kubectl = rig.control_plane.kubectl
        self.token = kubectl("-n", rig.namespace, "create", "token", self.lease).strip()
        rig.admin.call("DELETE", f"{rig.path}/configmaps/elasticdl-{rig.job}")
        self.over = threading.Event()
        self.beating = threading.Thread(target=self._beat)
        self.beating.start()

    def node(self, name: str, cpu: str) -> None:
        full = f"{self.rig.namespace}-{name}"
        # What other tests left waiting takes no room here.
        pool = self.rig.namespace
        self.nodes.make(full, pool=pool, cpu=cpu, memory="16Gi", pods="110")
        self._say_ready(full)

    def _beat(self) -> None:
        """Say what kubelets would: a silent node is no supply after a while."""
        while not self.over.wait(5.0):
            for name in list(self.nodes.names):
                self._say_ready(name)

    def _say_ready(self, name: str) -> None:
        ready = {
            "type": "Ready",
            "status": "True",
            "reason": "Test",
            "lastHeartbeatTime": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            # Long enough ago to count as supply.
            "lastTransitionTime": "2026-01-01T10:00:00Z",
        }
        with contextlib.suppress(ApiError):
            self.rig.admin.call(
                "PATCH",
                f"/api/v1/nodes/{name}/status",
                body={"status": {"conditions": [ready]}},
                content_type=MERGE_PATCH,
            )

    def documents(self, name: str, most: int) -> dict[str, str]:
        pod = TEMPLATE.format(pool=self.rig.namespace)
        values = VALUES.format(name=name, most=most)
        return {"job.yaml": values, "ps.yaml": pod, "worker.yaml": pod}

    def job(self, name: str, most: int = 10, **metadata) -> None:
        body = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {
                "name": f"elasticdl-{name}",
                "labels": {"elasticdl-job-name": name},
                **metadata,
            },
            "data": self.documents(name, most),
        }
        self.rig.admin.call("POST", f"{self.rig.path}/configmaps", body=body)

    def annotate(self, name: str, text: str | None) -> None:
        change = {"metadata": {"annotations": {WORKERS: text}}}
        self.rig.patch(f"configmaps/elasticdl-{name}", change)

    def text(self, name: str) -> str:
        metadata = self.rig.get(f"configmaps/elasticdl-{name}")["metadata"]
        return (metadata.get("annotations") or {}).get(WORKERS, "")

    def granted(self, name: str) -> Grant | None:
        return parse_grant(self.text(name)).grant

    def size(self, name: str) -> int:
        grant = self.granted(name)
        return grant.workers if grant else 0

    def link(self) -> Link:
        link = Link(self.rig.control_plane)
        link.join()
        self.links.append(link)
        config = json.loads(link.kubeconfig.read_text())
        for user in config["users"]:
            user["user"] = {"token": self.token}
        link.kubeconfig.write_text(json.dumps(config))
        return link

    @contextmanager
    def controlling(self, *arguments: str, log=None):
        link = self.link()
        port = free_port()
        command = [
            sys.executable, "-m", "elasticdl.controller.main",
            f"--kubeconfig={link.kubeconfig}", f"--port={port}",
            f"--namespace={self.rig.namespace}", *QUICK, *arguments,
        ]  # fmt: skip
        process = subprocess.Popen(command)
        try:
            yield Controller(process, port, link)
        finally:
            if process.poll() is None:
                process.terminate()
                assert process.wait(20) == 0

    def close(self) -> None:
        self.over.set()
        self.beating.join()
        self.nodes.close()
        for link in self.links:
            link.cut()


class Controller(Exporter):
    """A controller's process."""

    def __init__(self, process, port: int, link: Link) -> None:
        super().__init__(process, port)
        self.link = link

    def figure(self, name: str) -> float:
        try:
            shown = self.shown()
        except OSError:
            assert self.process.poll() is None
            return -1.0
        return shown.get((f"elasticdl_controller_{name}",), -1.0)

    @property
    def leads(self) -> bool:
        return self.figure("leader") == 1.0


@pytest.fixture
def stage(rig):
    one = Stage(rig)
    yield one
    one.close()


def test_sizes_are_decided_together_and_the_users_of_the_cluster_see_why(stage) -> None:
    # Each job: master 0.1, PS 1, and workers of 1 below 97 % of 8.
    stage.node("n1", "8")
    with stage.controlling() as controller:
        stage.job("a")
        wait_until(lambda: stage.size("a") == 6, "all that fits beside the PS")
        grant = stage.granted("a")
        assert grant.by == f"{stage.rig.namespace}/elasticdl-controller"
        assert grant.why
        assert 1500 < grant.until - time.time() < 1810
        # Nothing runs that could leave: a newcomer's floor comes of the other's grant.
        stage.job("b", most=2)
        wait_until(lambda: stage.size("b") >= 1, "a newcomer")
        wait_until(lambda: stage.size("a") < 6, "room for it")
        assert controller.figure("leader") == 1.0
        [field] = [
            one
            for one in stage.rig.get("configmaps/elasticdl-a")["metadata"][
                "managedFields"
            ]
            if one["manager"] == "elasticdl-controller"
        ]
        assert list(field["fieldsV1"]) == ["f:metadata"]


def test_the_next_one_goes_on_when_the_leader_is_killed(stage) -> None:
    stage.node("n1", "8")
    with stage.controlling() as first:
        wait_until(lambda: first.leads, "a leader")
        with stage.controlling() as second:
            stage.job("a")
            wait_until(lambda: stage.size("a") == 6, "a grant")
            assert not second.leads
            stage.job("b", most=2)  # a plan is being made
            first.process.kill()
            first.process.wait()
            stage.annotate("a", "rubbish")
            wait_until(lambda: second.leads, "another leader")
            wait_until(lambda: stage.size("a") >= 1, "a grant in the place of rubbish")
            wait_until(lambda: stage.size("b") >= 1, "the other job's grant")


def test_without_the_api_nothing_is_decided_and_then_all_goes_on(stage) -> None:
    stage.node("n1", "8")
    with stage.controlling() as controller:
        stage.job("a")
        wait_until(lambda: stage.size("a") == 6, "a grant")
        controller.link.cut()
        wait_until(lambda: controller.figure("leader") == 0.0, "no leader")
        plans = controller.figure("plans_total")
        stage.job("b", most=2)
        wait_until(
            lambda: controller.figure("view_age_seconds") > 5, "a view that is too old"
        )
        assert controller.figure("plans_total") <= plans + 1
        assert not stage.text("b")
        assert controller.get("/healthz")[0] == 200
        controller.link.join()
        wait_until(lambda: stage.size("b") >= 1, "a grant after the outage")


def test_who_lost_the_lease_writes_nothing(stage) -> None:
    stage.node("n1", "8")
    leases = (
        f"/apis/coordination.k8s.io/v1/namespaces/{stage.rig.namespace}/leases/"
        "elasticdl-controller"
    )
    with stage.controlling() as controller:
        wait_until(lambda: controller.leads, "a leader")
        taken = {"spec": {"holderIdentity": "somebody", "leaseDurationSeconds": 600}}
        stage.rig.admin.call("PATCH", leases, body=taken, content_type=MERGE_PATCH)
        wait_until(lambda: controller.figure("leader") == 0.0, "the loss of the Lease")
        stage.job("a")
        time.sleep(2)  # as long as several plans take
        assert not stage.text("a")
        free = {"spec": {"holderIdentity": ""}}
        stage.rig.admin.call("PATCH", leases, body=free, content_type=MERGE_PATCH)
        wait_until(lambda: stage.size("a") == 6, "a grant with the Lease")


def test_another_living_controllers_grant_is_not_overwritten(stage) -> None:
    stage.node("n1", "8")
    other = ("other/controller", "theirs")
    theirs = Grant(3, (), time.time() + 1790, *other, lasts=1800)
    stage.job("a", annotations={WORKERS: format_grant(theirs)})
    with stage.controlling() as controller:
        wait_until(lambda: controller.figure("foreign_grants") == 1.0, "a stranger")
        assert stage.granted("a").by == "other/controller"
        # One that does not renew what it granted lives no more.
        dead = Grant(3, (), time.time() + 300, *other, lasts=1800)
        stage.annotate("a", format_grant(dead))
        wait_until(lambda: stage.size("a") == 6, "a grant of one's own")


@pytest.mark.parametrize("text", ["rubbish", '{"workers": -4, "until": 1}', "[[["])
def test_a_grant_with_rubbish_is_written_anew(stage, text) -> None:
    stage.node("n1", "4")
    stage.job("a", annotations={WORKERS: text})
    with stage.controlling():
        wait_until(lambda: stage.size("a") == 2, "a grant")


def test_an_upgrade_of_the_release_leaves_the_grant_alone(stage) -> None:
    stage.node("n1", "8")
    apply = ("--server-side", "--field-manager=helm", "--force-conflicts=false")
    body = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "elasticdl-a", "labels": {"elasticdl-job-name": "a"}},
        "data": stage.documents("a", 10),
    }
    kubectl = stage.rig.control_plane.kubectl
    here = ("-n", stage.rig.namespace, "apply", *apply, "-f-")
    kubectl(*here, text=json.dumps(body))
    with stage.controlling():
        wait_until(lambda: stage.size("a") == 6, "a grant")
        # As `helm upgrade` and Argo CD with server-side apply do: no conflict, and the
        # grant stays until the controller has seen the new bounds.
        body["data"] = stage.documents("a", 4)
        kubectl(*here, text=json.dumps(body))
        assert stage.text("a")
        wait_until(lambda: stage.size("a") == 4, "the new maximum")
        kubectl(*here, text=json.dumps(body))
        assert stage.size("a") == 4


def test_a_paused_and_a_stopped_job_give_back_what_they_had(stage) -> None:
    stage.node("n1", "12")
    with stage.controlling():
        stage.job("a")
        stage.job("b")
        wait_until(lambda: stage.size("a") and stage.size("b"), "two grants")
        wait_until(lambda: stage.size("a") + stage.size("b") == 9, "all room is given")
        paused = stage.documents("a", 10)
        paused["job.yaml"] += "  paused: true\n"
        stage.rig.patch("configmaps/elasticdl-a", {"data": paused})
        wait_until(lambda: stage.size("b") == 9, "the room of a paused job")
        # Nobody makes pods here, and a job whose workers are still to be made gives
        # none of them for fairness: what the other one gets at once is its minimum.
        stage.rig.patch("configmaps/elasticdl-a", {"data": stage.documents("a", 10)})
        wait_until(lambda: stage.size("b") == 8, "room for the job that goes on")
        stop = {"metadata": {"annotations": {"elasticdl.org/stop": "by hand"}}}
        stage.rig.patch("configmaps/elasticdl-a", stop)
        wait_until(lambda: stage.size("b") == 10, "the room of a stopped job")


def test_without_rights_in_a_namespace_its_jobs_are_left_alone(stage) -> None:
    stage.node("n1", "8")
    stage.job("a")
    with stage.controlling("--also-in=default") as controller:
        wait_until(lambda: stage.size("a") == 6, "a grant")
        assert controller.get("/readyz")[0] == 200
