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
        worker={"replicas": 1},
    )
    result = evaluation.finish()
    # The newest checkpoint is of the final version.
    assert result.metrics["accuracy"] == pytest.approx(accuracy, abs=1e-6)
    done = prediction.finish()
    rows = [
        json.loads(line)
        for file in sorted((prediction.job_dir.predictions_dir).glob("*.jsonl"))
        for line in file.read_text().splitlines()
    ]
    assert len(rows) == done.records == 359

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
