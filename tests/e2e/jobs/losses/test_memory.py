"""A worker that is killed for its memory comes back with more of it."""

import pytest

from tests.e2e.kube import wait_until

# Slowly: some systems show the kernel's kill as any other, and then the memory of the
# worker's last heartbeat tells.
HUNGRY = """
import time
import keras
import numpy as np

KEPT = []

def model():
    for _ in range(32):
        KEPT.append(np.ones(25 << 20, np.uint8))
        time.sleep(0.3)
    net = keras.Sequential([keras.Input((30,)), keras.layers.Dense(1)])
    loss = keras.losses.BinaryCrossentropy(from_logits=True)
    net.compile(optimizer="adam", loss=loss)
    return net
"""
VALUES = {
    "kind": "job",
    "job": {
        "name": "hungry",
        "model": {"definition": "hungry.model", "files": {"hungry.py": HUNGRY}},
        "data": {
            "prepare": {"dataset": "breast_cancer"},
            "training": "data/breast_cancer/train",
        },
        "training": {"epochs": 2},
        "ps": {"resources": {"memory": "512Mi"}},
        "worker": {"memoryLimitMax": "1600Mi", "resources": {"memory": "1Gi"}},
    },
}


@pytest.mark.soak
def test_a_worker_killed_for_its_memory_comes_back_with_more(job, elasticdl):
    hungry = job(VALUES)
    status = hungry.wait_status("the relaunch", lambda s: s.relaunches)
    assert status.relaunches[0].reason == "oomKilled"
    assert "worker-1 may use 1536 MiB" in status.relaunches[0].detail
    wait_until(
        "the history tells of it",
        lambda: "may use 1536 MiB" in elasticdl("explain", "hungry", "worker-0"),
        seconds=60,
    )
    (container,) = hungry.pods("worker")["worker-1"]["spec"]["containers"]
    assert container["resources"]["limits"]["memory"] == "1536Mi"
    assert [r.reason for r in hungry.wait_succeeded().relaunches] == ["oomKilled"]
