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

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from elasticdl.errors import UserCodeError
from elasticdl.model.user_code import ModelCode, takes_predictions_first

Array = NDArray[Any]
LOSS = "loss"


class PerRecord(keras.metrics.Metric):
    """The mean of what a function (labels, predictions) returns per record."""

    def __init__(self, name: str, function: Callable[..., Any]) -> None:
        """Take the function; a result of any shape is averaged over all of it."""
        super().__init__(name=name)
        self._function = function
        self._swapped = takes_predictions_first(function)
        # Counts beyond 2^24 are no longer exact in float32.
        self._total = self.add_variable((), "zeros", dtype="float32", name="total")
        self._count = self.add_variable((), "zeros", dtype="float32", name="count")

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        """Add a batch; weights are not used."""
        del sample_weight
        pair = (y_pred, y_true) if self._swapped else (y_true, y_pred)
        values = tf.cast(tf.convert_to_tensor(self._function(*pair)), tf.float32)
        self._total.assign_add(tf.reduce_sum(values))
        self._count.assign_add(tf.cast(tf.size(values), tf.float32))

    def result(self) -> Any:
        """Return the mean so far."""
        return tf.math.divide_no_nan(self._total.value, self._count.value)


@dataclass(frozen=True)
class NamedMetric:
    """One metric and which output it looks at (None: everything)."""

    name: str
    metric: keras.metrics.Metric
    output: str | None = None


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
            inner = getattr(item.metric, "metrics", None)
            if type(item.metric).__name__ == "CompileMetrics":
                names.extend(result_names(item.metric))
            else:
                names.append(item.name)
            del inner
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
            except (
                TypeError,
                NotImplementedError,
                tf.errors.OperatorNotAllowedInGraphError,
            ):
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
                        results[name] = _number(part)
                else:
                    results[item.name] = _number(value)
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
        states = []
        for parts in ([0], [1], [0, 1]):
            self.reset()
            with self.code.running("the metrics"):
                for part in parts:
                    for item in self.named:
                        self._update_one(item, *halves[part])
            states.append(self.state())
        for item in self.named:
            own = [k for k in states[0] if k.startswith(f"{item.name}/")]
            if not own:
                if type(item.metric).__name__ == "CompileMetrics":
                    continue
                raise UserCodeError(
                    f"metric `{item.name}` ({type(item.metric).__name__}) keeps its "
                    "state in Python, expected variables (self.add_variable), which "
                    "can be added up over workers"
                )
            for key in own:
                first, second, both = (s[key] for s in states)
                if not np.allclose(first + second, both, rtol=1e-4, atol=1e-5):
                    raise UserCodeError(
                        f"metric `{item.name}` ({type(item.metric).__name__}) does not "
                        f"add up: its `{key.split(':')[-1]}` of all records is not the "
                        "sum over parts of them, so workers cannot share it; use a "
                        "metric that sums (as keras.metrics.Mean), or a function of "
                        "(labels, predictions) that returns a value per record"
                    )
        self.load_state(before)


def result_names(metric: Any) -> list[str]:
    """Return the names that compiled metrics give their results."""
    result = metric.result() if metric.variables else {}
    return list(result)


def full_precision(tree: Any) -> Any:
    """Return the tensors with 16-bit floats as float32, for losses and metrics."""

    def cast(tensor: Any) -> Any:
        if tensor.dtype in (tf.bfloat16, tf.float16):
            return tf.cast(tensor, tf.float32)
        return tensor

    return tf.nest.map_structure(cast, tree)


def pick_output(tree: Any, output: str, output_names: Sequence[str]) -> Any:
    """Return one output (or label) of several, by name."""
    if isinstance(tree, Mapping):
        if output not in tree:
            raise UserCodeError(
                f"metrics are given for output `{output}`, but there is only "
                f"{sorted(tree)}"
            )
        return tree[output]
    if isinstance(tree, list | tuple) and output in output_names:
        return tree[list(output_names).index(output)]
    if isinstance(tree, list | tuple):
        raise UserCodeError(
            f"metrics are given for output `{output}`, the model's outputs are "
            f"{list(output_names)}"
        )
    return tree  # one label for all outputs


def named_metrics(tree: Any) -> list[NamedMetric]:
    """Return what `eval_metrics_fn` gave as a flat list; nested ones `output/name`.

    Raises UserCodeError for anything that is neither a Keras metric nor a function.
    """
    if not isinstance(tree, Mapping):
        raise UserCodeError(
            f"eval_metrics_fn returned {type(tree).__name__}, expected a dict "
            "{name: metric or function}, or {output: {name: ...}}"
        )
    found: list[NamedMetric] = []
    for name, value in tree.items():
        if isinstance(value, Mapping):
            found.extend(
                NamedMetric(f"{name}/{inner}", _metric(f"{name}/{inner}", m), name)
                for inner, m in value.items()
            )
        else:
            found.append(NamedMetric(name, _metric(name, value)))
    return found


def _metric(name: str, value: Any) -> keras.metrics.Metric:
    if isinstance(value, keras.metrics.Metric):
        return value
    if isinstance(value, str):
        metric: keras.metrics.Metric = keras.metrics.get(value)
        return (
            metric
            if isinstance(metric, keras.metrics.Metric)
            else PerRecord(name.replace("/", "_"), metric)
        )
    if callable(value) and not isinstance(value, type):
        return PerRecord(name.replace("/", "_"), value)
    raise UserCodeError(
        f"metric `{name}` is {value!r}, expected a keras.metrics.Metric object or a "
        "function of (labels, predictions)"
    )


def _number(value: Any) -> float:
    """Return a metric's value as one number; a vector (F1 per class) as its mean."""
    return float(np.mean(np.asarray(value, np.float64)))
