"""A disk that fills up under the journal or under a checkpoint."""

import resource
from pathlib import Path

import pytest
from elasticdl.testing.claims import check_whole

pytestmark = pytest.mark.skipif(
    not hasattr(resource, "prlimit"),
    reason="limits of a running process can be set on Linux alone",
)


def limit_files(pid, size):
    """From now on no file of that process may grow beyond `size`, as on a full disk."""
    hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)[1]
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (size, hard))


def master_pid(one):
    return int(
        next(line for line in one.processes() if "elasticdl.master" in line).split()[0]
    )


def test_full_disk_under_the_journal_is_waited_out(job):
    one = job("full-journal", training={"epochs": 60})
    status = one.wait_for_step(200)
    pid = master_pid(one)
    limit_files(pid, 0)
    one.wait_until(lambda s: "journal" in s.message, "a message about the journal")
    limit_files(pid, resource.RLIM_INFINITY)
    one.wait_for_step(status.progress.steps + 100)
    report = one.finish()
    check_whole(one, report)
    assert report.master_restarts == 0
    assert "cannot write the journal" in one.log_text("master", 0)


def test_disk_that_stays_full_fails_the_job_and_resuming_loses_nothing(job):
    one = job("still-full", training={"epochs": 40}, master={"journalWaitSeconds": 1.0})
    one.wait_for_step(200)
    limit_files(master_pid(one), 0)
    code = one.wait_for_exit()
    assert code != 0
    assert "cannot write the journal" in one.output
    assert "Traceback" not in one.output
    assert one.processes() == []
    again = job("still-full", training={"epochs": 40})
    check_whole(again, again.finish())


def test_full_disk_under_checkpoints_is_reported_and_training_goes_on(job):
    one = job("full-checkpoint", training={"epochs": 60})
    one.wait_for_step(100)
    ps = [int(p.split()[0]) for p in one.processes() if "elasticdl.ps" in p]
    assert len(ps) == 2
    for pid in ps:
        limit_files(pid, 0)
    one.wait_until(lambda s: "checkpoint" in s.message, "a message about checkpoints")
    for pid in ps:
        limit_files(pid, resource.RLIM_INFINITY)
    report = one.finish()
    check_whole(one, report)
    assert Path(report.checkpoint).is_dir()
