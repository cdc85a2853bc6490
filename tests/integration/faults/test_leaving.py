"""A worker that has to leave in the middle of a task hands it back, and ends well."""

import signal

import pytest
from elasticdl.client import Scaling
from elasticdl.master.tasks.journal_files import read_events
from elasticdl.testing.claims import check_whole


def test_a_worker_that_is_terminated_or_drained_hands_its_task_back(job, unhurried):
    # Tasks of many steps that take a while: whoever leaves is in the middle of one.
    one = job(
        "leaving",
        model=unhurried(0.01, training_alone=True),
        training={"epochs": 10_000, "batchSize": 8, "batchesPerTask": 60},
        worker={"replicas": 2},
    )
    terminated = one.fault("worker", signal.SIGTERM, at_step=50)
    one.wait_until(
        lambda s: any(r.replica == terminated for r in s.relaunches),
        "the end of the worker",
    )
    one.handle.scale(Scaling(workers=1))
    one.wait_until(
        lambda s: (
            s.workers_wanted == 1
            and sum(r.role == "worker" and r.state == "running" for r in s.replicas)
            == 1
        ),
        "one worker",
    )
    ended = [
        r
        for r in one.status_now().replicas
        if r.role == "worker" and r.state != "running"
    ]
    one.end_after_this_epoch(least_epochs=4)
    report = one.finish()
    check_whole(one, report)

    index = int(terminated.split("-")[1])
    log = one.log_text("worker", index)
    assert "Got SIGTERM, leaving after this step" in log
    assert "Traceback" not in log
    events = [event for _, event in read_events(one.job_dir.journal_dir)]
    leases = {e["l"]: e["w"] for e in events if e["k"] == "lease"}
    back = [e for e in events if e["k"] == "back"]
    # Handed back by the worker itself, not taken from it after its end.
    assert {e["c"] for e in back} == {"handed back"}
    assert {leases[e["l"]] for e in back} >= {index}
    assert any(not e.get("u") for e in back if leases[e["l"]] == index)
    (relaunch,) = report.relaunches
    assert relaunch.replica == terminated
    # In good order: another exit code than 0 would be `error`.
    assert relaunch.reason == "stopped from outside"
    assert len(ended) >= 1


@pytest.mark.parametrize("replicas", [pytest.param(1, marks=pytest.mark.soak), 2])
def test_members_that_all_leave_at_once_lose_no_step(job, unhurried, replicas):
    """Nobody is left who could hand the model on: a checkpoint does."""
    one = job(
        "all-leave",
        strategy="allReduce",
        model=unhurried(0.05, training_alone=True),
        training={"epochs": 10_000, "batchSize": 16, "batchesPerTask": 3},
        checkpoint={"everySeconds": 1000.0},
        worker={"replicas": replicas},
    )
    one.wait_until(
        lambda s: s.group and s.group.level and len(s.group.members) == replicas,
        "all members",
    )
    one.wait_for_step(20)
    before = one.status_now()
    for member in before.group.members:
        one.handle.kill(member, signal.SIGTERM)
    after = one.wait_until(
        lambda s: (
            s.group
            and s.group.level
            and not set(s.group.members) & set(before.group.members)
        ),
        "a group of others",
    )
    assert after.progress.version >= before.progress.version
    one.end_after_this_epoch()
    report = one.finish()
    check_whole(one, report)
    log = one.log_text("master", 0)
    saved = [
        line
        for line in log.splitlines()
        if "(the last worker that has the model leaves)" in line
    ]
    assert len(saved) == 1, log
    version = int(saved[0].split("checkpoint of version ")[1].split()[0])
    assert report.rewinds == 1
    assert f"training goes back to version {version}" in log
