"""Columns as SQLFlow wrote them into texts: trained, predicted and served alike."""

import sqlite3
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from elasticdl.errors import DataError
from elasticdl.sql.data.source import open_source
from elasticdl.sql.plan import NULL_TEXT
from elasticdl.sql.registry import Registry
from elasticdl.sql.running.session import Session

from tests.integration.sql.chain import Runner, query, run_all

ROWS = 1200
_TRAIN = (
    "SELECT point, tags, side FROM points TO TRAIN DNNClassifier "
    "WITH train.epoch = 8, train.batch_size = 16, optimizer.learning_rate = 0.01, "
    "job.worker.threads = 1, model.hidden_units = [16] "
    "COLUMN DENSE(point, 3, comma), "
    "EMBEDDING(WEIGHTED_CATEGORY(CATEGORY_HASH(SPARSE(tags, 9, ';', int, '='), 40)), "
    "4, 'sum'), INDICATOR(CATEGORY_ID(SPARSE(tags, 9, ';', int, '='), 8)) "
    "LABEL side INTO sides"
)


def _write(file: Path) -> None:
    """Write points whose side is that of their first number."""
    draw = np.random.default_rng(1)
    points = draw.normal(size=(ROWS, 3))
    rows = []
    for i, (x, y, z) in enumerate(points.tolist()):
        point = None if i % 50 == 0 else f"{x:.4f}, {y:.4f},{z:e}"
        tags = None if i % 9 == 0 else f"{i % 5}={x:.2f};{i % 3};7=-1"
        rows.append((i, point, tags, "right" if x > 0 else "left"))
    with sqlite3.connect(file) as connection:
        connection.execute("CREATE TABLE points (n INT, point TEXT, tags TEXT, side)")
        connection.executemany("INSERT INTO points VALUES (?, ?, ?, ?)", rows)
    connection.close()


@pytest.mark.soak
def test_texts_of_numbers_and_weights_are_served_as_they_are_predicted(
    tmp_path: Path,
) -> None:
    _write(tmp_path / "points.sqlite")
    source = open_source(str(tmp_path / "points.sqlite"))
    registry = Registry(tmp_path / "models")
    runner = Runner(tmp_path)
    session = Session(source, registry, runner, print)
    run_all(session, f"{_TRAIN}; SELECT * FROM points TO PREDICT guesses USING sides")
    assert runner.reports[0].metrics["accuracy"] > 0.85
    rows = query(session, "SELECT point, tags, prediction, probability FROM guesses")
    assert len(rows) == ROWS
    served = tf.saved_model.load(str(registry.find("sides").export_dir / "saved_model"))
    point, tags = (
        tf.constant([[NULL_TEXT if row[i] is None else row[i]] for row in rows])
        for i in (0, 1)
    )
    answers = np.asarray(served.serve({"point": point, "tags": tags})).ravel()
    guesses = [row[2] for row in rows]
    assert guesses == ["right" if one >= 0.5 else "left" for one in answers]
    chances = np.asarray([row[3] for row in rows], np.float32)
    np.testing.assert_allclose(chances, np.maximum(answers, 1 - answers), atol=1e-6)
    # What is no text of three numbers is served as NULL is.
    odd = tf.constant([[NULL_TEXT], ["1,2"], ["1,2,x"], [""]])
    none = tf.constant([[NULL_TEXT]] * 4)
    found = np.asarray(served.serve({"point": odd, "tags": none})).ravel()
    assert len(set(found.tolist())) == 1
    wrong = "SELECT * FROM points UNION ALL SELECT 0, '1,2', NULL, NULL"
    for text in (
        f"{wrong} TO PREDICT USING sides",
        f"{wrong.replace('NULL, NULL', 'NULL, 1')} {_TRAIN.partition('points ')[2]}",
    ):
        with pytest.raises(DataError, match=r"not 3 numbers .* in 1 row of 1,201, as"):
            run_all(session, text)
    assert len(runner.reports) == 2
    source.close()
