"""Two real masters under a real controller, and what people see of that.

Nodes are made by hand, the scheduler is real; what a kubelet would say of the pods that
are bound, a thread of the test says: their containers contain nothing.
"""

import csv
import json
import os
import subprocess
import sys
import threading
import time
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
import yaml
from elasticdl.job import names
from elasticdl.job.grant import Grant, format_grant
from elasticdl.kube.api import MERGE_PATCH
from elasticdl.kube.errors import ApiError

from tests.e2e.control_plane.conftest import BOUND_SECONDS
from tests.e2e.control_plane.test_controller import Stage
from tests.e2e.control_plane.test_exporter import run as say_running
from tests.e2e.control_plane.test_exporter import wait_until
from tests.e2e.control_plane.test_training_jobs import Namespace, master_of

TEMPLATE = """\
apiVersion: v1
kind: Pod
metadata: {{labels: {{app.kubernetes.io/name: elasticdl}}}}
spec:
  automountServiceAccountToken: false
  nodeSelector: {{pool: {pool}}}
  tolerations: [{{operator: Exists}}]
  terminationGracePeriodSeconds: 2
  containers:
  - name: main
    image: x
    resources: {{requests: {{cpu: "1", memory: 64Mi}}, limits: {{memory: 64Mi}}}}
"""
VALUES = """\
kind: job
job:
  name: {name}
  model: {{definition: net.custom_model}}
  data: {{training: {data}}}
  training: {{epochs: 1000}}
  master: {{resources: {{cpu: 0.1, memory: 64Mi}}}}
  ps: {{replicas: 1, priority: sizes-high, resources: {{cpu: 1, memory: 64Mi}}}}
  worker:
    {{replicas: 1, min: 1, max: 10, priority: sizes-low, graceSeconds: 2,
     resources: {{cpu: 1, memory: 64Mi}}}}
"""


@pytest.fixture(scope="module")
def priorities(control_plane) -> None:
    for name, value in (("sizes-high", "1000000"), ("sizes-low", "1000")):
        control_plane.kubectl("create", "priorityclass", name, f"--value={value}")


class Kubelet:
    """Says that what is bound runs, and that what is deleted is gone."""

    def __init__(self, rig) -> None:
        self.rig = rig
        self.over = threading.Event()
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self) -> None:
        while not self.over.wait(0.2):
            for name, pod in self.rig.pods().items():
                with suppress(ApiError):
                    self._look(name, pod)

    def _look(self, name: str, pod) -> None:
        if not pod["spec"].get("nodeName"):
            return
        if "deletionTimestamp" in pod["metadata"]:
            self.rig.delete_named(name)
        elif pod["status"]["phase"] == "Pending":
            say_running(self.rig, name)

    def close(self) -> None:
        self.over.set()
        self.thread.join()


class Jobs(Stage):
    """Jobs whose masters are processes here."""

    def __init__(self, rig, folder: Path) -> None:
        super().__init__(rig)
        self.folder = folder
        self.template = TEMPLATE
        self.data = folder / "train.csv"
        self.data.write_text("a,b\n" + "1,2\n" * 64)
        self.env = {**os.environ, "KUBECONFIG": str(rig.control_plane.kubeconfig)}

    def documents(self, name: str, most: int) -> dict[str, str]:
        pod = self.template.format(pool=self.rig.namespace)
        values = VALUES.format(name=name, data=self.data)
        return {"job.yaml": values, "ps.yaml": pod, "worker.yaml": pod}

    @contextmanager
    def master(self, name: str, run: int = 1):
        """Run a job's master; the next run is one of the ConfigMap that is there."""
        if run == 1:
            self.job(name)
        root = self.folder / f"{name}-{run}"
        root.mkdir()
        program = Path(__file__).parent / "master_process.py"
        with (self.folder / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                [
                    *(sys.executable, program, self.rig.link.kubeconfig),
                    *(self.rig.namespace, name, root, str(run)),
                ],
                stderr=log,
            )
            try:
                yield process
            finally:
                process.kill()
                process.wait()

    @contextmanager
    def master_pod(self, name: str, run: int):
        """Have the pod that the controller knows a run of a job by."""
        pod = yaml.safe_load(self.template.format(pool=self.rig.namespace))
        full = f"elasticdl-{name}-master-{run}"
        labels = {names.LABEL_JOB: name, names.LABEL_ROLE: str(names.Role.MASTER)}
        pod["metadata"] = {"name": full, "labels": labels}
        requests = pod["spec"]["containers"][0]["resources"]["requests"]
        requests["cpu"] = "100m"
        self.rig.admin.call("POST", f"{self.rig.path}/pods", body=pod)
        yield
        self.rig.delete_named(full)

    def workers(self, name: str) -> int:
        """Return how many workers of a job run."""
        return sum(
            pod_name.startswith(f"elasticdl-{name}-worker-")
            and "deletionTimestamp" not in pod["metadata"]
            and pod["status"]["phase"] == "Running"
            for pod_name, pod in self.rig.pods().items()
        )

    def stop(self, name: str) -> None:
        self.rig.admin.call(
            "PATCH",
            f"{self.rig.path}/configmaps/elasticdl-{name}",
            body={"metadata": {"annotations": {"elasticdl.org/stop": "by hand"}}},
            content_type=MERGE_PATCH,
        )

    def ends(self, name: str) -> set[str]:
        """Return how replicas ended, as the master says."""
        path = f"configmaps/{names.status_config_map_name(name)}"
        happened = json.loads(self.rig.get(path)["data"][names.KEY_STATUS])["happened"]
        return {one["cause"] for one in happened if one["end"]}

    def elasticdl(self, *words: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "elasticdl.cli.main", *words],
            env=self.env, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture
def stage(rig, tmp_path, priorities):
    one, kubelet = Jobs(rig, tmp_path), Kubelet(rig)
    yield one
    kubelet.close()
    one.close()


CLASSES = (
    "--priority-class=low=sizes-low:1000",
    "--priority-class=high=sizes-high:1000000",
)


def test_two_jobs_share_what_there_is_and_one_grows_when_the_other_ends(
    stage, capsys
) -> None:
    # 97 % of 12; each job has a master of 0.1 and a PS of 1 beside its workers of 1.
    stage.node("n1", "12")
    with stage.controlling(*CLASSES), stage.master("a"):
        wait_until(lambda: stage.workers("a") == 10, "its maximum")
        began = time.monotonic()
        with stage.master("b"):
            wait_until(lambda: stage.workers("b") >= 1, "the newcomer's first worker")
            first = time.monotonic() - began
            both = {4, 5}
            wait_until(
                lambda: {stage.workers("a"), stage.workers("b")} == both,
                "a fair size of both",
            )
            shared = time.monotonic() - began
            assert stage.size("a") + stage.size("b") == 9
            stage.stop("a")
            wait_until(lambda: stage.workers("b") == 10, "the room of the other one")
            assert stage.workers("a") == 0
    with capsys.disabled():
        print(f"\nfirst worker after {first:.1f} s, fair after {shared:.1f} s")


def test_people_see_a_clusters_sizes_and_why(stage, tmp_path) -> None:
    stage.node("n1", "8")
    node = f"{stage.rig.namespace}-n1"
    with stage.controlling(*CLASSES), stage.master("a"):
        wait_until(lambda: stage.workers("a") == 6, "all that fits beside the PS")
        seen = json.loads(stage.elasticdl("cluster", "--json"))
        [job] = [one for one in seen["jobs"] if one["namespace"] == stage.rig.namespace]
        assert (job["name"], job["min"], job["max"]) == ("a", 1, 10)
        assert (job["granted"], job["planned"], job["running"]) == (6, 6, 6)
        assert job["why"]
        shown = stage.elasticdl("cluster", "--nodes")
        assert node in shown
        assert " nodes take pods" in shown
        looks = stage.elasticdl("cluster", "--watch", "--times=2", "--every=0.1")
        assert looks.count("CEILING") == 2
        file = tmp_path / "use.csv"
        stage.elasticdl("cluster", "--every=0.1", f"--csv={file}", "--times=3")
        with file.open(newline="") as lines:
            rows = list(csv.DictReader(lines))
        assert len(rows) == 3
        trainers = rows[-1]["RUNNING-TRAINERS"].split("|")
        assert "a:6" in trainers
        assert int(rows[-1]["SUBMITTED-JOBS"]) >= 1  # jobs of other tests are leaving
        assert float(rows[-1]["CPU-UTILS"]) > 50
        view = tmp_path / "view.json"
        made = json.loads(stage.elasticdl("plan", "--json", f"--save={view}"))
        again = json.loads(stage.elasticdl("plan", "--json", str(view)))
        assert made["jobs"] == again["jobs"]


def grant(workers: int, *leave: int) -> str:
    return format_grant(
        Grant(workers, leave, time.time() + 1700, "other/c", "try", lasts=1800)
    )


def indexes(stage, name: str) -> set[int]:
    """Return the numbers of workers that are there, and not leaving."""
    start = f"elasticdl-{name}-worker-"
    return {
        int(one.removeprefix(start).split("-")[0])
        for one, pod in stage.rig.pods().items()
        if one.startswith(start) and "deletionTimestamp" not in pod["metadata"]
    }


def test_a_worker_that_is_lost_while_a_smaller_grant_comes_is_not_replaced(
    stage,
) -> None:
    stage.node("n1", "10")
    with stage.master("a"):
        stage.annotate("a", grant(6))
        wait_until(lambda: stage.workers("a") == 6, "the grant's size")
        before = indexes(stage, "a")
        stage.rig.delete_named(f"elasticdl-a-worker-{max(before)}")
        stage.annotate("a", grant(3, max(before)))
        wait_until(lambda: len(indexes(stage, "a")) == 3, "the smaller size")
        time.sleep(3)
        assert indexes(stage, "a") < before
        assert len(indexes(stage, "a")) == 3


def test_a_job_that_is_stopped_and_resumed_obeys_the_controller_again(stage) -> None:
    stage.node("n1", "8")
    configs = f"{stage.rig.path}/configmaps/elasticdl-a"
    with stage.controlling(*CLASSES):
        with stage.master("a") as process, stage.master_pod("a", 1):
            wait_until(lambda: stage.workers("a") == 6, "all that fits")
            stage.stop("a")
            assert process.wait(20) == 0
        wait_until(lambda: stage.size("a") == 1, "no more than a minimum for it")
        assert stage.granted("a").why == "it is stopped"
        assert not indexes(stage, "a")
        # As the release does with a higher `run`; the request to stop stays there.
        again = {"data": {names.KEY_PLATFORM: "run: 2\n"}}
        stage.rig.admin.call("PATCH", configs, body=again, content_type=MERGE_PATCH)
        with stage.master_pod("a", 2), stage.master("a", run=2):
            wait_until(lambda: stage.workers("a") == 6, "all that fits, again")
            assert stage.size("a") == 6


def test_what_is_left_of_a_grant_counts_for_the_next_run_of_a_job(stage) -> None:
    stage.node("n1", "8")
    with stage.master("a") as process:
        # It is granted 4 by who is then dead.
        stage.annotate("a", grant(4))
        wait_until(lambda: stage.workers("a") == 4, "the grant's size")
        stage.stop("a")
        assert process.wait(20) == 0
    with stage.master("a", run=2):
        wait_until(lambda: stage.workers("a") == 4, "the grant's size, again")
        stage.annotate("a", grant(2))
        wait_until(lambda: stage.workers("a") == 2, "another grant's size")


def test_workers_on_a_node_that_is_drained_leave_and_come_back_where_there_is_room(
    stage,
) -> None:
    # Who tolerates everything comes back to a cordoned node.
    stage.template = TEMPLATE.replace(
        "[{{operator: Exists}}]", "[{{key: pool, operator: Exists}}]"
    )
    stage.node("n1", "4")
    stage.node("n2", "4")
    spot = f"{stage.rig.namespace}-n2"
    kubectl = stage.rig.control_plane.kubectl

    def there() -> set[str]:
        pods = stage.rig.pods().items()
        return {name for name, pod in pods if pod["spec"].get("nodeName") == spot}

    with stage.controlling(*CLASSES), stage.master("a"):
        wait_until(lambda: stage.workers("a") == 6, "all that fits beside the PS")
        before = there()
        kubectl("drain", spot, "--force", f"--timeout={BOUND_SECONDS}s")
        wait_until(lambda: stage.size("a") == 2, "what fits on the other node")
        wait_until(lambda: len(indexes(stage, "a")) == 2, "nobody who waits")
        assert before
        assert not there()
        # None of them is counted as a failure of the job's.
        wait_until(lambda: stage.ends("a"), "what the master says of it")
        assert stage.ends("a") == {"evicted"}
        kubectl("uncordon", spot)
        wait_until(lambda: stage.workers("a") == 6, "all that fits, again")
        assert there()


class Second(Namespace):
    """The second door to the jobs of a stage's namespace."""

    def __init__(self, stage: Jobs) -> None:
        super().__init__(stage.rig.control_plane, stage.rig.namespace, stage.folder)
        self.install()


def test_a_trainingjob_is_sized_by_the_controller_and_shows_it(
    stage, priority_classes
) -> None:
    stage.node("n1", "8")
    ml = Second(stage)
    resources = {"cpu": 1, "memory": "64Mi"}
    job = {
        "data": {"training": str(stage.data)},
        "training": {"epochs": 1000},
        "master": {"resources": {"cpu": 0.1, "memory": "64Mi"}},
        "ps": {"replicas": 1, "priority": "elasticdl-high", "resources": resources},
        "worker": {
            **{"replicas": 2, "min": 1, "max": 10, "graceSeconds": 2},
            **{"priority": "elasticdl-low", "resources": resources},
        },
    }
    where = {"nodeSelector": {"pool": ml.name}, "tolerations": [{"operator": "Exists"}]}
    pods = {"common": where}
    classes = (
        "--priority-class=low=elasticdl-low:-10",
        "--priority-class=high=elasticdl-high:-5",
    )

    def sizes() -> tuple[int, int]:
        shown = ml.status("led")["workers"]
        return shown["wanted"], shown["granted"]

    with ml.controller(), stage.controlling(*classes):
        ml.apply("led", job=job, pods=pods)
        ml.until_accepted("led")
        with master_of(ml, "led", stage.folder / "led"):
            wait_until(lambda: stage.workers("led") == 6, "all that fits")
            wait_until(lambda: sizes() == (2, 6), "what is granted is shown")
            text = stage.text("led")
            # The size that nobody goes by now is another one; the grant stays.
            ml.kubectl("scale", "trainingjob/led", "--replicas=4")
            wait_until(lambda: sizes() == (4, 6), "the other wish")
            assert stage.text("led") == text
            assert ml.specification("led")["worker"]["replicas"] == 4
            job["worker"]["max"] = 5
            ml.apply("led", job=job, pods=pods)
            wait_until(lambda: stage.workers("led") == 5, "the new maximum")
            wait_until(lambda: sizes()[1] == 5, "what is granted is shown")
        # Its master is away.
        ml.kubectl("delete", "trainingjob", "led")
        wait_until(lambda: not ml.of_job("led"), "all goes that was made of it")
