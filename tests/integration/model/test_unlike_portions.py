"""A loss that is no mean over records is refused also where portions are much alike."""

from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from elasticdl.errors import UserCodeError
from elasticdl.model.measures.divisors import divisor
from elasticdl.model.measures.portions import refuse_uneven
from elasticdl.model.measures.targets import Weighted

RECORDS = 32


@dataclass
class Definition:
    """A module with a loss of (labels, predictions)."""

    model: keras.Model
    loss: Any

    def call(self, features, *, training):
        return self.model(features, training=training)

    def training_loss(self, features, labels, predictions):
        del features
        return self.loss(labels, predictions)

    def loss_divisor(self, labels, predictions):
        del labels, predictions


class Known(Definition):
    """One whose loss is Keras's."""

    def loss_divisor(self, labels, predictions):
        return divisor([self.loss], labels, None, predictions)


def pictures(drawn):
    masks = np.zeros((RECORDS, 8, 8, 1), np.float32)
    for mask in masks:
        row, column = drawn.integers(0, 4, 2)
        mask[row : row + 4, column : column + drawn.integers(2, 5)] = 1
    model = [keras.layers.Conv2D(1, 3, padding="same", activation="sigmoid")]
    return model, masks + drawn.normal(size=masks.shape), masks


def numbers(drawn):
    given = drawn.normal(size=(RECORDS, 6))
    return [keras.layers.Dense(1)], given, 9 + given.sum(1, keepdims=True)


def classes(drawn):
    given = drawn.normal(size=(RECORDS, 6))
    model = [keras.layers.Dense(10, activation="softmax")]
    return model, given, drawn.integers(0, 10, RECORDS)


def words(drawn):
    model, given, labels = classes(drawn)
    return model, given, np.maximum(labels, 1)


def signs(drawn):
    model, given, _ = numbers(drawn)
    return model, given, 2.0 * drawn.integers(0, 2, (RECORDS, 1)) - 1


def root(labels, predictions):
    return tf.sqrt(tf.reduce_mean((labels - predictions) ** 2))


def weighted(labels, predictions):
    weights = 1 + tf.cast(labels, tf.float32)
    losses = keras.losses.sparse_categorical_crossentropy(labels, predictions)
    return tf.reduce_sum(weights * losses) / tf.reduce_sum(weights)


def of_labels_that_count(counts):
    """Return a loss over what has a label."""

    def loss(labels, predictions):
        counted = tf.cast(counts(labels), tf.float32)
        each = tf.where(counted > 0, (labels - predictions) ** 2, 0.0)
        return tf.reduce_sum(each) / tf.maximum(tf.reduce_sum(counted), 1.0)

    return loss


def of_words_but_padding(labels, predictions):
    counted = tf.cast(labels > 0, tf.float32)
    each = keras.losses.sparse_categorical_crossentropy(labels, predictions)
    return tf.reduce_sum(each * counted) / tf.reduce_sum(counted)


def chances(drawn):
    """One number for each record, all the same at first: ten make one."""
    given = drawn.normal(size=(RECORDS, 6))
    bias = keras.initializers.Constant(-np.log(9.0))
    dense = keras.layers.Dense(
        1, "sigmoid", kernel_initializer="zeros", bias_initializer=bias
    )
    labels = drawn.integers(0, 2, RECORDS).astype(np.float32)
    return [dense, keras.layers.Reshape(())], given, labels


def tried(make, loss, seed):
    keras.utils.set_random_seed(seed)
    layers, features, labels = make(np.random.default_rng(seed))
    if labels.dtype.kind == "f":
        labels = labels.astype(np.float32)
    model = keras.Sequential([keras.Input(features.shape[1:]), *layers])
    given = tf.constant(features, tf.float32), tf.constant(labels)
    refuse_uneven(Definition(model, loss), *given)


@pytest.mark.parametrize(
    ("make", "loss"),
    [
        (pictures, keras.losses.Dice()),
        (pictures, keras.losses.Tversky()),
        (numbers, root),
        (classes, weighted),
        # Of the given labels each counts.
        (numbers, of_labels_that_count(lambda labels: labels > 0)),
        (numbers, of_labels_that_count(lambda labels: labels != -1)),
        (numbers, of_labels_that_count(tf.math.is_finite)),
        (words, of_words_but_padding),
    ],
)
def test_no_mean_is_refused_where_portions_are_alike(make, loss):
    for seed in range(4):
        with pytest.raises(UserCodeError, match="expected their mean"):
            tried(make, loss, seed)


@pytest.mark.parametrize(
    ("make", "loss"),
    [
        (pictures, keras.losses.BinaryFocalCrossentropy()),
        (pictures, keras.losses.Dice(axis=(1, 2, 3))),
        (numbers, keras.losses.MeanSquaredLogarithmicError()),
        (numbers, keras.losses.Huber()),
        (classes, keras.losses.SparseCategoricalCrossentropy()),
        (chances, keras.losses.BinaryCrossentropy()),
        (signs, keras.losses.Hinge()),
        (signs, keras.losses.SquaredHinge()),
    ],
)
def test_a_mean_over_records_is_taken_with_labels_that_are_changed(make, loss):
    for seed in range(4):
        tried(make, loss, seed)


def test_a_loss_over_the_sum_of_weights_is_refused_where_all_weigh_as_much():
    def weighed(targets, predictions):
        labels, weights = targets
        each = (labels - predictions) ** 2
        return tf.reduce_sum(weights * each) / tf.reduce_sum(weights)

    def mean(targets, predictions):
        labels, weights = targets
        return tf.reduce_mean(weights * (labels - predictions) ** 2)

    layers, features, labels = numbers(np.random.default_rng(0))
    model = keras.Sequential([keras.Input(features.shape[1:]), *layers])
    given = (
        tf.constant(features, tf.float32),
        Weighted(tf.constant(labels, tf.float32), tf.ones([RECORDS, 1])),
    )
    refuse_uneven(Definition(model, mean), *given)
    with pytest.raises(UserCodeError, match="expected their mean"):
        refuse_uneven(Definition(model, weighed), *given)


SIZES = (1, 2, 3, 5, 8, 16)


def cut(model, loss, rows, features, labels, kind=Definition):
    given = tf.nest.map_structure(lambda t: tf.constant(t[:rows]), (features, labels))
    refuse_uneven(kind(model, loss), *given)


@pytest.mark.parametrize("rows", SIZES)
def test_hinges_and_masks_of_records_are_taken_in_batches_of_any_size(rows):
    drawn = np.random.default_rng(rows)
    features = drawn.normal(size=(RECORDS, 6)).astype(np.float32)
    signs = (2.0 * drawn.integers(0, 2, (RECORDS, 1)) - 1).astype(np.float32)
    numbers = drawn.normal(size=(RECORDS, 1)).astype(np.float32)
    given = keras.Input((6,))
    two = keras.Model(given, [keras.layers.Dense(1)(given) for _ in "12"])

    def both(labels, predictions):
        return keras.losses.Hinge()(labels[0], predictions[0]) + tf.reduce_mean(
            (labels[1] - predictions[1]) ** 2
        )

    cut(two, both, rows, features, (signs, numbers))
    one = keras.Model(given, two.outputs[0])
    for labels in (signs, (signs + 1) / 2):
        cut(one, keras.losses.SquaredHinge(), rows, features, labels)
    masked = keras.Sequential([given, keras.layers.Masking(0.0), keras.layers.Dense(1)])
    cut(masked, keras.losses.MeanSquaredError(), rows, features, numbers, kind=Known)


@pytest.mark.parametrize("rows", SIZES)
@pytest.mark.parametrize("missing", [-1.0, -999.0, np.nan])
def test_a_mean_over_what_has_a_label_is_refused_in_batches_of_any_size(rows, missing):
    features = np.random.default_rng(rows).normal(size=(RECORDS, 6)).astype(np.float32)
    model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(1)])
    there = tf.math.is_finite if np.isnan(missing) else lambda labels: labels > missing
    loss = of_labels_that_count(there)
    labels = 9 + features.sum(1, keepdims=True)
    with pytest.raises(UserCodeError, match="expected their mean"):
        cut(model, loss, rows, features, labels)


def test_a_label_that_says_whether_there_is_one_is_looked_at():
    features = np.random.default_rng(0).normal(size=(RECORDS, 6)).astype(np.float32)
    model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(1)])

    def of_valid(labels, predictions):
        valid = tf.cast(labels["valid"], tf.float32)[:, None]
        each = (labels["y"] - predictions) ** 2
        return tf.reduce_sum(each * valid) / tf.reduce_sum(valid)

    labels = {"y": features[:, :1], "valid": np.ones(RECORDS, bool)}
    with pytest.raises(UserCodeError, match="expected their mean"):
        cut(model, of_valid, 9, features, labels)


class OverValid(keras.Model):
    """Divides by how many of its records a feature says to be valid."""

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None):
        valid = tf.cast(x["valid"], tf.float32)[:, None]
        return tf.reduce_sum(valid * (y - y_pred) ** 2) / tf.reduce_sum(valid)


@dataclass
class Own(Definition):
    """A module whose model computes its loss."""

    def training_loss(self, features, labels, predictions):
        return self.model.compute_loss(features, labels, predictions)


@pytest.mark.parametrize("kind", ["bool", "float32", "int32"])
def test_an_own_loss_that_divides_by_what_features_say_is_refused(kind):
    drawn = np.random.default_rng(0).normal(size=(RECORDS, 6)).astype(np.float32)
    given = {
        "x": keras.Input((6,), name="x"),
        "valid": keras.Input((), dtype=kind, name="valid"),
    }
    model = OverValid(given, keras.layers.Dense(1)(given["x"]))
    features = {"x": drawn, "valid": np.ones(RECORDS, kind)}
    with pytest.raises(UserCodeError, match="expected their mean"):
        cut(model, None, 9, features, drawn[:, :1], kind=Own)


@pytest.mark.parametrize("accumulated", [None, 2])
def test_a_term_that_is_added_little_by_little_is_found_before_the_first_step(
    accumulated,
):
    layers, features, labels = numbers(np.random.default_rng(0))
    model = keras.Sequential([keras.Input(features.shape[1:]), *layers])
    optimizer = keras.optimizers.Adam(gradient_accumulation_steps=accumulated)
    model.compile(optimizer)

    def warmed_up(labels, predictions):
        share = tf.minimum(tf.cast(model.optimizer.iterations, tf.float32) / 20, 1.0)
        spread = tf.math.reduce_variance(predictions)
        return tf.reduce_mean((labels - predictions) ** 2) + share * spread

    given = tf.constant(features, tf.float32), tf.constant(labels, tf.float32)
    with pytest.raises(UserCodeError, match="expected their mean"):
        refuse_uneven(Definition(model, warmed_up), *given)


class Restored(keras.layers.Layer):
    """Adds what is lost of its first input as a loss without labels."""

    def __init__(self, of):
        super().__init__()
        self.of = of

    def call(self, pair):
        self.add_loss(self.of(tf.square(pair[0] - pair[1])))
        return pair[1]


def restoring(of, seed):
    keras.utils.set_random_seed(seed)
    drawn = np.random.default_rng(seed)
    given = keras.Input((6,))
    restored = keras.layers.Dense(6)(keras.layers.Dense(3)(given))
    model = keras.Model(given, Restored(of)([given, restored]))
    definition = Definition(model, lambda labels, said: tf.add_n(model.losses))
    features = tf.constant(drawn.normal(size=(RECORDS, 6)), tf.float32)
    # Labels that no loss sees are in the records all the same.
    for labels in (None, tf.constant(drawn.integers(0, 10, RECORDS))):
        refuse_uneven(definition, features, labels)


def test_a_loss_without_labels_that_is_no_mean_is_refused():
    for seed in range(4):
        with pytest.raises(UserCodeError, match="expected their mean"):
            restoring(lambda each: tf.sqrt(tf.reduce_mean(each)), seed)
    restoring(tf.reduce_mean, 0)
