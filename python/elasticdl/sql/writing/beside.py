"""Files of model code beside a trained module: metrics, integrated gradients.

Owns their text. Called by `sql.running`. Pure: names in, text out.
"""

from __future__ import annotations

from collections.abc import Sequence

from elasticdl.sql.metrics import THRESHOLDS, metric_calls, needs_thresholds
from elasticdl.sql.plan import Head
from elasticdl.sql.writing.text import joined, listing, literal

# A model's name begins with a letter, and its module's too: it has none of these.
EVALUATION_FILE, EVALUATION = "sql/_evaluation.py", "sql._evaluation.eval_metrics_fn"
EXPLAINED_FILE, EXPLAINED = "sql/_explained.py", "sql._explained.model"


def evaluation(head: Head, wanted: Sequence[str]) -> str:
    """Return a module with the metrics that a statement asks for."""
    items = [f"{literal(k)}: {v}" for k, v in metric_calls(head, wanted).items()]
    made = listing("return ", items, indent=4, signs="{}")
    constants = f"\n\n{THRESHOLDS}" if needs_thresholds(wanted) else ""
    return joined(
        [
            f'"""The metrics that a statement asked for."""\n\nimport keras{constants}',
            f'def eval_metrics_fn():\n    """Return metrics by name."""\n{made}',
        ]
    )


def explained(definition: str, columns: Sequence[str]) -> str:
    """Return a module whose model predicts what each column counts for."""
    module, _, function = definition.rpartition(".")
    return _EXPLAINED.format(
        module=module,
        function=function,
        columns=listing("COLUMNS = ", [literal(one) for one in columns], indent=0),
    )


_EXPLAINED = '''\
"""Integrated gradients of a trained model (Sundararajan, Taly and Yan, 2017).

The columns are encoded; from the baseline, where every encoded number is 0 (the mean
of what is standardised, no value of a category), a straight path leads to the row. A
column counts for the mean gradient along it times its way: all columns of a row
together explain what the model says of it less what it says of the baseline.
"""

import functools

import keras
import tensorflow as tf
from {module} import {function} as trained

STEPS = 32  # Of the path; the sum is within about 1 % of the whole.
{columns}


def model(**params):
    """Return the trained network, whose predictions are what columns count for."""
    network = trained(**params)
    inputs = {{tensor.name: tensor for tensor in network.inputs}}
    ends, owners = cut(network)
    encoder = keras.Model(inputs, ends)
    rest = keras.Model(ends, network.output)
    made = Explained(inputs, network.output)
    made.explain = functools.partial(attributions, encoder, rest, owners)
    made.compile("sgd", "mean_squared_error")  # A job asks for both; it never trains.
    return made


class Explained(keras.Model):
    """A network that predicts what each of COLUMNS counts for, and the sum."""

    def predict_step(self, data):
        return self.explain(data[0])


def cut(network):
    """Return where columns are encoded but not mixed yet, and whose each one is."""
    owners = {{id(tensor): frozenset([tensor.name]) for tensor in network.inputs}}
    ends = {{}}
    for operation in network.operations:
        if isinstance(operation, keras.layers.InputLayer):
            continue
        given = [
            one
            for one in keras.tree.flatten(operation.input)
            if isinstance(one, keras.KerasTensor)
        ]
        known = [owners[id(one)] for one in given if id(one) in owners]
        mixes = len(set(known)) > 1 and given[0].dtype.startswith("float")
        if len(known) == len(given) and not mixes and not learns(operation):
            for one in keras.tree.flatten(operation.output):
                owners[id(one)] = frozenset().union(*known)
            continue
        for one in given:
            if id(one) in owners:
                ends[id(one)] = one
    wrong = [one.name for one in ends.values() if not one.dtype.startswith("float")]
    if wrong:
        raise ValueError(
            f"{{wrong}} are no numbers, so they have no gradients; expected a model of "
            "encoded columns: take USING PermutationImportance"
        )
    return list(ends.values()), [owners[key] for key in ends]


def learns(operation):
    """Whether an operation has weights; an embedding only encodes."""
    if isinstance(operation, keras.layers.Embedding):
        return False
    return bool(getattr(operation, "trainable_variables", ()))


def attributions(encoder, rest, owners, features):
    """Return what each column counts for in each row, then the sum of all."""
    encoded = [tf.cast(one, tf.float32) for one in encoder(features, training=False)]
    outputs = rest(encoded, training=False)
    chosen = tf.argmax(outputs, axis=-1, output_type=tf.int32)
    shares = (tf.range(STEPS, dtype=tf.float32) + 0.5) / STEPS
    points = [along(one, shares) for one in encoded]
    with tf.GradientTape() as tape:
        tape.watch(points)
        said = picked(rest(points, training=False), tf.repeat(chosen, STEPS))
    slopes = tape.gradient(said, points, unconnected_gradients="zero")
    baseline = rest([tf.zeros_like(one) for one in encoded], training=False)
    counts = dict.fromkeys(COLUMNS, tf.zeros_like(outputs[:, 0]))
    for one, slope, columns in zip(encoded, slopes, owners, strict=True):
        steps = tf.reshape(slope, tf.concat([[-1, STEPS], tf.shape(one)[1:]], 0))
        parts = one * tf.reduce_mean(steps, axis=1)
        total = tf.reduce_sum(tf.reshape(parts, [tf.shape(parts)[0], -1]), axis=1)
        for column in columns:  # one that crosses several counts for each alike
            counts[column] += total / len(columns)
    whole = picked(outputs, chosen) - picked(baseline, chosen)
    return tf.stack([*counts.values(), whole], axis=1)


def along(encoded, shares):
    """Return the points of the path from 0, all rows under each other."""
    rows = tf.repeat(encoded, STEPS, axis=0)
    every = tf.tile(shares, [tf.shape(encoded)[0]])
    shape = tf.concat([tf.shape(every), tf.ones(tf.rank(rows) - 1, tf.int32)], 0)
    return rows * tf.reshape(every, shape)


def picked(outputs, chosen):
    """Return of each row what the model says of the class that it chose."""
    return tf.gather(outputs, chosen, axis=1, batch_dims=1)
'''
