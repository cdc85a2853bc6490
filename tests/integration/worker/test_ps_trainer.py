"""Training through real PS: equal to Keras, and patient with what goes wrong."""

import threading

import keras
import numpy as np
import pytest
import tensorflow as tf
from elasticdl.errors import FencedError
from elasticdl.job.tasks import LIVE, ModelVersion
from elasticdl.worker.trainer import BatchPosition, LeavingError, NanLossError

TOLERANCE = {"rtol": 2e-5, "atol": 2e-6}


def keras_weights(module, batches):
    """Train the module's model by a plain tape loop; return its weights by path."""
    model = keras.models.clone_model(module.model)
    model.set_weights(module.model.get_weights())
    optimizer = keras.optimizers.Adam(0.05)
    for features, labels in batches:
        with tf.GradientTape() as tape:
            loss = module.loss(tf.constant(labels), model(features, training=True))
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply(gradients, model.trainable_variables)
    return [v.numpy() for v in model.trainable_variables]


@pytest.mark.parametrize("num_ps", [1, 2, 4])
@pytest.mark.parametrize("sync", [True, False], ids=["sync", "async in line"])
def test_one_worker_gives_the_weights_of_plain_keras(
    rig, ps_group, definition, num_ps, sync, batches_of
):
    module = definition()
    expected = keras_weights(module, batches_of(20))
    one = rig(ps_group(num_ps, sync=sync), module, pipeline=False)
    one.train(batches_of(20))
    one.trainer.flush()
    for mine, theirs in zip(one.values().values(), expected, strict=True):
        np.testing.assert_allclose(mine, theirs, **TOLERANCE)
    assert one.trainer.acknowledged == one.trainer.trained == 20


def test_pipelined_training_learns_one_step_stale(rig, batches_of):
    one = rig()
    seen = one.train(batches_of(60))
    assert one.trainer.acknowledged == 59
    one.trainer.flush()
    assert one.trainer.acknowledged == 60
    assert np.mean([d.loss for d in seen[-10:]]) < 0.7 * np.mean(
        [d.loss for d in seen[:5]]
    )
    # The step runs while the update before it is on its way.
    assert [d.version for d in seen[:5]] == [0, 0, 1, 2, 3]


def test_pull_every_third_step_applies_locally_between(rig, batches_of):
    one = rig(pull_steps=3)
    seen = one.train(batches_of(60))
    one.trainer.flush()
    assert np.mean([d.loss for d in seen[-10:]]) < 0.7 * np.mean(
        [d.loss for d in seen[:5]]
    )
    assert len({d.version for d in seen}) <= 21
    assert one.values() is not None


def test_between_pulls_the_rate_is_that_of_the_callback(
    rig, definition, mlp, batches_of
):
    module = mlp.replace("Adam(0.05)", "SGD(0.5)")
    found = [
        rig(
            module=definition(module),
            pipeline=False,
            pull_steps=pull_steps,
            learning_rate_of=lambda version, epoch: 0.5 / (1 + version) ** 2,
        )
        for pull_steps in (1, 3)
    ]
    for one in found:
        one.train(batches_of(7))
    at_each, seldom = (one.values() for one in found)
    for name, value in at_each.items():
        np.testing.assert_allclose(seldom[name], value, rtol=1e-4, atol=1e-6)


def test_moving_statistics_move_where_gradients_are_applied_between_pulls(
    rig, definition, mlp, batches_of
):
    norm = "keras.layers.BatchNormalization(), keras.layers.Dense(3)"
    module = definition(mlp.replace("keras.layers.Dense(3)", norm))
    mean, variance = module.model.non_trainable_variables
    one = rig(module=module, pull_steps=3)
    seen = one.train(batches_of(12))
    one.trainer.flush()
    assert all(np.isfinite(d.loss) for d in seen)
    assert np.abs(mean.numpy()).max() > 0
    assert np.abs(variance.numpy() - 1).max() > 0


def test_a_refused_gradient_is_computed_again_until_accepted(rig, ps_group, batches_of):
    group = ps_group(2, max_staleness=1)
    late, other = rig(group), rig(group, worker=1, pipeline=False)
    late.train(batches_of(1))
    late.trainer.flush()
    other.train(batches_of(6, seed=1))
    before = late.metrics.refused._value.get()
    late.train(batches_of(1, seed=2), task=2)
    late.trainer.flush()
    assert late.metrics.refused._value.get() == before + 1
    assert late.trainer.acknowledged == 2
    assert late.trainer.values(LIVE).version == 8


def test_two_sync_workers_make_each_version_of_both_gradients(
    rig, ps_group, batches_of
):
    group = ps_group(2, sync=True)
    group.control(quorum=2)
    one, two = rig(group), rig(group, worker=1)
    beside = threading.Thread(target=lambda: two.train(batches_of(10, seed=1)))
    beside.start()
    one.train(batches_of(10))
    beside.join(60)
    assert one.trainer.values(LIVE).version == 10


def test_nan_loss_stops_or_is_skipped(rig, ps_group, definition, batches_of):
    nan = [(np.full((4, 6), np.nan, np.float32), np.zeros(4, np.int32))]
    with pytest.raises(NanLossError, match="nan"):
        rig().train(nan)
    patient = rig(skip_nan=True)
    patient.train([*batches_of(2), *nan, *batches_of(1)])
    patient.trainer.flush()
    assert [d.skipped for d in patient.seen] == [False, False, True, False]
    assert patient.trainer.acknowledged == 4
    assert patient.trainer.values(LIVE).version == 3


def test_a_lost_ps_gets_its_values_back_from_the_worker(rig, ps_group, batches_of):
    group = ps_group(2)
    one = rig(group, pipeline=False)
    one.train(batches_of(5))
    before = one.values()
    group.kill(1)
    group.publish(away=[1])
    beside = threading.Timer(0.3, lambda: group.relaunch(1, min_version=1))
    beside.start()
    features, labels = next(batches_of(1, seed=3))
    one.trainer.train_batch(features, labels, BatchPosition(2, 0, 16, 16, True))
    after = one.values()
    assert one.trainer.acknowledged == 6
    for name, value in after.items():
        assert np.abs(value - before[name]).max() < 0.2, name
    assert one.goodput.seconds()["waitPs"] > 0.2


def test_after_a_rewind_nothing_computed_before_is_pushed(rig, ps_group, batches_of):
    group = ps_group(2, sync=True)
    one = rig(group)
    one.train(batches_of(3))
    group.rewind = 1
    for server in group.servers:
        server.begin(rewind=1, restore_dir=None)
    group.publish()
    with pytest.raises(FencedError):
        one.train(batches_of(2))
    one.trainer.recover()
    assert one.trainer.values(LIVE).version == 0
    one.train(batches_of(2))
    assert one.trainer.values(LIVE).version == 2


def test_a_worker_told_to_leave_does_not_wait_for_a_lost_ps(rig, ps_group, batches_of):
    group = ps_group(1)
    one = rig(group, pipeline=False)
    one.train(batches_of(1))
    group.kill(0)
    group.publish(away=[0])
    threading.Timer(0.3, one.leaving.set).start()
    with pytest.raises(LeavingError):
        one.train(batches_of(1))


def test_the_learning_rate_of_a_callback_goes_with_the_push(rig, batches_of):
    one = rig(
        pipeline=False,
        learning_rate_of=lambda version, epoch: 0.0 if epoch == 0 else None,
    )
    before = one.values()
    before = {name: value.copy() for name, value in before.items()}
    one.train(batches_of(3))
    for name, value in one.values().items():
        np.testing.assert_array_equal(value, before[name])


DENSE = 'keras.layers.Dense(8, activation="tanh")'
BATCH_NORM = (
    "keras.layers.Dense(8), keras.layers.BatchNormalization(), "
    "keras.layers.Dropout(0.2)"
)


def test_statistics_of_batch_normalization_are_shared_through_ps_0(
    rig, ps_group, definition, mlp, batches_of
):
    group = ps_group(2)
    one = rig(group, definition(mlp.replace(DENSE, BATCH_NORM)), pipeline=False)
    one.train(batches_of(10))
    mine = {v.path: v.numpy() for v in one.definition.model.non_trainable_variables}
    shared = one.trainer.values(LIVE).state
    for name in shared:
        np.testing.assert_allclose(shared[name], mine[name], rtol=1e-5)
    assert any("moving_mean" in name for name in shared)
    # A worker that comes later begins with them.
    late = rig(group, definition(mlp.replace(DENSE, BATCH_NORM)), worker=1)
    theirs = {v.path: v.numpy() for v in late.definition.model.non_trainable_variables}
    for name in shared:
        np.testing.assert_allclose(theirs[name], shared[name], rtol=1e-5)


EMBEDDING = (
    "keras.layers.Lambda(lambda x: keras.ops.cast(keras.ops.abs(x) * 5, 'int32')), "
    "keras.layers.Embedding(64, 4), keras.layers.Flatten()"
)


def test_rows_of_an_embedding_travel_alone_and_duplicates_are_summed(
    rig, ps_group, definition, mlp, batches_of
):
    text = mlp.replace(DENSE, EMBEDDING).replace("Adam(0.05)", "SGD(0.5)")
    module = definition(text)
    model = definition(text).model  # the same initial values
    optimizer = keras.optimizers.SGD(0.5)
    for features, labels in batches_of(10):
        with tf.GradientTape() as tape:
            loss = module.loss(tf.constant(labels), model(features, training=True))
        optimizer.apply(
            tape.gradient(loss, model.trainable_variables), model.trainable_variables
        )
    one = rig(ps_group(2), module, pipeline=False)
    assert "rowwise" in [str(v.kind) for v in one.trainer._link.layout.variables]
    one.train(batches_of(10))
    for mine, theirs in zip(
        one.values().values(), model.trainable_variables, strict=True
    ):
        np.testing.assert_allclose(mine, theirs.numpy(), **TOLERANCE)


def test_a_snapshot_keeps_the_values_of_its_version(rig, ps_group, batches_of):
    group = ps_group(2)
    one = rig(group, pipeline=False)
    one.train(batches_of(3))
    group.control(snapshots=["eval-1"])
    pinned = {name: value.copy() for name, value in one.values().items()}
    one.train(batches_of(3))
    got = one.trainer.values(ModelVersion("eval-1"))
    for value, expected in zip(got.trainable, pinned.values(), strict=True):
        np.testing.assert_array_equal(value, expected)
    assert got.version == 3
