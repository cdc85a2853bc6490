"""Jobs lose their master, a PS, workers and the API server, and complete."""

import time

import pytest
from elasticdl.job.words import JobState

from tests.e2e.jobs import serving
from tests.e2e.jobs.encrypted import secret
from tests.e2e.jobs.job import JobInCluster
from tests.e2e.kube import KubectlError, wait_until
from tests.e2e.releases import values_file

OUTAGE_SECONDS = 60.0
TWO_CPUS = {"resources": {"cpu": 2, "memory": "1Gi"}}


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


@pytest.mark.soak
def test_a_group_of_workers_shrinks_to_one_and_grows_back(job, kube, elasticdl, images):
    """Nobody has a parameter server: what the workers know, they alone have."""
    group = job(
        values_file("digits-allreduce.yaml"),
        training={"epochs": 10_000},
        master=TWO_CPUS,
        worker={"replicas": 4, **TWO_CPUS},
    )
    assert secret(group, "ca", "tls.crt"), "connections are not encrypted"
    group.wait_running("worker", 4)
    wait_members(group, {f"worker-{i}" for i in range(4)})
    group.wait_steps(20)

    # Serving pods push out three workers; the one that is left was never restarted.
    before = group.uids("worker")
    serving.deploy(kube, image=images.ps, replicas=7)
    wait_until("7 serving pods", lambda: serving.num_running(kube) == 7, seconds=120)
    (left,) = group.wait_running("worker", 1)
    wait_members(group, {left})
    group.wait_steps(20)
    serving.deploy(kube, image=images.ps, replicas=1)
    grown = group.wait_running("worker", 4)
    wait_members(group, grown)
    assert group.uids("worker")[left] == before[left]

    # A worker's pod, the one that leads; then the master's.
    group.delete_pod(left)
    wait_until("another one", lambda: left not in group.pods("worker"), seconds=60)
    wait_members(group, group.wait_running("worker", 4))
    before = group.uids("worker")
    (master,) = group.pods("master")
    group.delete_pod(master)
    group.wait_status("the next master", lambda s: s.master_generation == 2)
    group.wait_steps(20)
    assert group.uids("worker") == before

    group.end_after_this_epoch()
    report = group.wait_succeeded()
    assert report.metrics["accuracy"] > 0.95
    assert report.master_restarts == 1
    assert (report.rewinds, report.replayed_records) == (0, 0)
    assert report.version == report.steps
    assert "was trained exactly once" in elasticdl("audit", group.name)


def wait_members(group: JobInCluster, names: set[str]) -> None:
    group.wait_status(
        f"a round of {sorted(names)}",
        lambda s: s.group and s.group.level and set(s.group.members) == names,
        seconds=300,
    )
