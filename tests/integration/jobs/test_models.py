"""What model modules may bring, in whole jobs: each feature through all roles.

Jobs cost seconds of TensorFlow's import, so each one shows several features; two at a
time run side by side.
"""

import csv
import re

import keras
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytestmark = pytest.mark.usefixtures("unmeasured")

IDS = 100
TOUCHED = 20  # ids below this one are in the data
ROWS = 192  # every batch of 16 holds the same `x`
NUMBERS = np.arange(ROWS)
INPUTS = {
    "ids": np.stack([NUMBERS % TOUCHED, NUMBERS * 7 % TOUCHED], axis=1),
    "x": np.repeat(NUMBERS % 16, 4).reshape(-1, 4),
}
LABELS = NUMBERS % TOUCHED % 2

# Its own reader, which makes records out of nothing, so that no file can stand in for
# it; an Embedding, BatchNormalization and Dropout; three callbacks of the master.
EVERYTHING = f"""
import os
import keras
import numpy as np
from elasticdl.data.formats.example import encode_example
from elasticdl.python.data.reader.data_reader import AbstractDataReader

print("order of a set:", list({{"a", "b", "c", "d", "e", "f", "g", "h"}}))

class Reader(AbstractDataReader):
    def __init__(self, data_origin, **kwargs):
        super().__init__(**kwargs)
        self.origin = data_origin

    def create_shards(self):
        return {{f"{{self.origin}}-{{part}}": (0, {ROWS // 2}) for part in "ab"}}

    def read_records(self, task):
        for i in range(task.start, task.end):
            number = i + (task.shard_name[-1] == "b") * {ROWS // 2}
            ids = [number % {TOUCHED}, number * 7 % {TOUCHED}]
            yield encode_example(
                {{"ids": ids, "x": [number % 16.0] * 4, "label": ids[0] % 2}}
            )


def custom_data_reader(data_origin, **kwargs):
    assert kwargs["answer"] == 42
    return Reader(data_origin, **kwargs)


def model():
    ids = keras.Input((2,), name="ids", dtype="int64")
    x = keras.Input((4,), name="x")
    rows = keras.layers.Embedding({IDS}, 8, name="table")(ids)
    normal = keras.layers.BatchNormalization(momentum=0.5, name="normal")(x)
    both = keras.layers.Concatenate()([keras.layers.Flatten()(rows), normal])
    both = keras.layers.Dropout(0.2)(both)
    out = keras.layers.Dense(2, activation="softmax", name="out")(both)
    network = keras.Model([ids, x], out)
    network.compile(
        keras.optimizers.Adam(0.05),
        "sparse_categorical_crossentropy",
        metrics=["accuracy"],
    )
    return network


def callbacks():
    return [
        keras.callbacks.EarlyStopping(
            "val_accuracy", mode="max", baseline=2.0, patience=3
        ),
        keras.callbacks.ModelCheckpoint(
            "best.keras", "val_accuracy", mode="max", save_best_only=True
        ),
        keras.callbacks.ReduceLROnPlateau(
            "val_loss", factor=0.5, patience=1, min_delta=1000.0
        ),
    ]


class PredictionOutputsProcessor:
    def process(self, predictions, worker_id):
        with open(os.path.join(os.environ["OUT"], f"{{worker_id}}.txt"), "a") as file:
            np.savetxt(file, np.asarray(predictions))
"""


def common(source, **model):
    return {"definition": "net.model", "files": {"net.py": source}, **model}


def test_a_model_with_its_own_reader_state_and_callbacks(job, tmp_path, monkeypatch):
    data = {
        "training": "made-up", "validation": "made-up", "prediction": "made-up",
        "readerParams": {"answer": 42},
    }  # fmt: skip
    one = job(
        "everything",
        model=common(EVERYTHING),
        data=data,
        training={"epochs": 300, "batchSize": 16, "batchesPerTask": 3},
        evaluation={"atEpochEnd": True},
        worker={"replicas": 1},
        export={"dir": str(tmp_path / "out"), "formats": ["keras"]},
    )
    report = one.finish()
    # The baseline is never reached: three evaluations, and it is over.
    assert report.steps < 300 * ROWS // 16, report.message
    log = one.log_text("master", 0)
    assert "early stopping: accuracy has not improved on 2.0" in log
    assert "learning rate times 0.5: loss stands at" in log

    best, final = (
        keras.models.load_model(tmp_path / "out" / name)
        for name in ("best/model.keras", "model.keras")
    )
    hits = np.argmax(best.predict(INPUTS, verbose=0), axis=1) == LABELS
    accuracies = [one.metrics["accuracy"] for one in report.evaluations]
    assert hits.mean() == pytest.approx(max(accuracies))
    # The moving statistics, of the worker that moved them.
    mean, variance = (np.asarray(w) for w in final.get_layer("normal").weights[2:])
    assert mean == pytest.approx(np.full(4, 7.5), rel=1e-3)
    assert variance == pytest.approx(np.full(4, (16**2 - 1) / 12), rel=1e-3)
    # Rows that no record names were never sent, so Adam has not moved them.
    table = np.asarray(final.get_layer("table").embeddings)
    assert np.abs(table[TOUCHED:]).max() <= 0.05 < np.abs(table[:TOUCHED]).max()

    monkeypatch.setenv("OUT", str(tmp_path))
    prediction = job(
        "processed",
        verb="predict",
        type="predict",
        model=common(EVERYTHING),
        data=data,
        checkpoint={"initFrom": report.checkpoint},
        worker={"replicas": 1},
    )
    assert prediction.finish().records == ROWS
    # A vocabulary that is made of a set is the same in each worker of each job.
    orders = [
        re.findall("order of a set: .*", job.log_text("worker", 0))
        for job in (one, prediction)
    ]
    assert orders[0]
    assert set(orders[0]) == set(orders[1])
    # Tasks come in any order, each in the records' own.
    found = np.loadtxt(tmp_path / "0.txt")
    expected = final.predict(INPUTS, verbose=0)
    np.testing.assert_allclose(
        found[np.lexsort(found.T)], expected[np.lexsort(expected.T)], atol=1e-5
    )


SCHEDULED = """
import keras
from elasticdl.callbacks import LearningRateScheduler


def model():
    a, b = keras.Input((1,), name="a"), keras.Input((1,), name="b")
    out = keras.layers.Dense(1, kernel_initializer="zeros", name="out")
    network = keras.Model([a, b], out(keras.layers.Concatenate()([a, b])))
    network.compile(keras.optimizers.SGD(0.5), "mse", metrics=["mae"])
    return network


def callbacks():
    return [SCHEDULE]
"""
BY_VERSION = "LearningRateScheduler(lambda version: 0.1 if version < 5 else 0.0)"
BY_EPOCH = (
    "keras.callbacks.LearningRateScheduler(lambda epoch, rate: [0.1, 0.0][epoch])"
)
X = np.random.default_rng(3).random((80, 2)).astype(np.float32)
Y = X @ np.asarray([2.0, -1.0], np.float32)


def after_one_epoch():
    """Kernel and bias after plain SGD at 0.1 on five batches of 16, in order."""
    weights = np.zeros(3)
    rows = np.concatenate([X, np.ones((80, 1), np.float32)], axis=1)
    for batch, wanted in zip(np.split(rows, 5), np.split(Y, 5), strict=True):
        weights -= 0.1 * 2 * (batch @ weights - wanted) @ batch / 16
    return weights


@pytest.mark.soak
def test_schedules_stop_learning_on_csv_in_bfloat16_and_on_parquet(job, tmp_path):
    note = 'two\nlines, and a "quote"'
    with (tmp_path / "data.csv").open("w", newline="") as file:
        lines = csv.writer(file)
        lines.writerow(["note", "a", "b", "label"])
        lines.writerows([note, *x, y] for x, y in zip(X.tolist(), Y, strict=True))
    columns = {"note": [note] * 80, "a": X[:, 0], "b": X[:, 1], "label": Y}
    pq.write_table(pa.table(columns), tmp_path / "data.parquet", row_group_size=12)

    def start(name, ending, schedule, **changes):
        changes.setdefault("model", {}).update(
            common(SCHEDULED.replace("SCHEDULE", schedule))
        )
        data = str(tmp_path / f"data.{ending}")
        return job(
            name,
            data={"training": data, "validation": data},
            training={"epochs": 2, "batchSize": 16, "batchesPerTask": 5},
            worker={"replicas": 1},
            export={"dir": str(tmp_path / name), "formats": ["keras"]},
            **changes,
        )

    jobs = {
        0.02: start(
            "by-version", "csv", BY_VERSION,
            model={"mixedPrecision": True}, ps={"mode": "sync"},
        ),
        1e-5: start("by-epoch", "parquet", BY_EPOCH, strategy="local"),
    }  # fmt: skip
    for tolerance, one in jobs.items():
        report = one.finish()
        assert (report.steps, report.records) == (10, 160)
        weights = keras.models.load_model(report.exports[0]).get_weights()
        found = np.concatenate([w.ravel() for w in weights])
        assert found == pytest.approx(after_one_epoch(), abs=tolerance)
