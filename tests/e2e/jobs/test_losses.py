"""One job loses its master, a PS, a worker and the API server, and completes."""

import time

import pytest
from elasticdl.job.words import JobState

from tests.e2e.kube import KubectlError, wait_until
from tests.e2e.releases import values_file

OUTAGE_SECONDS = 60.0


@pytest.fixture
def api_server(node):
    """Holds the API server still, and lets it go on whatever happens."""

    def signal(name: str) -> None:
        node("kill", f"-{name}", *node("pidof", "kube-apiserver").split())

    yield signal
    signal("CONT")


def test_a_job_survives_losing_its_master_a_ps_a_worker_and_the_api_server(
    job, kube, node, api_server, elasticdl
):
    digits = job(
        values_file("digits.yaml"),
        training={"epochs": 10_000},
        checkpoint={"everySeconds": 5},
    )
    digits.wait_running("worker", 3)
    digits.wait_status(
        "a checkpoint with steps", lambda s: (s.checkpoint_version or 0) > 9
    )
    before = digits.uids()

    # The master: another one finds the same PS and workers, which never stopped.
    (master,) = digits.pods("master")
    digits.delete_pod(master)
    status = digits.wait_status("the next master", lambda s: s.master_generation == 2)
    digits.wait_steps(20)
    after = digits.uids()
    assert {n: u for n, u in before.items() if n != master}.items() <= after.items()

    # A PS: the same index again, with what its checkpoint has.
    digits.delete_pod("ps-1")
    wait_until(
        "ps-1 is another pod",
        lambda: digits.uids("ps").get("ps-1", before["ps-1"]) != before["ps-1"],
        seconds=120,
    )
    digits.wait_running("ps", 2)
    digits.wait_steps(20)

    # A worker's container, killed as the kernel would.
    victim = sorted(digits.in_phase("worker"))[0]
    kill(node, digits.pods("worker")[victim])
    status = digits.wait_status(
        f"{victim} is replaced",
        lambda s: any(r.replica == victim and r.replacement for r in s.relaunches),
    )
    digits.wait_running("worker", 3)
    digits.wait_steps(20)

    # The API server does not answer for a minute: training goes on without it.
    running = digits.uids()
    steps = digits.wait_steps(1).progress.steps
    api_server("STOP")
    time.sleep(OUTAGE_SECONDS)  # what is tried is the length of the outage
    api_server("CONT")
    wait_until("the API server answers", lambda: answers(kube), seconds=120)
    status = digits.wait_steps(1)
    assert status.progress.steps > steps + 20
    assert status.state is JobState.RUNNING
    assert digits.uids() == running

    digits.end_after_this_epoch()
    report = digits.wait_succeeded()
    assert report.metrics["accuracy"] > 0.95
    assert report.master_restarts == 1
    assert "every record" in elasticdl("audit", "digits")


def kill(node, pod) -> None:
    (container,) = pod["status"]["containerStatuses"]
    name = container["containerID"].removeprefix("containerd://")
    node("ctr", "--namespace=k8s.io", "tasks", "kill", "--signal=SIGKILL", name)


def answers(kube) -> bool:
    try:
        return kube.run("get", "--raw=/readyz", seconds=10) == "ok"
    except (KubectlError, TimeoutError):
        return False
