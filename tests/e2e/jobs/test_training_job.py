"""A TrainingJob that really trains, by its controller in a pod of its own image.

Sizes are decided by the other controller, in a pod too, until the job is taken out of
its hands. What needs no pods is tried in tests/e2e/control_plane.
"""

import json
from collections.abc import Iterator

import pytest
import yaml
from elasticdl.cli.files.convert import converted

from tests.e2e.jobs.conftest import ClusterUnderTest
from tests.e2e.jobs.job import JobInCluster
from tests.e2e.kube import Kube, wait_until
from tests.e2e.own_cluster import ROOT
from tests.e2e.releases import Helm, merged, values_file

DEFINITION = "trainingjobs.elasticdl.org"
MOST = 3  # workers
PLATFORM = {
    "priorityClasses": {"create": False},
    "controller": {"enabled": True, "replicas": 1, "trainingJobs": {"enabled": True}},
}
# All that is made of a job.
KINDS = (
    "configmaps,secrets,services,jobs.batch,pods,poddisruptionbudgets,networkpolicies"
)


@pytest.fixture
def controllers(kube: Kube, helm: Helm, platform: ClusterUnderTest) -> Iterator[None]:
    """The controllers of sizes and of TrainingJobs, as pods of the test's platform."""
    tag = platform.images.tag
    if platform.own is not None:
        platform.own.push_images_of(ROOT, tag, ("training-jobs",))
    # One for the whole cluster, which a release leaves behind: that of somebody else
    # stays, with all TrainingJobs.
    ours = platform.own is not None or not kube.get("crd", DEFINITION)
    if ours:
        kube.delete("crd", DEFINITION, wait=True)
    definition = {"controller": {"trainingJobs": {"definition": {"create": ours}}}}
    images = {"images": platform.images.values}
    of_jobs = {"jobs": {"defaults": images}}
    helm.upgrade("elasticdl", merged(PLATFORM, {**images, **of_jobs, **definition}))
    for name in ("controller", "training-jobs"):
        there = f"deployment/elasticdl-{name}"
        kube.run("rollout", "status", there, "--timeout=120s", seconds=130)
    yield
    if ours:
        kube.delete("crd", DEFINITION)


@pytest.mark.soak
def test_a_trainingjob_trains_to_its_end_and_takes_all_its_objects_along(
    kube, helm, controllers
):
    small = {"cpu": 0.2, "memory": "1Gi"}
    changes = {
        "training": {"epochs": 10_000},
        "master": {"resources": small},
        "ps": {"replicas": 1, "resources": small},
        "worker": {
            **{"replicas": 1, "min": 1, "max": MOST},
            "resources": {"cpu": 2, "memory": "1Gi"},
        },
    }
    values = merged(values_file("digits.yaml"), {"job": changes})
    manifest = converted(yaml.safe_dump(values), source="digits.yaml")
    kube.run("apply", "--filename=-", stdin=manifest)
    digits = JobInCluster(kube, helm, values)

    # The controller of sizes gives it all that it may have.
    digits.wait_running("worker", MOST)
    digits.wait_steps(20)
    shown = until_shown(kube, ["running", "1", str(MOST), str(MOST)])
    assert float(shown[-2]) > 0  # the loss, before the age

    # Out of its hands the size is what kubectl says.
    edit(kube, worker={"elastic": False})
    kube.run("scale", "trainingjob/digits", "--replicas=2")
    digits.wait_running("worker", 2)
    until_shown(kube, ["running", "2", "2", "2"])
    digits.wait_steps(20)

    status = digits.status()
    assert status is not None
    edit(kube, training={"epochs": status.progress.epoch + 2})
    end = ("--for=condition=Complete", "trainingjob/digits", "--timeout=300s")
    kube.run("wait", *end, seconds=310)
    assert digits.wait_succeeded().metrics["accuracy"] > 0.95
    until_shown(kube, ["succeeded", "2", "0", "0"])
    assert conditions(kube) == {
        **{"Accepted": "True", "Applied": "True"},
        **{"Complete": "True", "Failed": "False"},
    }

    made = {one["kind"] for one in kube.list(KINDS, "elasticdl-job-name=digits")}
    assert {"ConfigMap", "Secret", "Service", "Job", "Pod"} <= made
    kube.run("delete", "trainingjob", "digits")
    wait_until(
        "nothing of it is left",
        lambda: not kube.list(KINDS, "elasticdl-job-name=digits"),
        seconds=60,
    )


def edit(kube: Kube, **job: object) -> None:
    patch = json.dumps({"spec": {"job": job}})
    kube.run("patch", "trainingjob", "digits", "--type=merge", f"--patch={patch}")


def until_shown(kube: Kube, columns: list[str]) -> list[str]:
    """Wait for state, wanted, granted and running; return the whole line."""

    def look() -> list[str]:
        head, line = kube.run("get", "trainingjobs").splitlines()
        assert head.split()[1:5] == ["STATE", "WANTED", "GRANTED", "RUNNING"]
        cells = line.split()
        return cells if cells[1:5] == columns else []

    return wait_until(f"kubectl shows {columns}", look, seconds=60)


def conditions(kube: Kube) -> dict[str, str]:
    item = kube.get("trainingjob", "digits")
    assert item is not None
    return {one["type"]: one["status"] for one in item["status"]["conditions"]}
