"""Batches whose portions are unlike, as those of a batch in no order seldom are.

Owns how labels, or features, of the first portion are changed, and how many records it
has. Called by `model.measures.portions`, which tries a loss with them.
Knows nothing of losses.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from elasticdl.model.measures.targets import Weighted, parted


def unlike(features: Any, targets: Any, *, adds: bool) -> list[Any]:
    """Return features and targets whose portions are unlike, if any can be changed.

    A mean over records is one of any records. What divides by the sum of the labels, as
    Dice, or takes a root, is as good as one while portions are much alike, as those of
    a batch in no order are before the first step. Where no label can be changed, or
    `adds`: layers add to the loss, which see none, it is features that are.
    """
    labels, weights = parted(targets)
    found = []
    if any(map(is_number, tf.nest.flatten(labels))):
        changed = tf.nest.map_structure(_changed, labels)
        given = changed if weights is None else Weighted(changed, weights)
        found.append((features, given))
    if adds or not found:
        found.append((tf.nest.map_structure(_changed, features), targets))
    return found


def is_of_records(labels: Any) -> bool:
    """Whether it is a dense tensor with a first axis."""
    return isinstance(labels, tf.Tensor) and bool(labels.shape.rank)


def is_number(labels: Any) -> bool:
    """Whether it is a dense tensor of numbers with a first axis."""
    numbers = is_of_records(labels) and (
        labels.dtype.is_floating or labels.dtype.is_integer
    )
    return bool(numbers)


def _changed(labels: Any) -> Any:
    """Return labels, or features, that may well be, others in the first portion."""
    if not is_number(labels):
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
