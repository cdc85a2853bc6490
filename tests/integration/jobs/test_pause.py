"""A pause: the workers' CPUs are free, the model stays, and it goes on as it was."""

from elasticdl.job.names import Role
from elasticdl.job.values import edit_values
from elasticdl.testing.claims import check_whole


def workers_of(status):
    return [r for r in status.replicas if r.role == Role.WORKER and r.state != "ended"]


def test_a_paused_job_frees_its_workers_and_goes_on_where_it_was(job):
    one = job("paused", training={"epochs": 10_000}, worker={"pauseSeconds": 0.5})
    one.wait_for_step(50)
    servers = {r.name: r.pid for r in one.status_now().replicas if r.role == Role.PS}
    edit_values(one.job_dir.spec_file, {"job.paused": True})
    resting = one.wait_until(
        lambda s: s.state == "paused" and not workers_of(s), "a job without workers"
    )
    assert not resting.progress.tasks_leased
    edit_values(one.job_dir.spec_file, {"job.paused": False})
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
