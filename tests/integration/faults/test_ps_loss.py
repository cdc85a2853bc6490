"""Parameter servers lost: the shard comes back, or everything rewinds."""

import signal

import pytest
from elasticdl.testing.claims import check_whole, relaunched

LONG = {"epochs": 10_000}


def test_lost_ps_comes_back_with_its_newest_shard_in_async_mode(job):
    one = job("ps-async", training=LONG, checkpoint={"everySeconds": 4.0})
    one.wait_until(
        lambda s: (s.checkpoint_version or 0) > 0, "a checkpoint later than version 0"
    )
    one.wait_until(
        lambda s: s.progress.version > s.checkpoint_version + 50, "newer updates"
    )
    killed = one.fault("ps", signal.SIGKILL)
    relaunched(one, killed, reason="killed")
    # One that is stopped before it has begun is not silent yet, however many steps the
    # workers report late.
    log = one.job_dir.log_file("ps", 0)
    one.wait_until(
        lambda _: log.read_text().count("Parameters are there") == 2, "a restored PS"
    )
    step = one.status_now().progress.steps
    stopped = one.fault("ps", signal.SIGSTOP, at_step=step + 100)
    relaunched(one, stopped, reason="silent")
    one.end_after_this_epoch()
    report = one.finish()
    check_whole(one, report)
    # Same index again.
    assert [r.replacement for r in report.relaunches] == [killed, stopped]
    assert report.rewinds == 0
    assert report.lost_updates > 0


def test_lost_ps_rewinds_everything_in_sync_mode(job):
    one = job("ps-sync", ps={"mode": "sync"}, training=LONG)
    one.wait_until(lambda s: s.checkpoint_version, "a checkpoint later than version 0")
    killed = one.fault("ps", signal.SIGKILL)
    relaunched(one, killed, reason="killed")
    one.end_after_this_epoch()
    report = one.finish()
    check_whole(one, report)
    assert report.rewinds == 1
    assert report.lost_updates == 0
    # The updates that count are those of one undisturbed pass over all epochs.
    audited = one.audit()
    assert all(set(e.times) == {1} for e in audited.epochs)


@pytest.mark.soak
def test_all_ps_lost_rewinds_in_async_mode_too(job):
    one = job("ps-all", training=LONG)
    one.wait_for_step(100)
    one.handle.kill("ps-0", signal.SIGKILL)
    one.handle.kill("ps-1", signal.SIGKILL)
    one.end_after_this_epoch()
    report = one.finish()
    check_whole(one, report)
    assert report.rewinds == 1
