"""Batches whose portions are unlike, as those of a batch in no order seldom are.

Owns how labels, weights or features of one portion are changed, and how many records
the first one has. Called by `model.measures.portions`, which tries a loss with them.
Knows nothing of losses.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import tensorflow as tf

from elasticdl.model.measures.targets import Weighted, parted

# What stands for no label: padding, what is unknown, and a number that is none.
_MISSING = (0.0, -1.0, float("nan"))


def unlike(features: Any, targets: Any, *, adds: bool) -> list[Any]:
    """Return features and targets whose portions are unlike, if any can be changed.

    A mean over records is one of any records. What divides by the sum of the labels, as
    Dice, or takes a root, is as good as one while portions are much alike, as those of
    a batch in no order are before the first step. Where no label can be changed, or
    `adds`: layers add to the loss, which see none, it is features that are.
    """
    labels, weights = parted(targets)
    found = []
    if any(map(_is_changed, tf.nest.flatten(labels))):
        changed = tf.nest.map_structure(_changed, labels)
        given = changed if weights is None else Weighted(changed, weights)
        found.append((features, given))
    if adds or not found:
        found.append((tf.nest.map_structure(_changed, features), targets))
    return found


def with_gaps(targets: Any, first: int) -> Iterator[Any]:
    """Yield targets of which some do not count, if any can be changed, after `first`.

    A loss may leave out what has no label, or divide by the sum of the weights. Of
    batches of which each record counts as much it is as good as a mean over records;
    later ones may be others. A loss that can do nothing with what stands for no label
    says so, or is no number.
    """
    labels, weights = parted(targets)
    if weights is not None:
        yield Weighted(
            labels, tf.nest.map_structure(lambda w: _lighter(w, first), weights)
        )
    changing = [one for one in tf.nest.flatten(labels) if _is_changed(one)]
    for missing in _MISSING if changing else ():
        if missing == 0 and all(map(_are_signs, changing)):
            continue  # Keras's hinges take 0 and 1 for -1 and 1, where all are such
        if np.isnan(missing) and not any(one.dtype.is_floating for one in changing):
            continue
        changed = tf.nest.map_structure(partial(_left_out, missing, first), labels)
        yield changed if weights is None else Weighted(changed, weights)


def _lighter(weights: Any, first: int) -> Any:
    if not _is_changed(weights):
        return weights
    lighter = weights / 4 if weights.dtype.is_floating else tf.zeros_like(weights)
    return tf.where(
        _every_other(weights, first), tf.cast(lighter, weights.dtype), weights
    )


def _left_out(missing: float, first: int, labels: Any) -> Any:
    if not _is_changed(labels):
        return labels
    if labels.dtype.is_floating:
        value = tf.constant(missing, labels.dtype)
    else:  # in the unsigned ones -1 is the largest number, as in images of classes
        number = 0 if np.isnan(missing) else int(missing)
        value = tf.constant(np.asarray(number).astype(labels.dtype.as_numpy_dtype))
    # The first one too: Keras's hinges look whether all labels of a batch are 0 or 1.
    is_first = tf.reshape(tf.range(tf.size(labels)) == 0, tf.shape(labels))
    return tf.where(_every_other(labels, first) | is_first, value, labels)


def _are_signs(labels: Any) -> bool:
    return bool(tf.reduce_all((labels == 1) | (labels == -1)))


def _every_other(tensor: Any, first: int) -> tf.Tensor:
    """Return whether an element is one of every two of the records after `first`."""
    numbers = tf.reshape(tf.range(tf.size(tensor)), tf.shape(tensor))
    rows = tf.reshape(tf.range(tensor.shape[0]), [-1, *[1] * (tensor.shape.rank - 1)])
    return (rows >= first) & (numbers % 2 == 0)


def _is_changed(labels: Any) -> bool:
    if not isinstance(labels, tf.Tensor) or not labels.shape.rank:
        return False
    return bool(labels.dtype.is_floating or labels.dtype.is_integer)


def _changed(labels: Any) -> Any:
    """Return labels, or features, that may well be, others in the first portion."""
    if not _is_changed(labels):
        return labels
    two = bool(tf.reduce_all((labels == 0) | (labels == 1)))
    if labels.dtype.is_integer and not two:  # classes and words: those that there are
        means = tf.cast(tf.reshape(labels, [labels.shape[0], -1]), tf.float64)
        return tf.gather(labels, tf.argsort(tf.reduce_mean(means, -1), stable=True))
    chosen = tf.range(labels.shape[0]) < num_first(labels.shape[0])
    chosen = tf.reshape(chosen, [-1, *[1] * (labels.shape.rank - 1)])
    return tf.where(chosen, 1 - labels if two else labels / 2, labels)


def num_first(rows: int) -> int:
    """Return how many records the first of two portions has."""
    return max(1, rows // 3)
