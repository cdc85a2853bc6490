"""SQL statements that take long: faults in training, EXPLAIN, README, many rows."""

import re
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from elasticdl.sql.data.source import open_source
from elasticdl.sql.registry import Registry
from elasticdl.sql.running.session import Bars, Session, Table
from elasticdl.testing.job import JobUnderTest

from tests.integration.sql.chain import Runner, query, run_all, write_sqlite

ROWS = 6000
MANY = 20_000_000
README = Path(__file__).parents[2] / "README.md"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("chain")
    write_sqlite(folder / "shop.sqlite", ROWS)
    return folder


@pytest.fixture
def session(place: Path) -> Iterator[Session]:
    source = open_source(str(place / "shop.sqlite"))
    overrides = ["job.worker.threads=1"]
    yield Session(source, Registry(place / "models"), Runner(place), print, overrides)
    source.close()


@pytest.mark.timeout(900)
def test_a_training_whose_roles_are_killed_ends_as_undisturbed(session):
    train = (
        "SELECT * FROM employee TO TRAIN DNNClassifier WITH train.epoch = 8, "
        "job.strategy = 'parameterServer', job.ps.replicas = 2, "
        "job.worker.replicas = 2 "
        "LABEL income INTO {}"
    )

    def hurt(job: JobUnderTest) -> None:
        for role, step in (("worker", 30), ("ps", 60), ("master", 90)):
            job.fault(role, signal.SIGKILL, at_step=step)

    run_all(session, train.format("undisturbed"))
    session.run_job.meanwhile = hurt
    run_all(session, train.format("hurt"))
    undisturbed, hurt_one = session.run_job.reports
    assert hurt_one.relaunches
    assert hurt_one.master_restarts >= 1
    assert hurt_one.records == undisturbed.records
    accuracy = undisturbed.metrics["accuracy"]
    assert hurt_one.metrics["accuracy"] == pytest.approx(accuracy, abs=0.03)


@pytest.mark.timeout(900)
def test_evaluate_and_explain_answer_with_figures(session):
    metrics, bars = run_all(
        session,
        "SELECT * FROM employee TO EVALUATE undisturbed INTO figures;"
        "SELECT * FROM employee LIMIT 800 TO EXPLAIN undisturbed INTO importance",
    )
    assert isinstance(metrics, Table)
    assert isinstance(bars, Bars)
    figures = dict(metrics.rows)
    assert figures["rows"] == ROWS
    assert figures["accuracy"] > 0.8
    assert len(query(session, "SELECT * FROM figures")) == len(metrics.rows)
    importance = dict(query(session, "SELECT * FROM importance"))
    assert importance == pytest.approx(dict(bars.values))
    assert abs(importance["lucky_number"]) < importance["education"]


@pytest.mark.timeout(900)
def test_integrated_gradients_find_the_columns_that_count(session):
    (bars,) = run_all(
        session,
        "SELECT * FROM employee LIMIT 500 TO EXPLAIN undisturbed "
        "USING IntegratedGradients INTO shares",
    )
    found = dict(bars.values)
    assert found["lucky_number"] < found["education"]
    assert dict(query(session, "SELECT * FROM shares")) == pytest.approx(found)


_OWN = """
import keras
from keras import layers, ops


def tower(groups, units):
    x = layers.Dense(units, activation="relu")(groups["people"])
    return layers.Dense(1, activation="sigmoid")(x)


def classic():
    hours = keras.Input((1,), name="hours")
    x = ops.where(ops.isnan(hours), 40.0, hours) / 40.0
    inputs = {"education": keras.Input((1,), name="education", dtype="string")}
    degrees = layers.Hashing(16)(inputs["education"])
    x = layers.Concatenate()([x, layers.Flatten()(layers.Embedding(16, 4)(degrees))])
    output = layers.Dense(1, activation="sigmoid")(x)
    return keras.Model({"hours": hours, **inputs}, output)


def loss(labels, predictions):
    labels = ops.reshape(labels, (-1, 1))
    return ops.mean(keras.losses.binary_crossentropy(labels, predictions))


def optimizer():
    return keras.optimizers.Adam(0.01)


def eval_metrics_fn():
    return {"accuracy": keras.metrics.BinaryAccuracy()}
"""


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("function", "clauses"),
    [
        ("tower", "WITH model.units = 16 COLUMN hours, education FOR people"),
        ("classic", "COLUMN hours, education"),
    ],
)
def test_models_of_ones_own_are_trained(session, place, monkeypatch, function, clauses):
    (place / "nets").mkdir(exist_ok=True)
    (place / "nets" / "own.py").write_text(_OWN)
    monkeypatch.chdir(place)
    run_all(
        session,
        f"SELECT * FROM employee TO TRAIN nets.own.{function} {clauses} "
        f"LABEL income INTO {function}_model",
    )
    assert session.run_job.reports[-1].metrics["accuracy"] > 0.7
    run_all(session, f"SELECT * FROM odd TO PREDICT new USING {function}_model")
    assert query(session, "SELECT count(prediction) FROM new") == ((2,),)


_ARRAYS = (
    "SELECT ['a','b','c'][1 + i % 3 : 3] AS tags, [i % 7, i % 5] AS ids, "
    "[i / 100.0, 1.0, i % 2] AS vec, 'a:' || i % 3 || ',b' AS w, "
    "i % 2 = 0 AS y FROM range(1200) t(i)"
)
_OTHERS = (
    "SELECT ['x','a','b','c','c'] AS tags, NULL::BIGINT[] AS ids, [1, NULL] AS vec, "
    "'c:-2.5' AS w UNION ALL SELECT NULL, [3], [0, 1, 0], NULL"
)


@pytest.mark.timeout(900)
def test_array_columns_are_several_values(place):
    runner = Runner(place)
    session = Session(
        open_source(""), Registry(place / "arrays"), runner, print,
        ["job.worker.threads=1"],
    )  # fmt: skip
    run_all(
        session,
        f"{_ARRAYS} TO TRAIN DNNClassifier WITH train.epoch = 8 COLUMN "
        "EMBEDDING(tags, 4), SPARSE(ids, 16), DENSE(vec, 3), "
        "EMBEDDING(WEIGHTED_CATEGORY(w, 9), 4) LABEL y INTO arrays;"
        f"{_OTHERS} TO PREDICT out USING arrays",
    )
    assert runner.reports[0].metrics["accuracy"] > 0.95
    assert query(session, "SELECT count(prediction) FROM out") == ((2,),)


@pytest.mark.timeout(900)
def test_the_lines_of_the_readme_run_as_they_stand(tmp_path):
    block = re.search(r"## SQL\n.*?```sh\n(.*?)```", README.read_text(), re.DOTALL)
    assert block is not None
    bin_dir = Path(sys.executable).parent
    done = subprocess.run(
        ["bash", "-e", "-c", block[1]],
        cwd=tmp_path,
        env={
            "PATH": f"{bin_dir}:/usr/bin:/bin",
            "HOME": str(tmp_path),
            "ELASTICDL_MODELS_DIR": str(tmp_path / "models"),
            "ELASTICDL_JOBS_DIR": str(tmp_path / "jobs"),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "income_model@1" in done.stdout
    assert "probability of the right class lost" in done.stdout


_PREPARE = """
import resource, sys
from pathlib import Path
from elasticdl.sql import planning
from elasticdl.sql.data.source import open_source
from elasticdl.sql.registry import ModelVersion, Registry
from elasticdl.sql.running.session import Session
from elasticdl.sql.running.train import prepare
folder, url, text = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
source = open_source(url, folder=folder)
session = Session(source, Registry(folder / "models"), None, lambda _: None)
(statement,) = planning.read_statements(text, source.engine)
made = prepare(session, statement, text, ModelVersion("m", 1, folder / "m")).shards
print(made.num_training + made.num_validation)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
"""
_NUMBERS = ", ".join(f"(i * {k} % 997) / 3.0 AS f{k}" for k in range(1, 8))
_TEXTS = ", ".join(f"'word ' || (i * {k} % 1009) AS t{k}" for k in range(1, 4))
_MANY = f"SELECT {_NUMBERS}, {_TEXTS}, i AS id, i % 2 AS y FROM"


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("engine", ["duckdb", "sqlite"])
def test_the_memory_of_a_preparation_does_not_grow_with_its_rows(tmp_path, engine):
    """Extraction, split, statistics and module of 20 M rows x 12 columns."""
    url, select = "", f"{_MANY} range({MANY}) AS r(i)"
    if engine == "sqlite":
        url, select = str(tmp_path / "many.sqlite"), "SELECT * FROM many"
        numbers = (
            "WITH RECURSIVE r(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM r "
            f"WHERE i + 1 < {MANY})"
        )
        with sqlite3.connect(url) as connection:
            connection.execute("PRAGMA journal_mode = OFF")
            connection.execute(f"CREATE TABLE many AS {numbers} {_MANY} r")
        connection.close()
    text = (
        f"{select} TO TRAIN WideAndDeepClassifier COLUMN BUCKETIZE(f1, 20), "
        "HASH(id, 1000), VOCABULARIZE(t1), * LABEL y INTO m"
    )
    done = subprocess.run(
        [sys.executable, "-c", _PREPARE, str(tmp_path), url, text],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    number, peak = map(int, done.stdout.split())
    assert number == MANY
    assert peak < 1.5 * 2**30
    print(f"{engine}: {peak / 2**30:.2f} GiB")
