"""Parts of a module that are no functions; losses that sync mode weighs otherwise."""

import numpy as np
import pytest
import tensorflow as tf
from elasticdl.errors import UserCodeError
from elasticdl.model.measures.targets import Weighted

from tests.integration.model.conftest import CLASSIC, COMPILED

PARTS = [
    ('loss = "mse"', "`loss` of the model module is of type str"),
    ("callbacks = [keras.callbacks.History()]", "`callbacks` .* of type list"),
    ('eval_metrics_fn = ["mae"]', "`eval_metrics_fn` .* of type list"),
    ("dataset_fn = {}", "`dataset_fn` .* of type dict"),
    ("eval_metrics_fn = keras.metrics.MeanSquaredError()", "type MeanSquaredError"),
    ("loss = keras.losses.MeanSquaredError", "is the class MeanSquaredError"),
]


@pytest.mark.parametrize(("line", "message"), PARTS)
def test_a_part_that_is_no_function_is_named_with_what_it_is(define, line, message):
    with pytest.raises(UserCodeError, match=message + ".*, expected a function"):
        define(COMPILED + line + "\n", "net.model")


def test_an_imported_module_is_no_part_of_the_model(built):
    names = "from keras import callbacks, losses as loss\n"
    assert built(names + COMPILED, "net.model").callbacks == []


@pytest.mark.parametrize("part", ["loss", "evalMetrics", "callbacks", "feed"])
def test_an_imported_module_that_the_job_names_as_a_part_is_refused(define, part):
    names = "from keras import losses\n"
    with pytest.raises(UserCodeError, match=r"`losses` .* of type module"):
        define(names + COMPILED, "net.model", **{part: "losses"})


@pytest.mark.parametrize(
    ("loss", "mode", "replicas", "warns"),
    [
        ('"sum"', "sync", 2, True),
        ('"mean_with_sample_weight"', "sync", 2, True),
        ('"mean_with_sample_weight"', "sync", 1, False),
        ('"mean_with_sample_weight"', "async", 2, False),
        ('"sum_over_batch_size"', "sync", 2, False),
    ],
)
def test_sync_mode_says_where_it_weighs_gradients_otherwise_than_the_loss(
    built, caplog, loss, mode, replicas, warns
):
    text = CLASSIC.replace(
        "def loss(labels, predictions):\n",
        "loss = keras.losses.SparseCategoricalCrossentropy(\n"
        f"    from_logits=True, reduction={loss})\n\n"
        "def other(labels, predictions):\n",
    )
    sync = {"ps": {"mode": mode}, "worker": {"replicas": replicas}}
    definition = built(text, job=sync)
    features = tf.constant(np.zeros((2, 4)), tf.float32)
    targets = Weighted(tf.constant([0, 1]), tf.constant([1.0, 3.0]))

    @tf.function
    def step():
        out = definition.call(features, training=True)
        return definition.training_loss(features, targets, out)

    step()
    assert ("weighed by their records instead" in caplog.text) is warns
