"""Workers lost by SIGKILL, SIGSTOP, preemption and hanging code."""

import signal
import zlib
from collections import Counter

import pytest
from elasticdl.data.reader import open_reader
from elasticdl.errors import ExitCode
from elasticdl.master.tasks.journal_files import read_events
from elasticdl.testing.claims import check_whole, relaunched

LONG = {"epochs": 10_000}


def test_killed_and_stopped_workers_are_replaced_and_no_record_is_missed(job):
    one = job("workers", worker={"replicas": 3}, training=LONG)
    killed = one.fault("worker", signal.SIGKILL, at_step=100)
    stopped = one.fault("worker", signal.SIGSTOP, at_step=200)
    relaunched(one, stopped, reason="silent")
    pair = [one.fault("worker", signal.SIGKILL), one.fault("worker", signal.SIGSTOP)]
    one.end_after_this_epoch()
    report = one.finish()
    check_whole(one, report)
    first = next(r for r in report.relaunches if r.replica == killed)
    # The next free index, never the old one.
    assert first.replacement == "worker-3"
    assert first.reason == "killed"
    assert {r.replica for r in report.relaunches} >= {killed, stopped, *pair}
    assert report.status == "succeeded"


def test_preempted_down_to_one_worker_and_back(job, alerts):
    one = job("preempted", worker={"replicas": 3, "min": 2}, training=LONG)
    watch = alerts(one)
    one.wait_for_step(100)
    one.handle.set_capacity(1)
    status = one.wait_until(
        lambda s: states(s).count("running") == 1 and states(s).count("pending") == 2,
        "one worker running and two pending",
    )
    step = status.progress.steps
    one.wait_for_step(step + 100)  # training goes on with the one that is left
    watch.wait_for_alert("ElasticDLBelowMinimum")
    one.handle.set_capacity(None)
    one.wait_until(lambda s: states(s).count("running") == 3, "three workers again")
    one.end_after_this_epoch()
    report = one.finish()
    check_whole(one, report)
    assert [r.reason for r in report.relaunches] == ["preempted"] * 2
    assert report.goodput_seconds["pending"] + report.goodput_seconds["preempted"] > 0


def states(status):
    return [r.state for r in status.replicas if r.role == "worker"]


HANGING = """
_real_feed = feed


def feed(dataset, mode, metadata):
    import pathlib
    import tensorflow as tf

    def stuck(record):
        # The first worker that finds the flag takes it and never comes back.
        try:
            pathlib.Path("{flag}").unlink()
        except FileNotFoundError:
            return record
        import threading
        threading.Event().wait()

    def maybe(record):
        out = tf.py_function(stuck, [record], tf.string)
        out.set_shape([])
        return out

    return _real_feed(dataset.map(maybe), mode, metadata)
"""


def test_hung_worker_is_found_and_replaced(job, digits_values, tmp_path):
    flag = tmp_path / "hang"
    code = digits_values("x").job.model.files["net.py"] + HANGING.format(flag=flag)
    one = job(
        "hung",
        model={"files": {"net.py": code}},
        training=LONG,
        # A feed has as long as a worker has to start.
        worker={"startSeconds": 30.0},
    )
    one.wait_for_step(60)
    flag.write_text("")
    status = one.wait_until(lambda s: s.relaunches, "the hung worker's replacement")
    assert status.relaunches[0].reason == "hung"
    one.end_after_this_epoch()
    check_whole(one, one.finish())


ALIVE = """
import time as _time

_plain_model, _plain_feed = custom_model, feed


class SlowToTrace(keras.layers.Layer):
    def call(self, inputs, training=None):
        if training is False and tf.inside_function():
            _time.sleep({seconds})
        return inputs


def custom_model():
    model = _plain_model()
    return keras.Sequential([keras.Input((64,)), SlowToTrace(), *model.layers])


def feed(dataset, mode, metadata):
    import pathlib

    def wait(record):
        try:
            pathlib.Path("{flag}").unlink()
        except FileNotFoundError:
            return record
        _time.sleep({seconds})
        return record

    def slow(record):
        return tf.ensure_shape(tf.py_function(wait, [record], tf.string), ())

    return _plain_feed(dataset.map(slow) if mode == "training" else dataset, mode, None)
"""


@pytest.mark.soak
def test_long_traces_and_slow_feeds_are_no_hangs(job, digits_values, tmp_path):
    flag = tmp_path / "slow"
    code = ALIVE.format(flag=flag, seconds=6.0)
    one = job(
        "alive",
        model={
            "files": {"net.py": digits_values("x").job.model.files["net.py"] + code}
        },
        worker={"replicas": 1, "hangSeconds": 2.0},
        ps={"replicas": 1},
        training={"epochs": 10_000},
        evaluation={"atEnd": True},
    )
    one.wait_for_step(60)  # a step's usual length is known by then
    flag.write_text("")
    one.wait_until(lambda s: not flag.exists(), "a feed that stands still")
    one.end_after_this_epoch()
    report = one.finish()
    check_whole(one, report)
    assert not report.relaunches
    assert "accuracy" in report.metrics


SLOW = """
_at_full_speed = feed


def feed(dataset, mode, metadata):
    import pathlib
    import time
    import tensorflow as tf

    def wait(record):
        if pathlib.Path("{flag}").exists():
            time.sleep(0.02)
        return record

    def slow(record):
        return tf.ensure_shape(tf.py_function(wait, [record], tf.string), ())

    return _at_full_speed(dataset.map(slow), mode, metadata)
"""


@pytest.mark.soak
def test_a_task_preempted_five_times_in_a_row_is_not_lost(job, digits_values, tmp_path):
    flag = tmp_path / "slow"
    flag.write_text("")
    code = digits_values("x").job.model.files["net.py"] + SLOW.format(flag=flag)
    # One worker, and tasks of whole files, which take it 7 s: the same one each time.
    one = job(
        "stubborn",
        model={"files": {"net.py": code}},
        worker={"replicas": 1},
        ps={"replicas": 1},
        training={"epochs": 8, "batchesPerTask": 10_000},
    )
    for times in range(1, 6):
        one.victim("worker")
        one.handle.set_capacity(0)
        one.wait_until(lambda s, n=times: len(s.relaunches) == n, f"preemption {times}")
        one.handle.set_capacity(None)
    flag.unlink()
    report = one.finish()
    check_whole(one, report)
    assert [r.reason for r in report.relaunches] == ["preempted"] * 5
    events = [event for _, event in read_events(one.job_dir.journal_dir)]
    leased = Counter(event["i"] for event in events if event["k"] == "lease")
    assert leased.most_common(1)[0][1] == 6  # by five who lost it, and a last one


# Its worker ends at one record, whichever worker it is.
DEADLY = """
_harmless_feed = feed


def feed(dataset, mode, metadata):
    import ctypes
    import os
    import zlib

    def die(record):
        if zlib.crc32(record.numpy()) == {record}:
            {ends}
        return record

    def harmless(record):
        return tf.ensure_shape(tf.py_function(die, [record], tf.string), ())

    if mode == "training":
        dataset = dataset.map(harmless)
    return _harmless_feed(dataset, mode, metadata)
"""


@pytest.mark.soak
@pytest.mark.parametrize(
    ("ends", "code", "messages"),
    [
        (
            "os.kill(os.getpid(), 9)",
            ExitCode.USER_CODE,
            ["10 workers in a row were killed with", "records 160 to 320"],
        ),
        # What a process brings upon itself is a crash, and these are counted.
        (
            "ctypes.string_at(0)",
            ExitCode.JOB_FAILED,
            [
                "worker.maxRestarts (3) crashes are used up: SIGSEGV; Segmentation "
                "fault in die, ",
                "records 160 to 320",
            ],
        ),
    ],
    ids=["killed", "crashed"],
)
def test_a_record_that_ends_each_worker_by_a_signal_fails_the_job(
    request, job, digits, digits_values, ends, code, messages
):
    path = "data/digits/train/data-00000.recordio"
    reader = open_reader(path, data_root=digits)
    (record,) = reader.read(path, 200, 201, skip_bad=False).values
    text = digits_values("x").job.model.files["net.py"]
    text += DEADLY.format(record=zlib.crc32(record), ends=ends)
    one = job(
        f"deadly-{request.node.callspec.id}",
        model={"files": {"net.py": text}},
        data={"shuffle": False},
        training={"epochs": 1},
        ps={"replicas": 1},
        limit_seconds=270.0,
    )
    assert one.wait_for_exit() == code
    for message in messages:
        assert message in one.output, one.output
    assert one.processes() == []
