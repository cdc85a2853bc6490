"""The arguments that statements take for optimizers are those that Keras takes."""

from __future__ import annotations

import contextlib
import inspect
from itertools import combinations
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pyarrow.parquet as pq
import pytest
import tensorflow as tf
from elasticdl.job.values.file import load_values
from elasticdl.model import building
from elasticdl.sql.data.source import open_source
from elasticdl.sql.models import MODELS
from elasticdl.sql.optimizers import COMMON, OPTIMIZERS, RULES, accepted, clashes
from elasticdl.sql.plan import Generated
from elasticdl.sql.registry import ModelVersion, Registry
from elasticdl.sql.running.session import Session

from tests.integration.sql.chain import Runner, loaded, query, run_all, write_sqlite

_NO_ARGUMENTS = {"self", "name", "kwargs", "loss_scale_factor", "centered"}
_VALUES = (
    -1e39, -2, -0.5, -1e-9, 0, 0.0, 1e-9, 0.3, 0.999999, 1, 1.0, 1.5, 2, 3.0, 100, 1e39,
    float("inf"), True, False, "0.1", [0.1], None,
)  # fmt: skip
_GOOD = {
    "learning_rate_power": -0.5, "use_ema": True, "amsgrad": True, "nesterov": True,
    "ema_overwrite_frequency": 2, "gradient_accumulation_steps": 2,
}  # fmt: skip
_USUAL = ("sgd", "adam", "ftrl")
_EVERY = [(of, name) for of in OPTIMIZERS for name in (*OPTIMIZERS[of][1], *COMMON)]


def _made(of: str, arguments: dict[str, Any]) -> keras.optimizers.Optimizer | None:
    try:
        return getattr(keras.optimizers, OPTIMIZERS[of][0])(**arguments)
    except (ValueError, TypeError):
        return None


def _learns(optimizer: keras.optimizers.Optimizer) -> bool:
    """Whether steps leave numbers, also of gradients of 0 and as rows."""
    whole = keras.Variable(np.ones(3, np.float32))
    rows = keras.Variable(np.ones((40, 1), np.float32))
    optimizer.build([whole, rows])
    # As of an embedding of a batch in which a value is more than once.
    some = tf.IndexedSlices(
        tf.constant([[0.3], [0.1], [0.3], [0.2]]), tf.constant([7, 31, 7, 7]), (40, 1)
    )
    for _ in range(4):
        optimizer.apply([tf.constant([0.0, 0.1, -0.2]), some], [whole, rows])
    return all(bool(np.isfinite(one.numpy()).all()) for one in (whole, rows))


@pytest.mark.parametrize("of", OPTIMIZERS)
def test_a_statement_may_give_what_an_optimizer_takes(of: str) -> None:
    name, own = OPTIMIZERS[of]
    known = set(inspect.signature(getattr(keras.optimizers, name)).parameters)
    assert {*own, *COMMON} == known - _NO_ARGUMENTS


@pytest.mark.parametrize(
    ("of", "name"),
    [
        pytest.param(of, name, marks=() if of in _USUAL else pytest.mark.soak)
        for of, name in _EVERY
    ],
)
def test_no_value_is_left_for_keras_to_refuse_in_the_job(of: str, name: str) -> None:
    taken = []
    for value in _VALUES:
        try:
            given = {name: accepted(name, value)}
        except ValueError:
            continue
        if name.startswith("ema_"):
            given["use_ema"] = True
        optimizer = _made(of, given)
        assert optimizer is not None, value
        assert _learns(optimizer), value
        taken.append(value)
    assert taken


@pytest.mark.parametrize("of", OPTIMIZERS)
def test_no_two_arguments_are_left_for_keras_to_refuse(of: str) -> None:
    names = (*OPTIMIZERS[of][1], *COMMON)
    for pair in combinations(names, 2):
        given = {name: accepted(name, _GOOD.get(name, 0.3)) for name in pair}
        told = list(clashes(given, "local"))
        if _made(of, given) is None:
            assert told, pair
    assert len(list(clashes(dict.fromkeys(COMMON[1:4], 1.0), "local"))) == 2


def test_keras_has_a_centred_rmsprop_not_right_for_embeddings_yet() -> None:
    """Once it has, statements may name it."""
    optimizer = keras.optimizers.RMSprop(rho=0.3, centered=True)
    with contextlib.suppress(tf.errors.InvalidArgumentError):
        assert not _learns(optimizer)


def test_every_rule_is_of_an_optimizer() -> None:
    assert set(RULES) == {name for _, name in _EVERY}


def test_keras_has_every_activation_of_a_model() -> None:
    (activation,) = (
        one for one in MODELS["DNNClassifier"].parameters if one.name == "activation"
    )
    for name in activation.expected.removeprefix("one of ").split(", "):
        assert activation.check(name)
        assert callable(keras.activations.get(name))


# Some of the arguments of each.
_TRAININGS = {
    "sgd": "optimizer.momentum = 0.9, optimizer.nesterov = true, "
    "optimizer.gradient_accumulation_steps = 2",
    "adam": "optimizer.amsgrad = true, optimizer.global_clipnorm = 1",
    "adamw": "optimizer.weight_decay = 0.01, optimizer.clipnorm = 0.1",
    "rmsprop": "optimizer.rho = 0.8, optimizer.momentum = 0.5",
    "adagrad": "optimizer.learning_rate = 0.05",
    "adadelta": "optimizer.learning_rate = 1, optimizer.clipvalue = 0.01",
    "adamax": "optimizer.beta_1 = 0.8",
    "nadam": "optimizer.epsilon = 1e-5",
    "ftrl": "optimizer.learning_rate = 0.05, optimizer.l1_regularization_strength = "
    "0.001, optimizer.beta = 0.1",
}
_BATCH = 128
# All in `make soak`; this one has most arguments.
_FEW = ("ftrl",)


@pytest.mark.parametrize(
    "of",
    [
        pytest.param(of, marks=() if of in _FEW else pytest.mark.soak)
        for of in OPTIMIZERS
    ],
)
def test_a_statement_trains_as_plain_keras_does(of: str, tmp_path: Path) -> None:
    assert set(_TRAININGS) == set(OPTIMIZERS)
    write_sqlite(tmp_path / "shop.sqlite", 3000)
    source = open_source(str(tmp_path / "shop.sqlite"))
    overrides = ["job.worker.threads=1"]
    registry = Registry(tmp_path / "models")
    session = Session(source, registry, Runner(tmp_path), print, overrides)
    run_all(
        session,
        f"SELECT * FROM employee TO TRAIN DNNClassifier WITH optimizer = {of}, "
        f"{_TRAININGS[of]}, train.epoch = 2, train.batch_size = {_BATCH}, "
        "job.data.shuffle = false, job.data.shuffleRecords = false "
        "LABEL income INTO m",
    )
    source.close()
    version = registry.find("m")
    found = keras.models.load_model(next(version.export_dir.rglob("*.keras")))
    expected = _trained_by_keras(version, tmp_path)
    for got, wanted in zip(found.get_weights(), expected.get_weights(), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5)


def _trained_by_keras(version: ModelVersion, folder: Path) -> keras.Model:
    """Train the module of a version over its shards, in their order."""
    job = load_values(version.values_file).job
    building.begin(seed=job.training.seed)
    (path, text), *others = job.model.files.items()
    module = loaded(Generated(text, path, "", dict(others)), folder)
    function = job.model.definition.rpartition(".")[2]
    model = getattr(module, function)()
    files = sorted((version.data_dir / "training").glob("*.parquet"))
    for _ in range(job.training.epochs):
        for file in files:
            table = pq.read_table(file)
            columns = {
                name: tf.constant(table[name].to_pylist())[:, None]
                for name in model.input
            }
            label = np.asarray(table["label"])
            for first in range(0, len(label), _BATCH):
                rows = slice(first, first + _BATCH)
                some = {name: column[rows] for name, column in columns.items()}
                model.train_on_batch(some, label[rows, None])
    return model


@pytest.mark.soak
@pytest.mark.parametrize("strategy", ["local", "parameterServer", "allReduce"])
def test_moving_averages_of_weights_are_predicted_with_and_served(
    strategy: str, tmp_path: Path
) -> None:
    source = open_source(str(tmp_path / "t.duckdb"))
    registry = Registry(tmp_path / "models")
    session = Session(source, registry, Runner(tmp_path), print)
    select = "SELECT i % 97 / 1.0 AS x, i % 97 > 48 AS y FROM range(3000) r(i)"
    run_all(
        session,
        f"{select} TO TRAIN DNNClassifier WITH train.epoch = 2, optimizer.use_ema = "
        f"true, optimizer.ema_momentum = 0.9, job.strategy = {strategy} LABEL y INTO m;"
        f"{select} TO PREDICT guesses USING m",
    )
    rows = query(session, "SELECT x, probability FROM guesses")
    source.close()
    served = tf.saved_model.load(str(registry.find("m").export_dir / "saved_model"))
    given = tf.constant([[x] for x, _ in rows], "float32")
    answers = np.asarray(served.serve({"x": given})).ravel()
    chances = np.asarray([chance for _, chance in rows])
    np.testing.assert_allclose(chances, np.maximum(answers, 1 - answers), atol=1e-6)
