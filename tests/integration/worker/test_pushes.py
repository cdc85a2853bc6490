"""What goes with a gradient: version, rate and rows; and what a refusal does."""

import contextlib
import gc
import threading
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from elasticdl.errors import FencedError, RefusedError
from elasticdl.job.tasks import Task
from elasticdl.model.feeding import Batch
from elasticdl.model.optimizers import own_rate
from elasticdl.worker.steps.step import as_gradient
from elasticdl.worker.tasks.feed_ahead import FeedAhead
from elasticdl.worker.tasks.records import LoadedTask

from tests.integration.worker.test_local_checkpoint import saved, state_of
from tests.integration.worker.test_local_trainer import local, train, weights
from tests.integration.worker.test_ps_trainer import TOLERANCE

OWN_SCHEDULE = """
class Halving(keras.optimizers.schedules.LearningRateSchedule):
    def __call__(self, step):
        return 0.4 * keras.ops.power(0.5, keras.ops.cast(step, "float32"))

    def get_config(self):
        return {}

def optimizer():
    return keras.optimizers.SGD(Halving())
"""

ADAM = "keras.optimizers.Adam(0.05)"


def test_a_batch_without_a_single_id_gives_a_gradient_of_no_rows():
    slices = tf.IndexedSlices(tf.zeros([0, 4]), tf.zeros([0], tf.int64), [64, 4])
    assert as_gradient(slices).values.shape == (0, 4)


def test_a_pipelined_gradient_is_pushed_with_the_version_it_was_computed_at(
    rig, ps_group, batches_of
):
    group = ps_group(1)
    one = rig(group)
    one.train(batches_of(5))
    one.trainer.flush()
    # The first two were computed at version 0, each other one at the one before.
    assert [d.version for d in one.seen] == [0, 0, 1, 2, 3]
    assert group.servers[0].figures().staleness_sum == 4


def test_a_gradient_that_is_too_old_is_refused_also_when_pipelined(
    rig, ps_group, batches_of
):
    group = ps_group(1, max_staleness=3)
    late, other = rig(group), rig(group, worker=1, pipeline=False)
    late.train(batches_of(1))
    late.trainer.flush()
    other.train(batches_of(4, seed=1))
    late.train(batches_of(1, seed=2), task=2)
    late.trainer.flush()
    assert late.metrics.refused._value.get() == 1


def test_a_refused_push_is_told_with_its_reason_and_counts_as_not_acknowledged(
    rig, definition, mlp, batches_of
):
    one = rig(module=definition(mlp + OWN_SCHEDULE), sends_own_rate=False)
    with pytest.raises(RefusedError, match="got no learning rate"):
        one.train(batches_of(2))
    one.trainer.flush()  # nothing is under way, and nothing hides the reason
    assert one.trainer.acknowledged == 0


def test_what_an_exchange_raised_holds_nothing_of_the_callers(
    rig, ps_group, batches_of
):
    group = ps_group(1, sync=True)
    one = rig(group)
    one.train(batches_of(1))
    group.rewind = 1
    group.servers[0].begin(rewind=1, restore_dir=None)
    group.publish()
    held = threading.Event()

    def caller():
        # Stands for Training.run, whose batches are let go with its frame.
        _mark = _Mark(held)
        one.train(batches_of(1))

    gc.disable()
    try:
        with contextlib.suppress(FencedError):
            caller()
        assert held.is_set()
    finally:
        gc.enable()


class _Mark:
    def __init__(self, gone):
        self._gone = gone

    def __del__(self):
        self._gone.set()


class _Numbers:
    """A feeder of one record per batch."""

    bad = ()

    def batches(self, records):
        for record in records:
            yield Batch(record, None, 1)


def test_the_feed_goes_on_with_the_next_task_whoever_holds_the_one_before():
    ahead = FeedAhead(_Numbers())
    one = LoadedTask(Task(lease_id=1), list(range(50)))
    two = LoadedTask(Task(lease_id=2), list(range(50, 60)))
    held: Any = ahead.batches(one)
    assert next(held).features == 0
    got = [batch.features for batch in ahead.batches(two)]
    assert got == list(range(50, 60))
    held.close()


def test_an_own_schedule_is_computed_in_the_worker(rig, definition, mlp, batches_of):
    module = definition(mlp + OWN_SCHEDULE)
    rate = own_rate(module.optimizer, module.code)
    assert rate is not None
    assert [rate(step) for step in range(3)] == pytest.approx([0.4, 0.2, 0.1])
    model = keras.models.clone_model(module.model)
    model.set_weights(module.model.get_weights())
    for features, labels in batches_of(5):
        with tf.GradientTape() as tape:
            loss = module.loss(tf.constant(labels), model(features, training=True))
        module.optimizer.apply(
            tape.gradient(loss, model.trainable_variables), model.trainable_variables
        )
    one = rig(module=module, pipeline=False)
    one.train(batches_of(5))
    for mine, theirs in zip(
        one.values().values(), model.trainable_variables, strict=True
    ):
        np.testing.assert_allclose(mine, theirs.numpy(), **TOLERANCE)


@pytest.mark.parametrize("lost", [False, True])
def test_an_own_schedule_of_another_class_begins_at_its_step_0(
    rig, ps_group, definition, mlp, batches_of, tmp_path, lost
):
    before = definition(mlp)
    train(local(before), batches_of(3))
    folder = saved(before, 3, tmp_path / "version-3")
    text = mlp + OWN_SCHEDULE
    module, alone = definition(text), definition(text)
    state_of(alone).restore(folder)
    train(local(alone, version=3), batches_of(4))

    group = ps_group(2)
    group.rewind = 1
    for server in group.servers:
        server.begin(rewind=1, restore_dir=folder)
    group.publish()
    one = rig(group, module, pipeline=False)
    batches = list(batches_of(4))
    one.train(batches[:2])
    if lost:
        # The worker hands over since when the optimizer counts, too.
        group.kill(0)
        group.relaunch(0)
    one.train(batches[2:])
    for mine, theirs in zip(one.values().values(), weights(alone), strict=True):
        np.testing.assert_allclose(mine, theirs, **TOLERANCE)
    assert [server.figures().version for server in group.servers] == [7, 7]
    parameters = group.servers[0]._live.parameters
    assert (parameters.first_step, parameters.step) == (3, 4)


def test_layers_are_excluded_from_weight_decay_by_name(definition, mlp):
    module = definition(
        mlp.replace(
            f"return {ADAM}",
            "made = keras.optimizers.AdamW(0.05, weight_decay=0.1)\n"
            '    made.exclude_from_weight_decay(var_names=["dense_1"])\n'
            "    return made",
        )
    )
    # First: Keras remembers what it once answered for a variable.
    told = module.optimizer_json()
    optimizer = module.optimizer
    optimizer.build(module.model.trainable_variables)
    asked = [
        optimizer._use_weight_decay(v.value) for v in module.model.trainable_variables
    ]
    assert asked == [True, True, False, False]
    assert '"exclude_from_weight_decay": ["sequential/dense_1/kernel"' in told
