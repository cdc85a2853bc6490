"""Intervals in steps are kept where steps are short, whatever the heartbeat."""

import re

import pytest

STRATEGIES = {
    "local": {"strategy": "local"},
    "async": {},
    "allReduce": {"strategy": "allReduce"},
}
# 719 steps of the 1,438 records.
MANY = {"batchSize": 2}


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_checkpoints_by_steps_wait_for_no_heartbeat(job, unhurried, strategy):
    """Hundreds of steps go by between two heartbeats, as they are held."""
    one = job(
        f"steps-{strategy}".lower(),
        **STRATEGIES[strategy],
        model=unhurried(0.01),
        data={"shuffle": False},
        # A task is not reported before the end either.
        training={"epochs": 1, "maxSteps": 600, "batchesPerTask": 1000, **MANY},
        checkpoint={"everySteps": 100, "everySeconds": 0, "keep": 0},
        worker={"replicas": 1, "heartbeatSeconds": 20, "deadSeconds": 60},
    )
    report = one.finish()
    versions = sorted(
        int(folder.name.removeprefix("version-").split(".")[0])
        for folder in one.job_dir.checkpoints_dir.glob("version-*")
    )
    hundreds = {version // 100 for version in versions if version < report.version}
    assert report.version == 600
    # A slow disk may pass one over; by heartbeats there would be none.
    assert len(hundreds & {1, 2, 3, 4, 5}) >= 3, versions


# A worker waits so long wherever it waits for the master's word; else a second.
PATIENT = """

from elasticdl.worker.group import loop
from elasticdl.worker.tasks import stream

loop._IDLE_SECONDS = loop._BESIDE_SECONDS = stream.POLL_SECONDS = 60.0
"""


def test_no_evaluation_keeps_a_group_waiting_for_what_nobody_says(job, unhurried):
    """It ends in seconds, and not in half a minute for each of its evaluations."""
    model = unhurried(0.0)
    model["files"]["net.py"] += PATIENT
    one = job(
        "patient",
        strategy="allReduce",
        model=model,
        training={"epochs": 2, "batchesPerTask": 7},
        evaluation={"everySteps": 20, "atEpochEnd": True},
        checkpoint={"everySteps": 20, "everySeconds": 0},
        worker={"replicas": 1},
    )
    report = one.finish()
    assert report.version >= 180
    assert one.log_text("master", 0).count("Evaluation metrics") >= 9


# The last copy takes two seconds to write; what members said meanwhile is counted.
SLOW_COPY = """

import logging, time
from elasticdl.worker.group.loop import GroupLoop
from elasticdl.worker.local.checkpoint import LocalCheckpoints

idles, idle, write = [], GroupLoop._idle, LocalCheckpoints._write

def counted(self):
    idles.append(1)
    idle(self)

def slow(self, *args):
    before = len(idles)
    if self.holds:
        time.sleep(2)
        logging.getLogger("elasticdl").info("idle %d times", len(idles) - before)
    write(self, *args)

GroupLoop._idle, LocalCheckpoints._write = counted, slow
"""


def test_a_group_that_stops_waits_for_its_last_checkpoint_without_a_word(
    job, unhurried
):
    """It said thousands a second, on the CPU that was to write the checkpoint."""
    model = unhurried(0.0)
    model["files"]["net.py"] += SLOW_COPY
    one = job(
        "held",
        strategy="allReduce",
        model=model,
        training={"epochs": 5000, "batchesPerTask": 1000},
        checkpoint={"everySeconds": 0},
        worker={"replicas": 1},
    )
    one.wait_for_step(20)
    one.interrupt()
    one.wait_for_exit()
    (times,) = re.findall(r"idle (\d+) times", one.log_text("worker", 0))
    assert int(times) < 100
