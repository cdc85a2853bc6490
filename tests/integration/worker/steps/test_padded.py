"""Batches padded to lengths of their own: each computed with its own."""

import keras
import pytest
import tensorflow as tf
from elasticdl.data.reader import Metadata
from elasticdl.model.feeding import Feeder, kind_of
from elasticdl.worker.steps.buffer_step import BufferStep
from elasticdl.worker.steps.step import Traced
from elasticdl.worker.steps.variable_step import VariableStep

PADDED = """
import keras
import tensorflow as tf

def custom_model():
    net = keras.Sequential([
        keras.Input((None,), dtype="int32"),
        keras.layers.Embedding(50, 4),
        keras.layers.Dense(1),
    ])
    net.compile(keras.optimizers.SGD(0.0), loss="mse")
    return net

def feed(dataset, mode, metadata):
    def parse(record):
        places = tf.range(tf.strings.length(record))
        return places % 50, tf.cast(places % 3, tf.float32)[:, None]
    return dataset.map(parse).padded_batch(4)
"""
RECORDS = [b"x" * length for length in (5, 9, 40, 7) for _ in range(4)]


@pytest.fixture
def padded(definition):
    """A model over sequences, and batches of four lengths."""
    module = definition(PADDED)
    feeder = Feeder(module, mode="training", batch_size=4, metadata=Metadata())
    return module, list(feeder.batches(RECORDS))


def losses_in_keras(module, batches):
    loss = keras.losses.MeanSquaredError()
    return [float(loss(b.labels, module.model(b.features))) for b in batches]


def test_padded_batches_train_as_in_keras_where_the_worker_has_the_parameters(padded):
    module, batches = padded
    step = VariableStep(module, optimizer=module.optimizer)
    step.kinds(batches[0].features, batches[0].labels)
    got = [step.apply(b.features, b.labels) for b in batches]
    assert got == pytest.approx(losses_in_keras(module, batches), rel=1e-5)


@pytest.mark.parametrize("known", [False, True])
def test_padded_batches_train_as_in_keras_where_ps_have_the_parameters(padded, known):
    module, batches = padded
    step = BufferStep(module)
    step.kinds(batches[0].features, batches[0].labels)
    step._parameters = [tf.identity(v.value) for v in module.model.trainable_variables]
    got = [
        step.run(b.features, b.labels, b.shapes if known else None).loss
        for b in batches
    ]
    assert all(b.shapes for b in batches)
    assert got == pytest.approx(losses_in_keras(module, batches), rel=1e-5)


def test_padded_batches_are_evaluated_as_in_keras(padded):
    module, batches = padded
    forward = Traced(module.evaluate_batch, jit=False)
    forward.trace([], [batches[0].features, batches[0].labels])
    got = [float(forward(b.features, b.labels)[0]) for b in batches]
    assert got == pytest.approx(losses_in_keras(module, batches), rel=1e-5)


def test_a_batch_of_another_length_is_no_measure_of_how_long_one_takes(padded):
    _, batches = padded
    kinds = [kind_of(batch) for batch in batches]
    assert len(set(kinds)) == 4
    assert kinds[0] == kind_of(batches[0])
