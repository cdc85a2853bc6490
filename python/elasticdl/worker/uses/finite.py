"""Whether what was trained still is numbers, before somebody relies on it.

Owns the look at a model's values. Called by evaluation and export of a job that trains.
Knows nothing of steps: these look at the loss alone, as Keras does, and a NaN in a
feature need not reach the loss: relu makes 0 of it, but not of its gradient.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

import keras
import numpy as np

from elasticdl.model.variables import trainable_variables, view
from elasticdl.worker.trainer import NanLossError

log = logging.getLogger(__name__)

Expect = Callable[[], None]

_MOST_NAMED = 3


class FiniteValues:
    """Looks for NaN in the trainable variables of a model."""

    def __init__(self, model: keras.Model, *, skips: bool) -> None:
        """`skips`: the job goes on where a loss is not a number, and so here."""
        self._variables = trainable_variables(model)
        self._skips = skips

    def expect(self) -> None:
        """Raise NanLossError if the values in the model have a NaN.

        With `skips` a warning says so.
        """
        found = [v.name for v in self._variables if _has_nan(v.variable)]
        if not found:
            return
        more = len(found) - _MOST_NAMED
        names = ", ".join(found[:_MOST_NAMED]) + (
            f" and {more} more" if more > 0 else ""
        )
        told = (
            f"the model has values that are not numbers, in {names}, though every loss "
            "was one: look for NaN in the features, which relu hides from the loss"
        )
        if self._skips:
            log.warning("%s", told)
            return
        raise NanLossError(
            f"{told}; an earlier checkpoint may be without them, and "
            "training.onNanLoss: skip evaluates and exports such a model"
        )


def any_values() -> None:
    """Expect nothing: the values are not what this job trained."""


def _has_nan(variable: keras.Variable) -> bool:
    values = np.asarray(view(variable))
    # The least value is NaN where one is; no second array is made for it.
    return values.size > 0 and bool(np.isnan(values.min()))
