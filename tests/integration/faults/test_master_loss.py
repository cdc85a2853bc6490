"""The master lost: workers go on stepping, it reads its journal and goes on."""

import signal

from elasticdl.testing.claims import check_whole


def steps_of_workers(status):
    return {r.name: r.step for r in status.replicas if r.role == "worker"}


def test_killed_and_stopped_master_is_restarted_and_nothing_is_lost(job, alerts):
    one = job("master", training={"epochs": 10_000}, alerts={"masterRestarts": 1})
    watch = alerts(one)
    pids = {
        r.name: r.pid
        for r in one.wait_for_step(100).replicas
        if r.role in ("worker", "ps")
    }
    one.fault("master", signal.SIGKILL)
    second = one.wait_until(lambda s: s.master_generation == 2, "a second master")
    one.fault("master", signal.SIGSTOP, at_step=second.progress.steps + 100)
    third = one.wait_until(lambda s: s.master_generation == 3, "a third master")
    watch.wait_for_alert("ElasticDLMasterRestarted")
    # Nobody else was restarted.
    assert {r.name: r.pid for r in third.replicas if r.role in ("worker", "ps")} == pids
    one.end_after_this_epoch()
    report = one.finish()
    check_whole(one, report)
    assert report.master_restarts == 2
    assert report.relaunches == []
