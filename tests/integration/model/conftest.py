"""Model modules written to a folder of their own, and records for them."""

import textwrap

import numpy as np
import pytest
import tensorflow as tf
from elasticdl.data.reader import Metadata
from elasticdl.job.names import JobDir
from elasticdl.job.spec.job import JobSpec
from elasticdl.model.definition import load_definition
from elasticdl.model.feeding import Feeder

CLASSIC = """
import keras
import tensorflow as tf


def custom_model(units=8):
    inputs = keras.Input((4,), name="x")
    hidden = keras.layers.Dense(units, activation="relu")(inputs)
    return keras.Model(inputs, keras.layers.Dense(3)(hidden))


def loss(labels, predictions):
    return tf.reduce_mean(
        tf.nn.sparse_softmax_cross_entropy_with_logits(labels, predictions)
    )


def optimizer(lr=0.1):
    return keras.optimizers.SGD(lr)


def feed(dataset, mode, metadata):
    def parse(record):
        spec = {"x": tf.io.FixedLenFeature([4], tf.float32)}
        if mode != "prediction":
            spec["label"] = tf.io.FixedLenFeature([], tf.int64)
        found = tf.io.parse_single_example(record, spec)
        features = {"x": found["x"] * 2.0}
        return features if mode == "prediction" else (features, found["label"])

    return dataset.map(parse)


def eval_metrics_fn():
    return {"accuracy": keras.metrics.SparseCategoricalAccuracy()}
"""

COMPILED = """
import keras


def model(units=8):
    network = keras.Sequential(
        [
            keras.Input((4,), name="x"),
            keras.layers.Dense(units, activation="relu"),
            keras.layers.Dense(3, activation="softmax"),
        ]
    )
    network.compile(
        optimizer=keras.optimizers.Adam(0.01),
        loss="sparse_categorical_crossentropy",
        metrics=[
            "accuracy",
            keras.metrics.SparseTopKCategoricalAccuracy(2, name="top"),
        ],
    )
    return network
"""


def example(**features):
    def feature(value):
        if isinstance(value, bytes):
            return tf.train.Feature(bytes_list=tf.train.BytesList(value=[value]))
        array = np.atleast_1d(value)
        if array.dtype.kind == "i":
            return tf.train.Feature(int64_list=tf.train.Int64List(value=array))
        return tf.train.Feature(float_list=tf.train.FloatList(value=array.ravel()))

    return tf.train.Example(
        features=tf.train.Features(
            feature={name: feature(value) for name, value in features.items()}
        )
    ).SerializeToString()


def make_records(count=50):
    """Records whose `x` begins with their number, so that each can be told."""
    random = np.random.default_rng(5)
    return [
        example(
            x=np.concatenate([[float(i)], random.normal(size=3)]).astype(np.float32),
            label=np.int64(i % 3),
        )
        for i in range(count)
    ]


def add(metrics, definition, labels, predictions):
    """Add a batch to metrics, as the evaluator does after the model's call."""
    records = tf.nest.flatten(labels)[0].shape[0]
    metrics.update(labels, predictions, definition.loss(labels, predictions), records)


@pytest.fixture
def records():
    return make_records()


@pytest.fixture
def define(tmp_path):
    """Returns the definition of a module text; keywords go to the job tree."""

    def make(text, definition="net.custom_model", *, job=None, **model):
        zoo = tmp_path / "zoo"
        zoo.mkdir(exist_ok=True)
        (zoo / "net.py").write_text(textwrap.dedent(text))
        tree = {
            "name": "test",
            "data": {"training": "somewhere"},
            "model": {"zoo": str(zoo), "definition": definition, **model},
            **(job or {}),
        }
        return load_definition(JobSpec.model_validate(tree), JobDir(tmp_path / "job"))

    return make


@pytest.fixture
def built(define):
    """The same with its model built."""

    def make(*args, metadata=None, sample=(), **keywords):
        definition = define(*args, **keywords)
        definition.build_model(metadata, sample)
        return definition

    return make


@pytest.fixture
def feeder():
    def make(definition, mode="training", batch_size=8, metadata=None, **keywords):
        return Feeder(
            definition,
            mode=mode,
            batch_size=batch_size,
            metadata=metadata or Metadata(),
            **keywords,
        )

    return make
