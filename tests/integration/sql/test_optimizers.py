"""The arguments that statements take for optimizers are those that Keras takes."""

from __future__ import annotations

import inspect
from itertools import combinations
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from elasticdl.sql.models import MODELS
from elasticdl.sql.optimizers import COMMON, OPTIMIZERS, RULES, accepted, clashes

# Of Keras's own arguments: the last is for 16 bits, where the job has one that moves,
# and rows of an EMBEDDING cannot be scaled.
_NO_ARGUMENTS = {"self", "name", "kwargs", "loss_scale_factor"}
_VALUES = (
    -1e39, -2, -0.5, -1e-9, 0, 0.0, 1e-9, 0.3, 0.999999, 1, 1.0, 1.5, 2, 3.0, 100, 1e39,
    float("inf"), True, False, "0.1", [0.1], None,
)  # fmt: skip
_GOOD = {
    "learning_rate_power": -0.5, "use_ema": True, "amsgrad": True, "nesterov": True,
    "centered": True, "ema_overwrite_frequency": 2, "gradient_accumulation_steps": 2,
}  # fmt: skip
_EVERY = [(of, name) for of in OPTIMIZERS for name in (*OPTIMIZERS[of][1], *COMMON)]


def _made(of: str, arguments: dict[str, Any]) -> keras.optimizers.Optimizer | None:
    try:
        return getattr(keras.optimizers, OPTIMIZERS[of][0])(**arguments)
    except (ValueError, TypeError):
        return None


def _learns(optimizer: keras.optimizers.Optimizer) -> bool:
    """Whether steps leave numbers, also where the gradient is 0."""
    variable = keras.Variable(np.ones(3, np.float32))
    optimizer.build([variable])
    for _ in range(4):
        optimizer.apply([tf.constant([0.0, 0.1, -0.2])], [variable])
    return bool(np.isfinite(keras.ops.convert_to_numpy(variable)).all())


@pytest.mark.parametrize("of", OPTIMIZERS)
def test_a_statement_may_give_what_an_optimizer_takes(of: str) -> None:
    name, own = OPTIMIZERS[of]
    known = set(inspect.signature(getattr(keras.optimizers, name)).parameters)
    assert {*own, *COMMON} == known - _NO_ARGUMENTS


@pytest.mark.parametrize(("of", "name"), _EVERY)
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


def test_every_rule_is_of_an_optimizer() -> None:
    assert set(RULES) == {name for _, name in _EVERY}


def test_keras_has_every_activation_of_a_model() -> None:
    (activation,) = (
        one for one in MODELS["DNNClassifier"].parameters if one.name == "activation"
    )
    for name in activation.expected.removeprefix("one of ").split(", "):
        assert activation.check(name)
        assert callable(keras.activations.get(name))
