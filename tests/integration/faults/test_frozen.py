"""A job that stands still as a whole, as in a frozen container, and goes on later."""

import signal
import time

import pytest

# Longer than a worker may be silent, hang, or hold a task without a word.
FROZEN_SECONDS = 12.0
LEASE_SECONDS = 6.0


STRATEGIES = {
    "local": {"strategy": "local", "worker": {"replicas": 1}},
    "ps": {},
    "allReduce": {"strategy": "allReduce"},
}


@pytest.mark.parametrize("how", STRATEGIES.values(), ids=STRATEGIES)
def test_a_job_that_was_frozen_as_a_whole_goes_on_where_it_stopped(job, how):
    one = job(
        "frozen",
        training={"epochs": 10_000, "batchSize": 8, "batchesPerTask": 60},
        tasks={"leaseSeconds": LEASE_SECONDS},
        **how,
    )
    one.wait_for_step(200)
    with one.frozen():
        time.sleep(FROZEN_SECONDS)
    one.end_after_this_epoch()
    report = one.finish()
    audit = one.audit()
    assert report.relaunches == []
    assert audit.late_reports == 0
    assert audit.rewinds == 0
    assert all(set(epoch.times) == {1} for epoch in audit.epochs if epoch.finished)


@pytest.mark.parametrize(("how", "who"), [("local", "worker-0"), ("ps", "ps-0")])
def test_a_stop_ends_though_who_has_the_model_stands_still(job, how, who):
    one = job(
        f"still-{how}",
        training={"epochs": 10_000, "batchSize": 8, "batchesPerTask": 60},
        checkpoint={"everySeconds": 1000.0},
        **STRATEGIES[how],
    )
    one.wait_for_step(200)
    one.handle.kill(who, signal.SIGSTOP)
    one.interrupt()
    report = one.finish(expected=130)
    assert f"{who} has not been heard for" in report.message
    assert f"{who} has not been heard for" in " ".join(one.output.split())
