"""Losses that leave nobody with the parameters: each goes on, nothing is made up."""

import signal

import pytest
from elasticdl.testing.claims import check_whole

from tests.integration.conftest import MLP

# The final evaluation lasts long enough to lose a PS in it.
SLOW_EVALUATION = MLP.replace(
    "def feed(dataset, mode, metadata):",
    "def feed(dataset, mode, metadata):\n"
    "    if mode == 'evaluation':\n"
    "        import time\n"
    "        time.sleep(1.0)",
)
SHORT = {"epochs": 12}


@pytest.fixture
def finishing(job):
    """Makes a job of one worker that never writes a checkpoint of trained values.

    It is returned in its final evaluation, with all records done.
    """

    def make(name):
        one = job(
            name,
            model={"files": {"net.py": SLOW_EVALUATION}},
            training=SHORT,
            checkpoint={"everySeconds": 0.0},
            worker={"replicas": 1},
        )
        one.wait_until(lambda s: s.state == "finishing", "all records done")
        return one

    return make


def test_a_ps_lost_after_the_last_record_gets_the_trained_values_back(finishing):
    one = finishing("exit-ps")
    one.fault("ps", signal.SIGKILL)
    report = one.finish()
    check_whole(one, report)
    assert report.rewinds == 0


@pytest.mark.soak
def test_a_ps_lost_with_all_who_knew_its_values_is_trained_again(finishing):
    one = finishing("exit-values")
    one.handle.kill("ps-1", signal.SIGKILL)
    one.handle.kill("worker-0", signal.SIGKILL)
    report = one.finish()
    check_whole(one, report)
    assert report.rewinds == 1


def test_ps_and_master_lost_together_before_any_checkpoint_go_on(job, tmp_path):
    blocker = tmp_path / "no-folder"
    blocker.write_text("checkpoints cannot be written below a file")
    one = job(
        "exit-sync",
        ps={"mode": "sync"},
        training={"epochs": 20},
        checkpoint={"dir": str(blocker / "checkpoints")},
    )
    one.wait_for_step(50)
    one.handle.kill("ps-1", signal.SIGKILL)
    one.wait_until(lambda s: s.rewinds, "the master noticed")
    one.fault("master", signal.SIGKILL)
    one.wait_until(lambda s: s.progress.version > 50, "training after the losses")
    blocker.unlink()
    report = one.finish()
    check_whole(one, report)
