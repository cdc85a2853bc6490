"""What one call brings leaves something for the other workers."""

from collections import Counter

import pytest
from elasticdl.data.reader import Shard
from elasticdl.job.heartbeats import SnapshotDone
from elasticdl.job.tasks import TaskType
from elasticdl.master.model.callbacks import CallbackSet
from elasticdl.master.model.evaluation_rounds import ignore

from tests.unit.master.calls.test_many_workers import NOW, Crowd

WORKERS = 4
TASKS = 22


@pytest.fixture
def crowd(tmp_path):
    """Workers of an evaluation of 22 tasks that has begun beside training."""
    made = Crowd(tmp_path / "crowd", WORKERS, "async")
    spec, rounds = made.job.spec.training, made.job.parts.rounds
    size = spec.batch_size * spec.batches_per_task
    rounds.begin([Shard("v.csv", 0, TASKS * size)], CallbackSet(), ignore)
    rounds.open("test", version=1, epochs_done=0, now=NOW)
    rounds.take(0, SnapshotDone(id=rounds.current.snapshot, version=1))
    assert rounds.current.started
    yield made
    made.ledger.close()


def test_no_worker_takes_an_evaluation_for_itself_because_its_training_is_fast(crowd):
    """Who asked first got as many as it trains in a second, and others stood idle."""
    given = [
        Counter(task.type for task in crowd.leasing.give(member, 64, now=NOW))
        for member in crowd.table.workers()
    ]
    assert [one[TaskType.EVALUATION] for one in given] == [6, 6, 6, 4]
    assert all(one.total() == 64 for one in given)


def test_a_worker_that_asks_for_one_task_gets_one_of_the_evaluation(crowd):
    for member in crowd.table.workers():
        (task,) = crowd.leasing.give(member, 1, now=NOW)
        assert task.type == TaskType.EVALUATION
