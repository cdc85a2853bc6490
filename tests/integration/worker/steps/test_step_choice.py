"""The fast form of a step where a model allows it, the safe one where it does not."""

import numpy as np
import pytest
from elasticdl.errors import UserCodeError
from elasticdl.tensor.placement import GradientKind
from elasticdl.worker.steps.buffer_step import BufferStep
from elasticdl.worker.steps.choice import choose_step
from elasticdl.worker.steps.packing import Arena
from elasticdl.worker.steps.variable_step import VariableStep

# Reads its variable behind Keras's back, as a wrapped SavedModel does.
BEHIND = """
import tensorflow as tf

class Behind(keras.layers.Layer):
    def build(self, shape):
        self.kernel = self.add_weight(shape=(shape[-1], 8), name="kernel")

    def call(self, inputs):
        return tf.tanh(tf.matmul(inputs, tf.convert_to_tensor(self.kernel._value)))

def custom_model():
    return keras.Sequential([keras.Input((6,)), Behind(), keras.layers.Dense(3)])
"""
# Cannot be traced with tensors in place of its variables: it asks for what only a
# variable has.
ASSIGNS = """
class Assigns(keras.layers.Dense):
    def call(self, inputs):
        self.kernel.value.handle
        return super().call(inputs)

def custom_model():
    return keras.Sequential([keras.Input((6,)), Assigns(8), keras.layers.Dense(3)])
"""
# Uses its variable for batches of one form alone.
SOMETIMES = """
class Net(keras.Model):
    def __init__(self):
        super().__init__()
        self.head = keras.layers.Dense(3)

    def build(self, shape):
        self.kernel = self.add_weight(shape=(6,), name="kernel")
        self.head.build((None, 6))

    def call(self, inputs):
        if isinstance(inputs, dict):
            inputs = inputs["x"] * self.kernel
        return self.head(inputs)

def custom_model():
    return Net()
"""


@pytest.fixture
def choose(definition, mlp, batches_of):
    def make(text="", *, applies_here=False):
        module = definition(mlp + text)
        batch = next(batches_of(1))
        optimizer = module.optimizer if applies_here else None
        step, kinds = choose_step(module, batch, optimizer=optimizer)
        return step, kinds, module, batch

    return make


def test_an_ordinary_model_gets_parameters_as_tensors(choose):
    step, kinds, _, _ = choose()
    assert isinstance(step, BufferStep)
    assert kinds == [GradientKind.DENSE] * 4


def test_pulling_less_often_than_each_step_takes_the_models_own_variables(choose):
    step, _, _, _ = choose(applies_here=True)
    assert isinstance(step, VariableStep)


def test_a_layer_that_reads_behind_kerass_back_still_gets_its_gradient(choose):
    step, kinds, _, batch = choose(BEHIND)
    assert isinstance(step, VariableStep)
    assert GradientKind.FROZEN not in kinds
    gradients = step.run(*batch).gradients
    assert np.any(np.asarray(gradients[0]))


def test_a_model_that_cannot_take_tensors_falls_back_to_variables(choose):
    step, kinds, _, batch = choose(ASSIGNS)
    assert isinstance(step, VariableStep)
    assert kinds == [GradientKind.DENSE] * 4
    assert step.run(*batch).finite


def test_an_unused_variable_is_no_reason_to_fall_back(choose):
    step, kinds, _, _ = choose(
        """
class Unused(keras.layers.Dense):
    def build(self, shape):
        super().build(shape)
        self.idle = self.add_weight(shape=(2,), name="idle")

def custom_model():
    return keras.Sequential([keras.Input((6,)), Unused(8), keras.layers.Dense(3)])
"""
    )
    assert isinstance(step, BufferStep)
    assert kinds.count(GradientKind.FROZEN) == 1


def test_what_is_wrong_with_the_users_loss_is_said_and_not_worked_around(choose):
    with pytest.raises(UserCodeError, match="shape"):
        choose("\ndef loss(labels, predictions):\n    return predictions[:, 0]\n")


@pytest.mark.parametrize("applies_here", [False, True])
def test_gradients_that_come_otherwise_for_a_batch_of_another_form_are_refused(
    choose, applies_here
):
    step, kinds, module, (features, labels) = choose(
        SOMETIMES, applies_here=applies_here
    )
    assert sorted(kinds) == [
        GradientKind.DENSE,
        GradientKind.DENSE,
        GradientKind.FROZEN,
    ]
    arena = Arena([tuple(v.shape) for v in module.model.trainable_variables])
    for array in arena.arrays:
        array[:] = 0.5
    step.load(arena)
    assert step.run(features, labels).finite
    with pytest.raises(
        UserCodeError, match=r"kernel.*is dense for a batch of this form"
    ):
        step.run({"x": features}, labels)


def test_variables_of_16_bits_are_refused_before_keras_fails_on_them(choose):
    with pytest.raises(UserCodeError, match=r"/kernel` is bfloat16, expected float32"):
        choose(
            """
def custom_model():
    return keras.Sequential([
        keras.Input((6,)), keras.layers.Dense(8, dtype="bfloat16"),
        keras.layers.Dense(3),
    ])

def optimizer():
    return keras.optimizers.SGD(0.1, global_clipnorm=1.0)
""",
            applies_here=True,
        )


@pytest.mark.parametrize("applies_here", [False, True])
def test_a_model_with_nothing_to_train_is_refused(choose, applies_here):
    with pytest.raises(UserCodeError, match="a gradient for none of the model's 0"):
        choose(
            """
def custom_model():
    network = keras.Sequential([keras.Input((6,)), keras.layers.Dense(3)])
    network.trainable = False
    return network
""",
            applies_here=applies_here,
        )
