"""The toy model's evaluation: its metric tells which values each task saw.

Owns what replaces metrics, a traced forward pass and the model's borrowed values. The
state of the metric is, for each PS, the sum of its numbers times records, and that of
the squares: integers, so that a round whose tasks saw different values has a spread
that is not 0, exactly. Called by `toys`. Must not know the protocol.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

# How far PS 0's updates are from half of all: least in the middle of a job.
AWAY = "away"
MODEL = "model.keras"  # has the numbers, as JSON


class Metrics:
    """elasticdl.model.definition: what a module's metrics are."""

    def __init__(self, num_ps: int, half: float) -> None:
        self._num_ps = num_ps
        self._half = half
        self.reset()

    def names(self) -> list[str]:
        names = [name for ps in range(self._num_ps) for name in _names(ps)]
        return [*names, AWAY]

    def reset(self) -> None:
        self._records = np.zeros(1, np.int64)
        self._sums = np.zeros(self._num_ps, np.int64)
        self._squares = np.zeros(self._num_ps, np.int64)

    def update(self, labels: Any, outputs: Any, loss: Any, num_records: int) -> None:
        seen = np.array([int(values.sum()) for values in outputs], np.int64)
        self._records += num_records
        self._sums += num_records * seen
        self._squares += num_records * seen**2

    def state(self) -> dict[str, Any]:
        return {"records": self._records, "sums": self._sums, "squares": self._squares}

    def load_state(self, state: Mapping[str, Any]) -> None:
        self._records = state["records"]
        self._sums = state["sums"]
        self._squares = state["squares"]

    def results(self) -> dict[str, float]:
        records = int(self._records[0])
        found: dict[str, float] = {}
        for ps in range(self._num_ps):
            mean, spread = _names(ps)
            total = int(self._sums[ps])
            found[mean] = total / records
            found[spread] = float(records * int(self._squares[ps]) - total**2)
        found[AWAY] = abs(found[_names(0)[0]] - self._half)
        return found


def _names(ps: int) -> tuple[str, str]:
    return f"updates_{ps}", f"spread_{ps}"


def seen_in(metrics: Mapping[str, float], num_ps: int) -> list[tuple[float, float]]:
    """Return, by PS, the sum of the numbers that a round saw, and their spread."""
    return [(metrics[_names(ps)[0]], metrics[_names(ps)[1]]) for ps in range(num_ps)]


class Traced:
    """elasticdl.worker.steps.step.Traced."""

    def __init__(self, function: Callable[..., Any], *, jit: bool) -> None:
        self._function = function

    def trace(self, fixed: Any, batch: Any) -> None:
        pass

    def __call__(self, *arguments: Any) -> Any:
        return self._function(*arguments)


class ModelValues:
    """elasticdl.worker.uses.model_values.ModelValues."""

    def __init__(self, model: Any, trainer: Any) -> None:
        self._variables = model.trainable_variables
        self._trainer = trainer

    @contextmanager
    def set_to(self, values: Any) -> Iterator[None]:
        from elasticdl.worker.trainer import InModel

        if isinstance(values, InModel):
            yield
            return
        before = [variable.value for variable in self._variables]
        try:
            for variable, array in zip(self._variables, values.trainable, strict=True):
                variable.assign(array)
            yield
        finally:
            for variable, array in zip(self._variables, before, strict=True):
                variable.assign(array)
            self._trainer.variables_changed()
