"""Statements whose rows a job's `data.prepare` reads, as in a cluster, on processes.

The user's side never opens the source: it is in the environment of jobs and steps.
"""

import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from elasticdl.cli import models
from elasticdl.errors import ElasticDLError, JobError
from elasticdl.job.status import JobReport
from elasticdl.job.values.document import ValuesFile
from elasticdl.job.values.file import dump_values
from elasticdl.sql.problems import StatementError
from elasticdl.sql.registry import Registry
from elasticdl.sql.remote.flow import Remote
from elasticdl.sql.remote.messages import PROGRAM
from elasticdl.sql.running.session import Session, Table, Told

from tests.integration.sql.chain import Runner, run_all, write_sqlite

ROWS = 3000
MANY = 200_000
SECRET = "s3cr3t"
# Its feed turns x around, in a classic module with all that such a one may have.
_OWN = """
import keras
import tensorflow as tf


def custom_model():
    x = keras.Input((1,), name="x")
    return keras.Model({"x": x}, keras.layers.Dense(1, activation="sigmoid")(x))


def optimizer():
    return keras.optimizers.SGD(1.0)


def eval_metrics_fn():
    return {"right": keras.metrics.BinaryAccuracy()}


def feed(dataset, mode, metadata):
    kinds = {"x": tf.io.FixedLenFeature([1], tf.float32)}
    if mode != "prediction":
        kinds["label"] = tf.io.FixedLenFeature([1], tf.int64)

    def parsed(record):
        found = tf.io.parse_single_example(record, kinds)
        features = {"x": -found["x"]}
        return (features, found["label"]) if "label" in kinds else features

    return dataset.map(parsed)


def custom_data_reader(data_origin, **params):
    raise ValueError("it reads other rows")


class PredictionOutputsProcessor:
    def process(self, predictions, worker_id):
        raise ValueError("it puts answers elsewhere")
"""


# In another folder, which the module does not import.
_LOSSES = """
import keras
import tensorflow as tf


def entropy(labels, predictions):
    labels = tf.cast(tf.reshape(labels, [-1, 1]), tf.float32)
    return tf.reduce_mean(keras.losses.binary_crossentropy(labels, predictions))
"""


@dataclass
class Processes:
    """Jobs and steps on this machine, with the folder as their volume."""

    folder: Path
    runner: Runner

    def run_job(self, values: ValuesFile) -> JobReport:
        report = self.runner(values)
        if report.status != "succeeded":
            raise JobError(f"job {values.job.name} did not succeed: {report.message}")
        return report

    def run_step(
        self, values: ValuesFile, words: Sequence[str], *, patient: bool = False
    ) -> str:
        del values, patient
        done = subprocess.run(
            [sys.executable, *PROGRAM[1:], *words],
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise JobError(done.stdout + done.stderr)
        return done.stdout


@pytest.fixture(scope="module")
def volume(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("volume")
    write_sqlite(folder / f"{SECRET}.sqlite", ROWS)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ELASTICDL_SQL_URL", f"sqlite:///{folder}/{SECRET}.sqlite")
        bin_dir = str(Path(sys.executable).parent)
        patch.setenv("PATH", bin_dir + os.pathsep + os.environ["PATH"])
        yield folder


@pytest.fixture
def session(volume: Path) -> Session:
    overrides = ("job.worker.threads=1",)
    place = Processes(volume, Runner(volume))
    remote = Remote(place, "sqlite", overrides=overrides)
    return Session(
        remote, Registry(volume / "models"), place.run_job, print, elsewhere=remote
    )


def test_a_model_is_trained_by_a_job_that_reads_its_own_rows(session, volume):
    train = (
        "SELECT * FROM employee TO TRAIN DNNClassifier WITH train.epoch = 2 "
        "LABEL income INTO my_model"
    )
    (told,) = run_all(session, train)
    assert isinstance(told, Told)
    assert "my_model@1" in told.lines[0]
    assert "accuracy" in told.lines[0]
    version = Registry(volume / "models").find("my_model")
    assert version.statement_file.read_text() == f"{train};\n"
    assert (version.export_dir / "model.keras").exists()
    assert len(list(version.checkpoints_dir.iterdir())) == 1
    assert not version.pending_file.exists()


@pytest.mark.soak
def test_its_answers_are_those_of_a_model_trained_here(session):
    figures, shown, models = run_all(
        session,
        "SELECT * FROM employee TO EVALUATE my_model INTO figures;"
        "SELECT * FROM employee TO PREDICT guesses.guess USING my_model;"
        "SHOW MODELS",
    )
    assert isinstance(figures, Table)
    assert isinstance(models, Table)
    assert f"{ROWS:,} rows with `guess`" in shown.lines[0]
    assert [row[0] for row in models.rows] == ["my_model@1"]
    (counted,) = run_all(
        session,
        "SELECT count(*) AS n, avg(guess = income) AS right FROM guesses",
    )
    ((number, right),) = counted.rows
    assert number == ROWS
    assert right == pytest.approx(dict(figures.rows)["accuracy"], abs=1e-3)


def test_mistakes_of_columns_have_their_places_in_the_users_text(session):
    text = (
        "SHOW MODELS;\nSELECT * FROM employee TO TRAIN DNNClassifier "
        "COLUMN agee LABEL incom INTO other"
    )
    with pytest.raises(StatementError) as caught:
        run_all(session, text)
    places = [(p.at.line, p.at.column) for p in caught.value.problems]
    assert places == [(2, 54), (2, 65)]
    assert "did you mean `age`?" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("SELECT * FROM employee TO PREDICT USING other", "no model 'other'"),
        (
            "SELECT * FROM employee WHERE age < 0 TO PREDICT USING my_model",
            "no rows: nothing to predict",
        ),
        ("SELECT * FROM nowhere", "no such table: nowhere"),
    ],
)
def test_what_fails_there_is_told_in_one_line(session, text, said):
    with pytest.raises(ElasticDLError) as caught:
        run_all(session, text)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_nothing_is_left_of_what_failed(volume):
    there = {path.name for path in (volume / "models").iterdir()}
    assert there == {"my_model", ".work"}
    assert not list((volume / "models" / ".work").iterdir())


def test_the_url_is_in_no_file(volume):
    for file in volume.rglob("*"):
        if file.is_file() and SECRET not in file.name:
            assert SECRET.encode() not in file.read_bytes(), file


@pytest.mark.soak
def test_a_large_vocabulary_is_a_file_on_the_volume(session, volume):
    """It is in no values file, and so in no ConfigMap, whoever reads it."""
    with sqlite3.connect(volume / f"{SECRET}.sqlite") as connection:
        connection.execute("CREATE TABLE visits (page TEXT, member INTEGER, y REAL)")
        rows = ((f"page {i} of many", 7 * i, i % 2) for i in range(MANY))
        connection.executemany("INSERT INTO visits VALUES (?, ?, ?)", rows)
    connection.close()
    sizes = []
    run_job = session.elsewhere.place.run_job

    def measured(values):
        sizes.append(len(dump_values(values)))
        return run_job(values)

    session.elsewhere.place.run_job = measured
    predict = "SELECT * FROM visits LIMIT 900 TO PREDICT seen USING visits"
    told = run_all(
        session,
        "SELECT * FROM visits TO TRAIN LinearClassifier WITH train.epoch = 1, "
        "train.batch_size = 2048, validation.fraction = 0 COLUMN "
        "VOCABULARIZE(page), VOCABULARIZE(member) LABEL y INTO visits;"
        f"{predict}; SELECT count(*) AS n FROM seen",
    )
    assert told[-1].rows == ((900,),)
    assert max(sizes) < 20_000
    folder = Registry(volume / "models").find("visits").folder
    files = sorted((folder / "data" / "vocabularies").iterdir())
    lines = [len(path.read_text().splitlines()) for path in files]
    assert lines == [MANY, MANY]


@pytest.mark.soak
def test_the_folder_of_models_may_have_a_comma(volume):
    """Where data lies is a list with commas, as long as nothing has such a name."""
    place = Processes(volume, Runner(volume))
    remote = Remote(place, "sqlite", models="my,models [1]")
    registry = Registry(volume / remote.models)
    session = Session(remote, registry, place.run_job, print, elsewhere=remote)
    run_all(
        session,
        "SELECT * FROM employee TO TRAIN LinearClassifier WITH train.epoch = 1 "
        "LABEL income INTO other; SELECT * FROM employee TO PREDICT seen USING other",
    )
    ((number,),) = run_all(session, "SELECT count(*) AS n FROM seen")[0].rows
    assert number == ROWS


def test_a_classic_module_is_trained_as_it_predicts(session, volume):
    """Its feed and its loss were left out of the training alone.

    A loss of another file was looked for before `data.prepare` had made it.
    """
    (volume / "mine").mkdir()
    (volume / "mine" / "net.py").write_text(_OWN)
    (volume / "others").mkdir()
    (volume / "others" / "losses.py").write_text(_LOSSES)
    with sqlite3.connect(volume / f"{SECRET}.sqlite") as connection:
        connection.execute("CREATE TABLE signs (x REAL, y INTEGER)")
        rows = ((i / 100, int(i > 0)) for i in range(-300, 300))
        connection.executemany("INSERT INTO signs VALUES (?, ?)", rows)
    connection.close()
    told, _, shown = run_all(
        session,
        "SELECT * FROM signs TO TRAIN mine.net.custom_model WITH train.batch_size = "
        "16, job.worker.replicas = 2, job.ps.replicas = 1, job.model.loss = "
        "'others.losses.entropy' LABEL y INTO signs;"
        "SELECT * FROM signs TO PREDICT guessed USING signs;"
        "SELECT avg(prediction = y) AS right FROM guessed",
    )
    assert "right " in told.lines[0]
    assert shown.rows[0][0] > 0.95


def test_models_without_sql_are_those_of_the_volume(session, volume, capsys):
    for verb, name, told in (
        ("list", "", "my_model@1"),
        ("show", "my_model@1", "label: income"),
    ):
        assert models.ask_there(session, verb, name) == 0
        assert told in capsys.readouterr().out
    assert models.ask_there(session, "show", "other")
    assert "no model 'other'" in capsys.readouterr().err
    with pytest.raises(StatementError, match="names no model"):
        models.ask_there(session, "drop", 'x"; DROP MODEL my_model')
    assert (volume / "models" / "my_model").exists()


def test_a_dropped_model_is_gone_with_its_run(session, volume, capsys):
    assert models.ask_there(session, "drop", "my_model@1") == 0
    assert "dropped my_model@1" in capsys.readouterr().out
    assert not (volume / "models" / "my_model").exists()
