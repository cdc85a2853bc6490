"""Weights that a new model begins with all alike hide nothing from the trial."""

import numpy as np
import pytest
from elasticdl.errors import UserCodeError

from tests.integration.worker.group.in_portions import Member
from tests.integration.worker.matrix import BATCH, LAYERS, Case, middle

ROUTER = """
class Router(keras.layers.Layer):
    def build(self, shape):
        self.kernel = self.add_weight(shape=(shape[-1], 4), initializer="zeros")

    def call(self, inputs, training=False):
        shares = keras.ops.softmax(inputs @ self.kernel)
        chosen = keras.ops.mean(
            keras.ops.one_hot(keras.ops.argmax(shares, -1), 4), 0)
        if WHEN:
            self.add_loss(
                4 * keras.ops.sum(chosen * keras.ops.mean(shares, 0)))
        return keras.ops.concatenate([inputs, shares], -1)

"""
GATED = """
class Gated(keras.layers.Layer):
    def build(self, shape):
        self.gate = self.add_weight(shape=(), initializer="zeros")

    def call(self, inputs, training=False):
        self.add_loss(keras.ops.sum((self.gate * inputs) ** 2))
        return inputs

"""
DEVIATES = """
class Deviates(keras.layers.Layer):
    def call(self, inputs, training=False):
        if not training:
            return inputs
        return inputs + keras.ops.mean(keras.ops.std(inputs, 0))

"""
# At zero it is 1, and a little above no number.
STEEP = """
class Steep(keras.layers.Layer):
    def build(self, shape):
        self.gate = self.add_weight(shape=(), initializer="zeros")

    def call(self, inputs, training=False):
        return inputs * keras.ops.exp(1e5 * self.gate) + self.gate

"""
# It may not be moved at all.
STRICT = STEEP.replace("Steep", "Strict").replace(
    "        return", "        tf.debugging.assert_less(self.gate.value, 0.01)\n"
    "        return"
)  # fmt: skip
ZEROS = {
    "Dense(8": 'Dense(8, kernel_initializer="ones", bias_initializer="ones"',
    "Dense(3": 'Dense(3, kernel_initializer="zeros"',
}


def with_constants(layers):
    for old, new in ZEROS.items():
        layers = layers.replace(old, new)
    return layers


@pytest.mark.parametrize(
    ("before", "layer"),
    [(ROUTER.replace("WHEN", "True"), "Router()"),
     (ROUTER.replace("WHEN", "training"), "Router()"), (GATED, "Gated()")],
    ids=["router", "router, in training", "gate"],
)  # fmt: skip
def test_an_added_loss_behind_zeros_is_tried(module, data, before, layer):
    case = Case("zeros", before=before, layers=middle(layer))
    with pytest.raises(UserCodeError, match="expected their mean"):
        Member(module(case, "allReduce", BATCH, data), data, None)


@pytest.mark.parametrize(
    "seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.soak) for seed in (2, 3, 4))]
)
def test_a_product_of_means_is_found_whatever_the_first_weights_are(module, data, seed):
    """Where one expert is the best of all records, portions have the batch's loss."""
    drawn = f"keras.initializers.RandomNormal(stddev=5.0, seed={seed})"
    router = ROUTER.replace("WHEN", "training").replace('"zeros"', drawn)
    case = Case("router", before=router, layers=middle("Router()"))
    with pytest.raises(UserCodeError, match="expected their mean"):
        Member(module(case, "allReduce", BATCH, data), data, None)


def test_a_layer_that_looks_at_several_records_is_told_before_a_kernel_of_zeros(
    module, data, caplog
):
    case = Case(
        "deviates", before=DEVIATES, layers=with_constants(middle("Deviates()"))
    )
    Member(module(case, "allReduce", BATCH, data), data, None)
    assert "several records at once" in caplog.text


@pytest.mark.parametrize(
    ("before", "layer"), [(STEEP, "Steep()"), (STRICT, "Strict()")]
)
def test_where_moved_weights_give_no_number_the_model_is_tried_as_it_is(
    module, data, before, layer, caplog
):
    case = Case("steep", before=before, layers=middle(layer))
    Member(module(case, "allReduce", BATCH, data), data, None)
    assert "could not be computed" not in caplog.text
    root = "lambda y, p: keras.ops.sqrt(keras.ops.mean((p[:, 0] - 9.0) ** 2))"
    case = Case("root", before=before, layers=middle(layer), loss=root)
    with pytest.raises(UserCodeError, match="expected their mean"):
        Member(module(case, "allReduce", BATCH, data), data, None)


def test_a_trial_leaves_weights_as_they_are_and_refuses_no_mean(module, data):
    layers = with_constants(LAYERS.format(options="", middle=""))
    case = Case("constants", layers=layers)
    made = module(case, "allReduce", BATCH, data)
    before = made[0].model.get_weights()
    assert any(not one.any() for one in before)
    Member(made, data, None)
    for one, after in zip(before, made[0].model.get_weights(), strict=True):
        np.testing.assert_array_equal(one, after)
