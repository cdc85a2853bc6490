"""Evaluation metrics whose states add up over workers.

Owns the state that travels (named arrays that are summed) and the check that a metric
really is a sum. Made by `definition`, used by workers for evaluation tasks and for the
summary of a round. Knows nothing of rounds.

A Keras metric keeps its state in variables that each update adds to; so the states of
parts of the data add up to the state of the whole, and the result of the sum is the
result of one process that saw everything. A metric that keeps a maximum, a last value
or a Python list does not add up: it is refused, with the reason, at its first batch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tensorflow as tf

from elasticdl.errors import UserCodeError
from elasticdl.model.metric_parts import (
    Array,
    NamedMetric,
    full_precision,
    number,
    pick_output,
    refuse_unless_sum,
    result_names,
)
from elasticdl.model.user_code import ModelCode

LOSS = "loss"
# What NumPy, lists or `if tensor` in a metric raise while it is traced.
_NOT_TRACEABLE = (
    TypeError,
    AttributeError,
    NotImplementedError,
    tf.errors.OperatorNotAllowedInGraphError,
)


@dataclass
class MetricSet:
    """All metrics of the model, the loss among them; single-threaded."""

    code: ModelCode
    named: Sequence[NamedMetric]
    loss: Callable[[Any, Any], Any]
    output_names: Sequence[str] = ()
    _loss_sum: float = 0.0
    _loss_count: float = 0.0
    _initial: dict[str, Array] = field(default_factory=dict)
    _checked: bool = False
    _step: Any = None

    def names(self) -> list[str]:
        """Return the names of the results, `loss` first."""
        names = [LOSS]
        for item in self.named:
            if type(item.metric).__name__ == "CompileMetrics":
                names.extend(result_names(item.metric))
            else:
                names.append(item.name)
        return names

    def direction(self, name: str) -> str | None:
        """Return `max` or `min` when Keras says which is better, else None."""
        if name == LOSS:
            return "min"
        for item in self.named:
            for metric in [item.metric, *getattr(item.metric, "metrics", [])]:
                known = getattr(metric, "_direction", None)
                if known and name in (item.name, metric.name):
                    return "max" if known == "up" else "min"
        return None

    def warm(self, labels: Any, predictions: Any) -> None:
        """Let metrics that make variables at their first update make them."""
        with self.code.running("the metrics"):
            for item in self.named:
                self._update_one(item, labels, predictions)
        self.reset()

    def update(self, labels: Any, predictions: Any) -> None:
        """Add a batch. Raises UserCodeError when a metric raises or is no sum."""
        predictions = full_precision(predictions)
        if not self._checked:
            self._check(labels, predictions)
        if self._step is None:
            # One traced call for all metrics: eager updates cost a millisecond each.
            self._step = tf.function(self._update_all, reduce_retracing=True)
        with self.code.running("the metrics"):
            try:
                loss = self._step(labels, predictions)
            except _NOT_TRACEABLE:
                # A metric in plain Python (NumPy, lists) runs as it is.
                self._step = self._update_all
                loss = self._step(labels, predictions)
        records = int(tf.nest.flatten(labels)[0].shape[0])
        self._loss_sum += float(loss) * records
        self._loss_count += records

    def state(self) -> dict[str, Array]:
        """Return what has been added up since `reset`, as arrays to be summed."""
        arrays: dict[str, Array] = {
            "loss/sum": np.array([self._loss_sum, self._loss_count], np.float64)
        }
        for key, variable in self._variables():
            value = np.asarray(variable.numpy())
            arrays[key] = value - self._initial.get(key, np.zeros_like(value))
        return arrays

    def load_state(self, state: Mapping[str, Array]) -> None:
        """Take a summed state in place of the own one.

        Raises UserCodeError when it comes from other metrics than these.
        """
        self.reset()
        total = state.get("loss/sum")
        variables = dict(self._variables())
        if total is None or set(state) - {"loss/sum"} != set(variables):
            raise UserCodeError(
                f"metric states are for {sorted(state)}, expected "
                f"{sorted(['loss/sum', *variables])}; all workers must run the same "
                "model module"
            )
        self._loss_sum, self._loss_count = (float(x) for x in total)
        for key, variable in variables.items():
            added = np.asarray(state[key])
            initial = self._initial.get(key, np.zeros_like(added))
            variable.assign((initial + added).reshape(variable.shape))

    def reset(self) -> None:
        """Begin anew."""
        for item in self.named:
            item.metric.reset_state()
            if type(item.metric).__name__ == "CompileMetrics":
                for inner in item.metric.metrics:
                    inner.reset_state()
        self._loss_sum = self._loss_count = 0.0
        self._initial = {
            key: np.asarray(variable.numpy()) for key, variable in self._variables()
        }

    def results(self) -> dict[str, float]:
        """Return each metric's value of what has been added up."""
        results = {LOSS: self._loss_sum / self._loss_count if self._loss_count else 0.0}
        with self.code.running("the metrics"):
            for item in self.named:
                value = item.metric.result()
                if isinstance(value, dict):
                    for name, part in value.items():
                        results[name] = number(part)
                else:
                    results[item.name] = number(value)
        return results

    # The parts.

    def _variables(self) -> list[tuple[str, Any]]:
        found = []
        for item in self.named:
            for index, variable in enumerate(item.metric.variables):
                if "seed" in variable.name and not variable.dtype.startswith("float"):
                    continue
                found.append((f"{item.name}/{index}:{variable.name}", variable))
        return found

    def _update_all(self, labels: Any, predictions: Any) -> Any:
        for item in self.named:
            self._update_one(item, labels, predictions)
        return tf.cast(self.loss(labels, predictions), tf.float32)

    def _update_one(self, item: NamedMetric, labels: Any, predictions: Any) -> None:
        if item.output is not None:
            labels = pick_output(labels, item.output, self.output_names)
            predictions = pick_output(predictions, item.output, self.output_names)
        item.metric.update_state(labels, predictions)

    def _check(self, labels: Any, predictions: Any) -> None:
        """Try on two halves of a batch that the states add up, then forget them."""
        size = int(tf.nest.flatten(labels)[0].shape[0])
        if size < 2:
            return
        self._checked = True
        before = self.state()
        halves = [
            tf.nest.map_structure(lambda t: t[: size // 2], (labels, predictions)),
            tf.nest.map_structure(lambda t: t[size // 2 :], (labels, predictions)),
        ]
        first, second, both = (
            self._state_of([halves[i] for i in parts]) for parts in ([0], [1], [0, 1])
        )
        for item in self.named:
            refuse_unless_sum(item, first, second, both)
        self.load_state(before)

    def _state_of(self, batches: Sequence[tuple[Any, Any]]) -> dict[str, Array]:
        self.reset()
        with self.code.running("the metrics"):
            for labels, predictions in batches:
                for item in self.named:
                    self._update_one(item, labels, predictions)
        return self.state()
