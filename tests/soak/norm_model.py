"""The classic CNN with BatchNormalization (model_zoo/mnist), small, for 14x14 digits.

A second BatchNormalization is behind the first convolution, so that what one layer does
decides what the next one is fed.
"""

import keras
import tensorflow as tf


def custom_model():
    inputs = keras.Input((14, 14), name="image")
    x = keras.layers.Reshape((14, 14, 1))(inputs)
    x = keras.layers.Conv2D(8, 3, activation="relu")(x)
    x = keras.layers.BatchNormalization(name="first")(x)
    x = keras.layers.Conv2D(16, 3, activation="relu")(x)
    x = keras.layers.BatchNormalization(name="second")(x)
    x = keras.layers.MaxPooling2D()(x)
    x = keras.layers.Dropout(0.25)(x)
    x = keras.layers.Flatten()(x)
    return keras.Model(inputs, keras.layers.Dense(10)(x))


def loss(labels, predictions):
    return tf.reduce_mean(
        keras.losses.sparse_categorical_crossentropy(
            labels, predictions, from_logits=True
        )
    )


def optimizer(lr=0.001):
    # A constant rate: weights go on moving, and statistics have to follow them.
    return keras.optimizers.Adam(lr)


def feed(dataset, mode, metadata):
    def parse(record):
        features = tf.io.parse_single_example(
            record,
            {
                "image": tf.io.FixedLenFeature([14, 14], tf.float32),
                "label": tf.io.FixedLenFeature([], tf.int64),
            },
        )
        return features["image"], features["label"]

    dataset = dataset.map(parse)
    return dataset.shuffle(1024) if mode == "training" else dataset


def eval_metrics_fn():
    return {"accuracy": keras.metrics.SparseCategoricalAccuracy()}
