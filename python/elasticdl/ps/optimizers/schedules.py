"""Learning-rate schedules of Keras, from their serialized configs.

Owns the formulas, in float32 as Keras computes them. Called by
`ps/optimizers/optimizer.py`. A schedule that is not Keras's own has no formula here:
`schedule_from_config` answers None, and the worker sends the learning rate with each
push.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from elasticdl.errors import SpecError
from elasticdl.ps.optimizers.floats import power

Schedule = Callable[[int], float]
_F = np.float32
_ONE = np.float32(1)
_PI = np.float32(math.pi)


def constant(learning_rate: float) -> Schedule:
    """Return the schedule of a fixed learning rate."""
    value = float(_F(learning_rate))
    return lambda _step: value


def schedule_from_config(tree: object) -> Schedule | None:
    """Return the schedule of a serialized `learning_rate`; steps count from 0.

    None if only Python code of the user can compute it (an own class, a function).
    Raises SpecError if the config of one of Keras's own makes no sense.
    """
    if isinstance(tree, int | float) and not isinstance(tree, bool):
        return constant(float(tree))
    if not isinstance(tree, Mapping):
        return None
    name, module = tree.get("class_name"), tree.get("module")
    make = _SCHEDULES.get(str(name))
    if make is None or module not in _MODULES:
        return None
    config = tree.get("config")
    if not isinstance(config, Mapping):
        raise SpecError(f"learning_rate: got {name} without a config, expected one")
    first = config.get("initial_learning_rate", 0.0)
    if not isinstance(first, float):
        raise SpecError(
            f"learning_rate: {name}: initial_learning_rate: got {first!r}, expected a "
            "float; Keras computes the whole schedule in integers otherwise: write "
            f"{first}.0"
        )
    try:
        return make(config)
    except (KeyError, TypeError, ValueError) as error:
        raise SpecError(
            f"learning_rate: the config of {name} cannot be read ({error!r}): "
            f"{dict(config)}; expected what keras.optimizers.schedules.serialize gives"
        ) from error


def _exponential_decay(config: Mapping[str, Any]) -> Schedule:
    first, base = _F(config["initial_learning_rate"]), _F(config["decay_rate"])
    steps, staircase = _positive(config, "decay_steps"), bool(config["staircase"])

    def rate(step: int) -> float:
        passed = _F(step) / steps
        return float(first * power(base, np.floor(passed) if staircase else passed))

    return rate


def _inverse_time_decay(config: Mapping[str, Any]) -> Schedule:
    first, speed = _F(config["initial_learning_rate"]), _F(config["decay_rate"])
    steps, staircase = _positive(config, "decay_steps"), bool(config["staircase"])

    def rate(step: int) -> float:
        passed = _F(step) / steps
        return float(
            first / (_ONE + speed * (np.floor(passed) if staircase else passed))
        )

    return rate


def _piecewise_constant_decay(config: Mapping[str, Any]) -> Schedule:
    # Keras casts the boundaries to the step's integer type.
    boundaries = [int(boundary) for boundary in config["boundaries"]]
    values = [float(_F(value)) for value in config["values"]]
    if len(values) != len(boundaries) + 1:
        raise ValueError(f"{len(values)} values for {len(boundaries)} boundaries")

    def rate(step: int) -> float:
        return values[sum(step > boundary for boundary in boundaries)]

    return rate


def _polynomial_decay(config: Mapping[str, Any]) -> Schedule:
    first, last = _F(config["initial_learning_rate"]), _F(config["end_learning_rate"])
    exponent, cycle = _F(config["power"]), bool(config["cycle"])
    steps = _positive(config, "decay_steps")

    def rate(step: int) -> float:
        now, whole = _F(step), steps
        if cycle:
            whole = steps * (_ONE if step == 0 else np.ceil(now / steps))
        else:
            now = min(now, steps)
        return float((first - last) * power(_ONE - now / whole, exponent) + last)

    return rate


def _cosine_decay(config: Mapping[str, Any]) -> Schedule:
    first, steps = _F(config["initial_learning_rate"]), _positive(config, "decay_steps")
    alpha, rest = _F(config["alpha"]), _F(1 - config["alpha"])
    target = config.get("warmup_target")
    warm_up = _F(config.get("warmup_steps") or 0)

    def cosine(start: np.float32, now: np.float32) -> float:
        share = _F(0.5) * (_ONE + np.cos(_PI * (now / steps)))
        return float(start * (rest * share + alpha))

    def rate(step: int) -> float:
        if target is None:
            return cosine(first, min(_F(step), steps))
        now, top = min(_F(step), steps + warm_up), _F(target)
        if now < warm_up:
            return float((top - first) * (now / warm_up) + first)
        return cosine(top, now - warm_up)

    return rate


def _cosine_decay_restarts(config: Mapping[str, Any]) -> Schedule:
    first, alpha = _F(config["initial_learning_rate"]), _F(config["alpha"])
    steps = _positive(config, "first_decay_steps")
    longer, lower = _F(config["t_mul"]), _F(config["m_mul"])

    def rate(step: int) -> float:
        passed = _F(step) / steps
        if longer == _ONE:
            restarts = np.floor(passed)
            passed = passed - restarts
        else:
            grown = _ONE - passed * (_ONE - longer)
            restarts = np.floor(np.log(grown) / np.log(longer))
            period = power(longer, restarts)
            passed = (passed - (_ONE - period) / (_ONE - longer)) / period
        share = _F(0.5) * power(lower, restarts) * (_ONE + np.cos(_PI * passed))
        return float(first * ((_ONE - alpha) * share + alpha))

    return rate


def _positive(config: Mapping[str, Any], key: str) -> np.float32:
    value = config[key]
    if not value > 0:
        raise ValueError(f"{key} is {value}, expected more than 0")
    return _F(value)


_MODULES = ("keras.optimizers.schedules", "keras.optimizers")
_SCHEDULES: Mapping[str, Callable[[Mapping[str, Any]], Schedule]] = {
    "ExponentialDecay": _exponential_decay,
    "InverseTimeDecay": _inverse_time_decay,
    "PiecewiseConstantDecay": _piecewise_constant_decay,
    "PolynomialDecay": _polynomial_decay,
    "CosineDecay": _cosine_decay,
    "CosineDecayRestarts": _cosine_decay_restarts,
}
