"""Faults that no other test waits on: the alert that is made for each is heard."""

import signal

import pytest

# The loss itself: an activation may make a 0 of a feature that is NaN.
SPOILED = """
_sound_loss = loss


def loss(labels, predictions):
    import pathlib
    import tensorflow as tf

    def amount():
        return float("nan") if pathlib.Path("{flag}").exists() else 0.0

    spoils = tf.ensure_shape(tf.py_function(amount, [], tf.float32), ())
    return _sound_loss(labels, predictions) + spoils
"""


@pytest.mark.soak
def test_a_job_without_steps_one_that_repeats_and_one_without_a_loss_are_heard_of(
    job, alerts, digits_values, tmp_path
):
    flag = tmp_path / "spoil"
    code = digits_values("x").job.model.files["net.py"]
    one = job(
        "heard-of",
        model={"files": {"net.py": code + SPOILED.format(flag=flag)}},
        # A task of many steps: what its loss repeats is much of a short job.
        training={"epochs": 10_000, "batchesPerTask": 60, "onNanLoss": "skip"},
        worker={"replicas": 1},
        ps={"replicas": 1},
    )
    watch = alerts(one, noStepSeconds=5, replayRatio=0.001)
    one.wait_for_step(50)
    watch.wait_until(
        lambda: watch.series("elasticdl_job_last_step_timestamp_seconds"),
        "a scrape of a job that trains",
    )
    assert not watch.firing().keys() & {
        "ElasticDLReplayRatio",
        "ElasticDLNonFiniteLoss",
    }
    one.fault("worker", signal.SIGSTOP)
    watch.wait_for_alert("ElasticDLNoStep")
    watch.wait_for_alert("ElasticDLReplayRatio")
    one.wait_until(lambda s: s.relaunches and s.relaunches[0].seconds, "steps again")
    watch.wait_until(
        lambda: "ElasticDLNoStep" not in watch.firing(), "an end of that alert"
    )
    flag.touch()
    watch.wait_for_alert("ElasticDLNonFiniteLoss")
    flag.unlink()
    one.handle.stop()
    one.finish(expected=130)
