"""The best model is the one that was measured, where workers evaluate their own."""

import signal
import threading

import keras
import numpy as np
import pytest
from elasticdl.errors import ExitCode
from elasticdl.views.formatting import metrics

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
RESTORING = (
    GROWING.partition("def callbacks")[0]
    + """
def callbacks():
    return [
        keras.callbacks.EarlyStopping(
            "val_away", mode="min", patience=3, restore_best_weights=True
        )
    ]
"""
)
STEPS, BEST = 96, 50


def write_data(folder):
    for name, rows in (("train", 8 * STEPS // 2), ("validation", 128)):
        (folder / f"{name}.csv").write_text("x,y\n" + f"1,{BEST}\n" * rows)


def value_of(path):
    model = keras.models.load_model(path, compile=False)
    return float(np.asarray(model.weights[0]).item())


def test_best_weights_are_not_missed_where_nothing_is_evaluated(job, tmp_path) -> None:
    write_data(tmp_path)
    one = job(
        "nothing-restored",
        strategy="local",
        model={"definition": "net.model", "files": {"net.py": RESTORING}},
        data={"training": str(tmp_path / "train.csv"), "validation": ""},
        training={"epochs": 1},
        worker={"replicas": 1},
    )
    assert one.finish().steps > 0
    assert "callbacks do nothing" in one.output


@pytest.mark.parametrize(
    ("strategy", "workers"),
    [
        ("parameterServer", 1),
        pytest.param("local", 1, marks=pytest.mark.soak),
        pytest.param("allReduce", 2, marks=pytest.mark.soak),
    ],
)
def test_early_stopping_restores_the_best_weights_of_all_that_were_measured(
    job, tmp_path, strategy, workers
) -> None:
    write_data(tmp_path)
    one = job(
        f"restored-{strategy.lower()}",
        strategy=strategy,
        model={"definition": "net.model", "files": {"net.py": RESTORING}},
        data={
            "training": str(tmp_path / "train.csv"),
            "validation": str(tmp_path / "validation.csv"),
        },
        training={
            "epochs": 9, "batchSize": 8, "batchesPerTask": 1,
            **({"globalBatchSize": 8} if strategy == "allReduce" else {}),
        },
        evaluation={"everySteps": 7},
        worker={"replicas": workers},
        export={"dir": str(tmp_path / "out"), "formats": ["keras"]},
    )  # fmt: skip
    report = one.finish()
    assert report.records < 9 * 4 * STEPS  # it was stopped
    assert "finishing: early stopping: away has not improved on" in one.output
    assert report.restored is not None
    assert metrics(report.restored.metrics) in one.output.splitlines()[-1]
    least = min(evaluation.metrics["away"] for evaluation in report.evaluations)
    assert report.restored.metrics["away"] == least
    final = value_of(tmp_path / "out" / "model.keras")
    assert abs(BEST - final) == pytest.approx(least, abs=1e-3)
    assert report.evaluations[-1].metrics["away"] > least
    assert not list((tmp_path / "out").glob(".kept-*"))


def test_best_weights_that_would_be_restored_nowhere_are_refused(job, tmp_path) -> None:
    write_data(tmp_path)
    one = job(
        "restored-nowhere",
        strategy="local",
        model={"definition": "net.model", "files": {"net.py": RESTORING}},
        data={
            "training": str(tmp_path / "train.csv"),
            "validation": str(tmp_path / "validation.csv"),
        },
        worker={"replicas": 1},
    )
    assert one.wait_for_exit() == ExitCode.USER_CODE
    assert "export.dir is empty" in one.output
    assert "restore_best_weights" in one.output


@pytest.mark.parametrize(
    ("strategy", "workers"),
    [("local", 1), pytest.param("allReduce", 2, marks=pytest.mark.soak)],
)
def test_the_best_model_is_the_one_that_was_measured(
    job, tmp_path, strategy, workers
) -> None:
    write_data(tmp_path)
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
    out = tmp_path / "out"
    best, last = (value_of(out / name) for name in ("best/model.keras", "model.keras"))
    first = last - STEPS
    assert report.best is not None
    assert report.best.metrics["away"] == pytest.approx(abs(BEST - best), abs=1e-3)
    # What is told of each version was measured at that version.
    for evaluation in report.evaluations:
        value = BEST - first - evaluation.version
        assert evaluation.metrics["away"] == pytest.approx(abs(value), abs=1e-3)


@pytest.mark.soak
def test_an_evaluation_job_leaves_the_best_model_of_the_training_job_as_it_is(
    job, tmp_path
) -> None:
    write_data(tmp_path)
    values = {
        "strategy": "local",
        "model": {"definition": "net.model", "files": {"net.py": GROWING}},
        "data": {
            "training": str(tmp_path / "train.csv"),
            "validation": str(tmp_path / "validation.csv"),
        },
        "training": {"epochs": 2, "batchSize": 8, "batchesPerTask": 1},
        "evaluation": {"everySteps": 7},
        "worker": {"replicas": 1},
        "export": {"dir": str(tmp_path / "out"), "formats": ["keras"]},
    }
    trained = job("best-trained", **values).finish()
    best = value_of(tmp_path / "out" / "best" / "model.keras")
    # As `elasticdl evaluate -f` of the same file has it, whose checkpoint is the last.
    measured = job(
        "best-measured",
        verb="evaluate",
        type="evaluate",
        checkpoint={"initFrom": trained.checkpoint},
        **values,
    ).finish()
    assert measured.metrics["away"] == pytest.approx(trained.metrics["away"])
    assert not measured.exports
    assert value_of(tmp_path / "out" / "best" / "model.keras") == best
    assert trained.best.metrics["away"] < trained.metrics["away"]


# Tasks of an evaluation take a moment, so that it is met at work.
SLOW = (
    GROWING.replace("tf.abs(labels[:, None] - p", "tf.abs(labels[:, None] - slow(p)")
    .replace("slow(p)redictions", "slow(predictions)")
    .replace(
        "def eval_metrics_fn",
        """
def slow(x):
    def wait(x):
        import time

        time.sleep(0.2)
        return x

    return tf.ensure_shape(tf.py_function(wait, [x], tf.float32), x.shape)


def eval_metrics_fn""",
    )
)
AWAY_SECONDS = 4.0


@pytest.mark.soak
def test_an_evaluation_of_a_group_sees_one_version_though_the_master_is_away(
    job, tmp_path
) -> None:
    write_data(tmp_path)
    one = job(
        "away-in-evaluation",
        strategy="allReduce",
        model={"definition": "net.model", "files": {"net.py": SLOW}},
        data={
            "training": str(tmp_path / "train.csv"),
            "validation": str(tmp_path / "validation.csv"),
        },
        training={
            "epochs": 2, "batchSize": 8, "batchesPerTask": 4, "globalBatchSize": 8,
        },
        evaluation={"everySteps": 24},
        worker={"replicas": 2},
        export={"dir": str(tmp_path / "out"), "formats": ["keras"]},
    )  # fmt: skip
    one.wait_until(
        lambda s: any(r.phase == "evaluate" for r in s.replicas), "an evaluation"
    )
    one.handle.kill("master", signal.SIGSTOP)
    threading.Event().wait(AWAY_SECONDS)
    one.handle.kill("master", signal.SIGCONT)
    report = one.finish()
    out = tmp_path / "out"
    best, last = (value_of(out / name) for name in ("best/model.keras", "model.keras"))
    assert report.best.metrics["away"] == pytest.approx(abs(BEST - best), abs=1e-3)
    for evaluation in report.evaluations:
        value = BEST - (last - STEPS) - evaluation.version
        assert evaluation.metrics["away"] == pytest.approx(abs(value), abs=1e-3)
