"""Values that a new model does not have yet, and may have a few steps later.

Owns which variables are moved for a trial, and by how much: weights whose elements are
all equal, and counters and coefficients that begin at zero. Called by
`model.measures.portions`, for its trials alone. Must not know what is tried; assigns
nothing.

A kernel of zeros, or a gate of one, hides what comes before it: predictions that do
not depend on the records, experts that are all as likely. A few steps later they do.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

log = logging.getLogger(__name__)

# All members move them alike: by their place.
_SEED = 7
# Offsets and gains are moved upwards, so that a gate, a scale or a variance stays above
# zero: by a part of their size, or of one, which sizes of normalised numbers are.
_LEAST, _MOST = 0.02, 0.2
# Kernels both ways, or one expert is the best of all records, which hides products of
# means: as far as usual initialisers draw, which is less the more inputs are added up,
# so that the loss, which a refusal tells, stays near that of a new model. Those of one
# sign keep it where they are as large.
_OF_KERNEL = 0.9
_SMALLEST = 0.01  # of a table of many rows
# A penalty that grows with the steps begins at zero.
_LATER_STEPS = 1000
_LATER_SHARE = 0.1

Places = Sequence[int]  # among the trainable variables
OTHERS = 4  # ways to move all weights, each drawn anew


def with_moved(
    make: Callable[[Places], Callable[..., Any]],
    model: keras.Model,
    loss: Callable[[Callable[..., Any]], Any],
) -> tuple[Callable[..., Any], Places]:
    """Return a function with the variables moved that have equal elements, and which.

    With none of them where the loss is no number then: a model that is fine is not
    tried with what it may not be.

    Args:
        make: Returns the function, given the places of the variables to move.
        model: The built model.
        loss: Returns the loss that such a function gives.
    """
    places = _with_equal_elements(model)
    if places:
        function = make(places)
        try:
            if np.isfinite(float(loss(function))):
                return function, places
        except Exception as error:  # noqa: BLE001 - the user's code: plain values tell
            log.debug("Moved weights could not be tried: %r", error)
    return make(()), ()


def trial_values(
    model: keras.Model, places: Places, *, other: int = 0
) -> list[tuple[Any, Any]]:
    """Return the trainable variables, and the values of a trial.

    `other`: from 1 to OTHERS, all float weights are moved, whatever they are.
    """
    return [
        (v, _moved(v.value, at, other) if _moves(v, at in places, other) else v.value)
        for at, v in enumerate(model.trainable_variables)
    ]


def later(variables: Sequence[Any]) -> list[tf.Tensor]:
    """Return what variables that are not trained may be after some steps."""
    return [_later(tf.convert_to_tensor(v.value)) for v in variables]


def _later(value: tf.Tensor) -> tf.Tensor:
    if value.dtype.is_integer:
        return value + tf.cast(min(_LATER_STEPS, value.dtype.max // 2), value.dtype)
    if value.dtype.is_floating:
        return tf.where(value == 0, tf.cast(_LATER_SHARE, value.dtype), value)
    return value


def _moves(variable: Any, is_constant: bool, other: int) -> bool:
    return is_constant or (other > 0 and "float" in variable.dtype)


def _with_equal_elements(model: keras.Model) -> list[int]:
    variables = enumerate(model.trainable_variables)
    return [at for at, variable in variables if _is_constant(variable)]


def _is_constant(variable: Any) -> bool:
    if "float" not in variable.dtype or 0 in variable.shape:
        return False
    flat = tf.reshape(variable.value, [-1])
    if not bool(tf.math.is_finite(flat[0])) or bool(flat[0] != flat[-1]):
        return False
    return bool(tf.reduce_all(flat == flat[0]))


def _moved(value: Any, place: int, other: int) -> tf.Tensor:
    """Return a value with other elements; in a graph, since it may be a large table."""
    value = tf.convert_to_tensor(value)
    least, most, size = _LEAST, _MOST, 1.0
    if value.shape.rank > 1:
        least, most = -_OF_KERNEL, _OF_KERNEL
        size = max(_SMALLEST, (3 / float(np.prod(value.shape[:-1]))) ** 0.5)
    seed = [_SEED + other, place]
    drawn = tf.random.stateless_uniform(value.shape, seed, least, most)
    return value + tf.cast(drawn, value.dtype) * tf.maximum(
        tf.abs(value), tf.cast(size, value.dtype)
    )
