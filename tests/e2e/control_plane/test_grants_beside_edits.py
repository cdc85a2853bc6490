"""Grants beside what users do: losses, pauses, upgrades, TrainingJobs; real masters."""

import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
from elasticdl.job.grant import Grant, format_grant

from tests.e2e.control_plane.test_cluster_of_jobs import (
    Jobs,
    Kubelet,
)
from tests.e2e.control_plane.test_exporter import wait_until
from tests.e2e.control_plane.test_training_jobs import Namespace


@pytest.fixture
def stage(rig, tmp_path, priorities):
    one, kubelet = Jobs(rig, tmp_path), Kubelet(rig)
    yield one
    kubelet.close()
    one.close()


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


class Second(Namespace):
    """The second door to the jobs of a stage's namespace."""

    def __init__(self, stage: Jobs) -> None:
        super().__init__(stage.rig.control_plane, stage.rig.namespace, stage.folder)
        self.install()

    @contextmanager
    def master(self, name: str, root: Path):
        root.mkdir()
        program = Path(__file__).parent / "master_process.py"
        config = str(self.control_plane.kubeconfig)
        process = subprocess.Popen(
            [sys.executable, program, config, self.name, name, str(root)]
        )
        try:
            yield
        finally:
            process.kill()
            process.wait()


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
        with ml.master("led", stage.folder / "led"):
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
