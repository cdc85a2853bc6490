"""Records that cannot be read for a while: what holds for the job, by strategy."""

import signal
import time

import pytest
from elasticdl.client import Scaling
from elasticdl.errors import ExitCode
from elasticdl.job.words import OutCause
from elasticdl.testing.claims import check_whole

# What both readers have.
MODEL = """

def feed(dataset, mode, metadata):
    def parse(line):
        number = tf.strings.to_number(line)
        return tf.stack([number / 100, 1.0]), tf.math.floormod(number, 2)[None]

    return dataset.map(parse)


def custom_model():
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile("adam", "mse")
    return model
"""

READER = """
import errno, os
import keras
import tensorflow as tf

PLACE = {place!r}


class Table:
    def __init__(self, origin):
        pass

    def create_shards(self):
        return {{"table:0": (0, 50), "table:1": (0, 1), "table:2": (0, 33)}}

    def read_records(self, task):
        if os.path.exists(PLACE + "/away") or (
            task.start and os.path.exists(PLACE + "/away but for the first")
        ):
            raise OSError(errno.ESTALE, "the volume is away")
        if task.start >= {since}:
            try:
                os.close(os.open(PLACE + "/failed", os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                pass
            else:
                raise {error}("the data base closed the connection")
        for number in range(task.start, task.end):
            yield b"%d" % number


def custom_data_reader(data_origin, **_):
    return Table(data_origin)


"""


@pytest.fixture
def reading(job, tmp_path):
    """Makes a job whose records come from a reader of the module's own."""

    def make(name, *, strategy, epochs=3, error="RuntimeError", since=32, replicas=2):
        code = READER.format(place=str(tmp_path), error=error, since=since) + MODEL
        return job(
            name,
            strategy=strategy,
            **({"ps": {"replicas": 1}} if strategy == "parameterServer" else {}),
            model={"files": {"net.py": code}},
            data={"training": "table", "validation": ""},
            training={"epochs": epochs, "batchSize": 8, "batchesPerTask": 2},
            worker={"replicas": 1 if strategy == "local" else replicas},
        )

    return make


CANCELLED = "__import__('asyncio').CancelledError"  # no Exception


@pytest.mark.parametrize(
    ("strategy", "error"),
    [
        ("allReduce", "RuntimeError"),
        ("local", CANCELLED),
        ("parameterServer", "RuntimeError"),
        pytest.param("allReduce", CANCELLED, marks=pytest.mark.soak),
    ],
)
def test_a_reader_that_fails_once_fails_no_job(reading, tmp_path, strategy, error):
    one = reading(f"once-{strategy.lower()}", strategy=strategy, error=error)
    report = one.finish()
    assert (tmp_path / "failed").exists()
    check_whole(one, report)
    if strategy == "allReduce":
        assert report.records == 3 * 84  # none of them again


def test_a_reader_that_fails_at_the_first_records_fails_no_job(reading, tmp_path):
    one = reading("once-first", strategy="local", since=0)
    report = one.finish()
    assert (tmp_path / "failed").exists()
    check_whole(one, report)
    assert "The first records were not read" in one.log_text("worker", 0)


NAMING = """
import keras
import tensorflow as tf


class Table:
    def __init__(self, origin):
        pass

    def create_shards(self):
        return {"table:0": (0, 96)}

    def read_records(self, task):
        # Members read shares of 8; who names bad records reads the step of 16.
        if task.end - task.start >= 16:
            raise RuntimeError("the data base closed the connection")
        for number in range(task.start, task.end):
            yield b"none" if number == 41 else b"%d" % number


def custom_data_reader(data_origin, **_):
    return Table(data_origin)


"""


def test_bad_records_that_cannot_be_read_again_are_told_and_no_members_crash(job):
    one = job(
        "naming",
        strategy="allReduce",
        model={"files": {"net.py": NAMING + MODEL}},
        data={"training": "table", "validation": "", "onBadRecord": "skip"},
        training={"epochs": 100, "batchSize": 8, "batchesPerTask": 2},
        worker={"replicas": 2, "min": 2},
        tasks={"maxFailures": 1},
    )
    report = one.finish(expected=ExitCode.USER_CODE)
    assert "the data base closed the connection" in report.message
    assert "Traceback" not in one.log_text("master", 0)
    assert not one.job_dir.log_file("worker", 2).exists()


def test_a_member_may_leave_while_the_data_is_away(reading, tmp_path):
    one = reading("leaves-away", strategy="allReduce", epochs=100_000)
    (tmp_path / "failed").touch()
    one.wait_until(lambda s: s.group and len(s.group.members) == 2, "two members")
    one.wait_for_step(20)
    end = time.monotonic() + 60
    while "were not read, trying again" not in one.log_text("worker", 1):
        assert time.monotonic() < end, one.shown()
        # It may have read its share of the step that the other one has not.
        (tmp_path / "away").unlink(missing_ok=True)
        time.sleep(0.5)
        (tmp_path / "away").touch()
        time.sleep(3)
    left = one.status_now().group.members[-1]
    one.handle.kill(left, signal.SIGTERM)
    one.wait_until(
        lambda s: s.group and left not in s.group.members, "a group without the member"
    )
    (tmp_path / "away").unlink()
    one.wait_until(lambda s: s.group and len(s.group.members) == 2, "two members again")
    one.end_after_this_epoch()
    report = one.finish()
    check_whole(one, report)
    assert report.rewinds == 0


def copying(status):
    return [one for one in status.group.out if one.cause == OutCause.COPYING]


@pytest.mark.parametrize(("outside", "members"), [(1, 1), (0, 2)])
def test_the_only_one_with_the_state_leaves_it_to_a_newcomer(
    reading, tmp_path, outside, members
):
    """It waits for records, so the round with the newcomer has not begun."""
    one = reading("hands-over", strategy="allReduce", epochs=100_000, replicas=1)
    (tmp_path / "failed").touch()
    away = tmp_path / "away but for the first"  # a newcomer builds its model by these
    one.wait_for_step(20)
    end = time.monotonic() + 60
    while "were not read, trying again" not in one.log_text("worker", 0):
        assert time.monotonic() < end, one.shown()
        away.touch()
        time.sleep(0.5)
    version = one.status_now().progress.version
    one.handle.scale(Scaling(workers=2))
    one.wait_until(
        lambda s: (len(copying(s)), len(s.group.members)) == (outside, members),
        f"{outside} newcomers that copy, {members} members",
    )
    one.handle.kill("worker-0", signal.SIGTERM)
    one.wait_until(
        lambda s: s.group and s.group.members == ["worker-1"], "a group of the newcomer"
    )
    away.unlink()
    one.wait_for_step(version + 20)
    one.end_after_this_epoch()
    report = one.finish()
    check_whole(one, report)
    assert report.rewinds == 0
    assert report.replayed_records == 0
