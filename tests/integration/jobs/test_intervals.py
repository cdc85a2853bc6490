"""Intervals in steps are kept where steps are short, whatever the heartbeat."""

import pytest

STRATEGIES = {
    "local": {"strategy": "local"},
    "async": {},
    "allReduce": {"strategy": "allReduce"},
}


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_checkpoints_by_steps_wait_for_no_heartbeat(job, strategy):
    """A thousand steps may go by between two heartbeats, as they are held."""
    one = job(
        f"steps-{strategy}".lower(),
        **STRATEGIES[strategy],
        data={"shuffle": False},
        training={"epochs": 6, "batchesPerTask": 5},
        checkpoint={"everySteps": 100, "everySeconds": 0, "keep": 0},
        worker={"replicas": 1, "heartbeatSeconds": 20, "deadSeconds": 60},
    )
    report = one.finish()
    versions = sorted(
        int(folder.name.removeprefix("version-"))
        for folder in one.job_dir.checkpoints_dir.glob("version-*")
    )
    # One may be passed over while another is written: steps take a millisecond.
    between = [version for version in versions if 100 <= version < report.version]
    assert report.version >= 500
    assert len(between) >= 3, versions
