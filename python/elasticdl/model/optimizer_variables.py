"""The variables of an optimizer, all of them: what a checkpoint and a newcomer need.

Owns where an optimizer may have them: Keras lists what `add_variable` made, but not
those of optimizers that one of the user's own holds. Called by the worker's
checkpoints and steps. Changes none.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from elasticdl.errors import UserCodeError
from elasticdl.model.optimizers import inner_optimizer

_Schedule = keras.optimizers.schedules.LearningRateSchedule
# There may be millions of them, and none has a variable.
_PLAIN = (int, float, str, bytes, np.ndarray, np.generic, tf.Tensor, type(None))
_LIBRARIES = {"keras", "tensorflow", "numpy", "elasticdl"}


def variables_of(optimizer: keras.optimizers.Optimizer) -> list[Any]:
    """Return all variables of an optimizer, each once, in a fixed order.

    A LossScaleOptimizer lists its own and those that it wraps, but for what the inner
    one keeps as an attribute alone, as Nadam its product of momenta: Keras tracks none
    while one optimizer builds the other. An optimizer of one's own may hold others,
    seed generators, metrics, layers and objects of one's own, as attributes or in lists
    and dicts, and so may a schedule.

    Raises UserCodeError for a variable of TensorFlow's, which Keras does not know.
    """
    inner = inner_optimizer(optimizer)
    kept = [v for v in vars(inner).values() if isinstance(v, keras.Variable)]
    within = list(_within(optimizer))
    trained = {id(v) for one in within for v in _trained_by(one)}
    held = (v for v in within if id(v) not in trained)
    every = (*optimizer.variables, *inner.variables, *kept, *held)
    return list({id(v): v for v in every if isinstance(v, keras.Variable)}.values())


def refuse_later_ones(optimizer: keras.optimizers.Optimizer, before: list[Any]) -> None:
    """Raise UserCodeError if an optimizer has other variables than `before` a step.

    Checkpoints, and copies for other workers, have those that it had then.
    """
    known = {id(v) for v in before}
    later = [v.name for v in variables_of(optimizer) if id(v) not in known]
    if later:
        raise UserCodeError(
            f"{type(optimizer).__name__} made variables in its first step "
            f"({', '.join(later[:3])}), so that no checkpoint has them; expected all "
            "in its `build`: build there the optimizers that it holds, too"
        )


def _within(thing: Any) -> Iterator[Any]:
    """Yield the optimizers and variables in a thing, itself first."""
    seen: set[int] = set()
    left = [thing]
    while left:
        one = left.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        if isinstance(one, keras.Variable | keras.optimizers.Optimizer):
            yield one
        left.extend(reversed([p for p in _parts(one) if not isinstance(p, _PLAIN)]))


def _parts(thing: Any) -> list[Any]:
    match thing:
        case keras.optimizers.Optimizer():
            _refuse_tensorflows(thing)
            return [*thing.variables, *vars(thing).values()]
        case keras.random.SeedGenerator():
            return [thing.state]
        case keras.Layer() | keras.metrics.Metric():
            return [*thing.variables]  # with the seeds of its generators
        case _Schedule() | keras.initializers.Initializer():
            return [*vars(thing).values()]
        case Mapping():
            return [*thing.values()]
        case list() | tuple():
            return [*thing]
        case _ if _is_of_the_user(thing):
            return [*vars(thing).values()]
    return []


def _is_of_the_user(thing: Any) -> bool:
    """Whether it is an object of a class that neither Python nor a library has."""
    try:
        if isinstance(thing, type) or not isinstance(vars(thing), dict):
            return False
    except Exception:  # noqa: BLE001 - a proxy of the user's, say, without its object
        return False
    package = type(thing).__module__.partition(".")[0]
    return package not in sys.stdlib_module_names | _LIBRARIES


def _refuse_tensorflows(optimizer: keras.optimizers.Optimizer) -> None:
    for name, value in vars(optimizer).items():
        if isinstance(value, tf.Variable):
            raise UserCodeError(
                f"{type(optimizer).__name__}.{name} is a tf.Variable, which is in no "
                "checkpoint; expected one of Keras's: make it by `self.add_variable` "
                "in `build`"
            )


def _trained_by(thing: Any) -> list[Any]:
    # There is no public name for them.
    return list(getattr(thing, "_trainable_variables", ()))
