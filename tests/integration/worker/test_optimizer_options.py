"""What a worker does for the optimizer gives the weights of plain Keras training."""

import json
import threading

import numpy as np
import pytest
import tensorflow as tf
from elasticdl.checkpoint.layout import AVERAGE
from elasticdl.job.tasks import ModelVersion
from elasticdl.worker.ps.clipping import Clipping

# float32: norms are summed in another order.
TOLERANCE = {"rtol": 2e-5, "atol": 4e-6}
EXCLUDING = """
def optimizer():
    made = keras.optimizers.AdamW(0.05, weight_decay=0.3)
    made.exclude_from_weight_decay(var_names=["bias"])
    return made
"""
OPTIMIZERS = {
    "clipnorm": "SGD(0.5, clipnorm=0.05)",
    "global_clipnorm": "Adam(0.05, global_clipnorm=0.05)",
    "global_clipnorm of nadam": "Nadam(0.05, global_clipnorm=0.05)",
    "loss_scale_factor": "SGD(0.01, loss_scale_factor=8.0)",
    "loss scale": "LossScaleOptimizer(keras.optimizers.Adam(0.05))",
    "loss scale that grows": (
        "LossScaleOptimizer(keras.optimizers.SGD(0.5, clipnorm=0.1), "
        "dynamic_growth_steps=3)"
    ),
    "loss scale that overflows at first": (
        "LossScaleOptimizer(keras.optimizers.SGD(0.01), initial_scale=1e38)"
    ),
    "accumulation": "Adam(0.05, gradient_accumulation_steps=3)",
    "excluding": EXCLUDING,
}


def text_of(mlp, optimizer):
    text = mlp.replace("return keras.ops.mean(", "return 50.0 * keras.ops.mean(")
    if optimizer.startswith("\ndef"):
        return text + optimizer
    return text.replace("Adam(0.05)", optimizer)


def plain_keras(module, batches):
    """Train by a tape loop and the module's own optimizer; return the weights."""
    model, optimizer = module.model, module.optimizer
    for features, labels in batches:
        with tf.GradientTape() as tape:
            loss = module.loss(tf.constant(labels), model(features, training=True))
            scaled = optimizer.scale_loss(loss)
        gradients = tape.gradient(scaled, model.trainable_variables)
        optimizer.apply(gradients, model.trainable_variables)
    return [v.numpy() for v in model.trainable_variables]


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("num_ps", [1, 3])
def test_options_of_the_optimizer_give_the_weights_of_plain_keras(
    rig, ps_group, definition, mlp, batches_of, name, num_ps
):
    text = text_of(mlp, OPTIMIZERS[name])
    one = rig(ps_group(num_ps), definition(text), pipeline=False)
    one.train(batches_of(12))
    expected = plain_keras(definition(text), batches_of(12))
    for mine, theirs in zip(one.values().values(), expected, strict=True):
        np.testing.assert_allclose(mine, theirs, **TOLERANCE)


@pytest.mark.parametrize("sync", [True, False], ids=["sync", "async"])
@pytest.mark.parametrize("optimizer", ["Adam(0.05, use_ema=True, ema_momentum=0.75)"])
def test_what_is_exported_are_the_averages_as_where_keras_fit_ends(
    rig, ps_group, definition, mlp, batches_of, optimizer, sync
):
    text = text_of(mlp, optimizer)
    one = rig(ps_group(3, sync=sync), definition(text), pipeline=False)
    one.train(batches_of(12))
    module = definition(text)
    raw = plain_keras(module, batches_of(12))
    for mine, theirs in zip(one.values().values(), raw, strict=True):
        np.testing.assert_allclose(mine, theirs, **TOLERANCE)
    module.optimizer.finalize_variable_values(module.model.trainable_variables)
    averages = one.trainer.values(ModelVersion(AVERAGE))
    assert averages.version == 12
    variables = module.model.trainable_variables
    for mine, theirs, before in zip(averages.trainable, variables, raw, strict=True):
        np.testing.assert_allclose(mine, theirs.numpy(), **TOLERANCE)
        assert not np.allclose(mine, before, **TOLERANCE)


def test_an_overflow_is_no_nan_loss_and_pushes_nothing(
    rig, ps_group, definition, mlp, batches_of
):
    text = text_of(mlp, OPTIMIZERS["loss scale that overflows at first"])
    one = rig(ps_group(1), definition(text), pipeline=False)
    seen = one.train(batches_of(12))
    skipped = [done.skipped for done in seen]
    assert skipped[0]
    assert not skipped[-1]
    assert one.trainer.acknowledged == 12
    assert seen[-1].version == 11 - sum(skipped)


@pytest.mark.parametrize("jit", [False, True])
def test_float16_layers_learn_under_a_loss_scale(rig, definition, mlp, batches_of, jit):
    text = mlp.replace('"tanh")', '"tanh", dtype="mixed_float16")')
    text = text.replace("Adam(0.05)", OPTIMIZERS["loss scale"])
    model = {"definition": "net.custom_model", "files": {"net.py": text}}
    module = definition(text, model={**model, "jitCompile": jit})
    seen = rig(module=module).train(batches_of(40))
    assert np.mean([d.loss for d in seen[-8:]]) < 0.7 * np.mean(
        [d.loss for d in seen[:4]]
    )


def test_in_sync_mode_each_worker_clips_its_own_gradient(
    rig, ps_group, definition, mlp, batches_of
):
    text = text_of(mlp, "SGD(1.0, global_clipnorm=0.01)")
    group = ps_group(2, sync=True)
    group.control(quorum=2)
    one, two = rig(group, definition(text)), rig(group, definition(text), worker=1)
    before, batches = one.values(), list(batches_of(2))
    beside = threading.Thread(target=lambda: two.train(batches[1:]))
    beside.start()
    one.train(batches[:1])
    beside.join(60)
    after = one.values()
    module = definition(text)
    mean = [np.zeros_like(v) for v in before.values()]
    for features, labels in batches:
        with tf.GradientTape() as tape:
            loss = module.loss(tf.constant(labels), module.model(features))
        raw = tape.gradient(loss, module.model.trainable_variables)
        clipped, norm = tf.clip_by_global_norm(raw, 0.01)
        assert norm > 0.01
        mean = [m + c.numpy() / 2 for m, c in zip(mean, clipped, strict=True)]
    for name, expected in zip(before, mean, strict=True):
        np.testing.assert_allclose(before[name] - after[name], expected, 1e-3, 1e-6)


def test_between_pulls_the_scale_is_taken_off_once(rig, definition, mlp, batches_of):
    weights = []
    for optimizer in ("SGD(0.01)", OPTIMIZERS["loss_scale_factor"]):
        text = text_of(mlp, optimizer)
        one = rig(module=definition(text), pipeline=False, pull_steps=3)
        one.train(batches_of(9))
        weights.append(list(one.values().values()))
    for plain, scaled in zip(*weights, strict=True):
        np.testing.assert_allclose(plain, scaled, **TOLERANCE)


def test_the_ps_are_told_which_variables_do_not_decay(definition, mlp):
    tree = json.loads(definition(text_of(mlp, EXCLUDING)).optimizer_json())
    assert [name.split("/")[-1] for name in tree["exclude_from_weight_decay"]] == [
        "bias",
        "bias",
    ]
    tree = json.loads(
        definition(text_of(mlp, OPTIMIZERS["loss scale"])).optimizer_json()
    )
    assert tree["class_name"] == "Adam"
    assert tree["config"]["loss_scale_factor"] is None


def test_the_workers_share_of_clipping_is_what_is_cut(rig, ps_group, definition, mlp):
    text = text_of(mlp, OPTIMIZERS["clipnorm"])
    one = rig(ps_group(3), definition(text))
    layout = one.trainer._link.layout
    assert layout.cut
    assert Clipping.of(layout, clipnorm=0.1, global_clipnorm=None).cut
