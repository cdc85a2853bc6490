"""Optimizers that a statement may name, the arguments of each, and what these take.

Owns what Keras would refuse in the job, and a little more: values with which no model
learns. Called by `sql.attributes` and `sql.generate`. Must not import Keras: a test
compares this table with it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from elasticdl.job.spec.kinds import Strategy
from elasticdl.job.spec.problems import did_you_mean
from elasticdl.sql.models import is_number, is_whole

_STEPS = "gradient_accumulation_steps"
_MOST = 3.4e38  # What a variable of float32 holds.


@dataclass(frozen=True)
class Rule:
    """What an argument takes; `check` is whether a value will do."""

    expected: str
    check: Callable[[Any], bool]
    fraction: bool = True  # Keras takes no whole number for it.


def _number(expected: str, check: Callable[[float], bool]) -> Rule:
    return Rule(expected, lambda v: is_number(v) and abs(v) < _MOST and check(v))


_FLAG = Rule("true or false", lambda v: isinstance(v, bool), fraction=False)
_ABOVE = _number("a number above 0", lambda v: v > 0)
_POSITIVE = _number("a number, 0 or more", lambda v: v >= 0)
_SHARE = _number("a number from 0 to 1", lambda v: 0 <= v <= 1)
_DECAY = _number("a number from 0 to below 1", lambda v: 0 <= v < 1)
RULES = {
    "learning_rate": _ABOVE,
    "beta_1": _DECAY,
    "beta_2": _DECAY,
    "rho": _DECAY,
    "epsilon": _ABOVE,  # With 0 a gradient of 0 makes NaN.
    "amsgrad": _FLAG,
    "nesterov": _FLAG,
    "momentum": _SHARE,
    "initial_accumulator_value": _ABOVE,  # The same, with 0, in Ftrl.
    "learning_rate_power": _number("a number, 0 or less", lambda v: v <= 0),
    "l1_regularization_strength": _POSITIVE,
    "l2_regularization_strength": _POSITIVE,
    "l2_shrinkage_regularization_strength": _POSITIVE,
    "beta": _POSITIVE,
    "weight_decay": _POSITIVE,
    "clipnorm": _ABOVE,
    "clipvalue": _ABOVE,
    "global_clipnorm": _ABOVE,
    "use_ema": _FLAG,
    "ema_momentum": _SHARE,
    "ema_overwrite_frequency": Rule("a whole number, 1 or more", is_whole, False),
    _STEPS: Rule("a whole number, 2 or more", lambda v: is_whole(v, 2), fraction=False),
}
_CLIPS = ("clipnorm", "clipvalue", "global_clipnorm")
_AVERAGE = "use_ema"
_OF_AVERAGE = ("ema_momentum", "ema_overwrite_frequency")
COMMON = (
    "weight_decay", *_CLIPS, _AVERAGE, *_OF_AVERAGE, _STEPS,
)  # fmt: skip
RATE = ("learning_rate",)
# Arguments with which embeddings, whose gradients come as rows, do not learn in Keras.
_UNFIT = {
    "centered": "Keras makes NaN of embeddings with it, where a value is in a batch "
    "more than once",
    "loss_scale_factor": "Keras does not take it off the gradients of embeddings",
}
OPTIMIZERS = {
    "adam": ("Adam", (*RATE, "beta_1", "beta_2", "epsilon", "amsgrad")),
    "adamw": ("AdamW", (*RATE, "beta_1", "beta_2", "epsilon", "amsgrad")),
    "sgd": ("SGD", (*RATE, "momentum", "nesterov")),
    "rmsprop": ("RMSprop", (*RATE, "rho", "momentum", "epsilon")),
    "adagrad": ("Adagrad", (*RATE, "initial_accumulator_value", "epsilon")),
    "adadelta": ("Adadelta", (*RATE, "rho", "epsilon")),
    "adamax": ("Adamax", (*RATE, "beta_1", "beta_2", "epsilon")),
    "nadam": ("Nadam", (*RATE, "beta_1", "beta_2", "epsilon")),
    "ftrl": (
        "Ftrl",
        (
            *RATE,
            "learning_rate_power",
            "initial_accumulator_value",
            "l1_regularization_strength",
            "l2_regularization_strength",
            "l2_shrinkage_regularization_strength",
            "beta",
        ),
    ),
}


def unknown(of: str, name: str) -> str:
    """Return why an optimizer takes no argument of a name, or ""."""
    called, own = OPTIMIZERS[of]
    known = (*own, *COMMON)
    if name in known:
        return ""
    if name in _UNFIT:
        return f"`{name}` is no argument here: {_UNFIT[name]}; take it out"
    return f"{called} has no `{name}`; {did_you_mean(name, known)}"


def accepted(name: str, value: Any) -> Any:
    """Return a value of an argument as Keras takes it; ValueError says what it is."""
    rule = RULES[name]
    if not rule.check(value):
        raise ValueError(rule.expected)
    return float(value) if rule.fraction else value


def clashes(given: Mapping[str, Any], strategy: str) -> Iterator[tuple[str, str]]:
    """Yield what arguments do not go with others, or with the job's strategy."""
    clips = [name for name in given if name in _CLIPS]
    for name in clips[1:]:
        told = f"`{name}` and `{clips[0]}` exclude each other; expected one of them"
        yield name, told
    for name in _OF_AVERAGE:
        if name in given and not given.get(_AVERAGE):
            yield name, f"`{name}` means nothing without optimizer.{_AVERAGE} = true"
    served = strategy == Strategy.PARAMETER_SERVER
    if served and "global_clipnorm" in given and _STEPS in given:
        yield (
            _STEPS,
            f"`{_STEPS}` with `global_clipnorm` needs all gradients in one place, and "
            "each PS has some; take `clipvalue`, or strategy local",
        )
