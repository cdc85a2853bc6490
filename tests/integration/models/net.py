"""A small model in the classic form: what most jobs under test train."""

import keras
import tensorflow as tf


def custom_model():
    return keras.Sequential(
        [
            keras.Input((64,)),
            keras.layers.Dense(64, activation="relu"),
            keras.layers.Dense(10),
        ]
    )


def loss(labels, predictions):
    return tf.reduce_mean(
        keras.losses.sparse_categorical_crossentropy(
            labels, predictions, from_logits=True
        )
    )


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
        image = features["image"] / 16.0
        if mode == "prediction":
            return image
        return image, features["label"][0]

    return dataset.map(parse)


def eval_metrics_fn():
    return {"accuracy": keras.metrics.SparseCategoricalAccuracy()}
