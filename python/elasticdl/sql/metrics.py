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
# Keras's own 200 are 0.005 apart: where one row in 3,000 is positive, all but a few
# probabilities lie between two of them, and an AUC of 0.90 was told as 0.69.
THRESHOLDS = """\
# Of AUC, in equal steps of the odds: as fine where probabilities are small.
THRESHOLDS = [1 / (1 + 2 ** (step / 8)) for step in range(192, -193, -1)]"""
_ARGUMENTS = {"AUC": ", thresholds=THRESHOLDS"}
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
        more = _ARGUMENTS.get(of, "")
        made[name] = f"keras.metrics.{of}(name={literal(name)}{more})"
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


def chosen(head: Head, wanted: Sequence[str]) -> tuple[str, ...]:
    """Return the metrics of a label: those of the wanted that go with it, or some."""
    allowed = ALLOWED_METRICS[head]
    return tuple(name for name in wanted if name in allowed) or DEFAULT_METRICS[head]


def needs_thresholds(wanted: Sequence[str]) -> bool:
    """Whether a module with these metrics has THRESHOLDS."""
    return any(name in _ARGUMENTS for name in wanted)


def metrics(chosen: Sequence[str]) -> list[str]:
    """Return the metrics of `compile`."""
    return [
        literal("accuracy")
        if name == "accuracy"
        else f"keras.metrics.{name}(name={literal(_METRIC_NAMES[name])}"
        f"{_ARGUMENTS.get(name, '')})"
        for name in chosen
    ]
