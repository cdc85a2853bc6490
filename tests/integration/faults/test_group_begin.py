"""The leader of a group lost before the job has a checkpoint."""

import signal

import pytest
from elasticdl.job.values.file import edit_values

pytestmark = pytest.mark.timeout(300)


def group(job, name, model, *, replicas, **changes):
    return job(
        name,
        strategy="allReduce",
        model=model,
        training={"epochs": 1, "maxSteps": 6, "batchesPerTask": 4},
        # None of the ends may be counted.
        worker={"replicas": replicas, "maxRestarts": 0},
        **changes,
    )


def copied(one):
    """Return which versions of the leader's state workers have copied."""
    return [
        int(line.split("Got version ")[1].split()[0])
        for log in one.job_dir.logs_dir.glob("worker-*.log")
        for line in log.read_text(errors="replace").splitlines()
        if "Got version" in line
    ]


def lose_leader(one):
    leader = one.status().group.members[0]
    one.handle.kill(leader, signal.SIGKILL)
    return leader


def assert_made(one, report, leader):
    assert one.audit().ok
    assert report.steps == report.version == 6
    assert leader in {r.replica for r in report.relaunches}
    assert {str(r.cause) for r in report.relaunches} <= {"killed", "fenced"}


def test_a_leader_lost_in_the_first_steps_leaves_a_group_that_makes_them(
    job, unhurried
):
    one = group(job, "first-step", unhurried(1.5, training_alone=True), replicas=3)
    one.wait_until(lambda _: len(copied(one)) == 2, "copies of the leader's state")
    leader = lose_leader(one)
    assert_made(one, one.finish(), leader)


def test_workers_with_a_lost_leaders_steps_are_replaced_without_being_counted(
    job, tmp_path, unhurried
):
    blocked = tmp_path / "blocked"
    blocked.touch()  # a file where the folder of checkpoints should be
    one = group(
        job,
        "no-checkpoint",
        unhurried(1.5, training_alone=True),
        replicas=1,
        checkpoint={"dir": str(blocked)},
    )
    one.wait_for_step(1)
    edit_values(one.job_dir.spec_file, {"job.worker.replicas": 3})
    one.wait_until(lambda _: copied(one), "a copy of the leader's state")
    leader = lose_leader(one)
    blocked.unlink()
    assert_made(one, one.finish(), leader)
