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

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tensorflow as tf

from elasticdl.errors import UserCodeError
from elasticdl.model.measures.masks import masks_of, put_masks
from elasticdl.model.measures.metric_parts import (
    Array,
    NamedMetric,
    full_precision,
    number,
    parts_of,
    pick_output,
    refuse_unless_sum,
    result_names,
)
from elasticdl.model.measures.targets import parted
from elasticdl.model.state import is_seed, plain
from elasticdl.model.tracing import GraphFunction
from elasticdl.model.user_code import ModelCode
from elasticdl.model.variables import NamedVariable

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
    output_names: Sequence[str] = ()
    has_loss: bool = True  # else the model's own evaluation step tells what it is
    _loss_sum: float = 0.0
    _loss_count: float = 0.0
    _initial: dict[str, Array] = field(default_factory=dict)
    _checked: bool = False
    _step: Any = None

    def names(self) -> list[str]:
        """Return the names of the results, `loss` first."""
        names = [LOSS] if self.has_loss else []
        for item in self.named:
            if item.compiled:
                names.extend(result_names(item.metric))
            else:
                names.append(item.name)
        return names

    def direction(self, name: str) -> str | None:
        """Return `max` or `min` if Keras knows which is better, else None."""
        if name == LOSS:
            return "min"
        for item in self.named:
            for metric in [item.metric, *getattr(item.metric, "metrics", [])]:
                known = getattr(metric, "_direction", None)
                if known and name in (item.name, metric.name):
                    return "max" if known == "up" else "min"
        return None

    def warm(self, targets: Any, predictions: Any) -> None:
        """Create the variables of metrics that create them at their first update."""
        with self.code.running("the metrics"):
            self._update_all(targets, predictions)
        self.reset()

    def update(self, targets: Any, predictions: Any, loss: Any, records: int) -> None:
        """Add a batch. Raises UserCodeError if a metric raises or is not a sum.

        Args:
            targets: Labels, with weights as targets.Weighted.
            predictions: With their masks (model/measures/masks.py).
            loss: Of the batch.
            records: In it.
        """
        self._loss_sum += float(loss) * records
        self._loss_count += records
        if all(item.by_model for item in self.named):
            return
        predictions = full_precision(predictions)
        if not self._checked:
            self._check(targets, predictions, records)
        if self._step is None:
            # One traced call for all metrics: eager updates cost a millisecond each.
            self._step = GraphFunction(self._update_masked, reduce_retracing=True)
        with self.code.running("the metrics"):
            masks = masks_of(predictions)
            try:
                self._step(targets, predictions, masks)
            except _NOT_TRACEABLE:
                # A metric in plain Python (NumPy, lists) runs as it is.
                self._step = self._update_masked
                self._step(targets, predictions, masks)

    def state(self) -> dict[str, Array]:
        """Return the sums since `reset`, as arrays that can be added."""
        arrays: dict[str, Array] = {
            "loss/sum": np.array([self._loss_sum, self._loss_count], np.float64)
        }
        for key, variable in self._variables():
            value = plain(np.asarray(variable.numpy()))
            arrays[key] = value - self._initial.get(key, np.zeros_like(value))
        return arrays

    def load_state(self, state: Mapping[str, Array]) -> None:
        """Replace the own state by a summed one.

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
        """Reset all sums."""
        for item in self.named:
            item.metric.reset_state()
            if item.compiled:
                for inner in item.metric.metrics:
                    inner.reset_state()
        self._loss_sum = self._loss_count = 0.0
        self._initial = {
            key: plain(np.asarray(variable.numpy()))
            for key, variable in self._variables()
        }

    def results(self) -> dict[str, float]:
        """Return each metric's value of the present sums."""
        results: dict[str, float] = {}
        if self.has_loss:
            results[LOSS] = self._loss_sum / max(self._loss_count, 1.0)
        with self.code.running("the metrics"):
            for item in self.named:
                for name, value in parts_of(item.name, item.metric.result()):
                    results[name] = number(value)
        return results

    # The parts.

    def _variables(self) -> list[tuple[str, Any]]:
        found = []
        for item in self.named:
            for index, variable in enumerate(item.metric.variables):
                if is_seed(NamedVariable(variable.path, variable)):
                    continue
                found.append((f"{item.name}/{index}:{variable.name}", variable))
        return found

    def _update_masked(self, targets: Any, predictions: Any, masks: list[Any]) -> None:
        self._update_all(targets, put_masks(predictions, masks))

    def _update_all(self, targets: Any, predictions: Any) -> None:
        for item in self.named:
            if not item.by_model:
                self._update_one(item, *parted(targets), predictions)

    def _update_one(
        self, item: NamedMetric, labels: Any, weights: Any, predictions: Any
    ) -> None:
        if item.output is not None:
            labels = pick_output(labels, item.output, self.output_names)
            predictions = pick_output(predictions, item.output, self.output_names)
        if item.compiled and weights is not None:
            # It gives them to `weighted_metrics` alone.
            item.metric.update_state(labels, predictions, weights)
        else:
            item.metric.update_state(labels, predictions)

    def _check(self, targets: Any, predictions: Any, size: int) -> None:
        """Check on two halves of a batch that the states add up, then reset."""
        if size < 2:
            return
        self._checked = True
        before = self.state()
        halves = [
            (_rows(targets, 0, size // 2), _rows(predictions, 0, size // 2)),
            (_rows(targets, size // 2, size), _rows(predictions, size // 2, size)),
        ]
        first, second, both = (
            self._state_of([halves[i] for i in parts]) for parts in ([0], [1], [0, 1])
        )
        for item in self.named:
            if not item.by_model:
                refuse_unless_sum(item, first, second, both)
        self.load_state(before)

    def _state_of(self, batches: Sequence[tuple[Any, Any]]) -> dict[str, Array]:
        self.reset()
        with self.code.running("the metrics"):
            for targets, predictions in batches:
                self._update_all(targets, predictions)
        return self.state()


def _rows(tree: Any, start: int, end: int) -> Any:
    """Return some records of a batch, with their masks."""
    masks = [m if m is None else m[start:end] for m in masks_of(tree)]
    parts = tf.nest.map_structure(lambda t: _rows_of(t, start, end), tree)
    return put_masks(parts, masks)


def _rows_of(tensor: Any, start: int, end: int) -> Any:
    if tensor is None:
        return None  # an output that the model leaves out
    if not isinstance(tensor, tf.SparseTensor):
        return tensor[start:end]
    first = [start] + [0] * (len(tensor.shape) - 1)
    size = tf.concat([[end - start], tensor.dense_shape[1:]], 0)
    return tf.sparse.slice(tensor, first, size)
