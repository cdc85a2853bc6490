"""The example modules, and modules in the style of the old zoo, run as they are."""

from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf
from elasticdl.data.reader import Metadata
from elasticdl.job.names import JobDir
from elasticdl.job.spec.job import JobSpec
from elasticdl.model.definition import load_definition
from elasticdl.model.feeding import Feeder

from tests.integration.model.conftest import add, example

ZOO = Path(__file__).resolve().parents[3] / "model_zoo"
RANDOM = np.random.default_rng(2)


def image(size, top):
    return example(
        image=RANDOM.uniform(0, top, size).astype(np.float32),
        label=RANDOM.integers(0, 10),
    )


def row(columns, classes):
    return example(
        features=RANDOM.uniform(0, 500, columns).astype(np.float32),
        label=RANDOM.integers(0, classes),
    )


CSV = Metadata(column_names=("a", "b", "c", "label"))
MODULES = {
    "digits.cnn.custom_model": ([image(64, 16) for _ in range(40)], Metadata(), {}),
    "digits.compiled.model": ([image(64, 16) for _ in range(40)], Metadata(), {}),
    "mnist.functional_api.custom_model": (
        [image(784, 255) for _ in range(40)],
        Metadata(),
        {},
    ),
    "mnist.subclass.CustomModel": (
        [image(784, 255) for _ in range(40)],
        Metadata(),
        {},
    ),
    "tabular.mlp.model": (
        [row(13, 3) for _ in range(40)],
        Metadata(),
        {"columns": 13, "classes": 3},
    ),
    "tabular.csv.custom_model": (
        [f"{i},2.5,{i / 3},{i % 2}".encode() for i in range(40)],
        CSV,
        {"columns": 3},
    ),
}


def step(definition, batch):
    model = definition.model
    with tf.GradientTape() as tape:
        predictions = definition.call(batch.features, training=True)
        loss = definition.training_loss(batch.features, batch.labels, predictions)
    gradients = tape.gradient(loss, model.trainable_variables)
    definition.optimizer.apply(gradients, model.trainable_variables)
    return float(loss)


@pytest.mark.parametrize("name", MODULES)
def test_a_module_trains_evaluates_and_predicts(name, tmp_path):
    records, metadata, params = MODULES[name]
    spec = JobSpec.model_validate(
        {
            "name": "zoo",
            "model": {"zoo": str(ZOO), "definition": name, "params": params},
            "data": {"training": "x"},
        }
    )
    definition = load_definition(spec, JobDir(tmp_path))
    definition.build_model(metadata, records[:2])
    feeders = {
        mode: Feeder(definition, mode=mode, batch_size=16, metadata=metadata)
        for mode in ("training", "evaluation", "prediction")
    }
    losses = [
        step(definition, batch)
        for _ in range(4)
        for batch in feeders["training"].batches(records)
    ]
    assert all(np.isfinite(losses))
    assert np.mean(losses[-3:]) < np.mean(losses[:3])
    # Vectorised, every one of them.
    assert feeders["training"].plan_name == "block"

    metrics = definition.metrics()
    for batch in feeders["evaluation"].batches(records):
        predictions = definition.call(batch.features, training=False)
        add(metrics, definition, batch.labels, predictions)
    assert 0 <= metrics.results()["accuracy"] <= 1
    for batch in feeders["prediction"].batches(records):
        assert batch.labels is None
        assert len(definition.call(batch.features, training=False)) == batch.num_records
    definition.callbacks_json()


# Modules as they were written for the earlier system (TensorFlow 2.0 to 2.5).

OLD_CENSUS = """
import tensorflow as tf
from tensorflow.keras.layers import Dense, Flatten

from elasticdl.python.common.constants import Mode
from elasticdl.python.common.log_utils import default_logger as logger
from elasticdl.python.elasticdl.callbacks import LearningRateScheduler
from elasticdl.python.elasticdl.layers.embedding import Embedding
from elasticdl.python.worker.prediction_outputs_processor import (
    BasePredictionOutputsProcessor,
)


def custom_model():
    ids = tf.keras.layers.Input(shape=(3,), name="ids", dtype=tf.int64)
    dense = tf.keras.layers.Input(shape=(2,), name="numbers")
    embedded = Flatten()(Embedding(8, input_dim=50)(ids))
    joined = tf.keras.layers.concatenate([embedded, dense])
    hidden = Dense(16, activation="relu")(joined)
    logits = Dense(1, activation="sigmoid", name="probs")(hidden)
    return tf.keras.Model(inputs=[ids, dense], outputs=logits)


def loss(labels, predictions):
    labels = tf.reshape(labels, (-1,))
    predictions = tf.reshape(predictions, (-1,))
    return tf.reduce_mean(tf.keras.losses.binary_crossentropy(labels, predictions))


def optimizer(lr=0.001):
    return tf.keras.optimizers.Adam(learning_rate=lr)


def eval_metrics_fn():
    return {
        "logits": {
            "accuracy": lambda labels, predictions: tf.equal(
                tf.cast(tf.reshape(predictions, [-1]) > 0.5, tf.int32),
                tf.cast(tf.reshape(labels, [-1]), tf.int32),
            ),
            "auc": tf.keras.metrics.AUC(),
        }
    }


def callbacks():
    def _schedule(model_version):
        if model_version < 100:
            return 0.0003 * 2
        return 0.0001

    logger.info("callbacks")
    return [LearningRateScheduler(_schedule)]


def dataset_fn(dataset, mode, metadata):
    def _parse_data(record):
        feature_description = {
            "ids": tf.io.FixedLenFeature([3], tf.int64),
            "numbers": tf.io.FixedLenFeature([2], tf.float32),
        }
        if mode != Mode.PREDICTION:
            feature_description["label"] = tf.io.FixedLenFeature([], tf.int64)
        example = tf.io.parse_single_example(record, feature_description)
        if mode == Mode.PREDICTION:
            return example
        label = example.pop("label")
        return example, label

    dataset = dataset.map(_parse_data)
    if mode == Mode.TRAINING:
        dataset = dataset.shuffle(buffer_size=200)
    return dataset


class PredictionOutputsProcessor(BasePredictionOutputsProcessor):
    def __init__(self):
        self.seen = 0

    def process(self, predictions, worker_id):
        self.seen += len(predictions)
        logger.info("worker %d: %d", worker_id, self.seen)
"""


def test_a_module_of_the_old_zoo_runs_unmodified(built, feeder):
    records = [
        example(
            ids=RANDOM.integers(0, 50, 3),
            numbers=RANDOM.normal(size=2).astype(np.float32),
            label=np.int64(i % 2),
        )
        for i in range(60)
    ]
    definition = built(OLD_CENSUS)
    feed = feeder(definition, batch_size=20)
    losses = [step(definition, b) for _ in range(15) for b in feed.batches(records)]
    assert np.mean(losses[-3:]) < np.mean(losses[:3])
    assert feed.plan_name == "block"
    assert definition.rate_schedule().learning_rate_of(99, 0) == pytest.approx(0.0006)
    metrics = definition.metrics()
    assert metrics.names() == ["loss", "logits/accuracy", "logits/auc"]
    for batch in feeder(definition, mode="evaluation").batches(records):
        predictions = definition.call(batch.features, training=False)
        add(metrics, definition, batch.labels, predictions)
    assert 0 <= metrics.results()["logits/auc"] <= 1
    processor = definition.outputs_processor()
    for batch in feeder(definition, mode="prediction").batches(records):
        processor.process(definition.call(batch.features, training=False).numpy(), 1)
    assert processor.seen == 60


def test_a_frozen_backbone_gets_no_gradient(built, records, feeder):
    text = """
import keras
import tensorflow as tf

class Net(tf.keras.Model):
    def __init__(self):
        super().__init__()
        self.backbone = tf.keras.layers.Dense(4, trainable=False)
        self.head = tf.keras.layers.Dense(3)

    def call(self, inputs):
        return self.head(self.backbone(inputs["x"]))

def loss(labels, predictions):
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(
        tf.reshape(labels, [-1]), predictions))

def optimizer():
    return tf.optimizers.SGD(0.1)

def input_fn(dataset, mode, metadata):
    return dataset.batch(10).map(lambda rows: parse(rows))

def parse(rows):
    f = tf.io.parse_example(rows, {
        "x": tf.io.FixedLenFeature([4], tf.float32),
        "label": tf.io.FixedLenFeature([], tf.int64)})
    return {"x": f["x"]}, f["label"]
"""
    definition = built(text, "net.Net")
    names = [v.path.rsplit("/")[-2] for v in definition.model.trainable_variables]
    assert names == ["dense_1", "dense_1"]
    feed = feeder(definition, batch_size=8)
    sizes = [b.num_records for b in feed.batches(records)]
    assert sizes == [8, 8, 8, 8, 8, 8, 2]
    # A function of whole batches might drop rows: nobody can tell.
    assert not feed.order_preserved
    assert keras.config.floatx() == "float32"
