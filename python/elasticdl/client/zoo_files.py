"""The files that a new model zoo begins with.

Owns their text. Written by `client.zoo`; what they run is the user's from then on.
"""

from __future__ import annotations

_DOCKERFILE = """\
# An image with the models of this folder, for jobs in a cluster:
#     elasticdl zoo build --image=NAME:TAG .
# The image it is built on has all that master, PS and workers of a job run.
ARG BASE_IMAGE=@BASE_IMAGE@
FROM ${BASE_IMAGE}
# Where pip finds packages, if it is told: --build-arg PIP_INDEX_URL=...
ARG PIP_INDEX_URL

USER root
COPY requirements.txt /tmp/requirements.txt
# Into the environment that runs the workers, whichever Python that is.
RUN PIP_ROOT_USER_ACTION=ignore pip --python "$(command -v python)" install \
    --no-cache-dir -r /tmp/requirements.txt
# A job finds it as model.zoo: model_zoo (or --model_zoo=model_zoo).
COPY . /model_zoo

USER 10001:10001
"""

_DOCKERIGNORE = """\
# What the image does not need.
.git
**/__pycache__
data
outputs
"""

_REQUIREMENTS = """\
# What your models import besides TensorFlow and Keras, one package a line.
"""

_MODEL = """\
# A model to begin with: handwritten digits of 8x8 pixels. Try it on this machine, in
# the folder above the zoo:
#     elasticdl data make digits data/digits
#     elasticdl train --model_zoo=@ZOO@ --model_def=example.mlp.custom_model \\
#         --training_data=data/digits/train --validation_data=data/digits/test
# What each function is for: docs/models.md.
import keras
import tensorflow as tf


def custom_model(units=64):
    inputs = keras.Input(shape=(64,), name="image")
    x = keras.layers.Dense(units, activation="relu")(inputs)
    outputs = keras.layers.Dense(10)(x)
    return keras.Model(inputs, outputs)


def loss(labels, predictions):
    return tf.reduce_mean(
        tf.nn.sparse_softmax_cross_entropy_with_logits(labels, predictions)
    )


def optimizer(lr=0.001):
    return keras.optimizers.Adam(lr)


def feed(dataset, mode, metadata):
    def parse(record):
        spec = {"image": tf.io.FixedLenFeature([64], tf.float32)}
        if mode != "prediction":
            spec["label"] = tf.io.FixedLenFeature([], tf.int64)
        example = tf.io.parse_single_example(record, spec)
        features = {"image": example["image"] / 16.0}
        return features if mode == "prediction" else (features, example["label"])

    dataset = dataset.map(parse)
    return dataset.shuffle(1024) if mode == "training" else dataset


def eval_metrics_fn():
    return {"accuracy": keras.metrics.SparseCategoricalAccuracy()}
"""

FILES = {
    "Dockerfile": _DOCKERFILE,
    ".dockerignore": _DOCKERIGNORE,
    "requirements.txt": _REQUIREMENTS,
    "example/mlp.py": _MODEL,
}
