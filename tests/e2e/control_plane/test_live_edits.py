"""Live edits and upgrades of one job on a real API server: neither blocks the other."""

import json
from itertools import count
from pathlib import Path
from typing import Any

import helm_python
import pytest
from elasticdl.client import Scaling
from elasticdl.client.cluster import ClusterJob, Where, connect
from helm_python import HelmError
from kubernetes.config import kube_config

ROOT = Path(__file__).parents[3]
CHART = ROOT / "charts" / "elasticdl"
VALUES = (ROOT / "values" / "digits.yaml").read_text()
_numbers = count(1)


class Release:
    """A release of the job `digits`, and the ConfigMap that it keeps."""

    def __init__(self, control_plane: Any, namespace: str) -> None:
        self.control_plane, self.namespace = control_plane, namespace
        self.job = ClusterJob(connect(Where(namespace=namespace)), "digits")

    def install(self) -> None:
        platform = {
            "kind": "platform",
            "images": {"registry": "registry.example"},
            "priorityClasses": {"create": False},
        }
        with self._helm() as helm:
            for name, values in (("elasticdl", platform), ("digits", self._values(3))):
                helm.install(CHART, name, values, namespace=self.namespace)

    def upgrade(self, workers: int) -> None:
        with self._helm() as helm:
            helm.upgrade(
                CHART, "digits", self._values(workers), namespace=self.namespace
            )

    def scale(self, workers: int) -> int:
        """Return the number that was wanted before."""
        return self.job.scale(Scaling(workers=workers)).before.worker.replicas

    def edit(self, workers: int) -> None:
        """Do what `kubectl edit` does."""
        text = self.config_map()["data"]["job.yaml"]
        now = f"replicas: {self.workers()}\n"
        head, _, tail = text.rpartition(now)  # the workers' stands last
        self._patch({"data": {"job.yaml": f"{head}replicas: {workers}\n{tail}"}})

    def annotate(self, name: str, value: str) -> None:
        self._patch({"metadata": {"annotations": {name: value}}})

    def config_map(self) -> Any:
        what = ("configmap", "elasticdl-digits", "-ojson", "--show-managed-fields")
        return json.loads(self._kubectl("get", *what))

    def workers(self) -> int:
        return self.job.spec().worker.replicas

    def managers(self) -> list[str]:
        """Return who has the specification."""
        return [
            entry["manager"]
            for entry in self.config_map()["metadata"]["managedFields"]
            if "f:job.yaml" in entry["fieldsV1"].get("f:data", {})
        ]

    def _patch(self, change: Any) -> None:
        self._kubectl(
            "patch", "configmap", "elasticdl-digits", "--type=merge",
            "--field-manager=kubectl-edit", "-p", json.dumps(change),
        )  # fmt: skip

    def _values(self, workers: int) -> Any:
        values = helm_python.values_from_yaml(VALUES)
        values["job"]["worker"]["replicas"] = workers
        values["job"]["worker"]["max"] = 9
        return values

    def _kubectl(self, *words: str) -> str:
        return str(self.control_plane.kubectl("-n", self.namespace, *words))

    def _helm(self) -> Any:
        config = self.control_plane.kubeconfig
        return helm_python.Config(kubeconfig_path=config, namespace=self.namespace)


@pytest.fixture
def release(control_plane, monkeypatch):
    namespace = f"edits{next(_numbers)}"
    control_plane.kubectl("create", "namespace", namespace)
    config = str(control_plane.kubeconfig)
    monkeypatch.setattr(kube_config, "KUBE_CONFIG_DEFAULT_LOCATION", config)
    one = Release(control_plane, namespace)
    one.install()
    yield one
    control_plane.kubectl("delete", "namespace", namespace, "--wait=false")


def test_an_upgrade_after_scale_sets_what_the_values_file_says(release):
    (helm,) = release.managers()
    assert release.scale(5) == 3
    assert release.workers() == 5
    assert release.managers() == [helm]
    release.upgrade(4)
    assert release.workers() == 4
    assert release.scale(2) == 4
    release.upgrade(4)
    assert release.workers() == 4, "also where the file says what it said before"


def test_an_upgrade_after_a_pause_sets_what_the_values_file_says(release):
    owners = release.managers()
    release.job.scale(Scaling(workers=5, max_workers=7, paused=True))
    spec = release.job.spec()
    assert (spec.worker.replicas, spec.worker.max, spec.paused) == (5, 7, True)
    assert release.managers() == owners
    release.upgrade(4)
    spec = release.job.spec()
    assert (spec.worker.replicas, spec.worker.max, spec.paused) == (4, 9, False)


def test_an_edit_stops_the_next_upgrade_and_scale_opens_it_again(release):
    owners = release.managers()
    release.edit(6)
    with pytest.raises(HelmError, match=r'conflict with "kubectl-edit".*job\.yaml'):
        release.upgrade(4)
    assert release.workers() == 6, "what somebody edited is not undone in silence"
    assert release.scale(5) == 6
    assert release.managers() == owners
    release.upgrade(4)
    assert release.workers() == 4


def test_an_edit_that_the_file_makes_too_is_no_conflict(release):
    release.edit(6)
    release.upgrade(6)
    assert release.workers() == 6


def test_scale_keeps_all_else_of_the_config_map(release):
    release.annotate("elasticdl.org/note", "mine")
    before = release.config_map()
    release.scale(5)
    after = release.config_map()
    for part in ("labels", "annotations", "uid"):
        assert after["metadata"][part] == before["metadata"][part]
    assert {**after["data"], "job.yaml": ""} == {**before["data"], "job.yaml": ""}
    changed = set(after["data"]["job.yaml"].splitlines())
    assert changed - set(before["data"]["job.yaml"].splitlines()) == {"    replicas: 5"}
