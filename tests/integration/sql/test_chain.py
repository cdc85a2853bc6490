"""From a query to a trained model and back into a table, on real processes."""

import signal
from collections.abc import Iterator
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf
from elasticdl.errors import DataError, SpecError
from elasticdl.sql.data.source import open_source
from elasticdl.sql.plan import NULL_INTEGER, NULL_TEXT
from elasticdl.sql.registry import Registry
from elasticdl.sql.running.session import Session, Told
from elasticdl.testing.job import JobUnderTest

from tests.integration.sql.chain import Runner, query, run_all, write_sqlite

ROWS = 6000


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


def test_a_query_of_no_rows_does_not_pass_for_a_table_of_answers(session):
    with pytest.raises(DataError, match=r"nothing to predict; `people` stays as"):
        run_all(
            session,
            "SELECT * FROM people WHERE id IS NULL "
            "TO PREDICT people.guess USING my_model",
        )
    assert query(session, "SELECT count(*) FROM people") == ((ROWS + 2,),)


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
    again = np.asarray(reloaded(features)).ravel()
    np.testing.assert_allclose(answers, again, rtol=0, atol=1e-6)
    guesses = np.asarray([row[-2] for row in rows])
    chances = np.asarray([row[-1] for row in rows], np.float32)
    assert list(guesses) == [">50K" if one >= 0.5 else "<=50K" for one in answers]
    np.testing.assert_allclose(
        chances, np.maximum(answers, 1 - answers), rtol=0, atol=1e-6
    )


def test_the_source_is_in_no_file_of_the_registry(session, registry):
    folder = registry.find("my_model").folder
    for file in folder.rglob("*"):
        if file.is_file() and file.suffix in (".json", ".yaml", ".sql", ".py"):
            assert "shop.sqlite" not in file.read_text()


def test_missing_columns_are_named_before_anything_is_read(session):
    with pytest.raises(SpecError, match=r"needs the columns `age`, .*; it has `agee`"):
        run_all(session, "SELECT city AS agee FROM employee TO PREDICT USING my_model")
    others = "education, occupation, city, hours, capital_gain, married, lucky_number"
    with pytest.raises(SpecError, match=r"needs the column `age`.*did you mean `agee`"):
        run_all(
            session,
            f"SELECT age AS agee, {others} FROM employee TO PREDICT USING my_model",
        )


def test_evaluate_computes_the_metrics_that_it_is_asked_for(session):
    (table,) = run_all(
        session,
        "SELECT * FROM employee TO EVALUATE my_model WITH "
        "validation.metrics = 'Precision,AUC' INTO figures",
    )
    found = dict(table.rows)
    assert set(found) - {"loss"} == {"rows", "precision", "auc"}
    assert found["auc"] > 0.8
    with pytest.raises(SpecError, match="MeanAbsoluteError does not go with a label"):
        run_all(
            session,
            "SELECT * FROM employee TO EVALUATE my_model WITH "
            "validation.metrics = 'MAE'",
        )
