"""Strategy allReduce in a cluster: serving pods push out all workers but one.

Nobody has a parameter server to go back to: what the workers know, they alone have.
"""

from tests.e2e.jobs import serving
from tests.e2e.jobs.encrypted import secret
from tests.e2e.jobs.job import JobInCluster
from tests.e2e.kube import wait_until
from tests.e2e.releases import values_file

TWO_CPUS = {"resources": {"cpu": 2, "memory": "1Gi"}}


def test_a_group_of_workers_shrinks_to_one_and_grows_back(job, kube, elasticdl, images):
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
    assert "was trained exactly once" in elasticdl("audit", group.name)


def wait_members(group: JobInCluster, names: set[str]) -> None:
    group.wait_status(
        f"a round of {sorted(names)}",
        lambda s: s.group and s.group.level and set(s.group.members) == names,
        seconds=300,
    )
