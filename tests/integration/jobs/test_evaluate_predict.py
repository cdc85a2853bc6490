"""Evaluation and prediction jobs from a checkpoint, and the exported models."""

import json

import keras
import numpy as np
import pytest
import tensorflow as tf


def test_trained_model_is_exported_evaluated_and_used_for_prediction(job, digits):
    one = job(
        "train-first",
        training={"epochs": 6},
        ps={"replicas": 2},
        export={"dir": str(digits / "outputs")},
    )
    report = one.finish()
    # What an earlier job of more records left, and what is nobody's prediction.
    written = digits / "predicted"
    written.mkdir()
    for name in ("part-000099.jsonl", "part-000000.parquet", "notes.jsonl"):
        (written / name).write_text("{}\n")
    accuracy = report.metrics["accuracy"]

    evaluation = job(
        "evaluate",
        verb="evaluate",
        type="evaluate",
        checkpoint={"initFrom": report.checkpoint},
        worker={"replicas": 2},
    )
    prediction = job(
        "predict",
        verb="predict",
        type="predict",
        data={"prediction": "data/digits/test"},
        checkpoint={"initFrom": report.checkpoint},
        predictionFormat="jsonl",
        predictionOutput="predicted",
        worker={"replicas": 1},
    )
    result = evaluation.finish()
    # The newest checkpoint is of the final version.
    assert result.metrics["accuracy"] == pytest.approx(accuracy, abs=1e-6)
    done = prediction.finish()
    rows = [
        json.loads(line)
        for file in sorted(written.glob("part-*"))
        for line in file.read_text().splitlines()
    ]
    assert len(rows) == done.records == 359
    assert (written / "notes.jsonl").exists()

    paths = {p.rsplit("/", 1)[-1]: p for p in report.exports}
    assert len(paths) == 2
    data = np.random.default_rng(0).random((4, 64), dtype=np.float32)
    loaded = keras.models.load_model(
        next(p for p in report.exports if p.endswith(".keras"))
    )
    served = tf.saved_model.load(
        next(p for p in report.exports if not p.endswith(".keras"))
    )
    np.testing.assert_allclose(loaded(data), served.serve(data), rtol=1e-4, atol=1e-5)


ORDERED = """
import keras
import numpy as np

def by_name():
    inputs = [keras.Input((1,), name=name) for name in ("a", "b")]
    both = keras.layers.Concatenate()(inputs)
    return compiled(keras.Model(inputs, keras.layers.Dense(1)(both)))

def as_vector():
    layers = [keras.Input((2,), name="x"), keras.layers.Dense(1)]
    return compiled(keras.Sequential(layers))

def compiled(model):
    model.layers[-1].set_weights([np.array([[1.0], [-1.0]]), np.zeros(1)])
    model.compile(keras.optimizers.SGD(0.0), "mse")
    return model
"""


@pytest.mark.parametrize(
    "form", ["by_name", pytest.param("as_vector", marks=pytest.mark.soak)]
)
def test_columns_of_validation_may_have_another_order_than_those_of_training(
    job, digits, form
):
    rows = np.random.default_rng(0).normal(size=(40, 2))
    for name, order in (("training", "ab"), ("validation", "ba")):
        lines = [",".join([*order, "label"])]
        for a, b in rows:
            of = {"a": a, "b": b}
            lines.append(",".join(repr(float(v)) for v in (*map(of.get, order), a - b)))
        (digits / f"{name}-{form}.csv").write_text("\n".join(lines))
    report = job(
        f"order-{form.replace('_', '-')}",
        strategy="local",
        model={"definition": f"order.{form}", "files": {"order.py": ORDERED}},
        data={
            "training": f"training-{form}.csv",
            "validation": f"validation-{form}.csv",
        },
        training={"epochs": 1},
        worker={"replicas": 1},
    ).finish()
    # The model subtracts already: what is left is rounding.
    assert report.metrics["loss"] < 1e-9


PARTIAL = """
import keras
import tensorflow as tf

class Partial(keras.Model):
    def __init__(self):
        super().__init__()
        self.flat = keras.layers.Flatten()
        self.dense = keras.layers.Dense(10)

    def call(self, features):
        digit = self.dense(self.flat(features["image"]))
        return {"digit": digit, "left_out": None}

def custom_model():
    return Partial()

def loss(labels, predictions):
    return keras.ops.mean(keras.losses.sparse_categorical_crossentropy(
        labels, predictions["digit"], from_logits=True))

def optimizer():
    return keras.optimizers.Adam(0.01)

def feed(dataset, mode, metadata):
    spec = {"image": tf.io.FixedLenFeature([8, 8], tf.float32)}
    if mode != "prediction":
        spec["label"] = tf.io.FixedLenFeature([], tf.int64)
    def parse(record):
        example = tf.io.parse_single_example(record, spec)
        features = {"image": example["image"] / 16.0}
        return features if mode == "prediction" else (features, example["label"])
    return dataset.map(parse)

def eval_metrics_fn():
    return {"accuracy": lambda labels, predictions:
        keras.metrics.sparse_categorical_accuracy(labels, predictions["digit"])}
"""


@pytest.mark.parametrize("strategy", ["local", "allReduce", "parameterServer"])
def test_an_output_that_a_model_leaves_out_is_none_to_its_loss_and_no_column(
    job, digits, strategy
):
    model = {"definition": "partial.custom_model", "files": {"partial.py": PARTIAL}}
    report = job(
        f"partial-{strategy.lower()}",
        strategy=strategy,
        model=model,
        training={"epochs": 3},
        worker={"replicas": 1},
    ).finish()
    assert report.metrics["accuracy"] > 0.6
    job(
        "partial-predict",
        verb="predict",
        type="predict",
        model=model,
        data={"prediction": "data/digits/test"},
        checkpoint={"initFrom": report.checkpoint},
        predictionFormat="jsonl",
        predictionOutput="predicted",
        worker={"replicas": 1},
    ).finish()
    row = json.loads(
        (digits / "predicted/part-000000.jsonl").read_text().split("\n")[0]
    )
    assert set(row) == {"source", "record", "digit"}
