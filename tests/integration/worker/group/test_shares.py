"""Shares that are read and fed ahead are those of the steps, in however many calls."""

import threading

import numpy as np
import pytest
import tensorflow as tf
from elasticdl.data.reader import Metadata
from elasticdl.errors import BadRecordError
from elasticdl.job.names import JobDir
from elasticdl.job.spec.job import JobSpec
from elasticdl.model.definition import load_definition
from elasticdl.model.feed.unparsed import FeedError
from elasticdl.model.feeding import Feeder
from elasticdl.worker.group.plan import GroupTask
from elasticdl.worker.group.shares import STEPS_AHEAD, NotReadError, Shares
from elasticdl.worker.tasks.records import LoadedTask

MODULE = """
import keras
import tensorflow as tf


def model():
    network = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    network.compile("sgd", "mse")
    return network


def feed(dataset, mode, metadata):
    def parse(record):
        form = {{"n": tf.io.FixedLenFeature([1], tf.float32)}}
        number = tf.io.parse_single_example(record, form)["n"]
        return number, 2 * number

    return dataset.map(parse){after}
"""
TASK = GroupTask(1, 7, 0, "table", 0, 96, 0)
SIZE = 6  # records of a share; the other member has as many


class Counted(Feeder):
    """Counts how often the feed is called."""

    calls = 0

    def batches(self, records):
        self.calls += 1
        return super().batches(records)

    def together(self, tasks):
        self.calls += 1
        return super().together(tasks)


@pytest.fixture
def shares(tmp_path):
    """Makes shares of a task with these records, and its feeder."""
    made = []

    def make(lines, *, after="", skip_bad=False, load=None):
        code = MODULE.format(after=after)
        spec = JobSpec.model_validate({
            "name": "shares", "data": {"training": "none"}, "strategy": "allReduce",
            "training": {"batchSize": 4},
            "model": {"definition": "net.model", "files": {"net.py": code}},
        })  # fmt: skip
        definition = load_definition(spec, JobDir(tmp_path / "job"))
        definition.build_model(Metadata(), [record(1), record(2)])
        feeder = Counted(
            definition,
            mode="training",
            batch_size=4,
            metadata=Metadata(),
            skip_bad=skip_bad,
        )

        def read(task):
            return LoadedTask(task, lines[task.start : task.end])

        one = Shares(
            load or read, feeder, whole_tasks=False, tries=3, leaving=threading.Event()
        )
        made.append(one)
        return one, feeder

    yield make
    for one in made:
        one.close()


def record(number):
    value = tf.train.Feature(float_list=tf.train.FloatList(value=[number]))
    features = tf.train.Features(feature={"n": value})
    return tf.train.Example(features=features).SerializeToString()


def lines(bad=-1):
    return [b"six" if number == bad else record(number) for number in range(96)]


def steps(one):
    """Ask for a member's shares as steps do; return each one's records and batches."""
    found = []
    wanted = [(TASK, start, start + SIZE) for start in range(0, TASK.end, 2 * SIZE)]
    for number, now in enumerate(wanted):
        made = one.ask(*now)
        made.result(30)
        following = wanted[number + 1 : number + 1 + STEPS_AHEAD]
        if following:
            one.ask_ahead(following)
        found.append(made.result(30))
    return found


def values(share):
    return [np.ravel(batch.features).tolist() for batch in share.batches]


def expected():
    return [
        [[*range(start, start + 4)], [start + 4, start + 5]]
        for start in range(0, TASK.end, 2 * SIZE)
    ]


def test_shares_of_several_steps_are_fed_in_one_call(shares):
    one, feeder = shares(lines())
    found = steps(one)
    assert [values(share) for share in found] == expected()
    assert all((share.records, share.bad) == (SIZE, 0) for share in found)
    assert feeder.calls <= 3  # of 8 steps: the first, which chooses how, and two


@pytest.mark.parametrize("after", ["", ".take(-1)"])
def test_shares_of_any_feed_are_those_of_the_steps(shares, after):
    one, _ = shares(lines(), after=after)
    assert [values(share) for share in steps(one)] == expected()


def test_a_bad_record_is_left_out_of_its_own_share_alone(shares):
    one, _ = shares(lines(bad=49), skip_bad=True)
    found = steps(one)
    assert [share.bad for share in found] == [0, 0, 0, 0, 1, 0, 0, 0]
    assert all(share.records == SIZE for share in found)
    wanted = expected()
    wanted[4] = [[48, 50, 51, 52], [53]]
    assert [values(share) for share in found] == wanted


def test_a_bad_record_fails_its_own_share_with_its_number(shares):
    one, _ = shares(lines(bad=49))
    one.ask(TASK, 0, SIZE).result(30)
    ahead = [(TASK, start, start + SIZE) for start in range(12, 96, 12)]
    one.ask_ahead(ahead)
    made = [one.ask(*own) for own in ahead]
    with pytest.raises(FeedError, match=r"cannot parse record 49 of table"):
        made[3].result(30)
    assert [values(own.result(30)) for own in made[:3]] == expected()[1:4]


def test_a_division_that_changes_takes_what_it_needs(shares):
    one, _ = shares(lines())
    one.ask(TASK, 0, SIZE).result(30)
    one.ask_ahead([(TASK, start, start + SIZE) for start in range(12, 96, 12)])
    now = one.ask(TASK, 12, 21).result(30)
    assert values(now) == [[12, 13, 14, 15], [16, 17, 18, 19], [20]]


def test_records_that_cannot_be_read_are_told_where_they_are_needed(shares):
    def load(task):
        if task.start >= 24:
            raise BadRecordError("table", task.start, "torn")
        return LoadedTask(task, lines()[task.start : task.end])

    one, _ = shares(lines(), load=load)
    one.ask(TASK, 0, SIZE).result(30)
    ahead = [(TASK, 12, 18), (TASK, 24, 30)]
    one.ask_ahead(ahead)
    good, torn = (one.ask(*own) for own in ahead)
    assert values(good.result(30)) == expected()[1]
    with pytest.raises(NotReadError) as told:
        torn.result(30)
    assert isinstance(told.value.__cause__, BadRecordError)


def test_a_feed_that_exits_is_told_where_its_records_are_needed(shares, monkeypatch):
    """Whoever waits for them would wait for ever."""
    one, feeder = shares(lines())
    one.ask(TASK, 0, SIZE).result(30)

    def exits(*_):
        raise SystemExit("the feed ends the process")

    monkeypatch.setattr(feeder, "together", exits)
    monkeypatch.setattr(feeder, "batches", exits)
    ahead = [(TASK, 12, 18), (TASK, 24, 30)]
    one.ask_ahead(ahead)
    for own in ahead:
        with pytest.raises(SystemExit):
            one.ask(*own).result(30)
