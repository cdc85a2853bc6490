"""TrainingJobs on a real API server: what kubectl does to a job, by their controller.

The controller is a process with the account and the rights of the chart. No pod runs:
where a master is needed it is a process too, and the rest of it is pending.
"""

import json
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

import helm_python
import pytest
import yaml
from elasticdl.cli.files.convert import converted
from elasticdl.job.values.file import parse_values

from tests.chart.rendering import objects, render
from tests.e2e.control_plane.conftest import free_port

ROOT = Path(__file__).parents[3]
CHART = ROOT / "charts" / "elasticdl"
BOUND_SECONDS = 120.0  # the machine may be busy
PLATFORM = {
    "kind": "platform",
    "images": {"registry": "registry.example/team"},
    "priorityClasses": {"create": False},
    "controller": {"trainingJobs": {"enabled": True}},
}
# All that a job's release may make, and what the master makes of it.
KINDS = (
    "trainingjobs,configmaps,secrets,services,jobs,pods,poddisruptionbudgets,"
    "networkpolicies,deployments"
)
Json = dict[str, Any]
T = TypeVar("T")
_numbers = count(1)


def until(what: str, probe: Callable[[], T]) -> T:
    end = time.monotonic() + BOUND_SECONDS
    while not (found := probe()):
        assert time.monotonic() < end, f"{what} did not come about"
        time.sleep(0.1)
    return found


def is_ready(port: int) -> bool:
    try:
        url = f"http://127.0.0.1:{port}/readyz"
        with urllib.request.urlopen(url, timeout=10) as answer:
            return bool(answer.status == 200)
    except OSError:  # also of a server that is not ready
        return False


def example(kind: str) -> Json:
    """The object of this kind that docs/trainingjob.md shows."""
    page = (ROOT / "docs" / "trainingjob.md").read_text()
    blocks = [part.partition("```")[0] for part in page.split("```yaml\n")]
    (text,) = [one for one in blocks if f"kind: {kind}" in one]
    made: Json = yaml.safe_load(text)
    return made


class Namespace:
    """A namespace with a platform that has TrainingJobs, and a user's kubectl."""

    def __init__(self, control_plane: Any, name: str, folder: Path) -> None:
        self.control_plane, self.name, self.folder = control_plane, name, folder
        self.program = str(control_plane.state / "bin" / "kubectl")

    def kubectl(self, *words: str, text: str | None = None) -> str:
        return str(self.control_plane.kubectl("-n", self.name, *words, text=text))

    def refused(self, *words: str, text: str) -> str:
        """Return why kubectl did not do it."""
        done = subprocess.run(
            [self.program, f"--kubeconfig={self.control_plane.kubeconfig}",
             "-n", self.name, *words],
            input=text, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode, done.stdout
        return done.stderr

    def get(self, *words: str) -> Json:
        made: Json = json.loads(self.kubectl("get", *words, "-ojson"))
        return made

    def install(self) -> None:
        for name, text in render(PLATFORM, namespace=self.name).items():
            if name.endswith(".txt"):
                continue
            found = [one for one in yaml.safe_load_all(text) if one]
            kept = [one for one in found if one["kind"] != "Deployment"]
            body = {"apiVersion": "v1", "kind": "List", "items": kept}
            self.kubectl("apply", "--server-side", "-f-", text=json.dumps(body))
        definition = ("get", "crd", "trainingjobs.elasticdl.org", "-oyaml")
        until("established", lambda: "type: Established" in self.kubectl(*definition))

    def kubeconfig(self) -> str:
        """Return the kubeconfig of the controller's account."""
        token = self.kubectl("create", "token", "elasticdl-training-jobs").strip()
        config = json.loads(
            self.control_plane.kubectl("config", "view", "--raw", "-ojson")
        )
        for user in config["users"]:
            user["user"] = {"token": token}
        path = self.folder / f"{self.name}.controller"
        path.write_text(json.dumps(config))
        return str(path)

    @contextmanager
    def controller(self) -> Iterator[None]:
        command = [sys.executable, "-m", "elasticdl.training_jobs.main"]
        command += [f"--namespace={self.name}", f"--kubeconfig={self.kubeconfig()}"]
        # Helm as a library, as in the image.
        env = {**os.environ, "PATH": str(Path(sys.executable).parent)}
        port = free_port()
        process = subprocess.Popen([*command, f"--port={port}"], env=env)
        try:
            until("ready", lambda: is_ready(port))
            yield
        finally:
            process.terminate()
            assert process.wait(20) == 0

    def elasticdl(self, *words: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "elasticdl.cli.main", *words, "-n", self.name],
            env={**os.environ, "KUBECONFIG": str(self.control_plane.kubeconfig),
                 "ELASTICDL_JOBS_DIR": str(self.folder / "jobs")},
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    # -- TrainingJobs ---------------------------------------------------------------

    def apply(self, name: str, **spec: Any) -> None:
        self.kubectl("apply", "-f-", text=json.dumps(manifest(name, **spec)))

    def status(self, name: str) -> Json:
        return dict(self.get("trainingjob", name).get("status") or {})

    def conditions(self, name: str) -> dict[str, Json]:
        """Return the conditions of the present generation, by type."""
        item = self.get("trainingjob", name)
        status = item.get("status") or {}
        if status.get("observedGeneration") != item["metadata"]["generation"]:
            return {}
        return {one["type"]: one for one in status["conditions"]}

    def until_accepted(self, name: str, status: str = "True") -> Json:
        def accepted() -> Json | None:
            found = self.conditions(name).get("Accepted", {})
            return found if found.get("status") == status else None

        return until(f"{name}: Accepted {status}", accepted)

    def of_job(self, name: str) -> dict[tuple[str, str], Json]:
        items = self.get(KINDS, "-l", f"elasticdl-job-name={name}")["items"]
        return {(one["kind"], one["metadata"]["name"]): one for one in items}

    def names(self) -> set[str]:
        return set(self.kubectl("get", KINDS, "-oname").split())

    def specification(self, name: str) -> Json:
        data = self.get("configmap", f"elasticdl-{name}")["data"]
        tree: Json = yaml.safe_load(data["job.yaml"])["job"]
        return tree


def manifest(name: str, **spec: Any) -> Json:
    job = {
        "model": {"definition": "digits.cnn.custom_model"},
        "data": {"training": "d"},
        "worker": {"replicas": 2, "max": 6},
        **spec.pop("job", {}),
    }
    return {
        "apiVersion": "elasticdl.org/v1alpha1",
        "kind": "TrainingJob",
        "metadata": {"name": name},
        "spec": {"job": job, **spec},
    }


@pytest.fixture(scope="module")
def stopped(control_plane, priority_classes, tmp_path_factory):
    """A namespace whose controller does not run."""
    name = f"tj{next(_numbers)}"
    control_plane.kubectl("create", "namespace", name)
    one = Namespace(control_plane, name, tmp_path_factory.mktemp("tj"))
    one.install()
    yield one
    control_plane.kubectl("delete", "namespace", name, "--wait=false")


@pytest.fixture(scope="module")
def ml(stopped):
    with stopped.controller():
        yield stopped


def test_a_trainingjob_becomes_the_objects_that_the_chart_makes(ml):
    text = (ROOT / "values" / "digits.yaml").read_text()
    ml.kubectl("apply", "-f-", text=converted(text, source="digits.yaml"))
    ml.kubectl(
        "wait", "--for=condition=Applied", "trainingjob/digits", "--timeout=120s"
    )
    values = yaml.safe_load(text) | {"images": PLATFORM["images"]}
    rendered = objects(values, release="digits", namespace=ml.name)
    made = ml.of_job("digits")
    assert set(rendered) <= set(made)
    assert {key for key in made if key[0] != "Pod"} == set(rendered)
    for key, one in rendered.items():
        (owner,) = made[key]["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["name"]) == ("TrainingJob", "digits")
        if key[0] not in ("Secret", "ConfigMap", "Job"):
            assert contains(made[key]["spec"], one["spec"]), key
    # A digest of the whole pod, before an API server has put its defaults in.
    mark, job = "elasticdl.org/master-template", ("Job", "elasticdl-digits-master")
    assert (
        made[job]["metadata"]["annotations"][mark]
        == (rendered[job]["metadata"]["annotations"][mark])
    )
    data, wanted = made["ConfigMap", "elasticdl-digits"]["data"], rendered
    wanted = wanted["ConfigMap", "elasticdl-digits"]["data"]
    for part in ("ps.yaml", "worker.yaml"):
        assert yaml.safe_load(data[part]) == yaml.safe_load(wanted[part])
    # Without what holds its default, and with the namespace that it was applied in.
    ours, theirs = (
        parse_values(one["job.yaml"], source="job.yaml")[0] for one in (data, wanted)
    )
    assert ours is not None
    assert theirs is not None
    assert ours.job == theirs.job.model_copy(update={"namespace": ml.name})


def contains(whole: Any, part: Any) -> bool:
    """Whether what was asked for is in what an API server keeps, beside defaults."""
    if isinstance(part, dict):
        return all(contains(whole.get(k), v) for k, v in part.items() if v is not None)
    if isinstance(part, list):
        return len(whole) == len(part) and all(map(contains, whole, part))
    return bool(whole == part) or str(whole) == str(part)


def test_kubectl_shows_and_explains_it(ml):
    ml.apply("shown")
    ml.until_accepted("shown")
    head, line = ml.kubectl("get", "tj", "shown").splitlines()
    assert head.split() == [
        "NAME", "STATE", "WANTED", "GRANTED", "RUNNING", "LOSS", "AGE",
    ]  # fmt: skip
    assert line.split()[:5] == ["shown", "waiting", "2", "2", "0"]
    said = ml.kubectl("explain", "trainingjob.spec.job.worker.replicas")
    assert "Workers wanted. Default: `1`." in said
    assert "tolerations" in ml.kubectl("explain", "trainingjob.spec.pods.worker")
    assert "granted" in ml.kubectl("explain", "trainingjob.status.workers")
    ml.kubectl("delete", "trainingjob", "shown")


def test_every_job_of_the_repository_is_taken(ml):
    for file in sorted((ROOT / "values").glob("*.yaml")):
        text = converted(file.read_text(), source=file.name)
        ml.kubectl("apply", "--dry-run=server", "-f-", text=text)


def test_its_size_changes_by_kubectl_scale_and_by_elasticdl(ml):
    ml.apply("sized")
    ml.until_accepted("sized")
    ml.kubectl("scale", "trainingjob/sized", "--replicas=5")
    until("5 workers", lambda: ml.specification("sized")["worker"]["replicas"] == 5)
    assert "5 -> 3" in ml.elasticdl("scale", "sized", "--workers", "3")
    until("3 workers", lambda: ml.specification("sized")["worker"]["replicas"] == 3)
    spec = ml.get("trainingjob", "sized")["spec"]
    assert spec["job"]["worker"]["replicas"] == 3
    # As autoscalers read it.
    path = f"/apis/elasticdl.org/v1alpha1/namespaces/{ml.name}/trainingjobs/sized"
    scale = json.loads(ml.kubectl("get", "--raw", f"{path}/scale"))
    assert scale["spec"] == {"replicas": 3}
    assert scale["status"]["selector"] == (
        "elasticdl-job-name=sized,elasticdl-replica-type=worker"
    )
    ml.kubectl("scale", "trainingjob/sized", "--replicas=7")
    said = ml.until_accepted("sized", "False")
    assert said["message"] == (
        "job.worker.replicas: got 7, expected at most worker.max, 6; raise worker.max "
        "or lower worker.replicas"
    )
    assert ml.specification("sized")["worker"]["replicas"] == 3
    ml.kubectl("delete", "trainingjob", "sized")


def test_what_is_written_into_its_configmap_is_taken_back(ml):
    ml.apply("kept")
    ml.until_accepted("kept")
    text = yaml.safe_dump(
        {"kind": "job", "job": {"name": "kept", **manifest("kept")["spec"]["job"],
                                "worker": {"replicas": 1}}}
    )  # fmt: skip
    patch = json.dumps({"data": {"job.yaml": text}})
    ml.kubectl("patch", "configmap", "elasticdl-kept", "--type=merge", f"-p={patch}")
    until("2 again", lambda: ml.specification("kept")["worker"]["replicas"] == 2)
    ml.kubectl("delete", "trainingjob", "kept")


def test_what_a_job_keeps_is_refused_until_it_runs_again(ml):
    ml.apply("edited")
    ml.until_accepted("edited")
    before = ml.of_job("edited")
    ml.apply("edited", job={"env": {"A": "b"}})
    said = ml.until_accepted("edited", "False")
    assert said["reason"] == "Immutable"
    assert "this changes the pod of the master of job `edited`" in said["message"]
    assert "raise `run` to 2 with it" in said["message"]
    key = ("Job", "elasticdl-edited-master")
    assert ml.of_job("edited")[key]["metadata"]["uid"] == before[key]["metadata"]["uid"]
    stop = "elasticdl.org/stop"
    ml.kubectl("annotate", "configmap", "elasticdl-edited", f"{stop}=enough")
    ml.apply("edited", job={"env": {"A": "b"}}, run=2)
    ml.until_accepted("edited")
    assert not ml.get("configmap", "elasticdl-edited")["metadata"]["annotations"][stop]
    until("one Job", lambda: [k for k in ml.of_job("edited") if k[0] == "Job"] == [
        ("Job", "elasticdl-edited-master-2")
    ])  # fmt: skip
    # What is asked of this run stays.
    more = ("annotate", "--overwrite", "configmap", "elasticdl-edited", f"{stop}=more")
    ml.kubectl(*more)
    ml.apply("edited", job={"env": {"A": "b"}, "training": {"epochs": 3}}, run=2)
    until("3", lambda: ml.specification("edited").get("training") == {"epochs": 3})
    about = ml.get("configmap", "elasticdl-edited")["metadata"]
    assert about["annotations"][stop] == "more"
    token = ("Secret", "elasticdl-edited-token")
    assert ml.of_job("edited")[token]["data"] == before[token]["data"]
    ml.kubectl("delete", "trainingjob", "edited")


def test_a_wrong_one_says_so_and_makes_nothing(ml):
    wrong = manifest("wrong", job={"trainings": {"epochs": 2}})
    said = ml.refused("apply", "-f-", text=json.dumps(wrong))
    assert 'unknown field "spec.job.trainings"' in said
    named = manifest("wrong", job={"name": "other"})
    said = ml.refused("apply", "-f-", text=json.dumps(named))
    assert "spec.job.name: expected metadata.name" in said
    ml.apply("wrong", job={"strategy": "local", "worker": {"replicas": 2}})
    said = ml.until_accepted("wrong", "False")
    assert said["reason"] == "Invalid"
    assert "job.worker.replicas: got 2, expected 1" in said["message"]
    assert ml.kubectl("get", "tj", "wrong").splitlines()[1].split()[1] == "refused"
    assert ml.of_job("wrong") == {}
    ml.apply("wrong", job={"strategy": "local", "worker": {"replicas": 1}})
    ml.until_accepted("wrong")
    assert ("Job", "elasticdl-wrong-master") in ml.of_job("wrong")
    ml.kubectl("delete", "trainingjob", "wrong")


def test_what_its_pods_name_has_to_be_there(ml):
    ml.apply("claimed", state={"claimName": "none-such"})
    said = ml.until_accepted("claimed", "False")
    assert said["reason"] == "Missing"
    assert "no volume claim 'none-such'" in said["message"]
    assert "there are: fileserver-claim" in said["message"]
    ml.kubectl("delete", "trainingjob", "claimed")


def test_the_name_of_a_helm_release_is_taken_until_that_is_gone(ml):
    values = {"kind": "job", "images": PLATFORM["images"]}
    job = {"name": "both", **manifest("both")["spec"]["job"]}
    with helm_python.Config(
        kubeconfig_path=ml.control_plane.kubeconfig, namespace=ml.name
    ) as config:
        config.install(CHART, "both", {**values, "job": job}, namespace=ml.name)
        ml.apply("both")
        said = ml.until_accepted("both", "False")
        assert said["reason"] == "NameTaken"
        release = f"release `both` in namespace `{ml.name}`"
        assert f"has a job `both` already, from {release}" in said["message"]
        theirs = ml.get("configmap", "elasticdl-both")["metadata"]
        assert "ownerReferences" not in theirs
        config.uninstall("both")
    ml.until_accepted("both")
    ours = ml.get("configmap", "elasticdl-both")["metadata"]
    assert ours["ownerReferences"][0]["kind"] == "TrainingJob"
    ml.kubectl("delete", "trainingjob", "both")


def test_deleting_it_takes_everything_along_and_the_name_is_free_again(ml):
    until("nothing of others", lambda: not any("/gone" in one for one in ml.names()))
    before = ml.names()
    ml.apply("gone")
    ml.until_accepted("gone")
    token = ml.of_job("gone")["Secret", "elasticdl-gone-token"]["data"]
    pod = ("--for=create", "pod", "-lelasticdl-job-name=gone", "--timeout=120s")
    ml.kubectl("wait", *pod)
    ml.kubectl("delete", "trainingjob", "gone")
    ml.apply("gone")  # at once, while the first one's objects are still there
    ml.until_accepted("gone")
    until("another token", lambda: token != ml.of_job("gone").get(
        ("Secret", "elasticdl-gone-token"), {"data": token})["data"])  # fmt: skip
    assert "TrainingJob gone removed" in ml.elasticdl("stop", "gone", "--remove")
    until("nothing left", lambda: ml.names() <= before)


@contextmanager
def master_of(ml: Namespace, name: str, folder: Path) -> Iterator[None]:
    """Run a master as a process on what was made of a TrainingJob."""
    folder.mkdir()
    program = Path(__file__).with_name("master_process.py")
    config = str(ml.control_plane.kubeconfig)
    process = subprocess.Popen(
        [sys.executable, program, config, ml.name, name, str(folder)]
    )
    try:
        yield
    finally:
        process.kill()
        process.wait()


def test_a_real_master_obeys_and_is_shown(ml, tmp_path):
    data = tmp_path / "train.csv"
    data.write_text("a,b\n" + "1,2\n" * 64)
    job: Json = {
        "data": {"training": str(data)},
        "ps": {"replicas": 1, "priority": "elasticdl-high"},
        "worker": {"replicas": 2, "max": 6, "priority": "elasticdl-low"},
    }
    ml.apply("led", job=job)
    ml.until_accepted("led")
    with master_of(ml, "led", tmp_path / "job"):

        def workers() -> int:
            return sum("-worker-" in name for kind, name in ml.of_job("led"))

        until("two workers", lambda: workers() == 2)
        until("shown", lambda: ml.status("led")["replicas"] == 2)
        assert ml.status("led")["state"] != "waiting"
        ml.kubectl("scale", "trainingjob/led", "--replicas=4")
        until("four workers", lambda: workers() == 4)
        until("granted", lambda: ml.status("led")["workers"]["granted"] == 4)
        job["ps"]["replicas"], job["worker"]["replicas"] = 2, 4
        ml.apply("led", job=job)
        said = ml.until_accepted("led", "False")
        assert (
            "job.ps.replicas: got 2, expected 1: it may not change while the job"
            in (said["message"])
        )
        ml.kubectl("delete", "trainingjob", "led")
        until("no pod", lambda: workers() == 0)


def test_a_controller_that_comes_back_repeats_nothing(stopped, ml):
    ml.apply("twice")
    ml.until_accepted("twice")
    version = "{.metadata.resourceVersion}"
    where = ("get", "configmap", "elasticdl-twice", f"-ojsonpath={version}")
    before = ml.kubectl(*where)
    with stopped.controller():  # beside the first one, which does no harm either
        ml.kubectl("scale", "trainingjob/twice", "--replicas=3")
        until("3 workers", lambda: ml.specification("twice")["worker"]["replicas"] == 3)
    assert ml.kubectl(*where) != before
    between = ml.kubectl(*where)
    with stopped.controller():
        ml.apply("marker")
        ml.until_accepted("marker")
    assert ml.kubectl(*where) == between
    ml.kubectl("delete", "trainingjob", "twice", "marker")
