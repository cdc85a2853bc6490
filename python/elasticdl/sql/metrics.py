"""Metrics that a statement may name.

Owns their spellings, which label they go with, and Keras's names.
Called by `sql.attributes`, `sql.planning` and `sql.generate`.
"""

from __future__ import annotations

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
_METRIC_NAMES = {
    "AUC": "auc",
    "Precision": "precision",
    "Recall": "recall",
    "MeanAbsoluteError": "mean_absolute_error",
    "MeanSquaredError": "mean_squared_error",
    "RootMeanSquaredError": "root_mean_squared_error",
}


def metrics(head: Head, wanted: tuple[str, ...]) -> list[str]:
    """Return the metrics of `compile`."""
    return [
        literal("accuracy")
        if name == "accuracy"
        else f"keras.metrics.{name}(name={literal(_METRIC_NAMES[name])})"
        for name in (wanted or DEFAULT_METRICS[head])
    ]
