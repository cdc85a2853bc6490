"""From a query to a trained model and back into a table, on real processes."""

import csv
import signal
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import keras
import numpy as np
import pyarrow.parquet as pq
import pytest
import tensorflow as tf
from elasticdl.data.making.employee import employees
from elasticdl.job.status import JobReport
from elasticdl.job.values.document import ValuesFile
from elasticdl.sql.data.source import open_source
from elasticdl.sql.plan import NULL_INTEGER, NULL_TEXT
from elasticdl.sql.registry import Registry
from elasticdl.sql.running.session import Session, Told
from elasticdl.sql.running.statements import run
from elasticdl.testing.job import JobUnderTest

ROWS = 6000


@dataclass
class Runner:
    """Runs a statement's job as `elasticdl` does; `meanwhile` may hurt it."""

    folder: Path
    meanwhile: Callable[[JobUnderTest], None] | None = None
    reports: list[JobReport] = field(default_factory=list)

    def __call__(self, values: ValuesFile) -> JobReport:
        options = ["--restart"]
        job = JobUnderTest(
            values,
            self.folder / "jobs",
            self.folder,
            str(values.job.type),
            options,
            limit_seconds=600.0,
        )
        with job:
            if self.meanwhile is not None:
                self.meanwhile(job)
            report = job.finish()
        self.reports.append(report)
        return report


def write_sqlite(path: Path, num_rows: int) -> None:
    columns = employees(num_rows, seed=1).columns
    types = [
        "INTEGER",
        "TEXT",
        "TEXT",
        "TEXT",
        "REAL",
        "REAL",
        "TEXT",
        "INTEGER",
        "TEXT",
    ]
    named = ", ".join(map(" ".join, zip(columns, types, strict=True)))
    with sqlite3.connect(path) as connection:
        connection.execute(f"CREATE TABLE employee ({named})")
        marks = ", ".join("?" * len(columns))
        connection.executemany(
            f"INSERT INTO employee VALUES ({marks})",
            zip(*columns.values(), strict=True),
        )
        connection.execute(
            "CREATE TABLE odd AS SELECT NULL AS age, 'dropout' AS education, NULL AS "
            "occupation, 'nowhere' AS city, NULL AS hours, 1e6 AS capital_gain, NULL "
            "AS married, -1 AS lucky_number UNION ALL SELECT 30, NULL, 'pilot', NULL, "
            "40, NULL, 'true', NULL"
        )
    connection.close()


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("chain")
    write_sqlite(folder / "shop.sqlite", ROWS)
    return folder


@pytest.fixture(scope="module")
def registry(place: Path) -> Registry:
    return Registry(place / "models")


@pytest.fixture
def session(place: Path, registry: Registry) -> Iterator[Session]:
    source = open_source(str(place / "shop.sqlite"))
    overrides = ["job.worker.threads=1", "job.training.epochs=3"]
    yield Session(source, registry, Runner(place), print, overrides)
    source.close()


def run_all(session: Session, text: str) -> list[object]:
    return [answer for _, answers in run(session, text) for answer in answers]


def query(session: Session, text: str) -> tuple[tuple[object, ...], ...]:
    return session.source.execute(text, most_rows=100_000).rows


def test_the_originals_line_trains_a_classifier(session, registry):
    (told,) = run_all(session, "SELECT * FROM employee LABEL income INTO my_model")
    assert isinstance(told, Told)
    version = registry.find("my_model")
    assert version.reference == "my_model@1"
    assert version.statement_file.read_text() == (
        "SELECT * FROM employee LABEL income INTO my_model;\n"
    )
    assert session.run_job.reports[0].metrics["accuracy"] > 0.8
    for file in (version.values_file, version.statistics_file, version.export_dir):
        assert file.exists()


def test_a_killed_worker_leaves_each_row_predicted_once(session, registry):
    """It writes into the table that it reads from, too."""

    def kill(job: JobUnderTest) -> None:
        job.wait_until(lambda s: s.progress.tasks_done > 2, "some tasks done")
        job.handle.kill("worker-0", signal.SIGKILL)

    session.run_job.meanwhile = kill
    query(session, "CREATE TABLE people AS SELECT rowid AS id, * FROM employee "
          "UNION ALL SELECT -rowid, *, '' FROM odd")  # fmt: skip
    before = query(session, "SELECT id, age, city FROM people ORDER BY id")
    run_all(
        session,
        "SELECT * FROM people TO PREDICT people.guess WITH predict.batch_size = 16, "
        "job.training.batchesPerTask = 2 USING my_model",
    )
    assert session.run_job.reports[-1].relaunches
    assert query(session, "SELECT id, age, city FROM people ORDER BY id") == before
    counts = "count(*), count(DISTINCT id), count(guess), count(probability)"
    number = ROWS + 2
    assert query(session, f"SELECT {counts} FROM people") == ((number,) * 4,)


def test_the_exported_model_gives_what_was_predicted(session, registry, place):
    """Raw columns in, with NULLs and values that no training row had."""
    version = registry.find("my_model")
    names = [
        "age", "education", "occupation", "city", "hours", "capital_gain", "married",
        "lucky_number",
    ]  # fmt: skip
    rows = query(
        session, f"SELECT {', '.join(names)}, guess, probability FROM people LIMIT 9999"
    )
    served = tf.saved_model.load(str(version.export_dir / "saved_model"))
    reloaded = keras.models.load_model(
        version.export_dir / "model.keras", safe_mode=False
    )
    wanted = {t.name: t.dtype for t in reloaded.inputs}
    features = {}
    for name, column in zip(names, zip(*rows, strict=True), strict=False):
        if wanted[name] == "string":
            values = tf.constant([[NULL_TEXT if v is None else str(v)] for v in column])
        elif wanted[name] == "int64":
            values = tf.constant(
                [[NULL_INTEGER if v is None else int(v)] for v in column], tf.int64
            )
        else:
            filled = [[np.nan if v is None else float(v)] for v in column]
            values = tf.constant(filled, tf.float32)
        features[name] = values
    answers = np.asarray(served.serve(features)).ravel()
    np.testing.assert_array_equal(answers, np.asarray(reloaded(features)).ravel())
    guesses = np.asarray([row[-2] for row in rows])
    chances = np.asarray([row[-1] for row in rows], np.float32)
    assert list(guesses) == [">50K" if one >= 0.5 else "<=50K" for one in answers]
    np.testing.assert_allclose(
        chances, np.maximum(answers, 1 - answers), rtol=0, atol=1e-6
    )


def test_evaluate_and_explain_answer_with_figures(session):
    metrics, bars = run_all(
        session,
        "SELECT * FROM employee TO EVALUATE my_model INTO figures;"
        "SELECT * FROM employee LIMIT 800 TO EXPLAIN my_model INTO importance",
    )
    figures = dict(metrics.rows)
    assert figures["rows"] == ROWS
    assert figures["accuracy"] > 0.8
    assert len(query(session, "SELECT * FROM figures")) == len(metrics.rows)
    importance = dict(query(session, "SELECT * FROM importance"))
    assert importance == pytest.approx(dict(bars.values))
    assert abs(importance["lucky_number"]) < importance["education"]


def test_a_password_is_in_no_file_of_the_registry(session, registry):
    text = registry.find("my_model").folder
    for file in text.rglob("*"):
        if file.is_file() and file.suffix in (".json", ".yaml", ".sql", ".py"):
            assert "shop.sqlite" not in file.read_text()


def test_a_missing_column_is_named_before_anything_is_read(session):
    with pytest.raises(Exception, match="needs the column `age`.*did you mean"):
        run_all(session, "SELECT city AS agee FROM employee TO PREDICT USING my_model")
