"""The plan of a queue, compared with the one that a journal was begun with."""

from dataclasses import replace

from elasticdl.data.reader import Shard
from elasticdl.master.tasks.queue_plan import QueuePlan, differences

PLAN = QueuePlan((Shard("a", 0, 60),), batch_size=32, batches_per_task=4)


def test_what_differs_is_told_by_its_field_and_nothing_else_is():
    told = differences(PLAN, replace(PLAN, batch_size=48))
    assert "training.globalBatchSize, else training.batchSize 32, now 48" in told
    assert "batch_size" not in told
    assert "batchesPerTask" not in told
    both = differences(PLAN, replace(PLAN, seed=7, elastic=True))
    assert "training.seed 0, now 7" in both
    assert "training.globalBatchSize: elastic false, now true" in both


def test_data_that_differ_are_told_with_the_first_source():
    told = differences(PLAN, replace(PLAN, shards=(Shard("a", 0, 64),)))
    assert told.startswith("60 records in 1 sources; now there is 64 records in 1")
    assert told.endswith("First difference: a had 60 records, now a has 64")
