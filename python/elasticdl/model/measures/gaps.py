"""Labels and weights of which some do not count, as a first batch may not show them.

Owns what stands for no label, and in which records it is put. Called by
`model.measures.portions`, which tries a loss with them. Knows nothing of losses.

A loss may leave out what has no label, or divide by the sum of the weights. Of batches
of which each record counts as much it is as good as a mean over records; later ones may
be others. A loss that can do nothing with such a label raises, or is no number.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from elasticdl.model.measures.targets import Weighted, parted
from elasticdl.model.measures.unlike import is_number, is_of_records

LEAST_RECORDS = 6  # in which both portions have gaps and labels, in unlike shares
_OF_FLOATS = (0.0, -1.0, -999.0, float("nan"))
# Of pictures of classes 255 is usual, and the largest number of an unsigned type.
_OF_INTEGERS = (0, -1, -100, 255)


def with_gaps(targets: Any, first: int) -> Iterator[Any]:
    """Yield targets of which fewer count after the `first` records, if any can be so.

    Both portions have gaps: Keras's hinges ask whether all labels are 0 or 1.
    """
    labels, weights = parted(targets)
    if weights is not None:
        yield Weighted(labels, lighter(weights, first))
    flat = [one for one in tf.nest.flatten(labels) if _may_have(one)]
    missing = dict.fromkeys(value for one in flat for value in _missing_of(one))
    for value in missing:
        changed = _left_out(labels, first, value)
        yield changed if weights is None else Weighted(changed, weights)


def lighter(weights: Any, first: int) -> Any:
    """Return weights, or features that may be such, of which those of gaps are less."""

    def less(weights: Any) -> Any:
        if not _may_have(weights):
            return weights
        floats = weights.dtype.is_floating
        smaller = weights / 4 if floats else tf.zeros_like(weights)
        return tf.where(_gaps(weights, first), smaller, weights)

    return tf.nest.map_structure(less, weights)


def _left_out(labels: Any, first: int, missing: float) -> Any:
    def left_out(labels: Any) -> Any:
        mine = _missing_of(labels) if _may_have(labels) else ()
        if not any(_same(value, missing) for value in mine):
            return labels
        value = np.asarray(missing).astype(labels.dtype.as_numpy_dtype)
        return tf.where(_gaps(labels, first), tf.constant(value), labels)

    return tf.nest.map_structure(left_out, labels)


def _same(one: float, other: float) -> bool:
    return one == other or bool(np.isnan(one) and np.isnan(other))


def _may_have(labels: Any) -> bool:
    # Whether there is a label may be a label itself.
    return is_number(labels) or (is_of_records(labels) and labels.dtype.is_bool)


def _missing_of(labels: Any) -> tuple[float, ...]:
    if labels.dtype.is_bool:
        return _OF_INTEGERS[:1]
    values: tuple[float, ...] = _OF_INTEGERS
    if labels.dtype.is_floating:
        values = _OF_FLOATS
    # Hinges take 0 and 1 for -1 and 1, where all of a portion are such.
    signs = bool(tf.reduce_all((labels == 1) | (labels == -1)))
    return values[1:] if signs else values


def _gaps(tensor: Any, first: int) -> tf.Tensor:
    """Return what is in records with a gap: one of the first, most of the others."""
    rows = tensor.shape[0]
    after = rows - first
    gaps = np.arange(rows) >= first + max(1, after // 4)
    gaps[0] = True
    return tf.reshape(tf.constant(gaps), [-1, *[1] * (tensor.shape.rank - 1)])
