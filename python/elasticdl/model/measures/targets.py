"""What predictions are compared with: labels, and weights where there are some.

Owns the one value that carries both through feeders, steps and evaluation, and the
weights that classes get. Made by `feed_call`, taken apart where loss and metrics are
computed; everything between hands it on. Knows nothing of feeds and losses.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from elasticdl.errors import UserCodeError


class Weighted(NamedTuple):
    """Labels with sample weights, as Keras's `fit` takes them: (x, y, weights)."""

    labels: Any
    weights: Any


def parted(targets: Any) -> tuple[Any, Any]:
    """Return labels and weights; weights are None if there are none."""
    if isinstance(targets, Weighted):
        return targets.labels, targets.weights
    return targets, None


def class_weighted(targets: Any, weight_of: Mapping[int, float]) -> Any:
    """Return targets weighted by class.

    As Keras's `class_weight`: the class of a one-hot label is where it is largest, and
    a class that is not named weighs 1. Inside a tf.function.
    """
    if not weight_of:
        return targets
    labels = tf.squeeze(targets, -1) if _is_column(targets) else targets
    if labels.shape.rank and labels.shape.rank > 1:
        labels = tf.argmax(labels, -1)
    if labels.dtype.is_floating:
        labels = tf.round(labels)
    table = np.ones(max(weight_of) + 2, np.float32)
    table[list(weight_of)] = list(weight_of.values())
    classes = tf.cast(labels, tf.int64)
    # The last entry is for all classes that are not named.
    known = (classes >= 0) & (classes < len(table) - 1)
    return Weighted(targets, tf.gather(table, tf.where(known, classes, len(table) - 1)))


def check_class_weights(targets: Any, weight_of: Mapping[int, float]) -> None:
    """Raise UserCodeError if classes cannot be weighted under Keras's rules."""
    if not weight_of:
        return
    if isinstance(targets, Weighted):
        raise UserCodeError(
            "training.classWeight is set and feed gives sample weights, expected one "
            "of the two; multiply the class weights into the sample weights"
        )
    if not isinstance(targets, tf.Tensor) or not targets.shape.rank:
        raise UserCodeError(
            "training.classWeight is for models with one output and one dense label "
            f"per record, the labels are {type(targets).__name__}; let feed give "
            "(features, labels, weights)"
        )
    if targets.dtype == tf.string:
        raise UserCodeError(
            "training.classWeight is for labels that are class numbers, they are "
            "strings; let feed turn them into numbers"
        )


def _is_column(labels: tf.Tensor) -> bool:
    return bool(labels.shape.rank and labels.shape.rank > 1 and labels.shape[-1] == 1)
