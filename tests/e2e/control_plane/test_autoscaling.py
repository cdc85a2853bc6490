"""Kubernetes' own HorizontalPodAutoscaler sizes a TrainingJob, whose pods never run."""

import json
from pathlib import Path

import pytest

from tests.e2e.control_plane.external_metrics import served
from tests.e2e.control_plane.test_training_jobs import (
    Namespace,
    example,
    manifest,
    until,
)


@pytest.fixture(scope="module")
def ml(control_plane, priority_classes, tmp_path_factory):
    control_plane.kubectl("create", "namespace", "autoscaled")
    one = Namespace(control_plane, "autoscaled", tmp_path_factory.mktemp("autoscaled"))
    one.install()
    with one.controller():
        yield one
    control_plane.kubectl("delete", "namespace", "autoscaled", "--wait=false")


@pytest.mark.soak
def test_an_autoscaler_sizes_a_job_by_an_external_metric(
    ml: Namespace, control_plane, tmp_path: Path
) -> None:
    queue = tmp_path / "queue"
    queue.write_text("50")
    ml.kubectl("apply", "-f-", text=json.dumps(manifest("digits")))
    ml.until_accepted("digits")
    wanted = example("HorizontalPodAutoscaler")
    # Kubernetes waits five minutes before it takes anything away.
    calm = {"scaleDown": {"stabilizationWindowSeconds": 0}}
    wanted["spec"]["behavior"] = calm

    def size() -> int:
        return int(ml.specification("digits")["worker"]["replicas"])

    with served(control_plane, queue):
        ml.kubectl("apply", "-f-", text=json.dumps(wanted))
        until("a worker for each ten", lambda: size() == 5)
        queue.write_text("1000")
        until("no more than worker.max", lambda: size() == 6)
        queue.write_text("15")
        until("fewer", lambda: size() == 2)
    assert ml.conditions("digits")["Accepted"]["status"] == "True"
