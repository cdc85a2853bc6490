"""How portions of a step move a model's state, tried before the first step.

Owns the passes from other values of state, and what is told of the outcome. Called by
`measures.portions`; `measures.moves` decides. Changes no variable.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any

import keras
import numpy as np

from elasticdl.model.measures.in_portions import tried_in_portions
from elasticdl.model.measures.moves import (
    MEAN,
    Doubt,
    Movement,
    Pass,
    Tried,
    movement,
    shifts,
)
from elasticdl.model.state import layers_of

log = logging.getLogger(__name__)


class StateTrial:
    """Passes over a batch and its portions that begin with other values of state."""

    def __init__(
        self,
        variables: Sequence[Any],
        traced: Callable[..., Any],
        batch: tuple[Any, Any],
        reached: Sequence[Sequence[Any]],
        counts: tuple[int, int, int],
    ) -> None:
        """Take a batch, and what it and its portions made of all variables."""
        self._variables = variables
        self._traced, self._batch = traced, batch
        self._first = counts[1] / counts[0]
        self._passes = [v.numpy() for v in variables], list(reached)
        self._later: tuple[list[Any], list[Any]] = [], []
        self._drawn = list(reached[0])

    def movements(
        self, assigned: Collection[int], model: keras.Model
    ) -> list[Movement]:
        """Return by variable how portions move it; what is in doubt is told."""
        found = [MEAN] * len(self._variables)
        known = {id(variable) for variable in _averages(model)}
        asked = [at for at in sorted(assigned) if id(self._variables[at]) not in known]
        if not asked:
            return found
        self._make()
        together = self._shifted(set(asked))
        for at in asked:
            variable = self._variables[at]
            found[at], doubt = movement(self._tried(at, together), dtype=variable.dtype)
            if doubt is Doubt.UNSTEADY:
                # What it adds may follow from other state, as from a codebook.
                alone = self._tried(at, self._shifted({at}))
                found[at], doubt = movement(alone, dtype=variable.dtype)
            if doubt:
                _tell(variable, doubt)
        return found

    def _make(self) -> None:
        """Make the passes that begin where a step ends, or draw other numbers."""
        before, reached = self._passes
        whole = [
            np.asarray(value).astype(old.dtype)
            for value, old in zip(reached[0], before, strict=True)
        ]
        self._later = whole, self._from(whole)
        drawn = self._from(before, draw=1)
        self._drawn = drawn[0] if drawn else self._drawn

    def _shifted(self, places: Collection[int]) -> list[list[Any]]:
        """Return what is made of the values if these are higher, for two shifts."""
        found = []
        for number in range(2):
            begins = list(self._passes[0])
            for at in places:
                by = shifts(self._variables[at].dtype)[number]
                begins[at] = _higher(begins[at], by)
            found.append(self._from(begins))
        return found

    def _tried(self, at: int, shifted: Sequence[list[Any]]) -> Tried:
        """Return what was found of a variable."""
        first = self._pass(at, *self._passes)
        before, later = self._later
        by = shifts(self._variables[at].dtype)
        return Tried(
            first,
            self._pass(at, before, later) if later else first,
            tuple(
                (much, self._pass(at, self._passes[0], passes))
                for much, passes in zip(by, shifted, strict=True)
                if passes
            ),
            not np.allclose(self._drawn[at], first.whole, rtol=1e-5, equal_nan=True),
        )

    def _from(self, begins: Sequence[Any], *, draw: int = 0) -> list[Any]:
        """Return what is made of these values; nothing if that cannot be computed."""
        function = partial(self._traced, draw=draw, begins=begins)
        tried = tried_in_portions(function, *self._batch)
        return [one[0] for one in tried[0]] if tried else []

    def _pass(self, at: int, before: Sequence[Any], reached: Sequence[Any]) -> Pass:
        whole, *parts = (np.asarray(one[at], np.float64) for one in reached)
        begin = np.asarray(before[at]).astype(np.float64)
        return Pass(begin, whole, (parts[0], parts[1]), self._first)


def _higher(value: Any, by: float) -> Any:
    if value.dtype.kind == "b":
        return value
    with np.errstate(over="ignore"):
        return (value + value.dtype.type(by)).astype(value.dtype)


def _averages(model: keras.Model) -> list[Any]:
    """Return the statistics of Keras's own layer: portions average them, as told."""
    return [
        variable
        for layer in layers_of(model)
        if isinstance(layer, keras.layers.BatchNormalization)
        for variable in (layer.moving_mean, layer.moving_variance)
    ]


def _tell(variable: Any, doubt: Doubt) -> None:
    log.warning(
        "State %s %s. Workers of strategy allReduce average what portions of a step "
        "make of it, so that it depends on their number; expected a moving average "
        "over records, or a sum of which each step keeps the same share, else set "
        "strategy: local",
        variable.path,
        doubt,
    )
