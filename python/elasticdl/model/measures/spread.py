"""Predictions that differ from record to record, before the first step has made them.

Owns how outputs are moved apart without leaving what they may be: a probability stays
one. Called by `model.measures.portions`, which tries a loss with them: of a new model
all predictions are much alike, and a loss over pairs of records cannot be told from a
mean over records by these.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from elasticdl.model.measures.masks import masks_of, put_masks

_SEED = 7
_CLOSE = 1e-3  # that numbers add up to one in float16 too
_LEAST, _MOST = 0.02, 0.98  # of what probabilities are mixed with
# In units of the output: what adds a little for pairs to a mean over records has to
# be seen beside it.
_FAR = 3.0
_LEFT_OUT = -0.6  # half of those after the first are below


def draws(rows: int, first: int) -> tf.Tensor:
    """Return a number between -1 and 1 for each record; to be cut as they are.

    Those of the `first` ones are above 0 and the others below: where two portions have
    the same mean, variances and sums of products hardly differ from their mean.
    """
    drawn = np.random.default_rng(_SEED).uniform(0.2, 1.0, rows)
    drawn[first:] *= -1
    return tf.constant(drawn, tf.float32)


def first_dimensions(outputs: Any) -> list[tf.Tensor]:
    """Return the first dimension of each output; -1 for what is not moved."""
    return [
        tf.shape(one)[0] if _is_moved(one) else tf.constant(-1)
        for one in tf.nest.flatten(outputs)
    ]


def spread(outputs: Any, by_record: tf.Tensor, of_records: Sequence[bool]) -> Any:
    """Return outputs of a model, moved by the number of their record.

    `of_records`: of each output, whether its first dimension is that of the records.
    """
    moved = [
        _spread(one, by_record) if is_one and _is_moved(one) else one
        for one, is_one in zip(tf.nest.flatten(outputs), of_records, strict=True)
    ]
    return tf.nest.pack_sequence_as(outputs, moved)


def _is_moved(output: Any) -> bool:
    if not isinstance(output, tf.Tensor):
        return False
    return bool(output.dtype.is_floating and output.shape.rank)


def _spread(output: Any, by_record: tf.Tensor) -> Any:
    values = tf.cast(output, tf.float32)
    # By record alone: the others are not the same ones in a portion.
    flat = tf.reshape(values, [tf.shape(by_record)[0], -1])
    # Columns of a record go one way, but by other lengths.
    numbers = tf.range(tf.shape(flat)[1], dtype=tf.float32)
    number = by_record[:, tf.newaxis]
    moves = number * (0.6 + 0.3 * tf.cos(numbers))
    moves += 0.1 * tf.sin((numbers + 1) * 7 * number)
    # Those of classes go against each other: what all have in common is divided out.
    turns = number * tf.cos(2 * numbers)
    least = tf.reduce_min(flat, -1, keepdims=True)
    most = tf.reduce_max(flat, -1, keepdims=True)
    size = tf.reduce_mean(tf.abs(flat), -1, keepdims=True)
    far = _FAR * moves
    moved = tf.where(least >= 0, flat * tf.exp(far), flat + far * tf.maximum(1.0, size))
    shape = tf.shape(values)
    shares = _mixed(values, tf.reshape(moves, shape), tf.reshape(turns, shape))
    is_share = (least >= 0) & (most <= 1 + _CLOSE)
    moved = tf.where(is_share, tf.reshape(shares, tf.shape(flat)), moved)
    moved = tf.cast(tf.reshape(moved, shape), output.dtype)
    (mask,) = masks_of(output)
    return moved if mask is None else put_masks(moved, [_with_gaps(mask, by_record)])


def _with_gaps(mask: tf.Tensor, by_record: tf.Tensor) -> tf.Tensor:
    """Return a mask that leaves out every other step of the records after the first.

    A mask that has no steps leaves out some of these records. What divides by what a
    mask leaves is a mean over records where it leaves all, as in a batch without
    padding.
    """
    if mask.shape.rank == 1:  # by what is cut with the records
        return tf.cast(mask, tf.bool) & (by_record > _LEFT_OUT)
    after = tf.reshape(by_record < 0, [-1, *[1] * (mask.shape.rank - 1)])
    places = tf.range(tf.shape(mask)[1])
    left = tf.reshape(places % 2 == 0, [-1, *[1] * (mask.shape.rank - 2)])
    return tf.cast(mask, tf.bool) & (~after | left)


def _mixed(values: tf.Tensor, moves: tf.Tensor, turns: tf.Tensor) -> tf.Tensor:
    """Return probabilities, mixed with others; those of classes still add up to 1."""
    others = _LEAST + (_MOST - _LEAST) * (moves + 1) / 2
    if values.shape.rank > 1:  # of one number for each record the last axis is these
        sums = tf.reduce_sum(values, -1, keepdims=True)
        of_classes = tf.nn.softmax(_FAR * turns, -1)
        others = tf.where(tf.abs(sums - 1) <= _CLOSE, of_classes, others)
    return (values + others) / 2
