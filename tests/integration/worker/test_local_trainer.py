"""Strategy local: the plain Keras loop, checkpoints that hold everything."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from elasticdl.checkpoint import files, store
from elasticdl.checkpoint.layout import AVERAGE, Manifest
from elasticdl.errors import UserCodeError
from elasticdl.job.heartbeats import LocalSnapshot
from elasticdl.job.tasks import ModelVersion
from elasticdl.worker.local.checkpoint import LocalCheckpoints, LocalState
from elasticdl.worker.local.trainer import LocalTrainer
from elasticdl.worker.steps.learning_rate import LearningRate
from elasticdl.worker.steps.variable_step import VariableStep
from elasticdl.worker.trainer import BatchPosition, InModel, NanLossError
from elasticdl.worker.uses.fixed_trainer import FixedTrainer


def rate_of(module):
    return LearningRate(module.optimizer, lambda version, epoch: None, lambda: 1.0)


def local(
    module,
    *,
    between=lambda version, applied: None,
    version=0,
    skip_nan=False,
    rate=None,
):
    step = VariableStep(module, optimizer=module.optimizer, guard=skip_nan)
    return LocalTrainer(
        step,
        module.optimizer,
        rate=rate or rate_of(module),
        version=version,
        skip_nan=skip_nan,
        between_steps=between,
    )


def train(trainer, batches, task=1):
    done, seen = 0, []
    for features, labels in batches:
        done += len(labels)
        at = BatchPosition(task, 0, done, len(labels), last=False)
        seen.append(trainer.train_batch(features, labels, at))
    return seen


def weights(module):
    return [v.numpy() for v in module.model.trainable_variables]


def test_the_local_loop_is_plain_keras_training(definition, batches_of):
    module = definition()
    model = keras.models.clone_model(module.model)
    model.set_weights(module.model.get_weights())
    optimizer = keras.optimizers.Adam(0.05)
    for features, labels in batches_of(15):
        with tf.GradientTape() as tape:
            loss = module.loss(tf.constant(labels), model(features, training=True))
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply(gradients, model.trainable_variables)
    seen = train(local(module), batches_of(15))
    for mine, theirs in zip(weights(module), model.trainable_variables, strict=True):
        np.testing.assert_allclose(mine, theirs.numpy(), rtol=1e-5, atol=1e-6)
    assert seen[-1].version == 15


def test_moving_statistics_are_kept_where_a_loss_may_be_skipped(
    definition, mlp, batches_of
):
    text = mlp.replace(
        "keras.layers.Dense(",
        "keras.layers.BatchNormalization(), keras.layers.Dense(",
        1,
    )
    module = definition(text)
    mean = module.model.non_trainable_variables[0]
    trainer = local(module, skip_nan=True)
    train(trainer, batches_of(2))
    moved = mean.numpy()
    assert np.abs(moved).max() > 0
    (features, labels), *_ = batches_of(1)
    bad = features * np.float32("nan")
    (done,) = train(trainer, [(bad, labels)])
    assert done.skipped
    np.testing.assert_array_equal(mean.numpy(), moved)
    train(trainer, batches_of(1))
    assert np.abs(mean.numpy() - moved).max() > 0


SCALED = [
    "SGD(0.5, loss_scale_factor=8.0)",
    "LossScaleOptimizer(keras.optimizers.SGD(0.5), dynamic_growth_steps=4)",
]


@pytest.mark.parametrize("optimizer", SCALED)
def test_a_loss_scale_is_put_on_and_taken_off(definition, mlp, batches_of, optimizer):
    plain = definition(mlp.replace("Adam(0.05)", "SGD(0.5)"))
    train(local(plain), batches_of(8))
    scaled = definition(mlp.replace("Adam(0.05)", optimizer))
    train(local(scaled), batches_of(8))
    for mine, theirs in zip(weights(scaled), weights(plain), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-6)


TABLE = """
def custom_model():
    numbers = keras.Input((6,))
    ids = keras.ops.cast(keras.ops.abs(numbers), "int32")
    rows = keras.layers.Embedding(20, 4, name="table")(ids)
    return keras.Model(numbers, keras.layers.Dense(3)(keras.layers.Flatten()(rows)))
"""


def test_a_loss_scale_of_rows_is_taken_off_or_refused_in_a_sentence(
    definition, mlp, batches_of
):
    text = mlp + TABLE
    plain = definition(text.replace("Adam(0.05)", "SGD(0.5)"))
    train(local(plain), batches_of(8))
    factor, moving = (definition(text.replace("Adam(0.05)", name)) for name in SCALED)
    train(local(moving), batches_of(8))
    for mine, theirs in zip(weights(moving), weights(plain), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-6)
    said = (
        r"SGD\(loss_scale_factor=8.0\) .* gradient of `table/embeddings` comes as rows"
    )
    with pytest.raises(UserCodeError, match=said):
        train(local(factor), batches_of(1))


def test_averages_are_in_the_model_once_it_is_exported_or_loaded(
    definition, mlp, batches_of, tmp_path
):
    text = mlp.replace("Adam(0.05)", "SGD(0.5, use_ema=True, ema_momentum=0.5)")
    module = definition(text)
    trainer = local(module)
    state = LocalState(module.model, module.optimizer, module.optimizer_json())
    averages = weights(module)
    for number, batch in enumerate(batches_of(6)):
        train(trainer, [batch])
        keep = 0.5 if number else 0.0
        averages = [
            keep * mean + (1 - keep) * now
            for mean, now in zip(averages, weights(module), strict=True)
        ]
    entry = state.write(6)(tmp_path, files.ignore)
    manifest = Manifest(job="j", strategy="local", version=6, shards=[entry])
    store.write_manifest(tmp_path, manifest)
    loaded = definition(text)
    FixedTrainer(loaded.model, tmp_path)  # of evaluation and prediction jobs
    assert trainer.values(ModelVersion(AVERAGE)) == InModel(6)
    for some in (module, loaded):
        for mine, mean in zip(weights(some), averages, strict=True):
            np.testing.assert_allclose(mine, mean, rtol=1e-5, atol=1e-6)


NADAM = [
    "Nadam(0.05)",
    "Nadam(0.05, gradient_accumulation_steps=2)",
]


@pytest.mark.parametrize("optimizer", NADAM)
def test_nadam_goes_on_from_a_checkpoint_that_has_no_product_of_it(
    definition, mlp, batches_of, tmp_path, optimizer
):
    batches = list(batches_of(12))
    text = mlp.replace("Adam(0.05)", optimizer)
    module = definition(text)
    trainer = local(module)
    state = LocalState(module.model, module.optimizer, module.optimizer_json())
    train(trainer, batches[:6])
    entry = state.write(6)(tmp_path, files.ignore)
    manifest = Manifest(job="j", strategy="local", version=6, shards=[entry])
    store.write_manifest(tmp_path, manifest)
    train(trainer, batches[6:])

    again = definition(text)
    restored = LocalState(again.model, again.optimizer, again.optimizer_json())
    # A PS writes nothing of an optimizer but its slots.
    assert restored._others.pop("optimizer/variable/0").shape == ()
    assert restored.restore(tmp_path) == 6
    train(local(again), batches[6:])
    for mine, theirs in zip(weights(again), weights(module), strict=True):
        np.testing.assert_array_equal(mine, theirs)


def test_a_batch_with_nan_loss_changes_nothing_when_skipped(definition, batches_of):
    module = definition()
    trainer = local(module, skip_nan=True)
    train(trainer, batches_of(2))
    before = weights(module)
    nan = [(np.full((4, 6), np.nan, np.float32), np.zeros(4, np.int32))]
    assert train(trainer, nan)[0].skipped
    for old, new in zip(before, weights(module), strict=True):
        np.testing.assert_array_equal(old, new)
    assert train(trainer, batches_of(1))[0].version == 3


def test_a_model_of_which_nothing_is_trained_is_refused(definition, batches_of):
    module = definition()
    module.model.trainable = False
    with pytest.raises(UserCodeError, match="none of the model's 0 trainable"):
        train(local(module), list(batches_of(1)))


def test_a_nan_loss_ends_the_local_loop_unless_it_is_skipped(definition, batches_of):
    trainer = local(definition())
    train(trainer, batches_of(1))
    nan = [(np.full((4, 6), np.nan, np.float32), np.zeros(4, np.int32))]
    with pytest.raises(NanLossError, match="loss is nan"):
        train(trainer, nan)
    assert trainer.trained == 1


def test_a_checkpoint_names_all_short_tasks_since_it_was_asked_for(
    definition, batches_of
):
    """A slow disk took a second to make its folder; a task is one batch."""
    named = {}
    trainer = local(
        definition(), between=lambda version, applied: named.update(applied)
    )
    batch = next(iter(batches_of(1)))
    for task in range(300):
        named.clear()
        train(trainer, [batch], task=task)
    assert sorted(named) == list(range(300))


def test_a_restored_checkpoint_goes_on_as_if_nothing_had_happened(
    definition, batches_of, tmp_path
):
    batches = list(batches_of(12))
    module = definition()
    state = LocalState(module.model, module.optimizer, module.optimizer_json())
    wanted = LocalSnapshot()
    told = []
    checkpoints = LocalCheckpoints(state, wanted=lambda: wanted, tell=told.append)
    trainer = local(module, between=checkpoints.between_steps)
    train(trainer, batches[:5])
    folder = tmp_path / "version-6"
    folder.mkdir()
    wanted = LocalSnapshot("ckpt-1", str(folder))
    train(trainer, batches[5:6], task=2)
    checkpoints.finish()
    train(trainer, batches[6:], task=2)
    undisturbed = weights(module)

    done = told[-1]
    assert (done.id, done.version, done.error) == ("ckpt-1", 6, "")
    assert dict(done.applied) == {1: 80, 2: 16}
    entry = {
        "file": done.file,
        "bytes": done.file_bytes,
        "crc32": done.crc32,
        "version": 6,
    }
    manifest = Manifest(job="j", strategy="local", version=6, shards=[entry])
    store.write_manifest(folder, manifest)

    again = definition()
    restored = LocalState(again.model, again.optimizer, again.optimizer_json())
    resumed = local(again)
    assert restored.restore(folder) == 6
    train(resumed, batches[6:])
    for mine, theirs in zip(weights(again), undisturbed, strict=True):
        np.testing.assert_array_equal(mine, theirs)


def test_a_rate_that_an_optimizer_computes_itself_is_set_by_nobody():
    schedule = keras.optimizers.schedules.ExponentialDecay(0.05, 2, 0.5)
    for rate in (schedule, lambda: 0.05):
        optimizer = keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(rate))
        found = LearningRate(optimizer, lambda version, epoch: None, lambda: 0.5)
        assert found.at(0, 0) is None
        found.set(found.at(0, 0))
