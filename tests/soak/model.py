"""The model of soak jobs: digits by an MLP whose steps take as long as asked."""

import time

import keras
import numpy as np
import tensorflow as tf


def custom_model():
    return keras.Sequential(
        [
            keras.Input((64,)),
            keras.layers.Dense(64, activation="relu"),
            keras.layers.Dense(10),
        ]
    )


def _wait(seconds):
    time.sleep(float(seconds))
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


def optimizer(lr=0.003):
    return keras.optimizers.Adam(lr)


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
