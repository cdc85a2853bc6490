"""The model of soak jobs: digits by an MLP whose steps take as long as asked.

Written into a job's folder, so it must import nothing from here. The folder SOAK_DIR
tells it what goes on: once `quick` is there, steps wait no longer; each process writes
the times of its steps to `steps-<pid>`.
"""

import os
import struct
import time

import keras
import numpy as np
import tensorflow as tf

_FOLDER = os.environ["SOAK_DIR"]
_QUICK = os.path.join(_FOLDER, "quick")  # noqa: PTH118 - looked for at each step
_times: list[int] = []  # the file of this process, open


def custom_model():
    return keras.Sequential(
        [
            keras.Input((64,)),
            # With one or two PS these go through lent memory, with more as messages.
            keras.layers.Dense(512, activation="relu"),
            keras.layers.Dense(10),
        ]
    )


def _wait(seconds):
    if not os.path.exists(_QUICK):  # noqa: PTH110
        time.sleep(float(seconds))
    if not _times:
        path = os.path.join(_FOLDER, f"steps-{os.getpid()}")  # noqa: PTH118
        _times.append(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644))
    os.write(_times[0], struct.pack("d", time.time()))
    return np.float32(0.0)


def loss_of(step_seconds):
    """Return a loss that also waits, as a larger model would compute."""

    def loss(labels, predictions):
        error = tf.reduce_mean(
            keras.losses.sparse_categorical_crossentropy(
                labels, predictions, from_logits=True
            )
        )
        waited = tf.numpy_function(_wait, [tf.constant(step_seconds)], tf.float32)
        waited.set_shape([])
        return error + tf.stop_gradient(waited)

    return loss


def optimizer(lr=0.002):
    # At its end it hardly moves: what async workers push at the same time makes its
    # accuracy go up and down by 0.02 at a constant rate, more than the bound.
    schedule = keras.optimizers.schedules.CosineDecay(lr, decay_steps=800, alpha=0.02)
    return keras.optimizers.Adam(schedule)


def feed(dataset, mode, metadata):
    def parse(record):
        features = tf.io.parse_single_example(
            record,
            {
                "image": tf.io.FixedLenFeature([64], tf.float32),
                "label": tf.io.FixedLenFeature([1], tf.int64),
            },
        )
        return features["image"] / 16.0, features["label"][0]

    return dataset.map(parse)


def eval_metrics_fn():
    return {"accuracy": keras.metrics.SparseCategoricalAccuracy()}
