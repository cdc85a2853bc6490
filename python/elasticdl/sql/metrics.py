"""Metrics that a statement may name.

Owns their spellings, which label they go with, and Keras's names.
Called by `sql.attributes`, `sql.planning` and `sql.generate`.
"""

from __future__ import annotations

from collections.abc import Sequence

from elasticdl.sql.plan import Head
from elasticdl.sql.writing.text import literal

METRICS = {
    "accuracy": "accuracy",
    "auc": "AUC",
    "precision": "Precision",
    "recall": "Recall",
    "meanabsoluteerror": "MeanAbsoluteError",
    "mae": "MeanAbsoluteError",
    "meansquarederror": "MeanSquaredError",
    "mse": "MeanSquaredError",
    "rootmeansquarederror": "RootMeanSquaredError",
    "rmse": "RootMeanSquaredError",
}
ALLOWED_METRICS = {
    Head.BINARY: ("accuracy", "AUC", "Precision", "Recall"),
    Head.CLASSES: ("accuracy",),
    Head.NUMBER: ("MeanAbsoluteError", "MeanSquaredError", "RootMeanSquaredError"),
}
DEFAULT_METRICS = {
    Head.BINARY: ("accuracy", "AUC"),
    Head.CLASSES: ("accuracy",),
    Head.NUMBER: ("MeanAbsoluteError", "RootMeanSquaredError"),
}
_LABELS = {
    Head.BINARY: "classes",
    Head.CLASSES: "more than two classes",
    Head.NUMBER: "numbers",
}
_METRIC_NAMES = {
    "AUC": "auc",
    "Precision": "precision",
    "Recall": "recall",
    "MeanAbsoluteError": "mean_absolute_error",
    "MeanSquaredError": "mean_squared_error",
    "RootMeanSquaredError": "root_mean_squared_error",
}


_OF_LABELS = {
    (Head.BINARY, "accuracy"): "BinaryAccuracy",
    (Head.CLASSES, "accuracy"): "SparseCategoricalAccuracy",
}


def metric_calls(head: Head, wanted: Sequence[str]) -> dict[str, str]:
    """Return the metrics of a function of metrics, by their names in reports."""
    made = {}
    for metric in wanted:
        name = _METRIC_NAMES.get(metric, metric)
        of = _OF_LABELS.get((head, metric), metric)
        made[name] = f"keras.metrics.{of}(name={literal(name)})"
    return made


def misfit(head: Head, wanted: Sequence[str]) -> str:
    """Return which metric does not go with a label, or ""."""
    allowed = ALLOWED_METRICS[head]
    for name in wanted:
        if name not in allowed:
            return (
                f"{name} does not go with a label of {_LABELS[head]}; expected "
                f"{', '.join(allowed)}"
            )
    return ""


def metrics(head: Head, wanted: tuple[str, ...]) -> list[str]:
    """Return the metrics of `compile`."""
    return [
        literal("accuracy")
        if name == "accuracy"
        else f"keras.metrics.{name}(name={literal(_METRIC_NAMES[name])})"
        for name in (wanted or DEFAULT_METRICS[head])
    ]
