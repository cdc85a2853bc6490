"""Single metrics: what may be one, which output it looks at, whether it adds up.

Owns the rules for what `eval_metrics_fn` may return. Used by `metrics`. Knows nothing
of workers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from elasticdl.errors import UserCodeError
from elasticdl.model.measures.masks import with_mask_of
from elasticdl.model.user_code import takes_predictions_first

Array = NDArray[Any]


class PerRecord(keras.metrics.Metric):
    """The mean over records of a user's function (labels, predictions)."""

    def __init__(self, name: str, function: Callable[..., Any]) -> None:
        """Take the function; a result of any shape is averaged over all elements."""
        super().__init__(name=name)
        self._function = function
        self._swapped = takes_predictions_first(function)
        # Counts beyond 2^24 are no longer exact in float32.
        self._total = self.add_variable((), "zeros", dtype="float32", name="total")
        self._count = self.add_variable((), "zeros", dtype="float32", name="count")

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        """Add a batch; weights are ignored."""
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
    """One metric, and the output that it is computed on (None: all)."""

    name: str
    metric: keras.metrics.Metric
    output: str | None = None
    by_model: bool = False  # the model's own call or step updates it

    @property
    def compiled(self) -> bool:
        """Whether it stands for all metrics of `compile`, which have own names."""
        return type(self.metric).__name__ == "CompileMetrics"


def refuse_unless_sum(
    item: NamedMetric,
    first: Mapping[str, Array],
    second: Mapping[str, Array],
    both: Mapping[str, Array],
) -> None:
    """Raise UserCodeError unless the state of both parts is the sum of their states."""
    own = [key for key in both if key.startswith(f"{item.name}/")]
    kind = type(item.metric).__name__
    if not own and not item.compiled:
        raise UserCodeError(
            f"metric `{item.name}` ({kind}) keeps its state in Python, expected "
            "variables (self.add_variable), which can be added up over workers"
        )
    for key in own:
        # NaN, as of a correlation of equal numbers, adds up to NaN.
        if not np.allclose(
            first[key] + second[key], both[key], rtol=1e-4, atol=1e-5, equal_nan=True
        ):
            place, variable = key.removeprefix(f"{item.name}/").split(":", 1)
            one = _holder(item.metric, int(place))
            name = item.name if one is item.metric else one.name
            raise UserCodeError(
                f"metric `{name}` ({type(one).__name__}) does not add up: its "
                f"`{variable}` of all records is not the sum over parts of "
                "them, so workers cannot share it; use a metric that sums (as "
                "keras.metrics.Mean), or a function of (labels, predictions) that "
                "returns a value per record"
            )


def _holder(metric: Any, place: int) -> Any:
    """Return whose variable it is: of a compiled model, that of one of its metrics."""
    variable = metric.variables[place]
    for inner in getattr(metric, "metrics", []):
        if any(own is variable for own in inner.variables):
            return inner
    return metric


def compiled_metrics(model: keras.Model) -> list[NamedMetric]:
    """Return the metrics that `evaluate` reports of a compiled model but loss.

    Metrics of layers and the losses of single outputs are updated by the model's call
    and by compute_loss.
    """
    return [
        NamedMetric("compiled", metric)
        if type(metric).__name__ == "CompileMetrics"
        else NamedMetric(metric.name, metric, by_model=True)
        for metric in model.metrics
        if metric.name != "loss"
    ]


def result_names(metric: Any) -> list[str]:
    """Return the names of the results of compiled metrics."""
    result = metric.result() if metric.variables else {}
    return [name for name, _ in parts_of("", result)]


def parts_of(name: str, result: Any) -> Iterator[tuple[str, Any]]:
    """Yield the names and values of a metric's result, as Keras's logs have them.

    A metric may return several by their names, and so may one of several compiled ones.
    In Keras's order: of two of one name the last one counts.
    """
    if not isinstance(result, dict):
        yield name, result
        return
    for part, value in sorted(result.items()):
        yield from parts_of(part, value)


def full_precision(tree: Any) -> Any:
    """Return the tensors, 16-bit floats as float32, for losses and metrics.

    An output may be None: a model of one's own that leaves one out.
    """

    def cast(tensor: Any) -> Any:
        if tensor is not None and tensor.dtype in (tf.bfloat16, tf.float16):
            return with_mask_of(tf.cast(tensor, tf.float32), tensor)
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
    """Return the metrics of `eval_metrics_fn` as a list; nested: `output/name`.

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


def number(value: Any) -> float:
    """Return a metric's value as one number; a vector (F1 per class) as its mean."""
    return float(np.mean(np.asarray(value, np.float64)))
