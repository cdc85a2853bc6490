"""Two elastic jobs that really train, and a controller that decides their sizes."""

from datetime import datetime

import pytest
from elasticdl.job.words import JobState

from tests.e2e import figures
from tests.e2e.jobs import serving
from tests.e2e.kube import wait_until
from tests.e2e.releases import values_file

MOST = 5  # workers of one job, of which the node has no room for two
CONTROLLED = {
    "priorityClasses": {"create": False},
    "controller": {"enabled": True, "replicas": 1},
}


# tests/e2e/control_plane has two under a real scheduler that do not train.
@pytest.mark.soak
def test_two_jobs_share_a_node_give_way_to_serving_and_grow_when_one_ends(
    job, kube, helm, images, elasticdl
):
    helm.upgrade("elasticdl", {**CONTROLLED, "images": images.values})
    wait_until("a controller", lambda: controllers(kube), seconds=120)

    # The first one gets all that it may have.
    first = elastic(job, "first")
    first.wait_running("worker", MOST)
    first.wait_steps(20)

    # The second one has a worker when a pod can start; both get as much, or one more.
    second = elastic(job, "second")
    wait_until("its first worker", lambda: second.in_phase("worker"), seconds=120)
    (began,) = second.started("master").values()
    figures.record("second_job_worker_seconds", max(0.0, first_made(second) - began))
    shared = wait_until(
        "both share the node", lambda: shares(first, second), seconds=180
    )
    assert MOST < sum(shared) < 2 * MOST
    first.wait_steps(20)
    second.wait_steps(20)
    status = second.status()
    assert status is not None
    assert status.state is JobState.RUNNING
    assert not status.relaunches
    told = elasticdl("cluster")
    assert "first" in told
    assert "second" in told

    # Serving takes three CPUs; both jobs go on, no more apart than before.
    serving.deploy(kube, image=images.ps, replicas=2)
    wait_until("serving", lambda: serving.num_running(kube) == 2, seconds=120)
    less = wait_until(
        "both gave way",
        lambda: shares(first, second, most=sum(shared) - 1),
        seconds=180,
    )
    assert sum(less) < sum(shared)
    serving.deploy(kube, image=images.ps, replicas=0)
    wait_until(
        "both have grown back",
        lambda: shares(first, second) == shared,
        seconds=180,
    )

    # One ends and the other takes its room.
    first.end_after_this_epoch()
    assert first.wait_succeeded().metrics["accuracy"] > 0.95
    second.wait_running("worker", MOST)
    second.wait_steps(20)
    second.end_after_this_epoch()
    report = second.wait_succeeded()
    assert report.metrics["accuracy"] > 0.95
    for one in (first, second):
        assert "every record" in elasticdl("audit", one.name)


def elastic(job, name: str):
    """Install digits with room for one to five workers of two CPUs."""
    small = {"cpu": 0.2, "memory": "1Gi"}
    return job(
        values_file("digits.yaml"),
        name=name,
        training={"epochs": 10_000},
        master={"resources": small},
        ps={"replicas": 1, "resources": small},
        worker={
            "replicas": 1,
            "min": 1,
            "max": MOST,
            "resources": {"cpu": 2, "memory": "1Gi"},
        },
    )


def first_made(job) -> float:
    """Return when the oldest worker's pod was made: Unix time, whole seconds."""
    return min(
        datetime.fromisoformat(pod["metadata"]["creationTimestamp"]).timestamp()
        for pod in job.pods("worker").values()
    )


def controllers(kube) -> bool:
    pods = kube.list("pods", "app.kubernetes.io/component=controller")
    return bool(pods) and all(
        condition["status"] == "True"
        for pod in pods
        for condition in pod["status"].get("conditions", [])
        if condition["type"] == "Ready"
    )


def shares(first, second, most: int = 2 * MOST) -> list[int] | None:
    """Return the jobs' workers, the smaller first, once all run and are alike."""
    sizes = []
    for one in (first, second):
        status = one.status()
        phases = [*one.phases("worker").values()]
        running = phases.count("Running")
        if status is None or "Pending" in phases:
            return None
        if status.workers_wanted != running:
            return None
        sizes.append(running)
    sizes.sort()
    alike = sizes[1] - sizes[0] <= 1 and min(sizes) > 0
    return sizes if alike and sum(sizes) <= most else None
