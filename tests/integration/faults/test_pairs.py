"""Two roles lost in the same moment."""

import signal

import pytest
from elasticdl.testing.claims import check_whole

LONG = {"epochs": 10_000}
PAIRS = [("worker", "ps"), ("worker", "master"), ("ps", "master")]


# Each role alone, and a PS with the master, are lost in the files beside this one.
@pytest.mark.soak
@pytest.mark.parametrize("mode", ["async", "sync"])
def test_pairs_of_roles_killed_at_once(job, mode):
    one = job(f"pairs-{mode}", ps={"mode": mode}, training=LONG)
    for count, pair in enumerate(PAIRS, 1):
        status = one.wait_until(
            lambda s: len(running(s)) == 4 and s.progress.steps, "everybody at work"
        )
        one.wait_for_step(status.progress.steps + 100)
        for role in pair:
            one.fault(role, signal.SIGKILL)
        one.wait_until(
            lambda s, n=count: len(s.relaunches) >= {1: 2, 2: 3, 3: 4}[n],
            f"relaunches after losing {pair}",
        )
    # An async PS comes back without the updates since its newest checkpoint; they are
    # counted, not repeated, and the model needs some steps to make them good.
    one.wait_for_step(one.status_now().progress.steps + 300)
    one.end_after_this_epoch()
    report = one.finish()
    check_whole(one, report)
    assert report.master_restarts == 2


def running(status):
    return [
        r
        for r in status.replicas
        if r.state == "running" and (r.role == "ps" or r.phase == "train")
    ]
