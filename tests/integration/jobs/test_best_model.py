"""The best model is the one that was measured, where workers evaluate their own."""

import keras
import numpy as np
import pytest

# What it says grows by the same with each step, so that a value tells the step; it is
# best in the middle of the job.
GROWING = """
import keras
import tensorflow as tf


def model():
    x = keras.Input((1,))
    return keras.Model(x, keras.layers.Dense(1, use_bias=False)(x))


def loss(labels, predictions):
    return -tf.reduce_mean(predictions)


def optimizer():
    return keras.optimizers.SGD(1.0)


def feed(dataset, mode, metadata):
    def parse(line):
        return tf.io.decode_csv(line, [tf.constant([], tf.float32)] * 2)

    return dataset.map(parse).map(lambda x, y: (x[None], y)).batch(8)


def eval_metrics_fn():
    return {"away": lambda labels, predictions: tf.abs(labels[:, None] - predictions)}


def callbacks():
    return [
        keras.callbacks.ModelCheckpoint(
            "best.keras", "val_away", mode="min", save_best_only=True
        )
    ]
"""
STEPS, BEST = 96, 50


@pytest.mark.parametrize(
    ("strategy", "workers"),
    [("local", 1), pytest.param("allReduce", 2, marks=pytest.mark.soak)],
)
def test_the_best_model_is_the_one_that_was_measured(
    job, tmp_path, strategy, workers
) -> None:
    for name, rows in (("train", 8 * STEPS // 2), ("validation", 128)):
        (tmp_path / f"{name}.csv").write_text("x,y\n" + f"1,{BEST}\n" * rows)
    one = job(
        f"best-{strategy.lower()}",
        strategy=strategy,
        model={"definition": "net.model", "files": {"net.py": GROWING}},
        data={
            "training": str(tmp_path / "train.csv"),
            "validation": str(tmp_path / "validation.csv"),
        },
        training={
            "epochs": 2, "batchSize": 8, "batchesPerTask": 1,
            **({"globalBatchSize": 8} if strategy == "allReduce" else {}),
        },
        evaluation={"everySteps": 7},
        worker={"replicas": workers},
        export={"dir": str(tmp_path / "out"), "formats": ["keras"]},
    )  # fmt: skip
    report = one.finish()
    models = [
        keras.models.load_model(tmp_path / "out" / name, compile=False)
        for name in ("best/model.keras", "model.keras")
    ]
    best, last = (float(np.asarray(m.weights[0]).item()) for m in models)
    first = last - STEPS
    assert report.best is not None
    assert report.best.metrics["away"] == pytest.approx(abs(BEST - best), abs=1e-3)
    # What is told of each version was measured at that version.
    for evaluation in report.evaluations:
        value = BEST - first - evaluation.version
        assert evaluation.metrics["away"] == pytest.approx(abs(value), abs=1e-3)
