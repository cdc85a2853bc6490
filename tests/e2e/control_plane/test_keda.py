"""KEDA itself sizes a TrainingJob, whose pods never run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.control_plane.operators.keda import Keda
from tests.e2e.control_plane.test_training_jobs import (
    Namespace,
    example,
    manifest,
    until,
)

PORT = 8099
pytestmark = pytest.mark.skipif(
    not os.environ.get("E2E_KEDA"),
    reason="takes long to build: tests/soak/part-keda runs it",
)


@pytest.fixture(scope="module")
def keda(control_plane: Any) -> Iterator[Keda]:
    one = Keda(control_plane)
    one.install()
    try:
        one.start()
        yield one
    finally:
        one.stop()


@pytest.fixture(scope="module")
def ml(control_plane: Any, priority_classes: Any, tmp_path_factory: Any) -> Any:
    control_plane.kubectl("create", "namespace", "fed")
    one = Namespace(control_plane, "fed", tmp_path_factory.mktemp("fed"))
    one.install()
    with one.controller():
        yield one
    control_plane.kubectl("delete", "namespace", "fed", "--wait=false")


@contextmanager
def served(control_plane: Any, folder: Path) -> Iterator[None]:
    """Serve a folder's files where KEDA's operator runs."""
    node = (control_plane.state / "run" / "init.pid").read_text().split()[0]
    process = subprocess.Popen(
        [
            *("nsenter", "--target", node, "--net", "--", sys.executable, "-m"),
            *("http.server", str(PORT), "--bind=127.0.0.1", f"--directory={folder}"),
        ],
        stderr=subprocess.DEVNULL,
    )
    try:
        yield
    finally:
        process.kill()
        process.wait()


def test_keda_sizes_a_job_by_what_an_address_says(
    ml: Namespace, keda: Keda, control_plane: Any, tmp_path: Path
) -> None:
    queue = tmp_path / "queue.json"

    def waiting(number: int) -> None:
        queue.write_text(json.dumps({"waiting": number}))

    def size() -> int:
        return int(ml.specification("digits")["worker"]["replicas"])

    wanted = example("ScaledObject")
    [trigger] = wanted["spec"]["triggers"]
    trigger["metadata"]["url"] = f"http://127.0.0.1:{PORT}/{queue.name}"
    # KEDA looks, and Kubernetes waits before it takes away, for minutes.
    wanted["spec"]["pollingInterval"] = 2
    calm = {"behavior": {"scaleDown": {"stabilizationWindowSeconds": 0}}}
    wanted["spec"]["advanced"] = {"horizontalPodAutoscalerConfig": calm}

    waiting(50)
    ml.kubectl("apply", "-f-", text=json.dumps(manifest("digits")))
    ml.until_accepted("digits")
    with served(control_plane, tmp_path):
        ml.kubectl("apply", "-f-", text=json.dumps(wanted))
        until("a worker for each ten", lambda: size() == 5)
        waiting(1000)
        until("no more than worker.max", lambda: size() == 6)
        waiting(15)
        until("fewer", lambda: size() == 2)
    assert ml.conditions("digits")["Accepted"]["status"] == "True"
