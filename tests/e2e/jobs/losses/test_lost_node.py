"""The node of a job's master does not answer any more: its kubelet stands still."""

import time

import pytest

from tests.e2e import figures
from tests.e2e.jobs.losses.spare_node import spare_node
from tests.e2e.kube import wait_until
from tests.e2e.releases import values_file


@pytest.fixture
def kubelet(node):
    """Holds the kubelet still, and lets it go on whatever happens."""

    def signal(name: str) -> None:
        node("kill", f"-{name}", *node("pidof", "kubelet").split())

    yield signal
    signal("CONT")


@pytest.mark.soak
def test_a_master_on_a_node_that_does_not_answer_is_replaced(
    job, kube, kubelet, elasticdl
):
    digits = job(
        values_file("digits.yaml"),
        training={"epochs": 10_000},
        checkpoint={"everySeconds": 5},
    )
    digits.wait_running("worker", 3)
    digits.wait_steps(20)
    before = digits.uids()
    (lost,) = digits.pods("master")

    with spare_node(kube):
        began = time.monotonic()
        kubelet("STOP")
        # 50 s until Kubernetes takes the node for lost, a minute that the pod may stay.
        (following,) = wait_until(
            "another master's pod",
            lambda: digits.pods("master").keys() - {lost},
            seconds=240,
        )
        figures.record("master_on_lost_node_seconds", time.monotonic() - began)
        there = kube.get("pod", f"elasticdl-digits-{lost}")
        assert there, "nobody says that the pod has ended"
        assert there["metadata"]["deletionTimestamp"]
        kubelet("CONT")

    # There is no other node here that could run it; PS and workers never stopped.
    digits.wait_running("master", 1, seconds=240)
    digits.wait_status("the next master", lambda s: s.master_generation == 2)
    digits.wait_steps(20)
    after = digits.uids()
    assert following in after
    assert {n: u for n, u in before.items() if n != lost}.items() <= after.items()

    digits.end_after_this_epoch()
    report = digits.wait_succeeded()
    assert report.metrics["accuracy"] > 0.95
    assert "every record" in elasticdl("audit", "digits")
