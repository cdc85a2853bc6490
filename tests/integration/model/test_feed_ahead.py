"""Feeding ahead gives each task its own batches, whatever becomes of the others."""

import time

import numpy as np
import pytest
from elasticdl.data.reader import Metadata
from elasticdl.job.tasks import Task
from elasticdl.model.feeding import Feeder, kind_of
from elasticdl.worker.tasks import feed_ahead
from elasticdl.worker.tasks.feed_ahead import FeedAhead
from elasticdl.worker.tasks.records import LoadedTask

from tests.integration.model.conftest import CLASSIC


@pytest.fixture
def ahead(built, feeder):
    def make(**keywords):
        return FeedAhead(feeder(built(CLASSIC), **keywords))

    return make


@pytest.fixture
def task(records):
    def make(number, part):
        return LoadedTask(Task(lease_id=number), records[part])

    return make


def numbers(batches):
    return np.concatenate([np.asarray(b.features)[:, 0] for b in batches])


def fed_alone(ahead, task):
    return numbers(ahead().batches(task))


def test_a_task_fed_ahead_has_the_same_batches(ahead, task):
    one, two = task(1, slice(0, 21)), task(2, slice(21, 50))
    feed = ahead()
    first = feed.batches(one)
    some = [next(first)]
    feed.begin([two])
    some += first
    np.testing.assert_array_equal(numbers(some), fed_alone(ahead, one))
    np.testing.assert_array_equal(numbers(feed.batches(two)), fed_alone(ahead, two))


def test_a_task_that_was_handed_back_leaves_nothing_behind(ahead, task):
    lost, next_one = task(1, slice(0, 21)), task(2, slice(21, 50))
    feed = ahead()
    feed.begin([lost])
    np.testing.assert_array_equal(
        numbers(feed.batches(next_one)), fed_alone(ahead, next_one)
    )


def test_no_more_batches_are_made_than_have_room(ahead, task, monkeypatch):
    monkeypatch.setattr(feed_ahead, "_MOST_BATCHES", 2)
    one, two = task(1, slice(0, 50)), task(2, slice(0, 50))
    feed = ahead()
    left = feed.batches(one)
    some = [next(left)]
    feed.begin([two])  # waits until the first is fed
    some += left
    np.testing.assert_array_equal(numbers(some), fed_alone(ahead, one))
    given_up = feed.batches(two)
    next(given_up)
    given_up.close()  # its lease was lost: nobody takes the rest
    np.testing.assert_array_equal(numbers(feed.batches(one)), fed_alone(ahead, one))


def test_what_the_feed_raises_ahead_is_raised_when_the_task_is_trained(ahead, task):
    broken = LoadedTask(Task(lease_id=2), [b"\xff\xff\xff"])
    feed = ahead()
    good = task(1, slice(0, 21))
    batches = feed.batches(good)
    next(batches)
    feed.begin([broken])
    np.testing.assert_array_equal(numbers(batches), fed_alone(ahead, good)[8:])
    with pytest.raises(Exception, match="cannot parse record 0"):
        list(feed.batches(broken))


def test_bad_records_are_those_of_the_task_that_was_taken(ahead, task):
    good = task(1, slice(0, 8))
    mixed = LoadedTask(Task(lease_id=2), [*good.records[:3], b"\xff\xff\xff"])
    feed = ahead(skip_bad=True)
    batches = feed.batches(good)
    next(batches)
    feed.begin([mixed])
    assert list(batches) == []
    assert feed.bad == []
    assert len(numbers(feed.batches(mixed))) == 3
    assert [bad.index for bad in feed.bad] == [3]


def test_tasks_fed_together_have_the_batches_of_each_alone(ahead, task):
    parts = [slice(0, 21), slice(21, 40), slice(40, 41), slice(41, 50)]
    tasks = [task(number, part) for number, part in enumerate(parts)]
    feed = ahead()
    first = feed.batches(tasks[0])
    some = [next(first)]
    feed.begin(tasks[1:])
    assert not feed.idle
    some += first
    got = [some, *(list(feed.batches(one)) for one in tasks[1:])]
    assert feed.idle
    alone = ahead()  # one after another, in the same order
    for one, batches in zip(tasks, got, strict=True):
        expected = list(alone.batches(one))
        assert [b.num_records for b in batches] == [b.num_records for b in expected]
        assert [kind_of(b) for b in batches] == [kind_of(b) for b in expected]
        np.testing.assert_array_equal(numbers(batches), numbers(expected))


def test_a_bad_record_among_tasks_fed_together_is_that_of_its_task(ahead, task):
    good, other = task(1, slice(0, 8)), task(3, slice(8, 16))
    mixed = LoadedTask(Task(lease_id=2), [*good.records[:3], b"\xff\xff\xff"])
    feed = ahead(skip_bad=True)
    batches = feed.batches(good)
    next(batches)
    feed.begin([mixed, other])
    assert list(batches) == []
    assert len(numbers(feed.batches(mixed))) == 3
    assert [bad.index for bad in feed.bad] == [3]
    assert len(numbers(feed.batches(other))) == 8
    assert feed.bad == []


def test_of_tasks_fed_together_some_may_be_handed_back(ahead, task):
    tasks = [task(number, slice(10 * number, 10 * number + 10)) for number in range(5)]
    feed = ahead()
    list(feed.batches(tasks[0]))
    feed.begin(tasks[1:])
    alone = ahead()
    for one in tasks[:4]:
        expected = numbers(alone.batches(one))
    np.testing.assert_array_equal(numbers(feed.batches(tasks[3])), expected)
    list(feed.batches(tasks[0]))  # a later one, though the last was fed ahead
    assert feed.idle


class OneByOne(Feeder):
    """Counts the batches of a feed that makes no blocks of several tasks."""

    made = 0

    def together(self, tasks):
        return None

    def batches(self, records):
        for batch in super().batches(records):
            self.made += 1
            yield batch


def test_of_tasks_that_are_not_fed_together_no_more_batches_are_made_than_have_room(
    built, task, monkeypatch
):
    monkeypatch.setattr(feed_ahead, "_MOST_BATCHES", 2)
    definition = built(CLASSIC)
    feeder = OneByOne(definition, mode="training", batch_size=8, metadata=Metadata())
    feed = FeedAhead(feeder)
    tasks = [task(number, slice(0, 50)) for number in range(3)]
    list(feed.batches(tasks[0]))
    before = feeder.made
    feed.begin(tasks[1:])
    time.sleep(0.5)  # for the thread to make what it makes
    assert feeder.made - before == 3  # one of them waits for room
    assert len(numbers(feed.batches(tasks[1]))) == 50
    assert len(numbers(feed.batches(tasks[2]))) == 50


class Broken(Feeder):
    """Fails where the first block of several tasks is cut into batches."""

    def together(self, tasks):
        made = super().together(tasks)

        def cut():
            yield next(made)
            raise MemoryError

        return None if made is None else cut()


def test_tasks_that_cannot_be_fed_together_are_fed_one_by_one(built, task):
    definition = built(CLASSIC)
    feed = FeedAhead(
        Broken(definition, mode="training", batch_size=8, metadata=Metadata())
    )
    tasks = [task(number, slice(0, 20)) for number in range(3)]
    list(feed.batches(tasks[0]))
    feed.begin(tasks[1:])
    assert [len(numbers(feed.batches(one))) for one in tasks[1:]] == [20, 20]
