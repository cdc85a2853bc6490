"""A pause: the workers' CPUs are free, the model stays, and it goes on as it was."""

import time

import pytest
from elasticdl.client import Scaling
from elasticdl.job.names import Role
from elasticdl.testing.claims import check_whole


def workers_of(status):
    return [r for r in status.replicas if r.role == Role.WORKER and r.state != "ended"]


def test_a_paused_job_frees_its_workers_and_goes_on_where_it_was(job):
    one = job("paused", training={"epochs": 10_000}, worker={"pauseSeconds": 0.5})
    one.wait_for_step(50)
    servers = {r.name: r.pid for r in one.status_now().replicas if r.role == Role.PS}
    one.handle.scale(Scaling(paused=True))
    resting = one.wait_until(
        lambda s: s.state == "paused" and not workers_of(s), "a job without workers"
    )
    assert not resting.progress.tasks_leased
    one.handle.scale(Scaling(paused=False))
    going = one.wait_until(
        lambda s: s.progress.steps > resting.progress.steps + 50, "more steps"
    )
    assert len(workers_of(going)) == 2
    after = {r.name: r.pid for r in going.replicas if r.role == Role.PS}
    assert after == servers, "the PS keep the model"
    one.end_after_this_epoch()
    report = one.finish()
    check_whole(one, report)
    assert report.relaunches == []
    assert report.replayed_records == 0


@pytest.mark.soak
@pytest.mark.parametrize(("strategy", "replicas"), [("local", 1), ("allReduce", 2)])
def test_a_paused_job_keeps_workers_that_have_its_model(job, strategy, replicas):
    one = job(
        "held",
        strategy=strategy,
        training={"epochs": 10_000},
        worker={"replicas": replicas, "pauseSeconds": 0.1},
    )
    one.wait_until(
        lambda s: not s.group or (s.group.level and len(s.group.members) == replicas),
        "all members",
    )
    before = workers_of(one.wait_for_step(50))
    one.handle.scale(Scaling(paused=True))
    held = one.wait_until(
        lambda s: s.state == "paused" and not s.progress.tasks_leased, "a job at rest"
    )
    time.sleep(1.0)  # ten times what would send workers of another strategy home
    one.handle.scale(Scaling(paused=False))
    going = one.wait_until(
        lambda s: s.progress.steps > held.progress.steps + 50, "more steps"
    )
    assert [r.pid for r in workers_of(going)] == [r.pid for r in before]
    one.end_after_this_epoch()
    check_whole(one, one.finish())
