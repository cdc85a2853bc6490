"""By what one of Keras's losses divides its sum over records.

Owns what mask, `ignore_class`, sample weights and the reduction leave of the number of
records. Called by `model.measures.losses`. Must not know losses that are not Keras's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf
from keras.src.losses.loss import apply_mask

from elasticdl.errors import UserCodeError
from elasticdl.model.measures.masks import masks_of


def by_other_than_records(
    losses: Sequence[Any], weights: Any, predictions: Any
) -> bool:
    """Whether Keras's losses are no means over records; see `divisor`."""
    return bool(losses) and (
        "sum" in _reductions(losses)
        or _is_by_weight(losses, weights)
        or _is_ignoring(losses)
        or any(mask is not None for mask in masks_of(predictions))
    )


def _reductions(losses: Sequence[Any]) -> list[Any]:
    return [getattr(loss, "reduction", None) for loss in losses]


def _is_by_weight(losses: Sequence[Any], weights: Any) -> bool:
    return "mean_with_sample_weight" in _reductions(losses) and weights is not None


def _is_ignoring(losses: Sequence[Any]) -> bool:
    return any(getattr(loss, "ignore_class", None) is not None for loss in losses)


def divisor(
    losses: Sequence[Any], labels: Any, weights: Any, predictions: Any
) -> tf.Tensor | None:
    """Return by what Keras's losses divide; None: by the number of records.

    `losses`: of `compile`, one for each output that has one, or the module's own.

    Raises UserCodeError for a sum, and for several losses with different divisors.
    """
    if not by_other_than_records(losses, weights, predictions):
        return None
    masks = masks_of(predictions)
    reductions = _reductions(losses)
    if "sum" in reductions:
        raise UserCodeError(
            'the loss has reduction="sum", expected a mean over records: workers of '
            "strategy allReduce compute portions of a step and average them by their "
            'records; set reduction="sum_over_batch_size" and a learning rate for it, '
            "or set strategy: local"
        )
    if len(losses) != 1 or len(masks) != 1:
        raise UserCodeError(
            "several outputs have losses, and one divides by the records that a mask "
            "or its ignore_class leaves, or by the sum of sample weights, expected "
            "that all divide by the number of records: workers of strategy allReduce "
            "add up portions of a step; leave mask_zero, ignore_class or "
            'reduction="mean_with_sample_weight" out, or set strategy: local'
        )
    if _is_ignoring(losses):
        masks = [_without_ignored(losses[0], labels, predictions, masks[0])]
    if reductions[0] not in {"sum_over_batch_size", "mean", "mean_with_sample_weight"}:
        return None
    if not _is_by_weight(losses, weights):
        return tf.reduce_sum(tf.cast(masks[0], tf.float32))
    weights = tf.cast(tf.nest.flatten(weights)[0], tf.float32)
    counted = apply_mask(weights, masks[0], "float32", reductions[0])
    return tf.reduce_sum(counted)


def _without_ignored(loss: Any, labels: Any, predictions: Any, mask: Any) -> Any:
    """Return what a loss with an `ignore_class` counts, of what a mask leaves."""
    (label,), (prediction,) = tf.nest.flatten(labels), tf.nest.flatten(predictions)
    values = loss.call(tf.cast(label, loss.dtype), tf.cast(prediction, loss.dtype))
    (counted,) = masks_of(values)
    return counted if mask is None else tf.logical_and(mask, counted)
