"""The model that a statement makes is as good as one that was written by hand."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pyarrow.parquet as pq
import tensorflow as tf
from elasticdl.data.making.employee import CLASSES, LABEL, employees
from elasticdl.sql.plan import LABEL_FEATURE, NULL_TEXT, Stored
from keras import layers, ops

from tests.integration.sql.chain import loaded
from tests.unit.sql import tables

_NUMBERS = ("age", "hours", "capital_gain", "lucky_number")
_TEXTS = ("education", "occupation", "city", "married")
_EPOCHS, _BATCH = 8, 256


def _written_by_hand(rows: Mapping[str, Any]) -> keras.Model:
    """Return a model as somebody writes it who knows Keras and looked at the table."""
    inputs = {name: keras.Input((1,), name=name) for name in _NUMBERS}
    inputs |= {name: keras.Input((1,), name=name, dtype="string") for name in _TEXTS}
    parts = []
    for name in _NUMBERS:
        mean, deviation = np.nanmean(rows[name]), np.nanstd(rows[name])
        filled = ops.where(ops.isnan(inputs[name]), mean, inputs[name])
        parts.append((filled - mean) / deviation)
    for name in _TEXTS:
        values = sorted(set(rows[name].numpy().ravel().tolist()))
        places = layers.StringLookup(vocabulary=values)(inputs[name])
        vectors = layers.Embedding(len(values) + 1, 8)(places)
        parts.append(layers.Flatten()(vectors))
    x = layers.Concatenate()(parts)
    for units in (128, 64):
        x = layers.Dense(units, activation="relu")(x)
    model = keras.Model(inputs, layers.Dense(1, activation="sigmoid")(x))
    model.compile("adam", "binary_crossentropy", metrics=["accuracy"])
    return model


def _trained_accuracy(model: keras.Model, train: Any, new: Any) -> float:
    given = {name: train[0][name] for name in model.input}
    model.fit(given, train[1], epochs=_EPOCHS, batch_size=_BATCH, verbose=0)
    asked = {name: new[0][name] for name in model.input}
    chances = model.predict(asked, batch_size=4096, verbose=0).ravel()
    return float(((chances >= 0.5) == new[1]).mean())


def _as_a_model_takes_them(columns: Mapping[str, list[object]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in _NUMBERS:
        values = [np.nan if v is None else v for v in columns[name]]
        found[name] = np.asarray(values, np.float32)[:, None]
    for name in _TEXTS:
        texts = [NULL_TEXT if v is None else v for v in columns[name]]
        found[name] = tf.constant(texts, "string")[:, None]
    return found


def test_a_statement_makes_a_model_as_good_as_one_by_hand(tmp_path: Path) -> None:
    known, unknown = employees(20_000, seed=5), employees(40_000, seed=6)
    with (tmp_path / "employee.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(known.columns)
        writer.writerows(zip(*known.columns.values(), strict=True))
    # DuckDB would take these texts for booleans.
    select = f"SELECT * REPLACE (married::VARCHAR AS married) FROM '{file.name}'"
    made = tables.trained(f"{select} LABEL {LABEL} INTO m", tmp_path)
    table = pq.read_table(tmp_path / "training")
    train = {
        column.feature: tf.constant(
            table[column.feature].to_pylist(),
            "string" if column.stored is Stored.TEXT else "float32",
        )[:, None]
        for column in made.plan.columns
    }
    classes = np.asarray(table[LABEL_FEATURE].to_pylist(), np.float32)
    new = _as_a_model_takes_them(unknown.columns)
    right = np.asarray([one == CLASSES[1] for one in unknown.columns[LABEL]])
    keras.utils.set_random_seed(1)
    by_sql = _trained_accuracy(
        loaded(made.made, tmp_path).model(), (train, classes), (new, right)
    )
    keras.utils.set_random_seed(1)
    hand = _written_by_hand(train)
    by_hand = _trained_accuracy(hand, (train, classes), (new, right))
    assert abs(by_sql - by_hand) < 0.005, (by_sql, by_hand)
    assert by_sql > unknown.best_accuracy - 0.03


_ROWS = 3_000  # About 200 steps of the defaults.


def _linear_table(folder: Path) -> np.ndarray[Any, Any]:
    """Write a table in which two columns decide; return it as it is."""
    random = np.random.default_rng(7)
    table = random.normal(size=(_ROWS, 4))
    amount = 30 + 9 * table[:, 0] - 4 * table[:, 1] + 2 * random.normal(size=_ROWS)
    seldom = np.where(amount > 40, "yes", "no")
    with (folder / "linear.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([*"abcd", "amount", "seldom"])
        writer.writerows(
            [*row, one, word]
            for row, one, word in zip(table, amount, seldom, strict=True)
        )
    return np.column_stack([table, amount, seldom == "yes"])


def _said(sql: str, folder: Path, given: np.ndarray[Any, Any]) -> Any:
    """Return what a statement's model says, trained as the statement's job does."""
    made = tables.trained(sql, folder)
    table = pq.read_table(folder / "training")
    train = {name: table[name].to_numpy().astype(np.float32) for name in "abcd"}
    keras.utils.set_random_seed(1)
    model = loaded(made.made, folder).model()
    label = table[LABEL_FEATURE].to_numpy().astype(np.float32)
    epochs, batch = made.plan.epochs, made.plan.batch_size
    model.fit(train, label, epochs=epochs, batch_size=batch, verbose=0)
    asked = {name: given[:, n].astype(np.float32) for n, name in enumerate("abcd")}
    return model.predict(asked, batch_size=4096, verbose=0).ravel()


def test_linear_models_learn_a_table_of_few_rows_with_what_is_chosen_for_them(
    tmp_path: Path,
) -> None:
    rows = _linear_table(tmp_path)
    amount, seldom = rows[:, 4], rows[:, 5]
    query = f"FROM '{tmp_path / 'linear.csv'}' TO TRAIN"
    numbers = _said(
        f"SELECT * EXCLUDE (seldom) {query} LinearRegressor LABEL amount INTO m",
        tmp_path,
        rows,
    )
    with_one = np.column_stack([rows[:, :4], np.ones(_ROWS)])
    best, *_ = np.linalg.lstsq(with_one, amount, rcond=None)
    error = np.square(with_one @ best - amount).mean()
    assert np.square(numbers - amount).mean() < 1.1 * error
    chances = _said(
        f"SELECT * EXCLUDE (amount) {query} LinearClassifier LABEL seldom INTO m",
        tmp_path,
        rows,
    )
    known = ((with_one @ best > 40) == seldom).mean()
    assert ((chances >= 0.5) == seldom).mean() > known - 0.01
