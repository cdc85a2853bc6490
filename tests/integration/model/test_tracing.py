"""Which code AutoGraph converts: that which needs it, and no other."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from elasticdl.errors import UserCodeError
from elasticdl.model.tracing import GraphFunction
from elasticdl.model.user_code import short
from elasticdl.worker.group.step import GroupStep, ShareBatches
from elasticdl.worker.local.own_step import OwnStep
from elasticdl.worker.steps.buffer_step import BufferStep
from elasticdl.worker.steps.variable_step import VariableStep

from tests.integration.model.conftest import CLASSIC

ENABLED = tf.__internal__.autograph.control_status_ctx().status.ENABLED


def status():
    return tf.__internal__.autograph.control_status_ctx().status


def test_what_a_graph_can_have_as_it_is_is_not_converted_as_in_fit():
    seen = []

    def doubled(x):
        seen.append(status())
        return 2 * x

    function = GraphFunction(doubled)
    assert function(tf.constant(2.0)) == 4
    assert seen
    assert ENABLED not in seen


def test_an_if_and_a_loop_on_tensors_are_converted():
    seen = []

    def clipped(x):
        seen.append(status())
        total = tf.constant(0.0)
        for one in x:
            if one > 0:
                total += one
        return total

    function = GraphFunction(clipped, reduce_retracing=True)
    assert function(tf.constant([1.0, -2.0, 3.0])) == 4
    concrete = function.get_concrete_function(tf.TensorSpec([None], tf.float32))
    assert concrete(tf.constant([5.0])) == 5
    # Once found out, it is not tried again.
    assert seen[0] != ENABLED
    assert set(seen[1:]) == {ENABLED}


def test_an_if_that_another_form_alone_meets_is_converted_then():
    def either(x):
        if x.shape.rank == 1 and x[0] > 0:
            return -x
        return x

    function = GraphFunction(either)
    assert function(tf.constant(1.0)) == 1
    assert function(tf.constant([2.0])) == -2
    assert function(tf.constant([-2.0])) == -2
    assert function(tf.constant(1.0)) == 1


def test_a_mistake_of_the_users_is_told_as_it_is():
    def wrong(x):
        return len(7) + x

    with pytest.raises(TypeError, match="has no len"):
        GraphFunction(wrong)(tf.constant(1.0))


def test_a_mistake_that_a_caller_told_in_words_of_its_own_is_told_once_more():
    def checked(x):
        try:
            return x if x > 0 else -x
        except TypeError as error:
            raise UserCodeError("the loss does not run") from error

    assert GraphFunction(checked)(tf.constant(-2.0)) == 2

    def wrong(x):
        del x
        raise UserCodeError("no such table")

    with pytest.raises(UserCodeError, match="no such table"):
        GraphFunction(wrong)(tf.constant(1.0))


# Each has the mean over records of what it was in CLASSIC.
LOSSES = {
    "an if": "    if mean > 1e6:\n        return mean / 2.0\n    return mean",
    "a condition": "    return mean if mean > 0 and not mean > 1e6 else 0.0",
    "a while": "    while mean > 1e6:\n        mean = mean / 2.0\n    return mean",
    "a for": (
        "    total = 0.0\n    for one in each:\n        total += one\n"
        "    return total / tf.cast(tf.shape(each)[0], tf.float32)"
    ),
    "a range": (
        "    total = 0.0\n    for at in range(tf.shape(each)[0]):\n"
        "        total += each[at]\n    return total / float(len(each))"
    ),
}


def with_loss(body):
    head, rest = CLASSIC.split("def loss(")
    rest = rest[rest.index("def optimizer") :]
    return (
        f"{head}def loss(labels, predictions):\n"
        "    each = tf.nn.sparse_softmax_cross_entropy_with_logits(\n"
        "        labels, predictions\n    )\n"
        f"    mean = tf.reduce_mean(each)\n{body}\n\n\n{rest}"
    )


def losses_of_two_steps(definition, batch):
    """The loss before and after a step of strategy local."""
    step = VariableStep(definition, optimizer=definition.optimizer)
    return [step.apply(batch.features, batch.labels) for _ in range(2)]


@pytest.mark.parametrize("name", LOSSES)
def test_a_loss_may_have(name, built, records, feeder):
    plain = built(CLASSIC, sample=records[:8])
    batch = next(feeder(plain).batches(records))
    expected = losses_of_two_steps(plain, batch)
    text = with_loss(LOSSES[name])

    definition = built(text, sample=records[:8])
    np.testing.assert_allclose(
        losses_of_two_steps(definition, batch), expected, rtol=1e-5
    )
    definition = built(text, sample=records[:8])
    pushed = BufferStep(definition)
    assert pushed.kinds(batch.features, batch.labels)
    definition = built(text, sample=records[:8])
    group = GroupStep(definition, definition.optimizer, [], skip_nan=False)
    group.trace(batch.features, batch.labels)
    share = ShareBatches([batch], batch.num_records)
    found = [group.apply(group.compute(share, lambda *_: None)).loss for _ in "12"]
    np.testing.assert_allclose(found, expected, rtol=1e-5)


OWN_STEPS = """

class Net(keras.Model):
    def __init__(self):
        super().__init__()
        self.dense = keras.layers.Dense(3)

    def call(self, features):
        return self.dense(features["x"])

    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            loss = self.compute_loss(x, y, self(x))
        if loss > 0:
            found = tape.gradient(loss, self.trainable_variables)
            self.optimizer.apply(found, self.trainable_variables)
        return {"loss": loss}

    def predict_step(self, data):
        said = self(data[0])
        if tf.reduce_sum(said) > 1e9:
            return said + 1.0
        return said


def own():
    network = Net()
    network.compile(
        keras.optimizers.SGD(0.1),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    )
    return network
"""


def test_a_train_step_and_a_predict_step_with_an_if_on_a_tensor(built, records, feeder):
    head, rest = CLASSIC.split("def loss(")
    text = head + rest[rest.index("def feed") :].split("def eval_")[0] + OWN_STEPS
    definition = built(text, "net.own", sample=records[:8], job={"strategy": "local"})
    batch = next(feeder(definition).batches(records))
    step = OwnStep(definition)
    step.trace(batch.features, batch.labels)
    losses = [step.apply(batch.features, batch.labels) for _ in range(3)]
    assert losses[2] < losses[1] < losses[0]
    said = GraphFunction(definition.predict)(batch.features)
    np.testing.assert_allclose(said, definition.call(batch.features, training=False))


def test_a_layers_mistake_is_told_without_what_keras_and_tensorflow_put_around_it():
    class Branches(keras.layers.Layer):
        def call(self, x):
            if tf.reduce_sum(x) > 0:
                return x
            return -x

    layer = Branches()
    with pytest.raises(TypeError) as raised:
        GraphFunction(layer)(tf.zeros([3, 2]))
    told = short(raised.value)
    assert "symbolic `tf.Tensor` as a Python `bool`" in told
    assert "Arguments received" not in told
    assert "\x1b" not in told
