"""What layers add to the loss, of a batch and of two portions of it.

Owns which added losses no portions make, and the sentences that refuse them. Called by
`model.measures.portions`, which computes them. Must not know how a model is called.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from elasticdl.errors import UserCodeError
from elasticdl.model.measures.in_portions import (
    computed,
    cut_in_two,
    num_rows,
    repeated,
)

# Records that come so often give as large a mean, and a sum so many times as large.
_TIMES = 4
_LEAST_TRIED = 8  # records
# What depends on random numbers is drawn so often again, and may be apart from what
# portions make by so many times as these draws are from each other.
DRAWS = 4
DRAWN = 10.0
# What follows from weights alone is computed alike for all portions.
_ALIKE = 1e-6
# What sums in another order leave of a mean. A product of two means, as of experts'
# shares, differs by less than a thousandth while all are as likely.
_ROUNDING = 1e-4
_ROUNDING_16 = 3e-2
# And of numbers as large as one, or as the loss, that make up for each other.
_LEFT = 1e-6
_LEFT_16 = 1e-2
_ADVICE = (
    "workers of strategy allReduce compute portions of a step and average them by "
    "their records; let add_loss be a mean over records (tf.reduce_mean), or set "
    "strategy: local"
)


def of_records(scope: keras.StatelessScope, features: Any) -> list[tf.Tensor]:
    """Return the losses added in a call that features lead to; in the same graph.

    Regularisers of weights are not among them: Keras computes these after the call.
    """
    inputs = {id(one) for one in tf.nest.flatten(features, expand_composites=True)}
    losses = [tf.convert_to_tensor(one) for one in scope.losses]
    return [
        tf.reduce_sum(tf.cast(one, tf.float64))
        for one in losses
        if _leads(inputs, to=one)
    ]


def _leads(inputs: set[int], *, to: tf.Tensor) -> bool:
    """Return whether a tensor is computed from one of these."""
    left, seen = [to], set()
    while left:
        one = left.pop()
        if id(one) in inputs:
            return True
        if id(one) not in seen and tf.is_symbolic_tensor(one):
            seen.add(id(one))
            left += one.op.inputs
    return False


def refuse_beside_divisor(added: Sequence[Sequence[Any]], rows: int) -> None:
    """Raise UserCodeError for an added loss of records where the loss has a divisor.

    A portion has one weight, and the two are divided by different numbers.

    Args:
        added: What `of_records` gave for a batch and its two portions; nothing where
            the loss divides by the number of records.
        rows: Records of the batch; of one record both portions are the same.
    """
    if len({len(each) for each in added}) != 1:
        return  # which of a portion's is which of the batch's is not known
    for whole, *parts in zip(*added, strict=True):
        alike = np.allclose(parts, whole, rtol=_ALIKE, atol=0)
        if not np.isfinite([whole, *parts]).all() or (
            alike and (rows > 1 or not whole)
        ):
            continue
        raise UserCodeError(
            f"layers add a loss that depends on the records (add_loss, "
            f"activity_regularizer: {whole:.6g} of a batch, {parts[0]:.6g} and "
            f"{parts[1]:.6g} of two portions of it), and the loss beside it divides "
            "by what a mask or its ignore_class leaves, or by the sum of the weights, "
            "expected that both divide by the number of records: workers of strategy "
            "allReduce compute portions of a step, and each has one weight; make the "
            "penalty one of weights (kernel_regularizer), use a loss that divides by "
            'records (no mask, no ignore_class, reduction="sum_over_batch_size"), or '
            "set strategy: local"
        )


def refuse_uneven_added(
    added: Sequence[Sequence[Any]],
    counts: tuple[int, int, int],
    again: Callable[[], Sequence[Sequence[Any]]],
    *,
    loss: float,
    is_16_bits: bool,
) -> bool:
    """Raise UserCodeError for an added loss that is no mean of its portions'.

    Returns whether one is uneven because of its random numbers: portions draw others
    than the batch does.

    Args:
        added: What layers add, of a batch and of its two portions.
        counts: Their records.
        again: Gives what layers add of the batch with other random numbers, several
            times; asked if something is uneven.
        loss: The whole loss of the batch.
        is_16_bits: The model computes in 16 bits.
    """
    bound, left = (_ROUNDING_16, _LEFT_16) if is_16_bits else (_ROUNDING, _LEFT)
    left *= max(1.0, abs(loss)) if np.isfinite(loss) else 1.0
    if len({len(each) for each in added}) != 1:
        return False  # as above
    rows, *parts_rows = counts
    uneven = []
    for number, each in enumerate(zip(*added, strict=True)):
        whole, *parts = each
        mean = np.average(parts, weights=parts_rows)
        least = bound * np.max(np.abs(each)) + left
        if np.isfinite(each).all() and abs(whole - mean) > least:
            uneven.append((number, whole, parts, mean))
    drawn = np.asarray(again() if uneven else [], np.float64)
    for number, whole, parts, mean in uneven:
        if len(drawn) and abs(whole - mean) <= DRAWN * np.ptp(drawn[:, number]):
            continue
        raise UserCodeError(
            f"loss {number + 1} of {len(added[0])} that layers add in training "
            f"(add_loss, regularisers) is {whole:.6g} of a batch of {rows} "
            f"records, and {parts[0]:.6g} and {parts[1]:.6g} of its first "
            f"{parts_rows[0]} and last {parts_rows[1]}, expected their mean, "
            f"{mean:.6g}: {_ADVICE}"
        )
    return bool(uneven)


def drawn_again(
    added: Callable[..., Sequence[Any]], features: Any, labels: Any
) -> list[Any]:
    """Return what layers add of a batch, several times with other random numbers.

    `added`: gives it, of (features, labels, number of a draw).
    """
    return computed(added, [(features, labels, draw) for draw in range(DRAWS)])


def refuse_sums(
    added: Callable[..., Sequence[Any]], features: Any, labels: Any
) -> None:
    """Raise UserCodeError for an added loss that grows with the records.

    For models that draw random numbers or look at the portion: statistics of records
    that come several times are those of each once.

    `added`: as of `drawn_again`.
    """
    rows = num_rows((features, labels))
    cut = min(rows, max(_LEAST_TRIED, rows // 3))
    few = next(cut_in_two((features, labels), cut, rows))
    many = repeated(few, _TIMES)
    once, often = drawn_again(added, *few), drawn_again(added, *many)
    if not (once and often):
        return
    # Some rare event may be in none of the few records, and in one draw of many.
    sizes = np.max(np.abs(once), axis=0), np.min(np.abs(often), axis=0)
    for number, (most, much) in enumerate(zip(*sizes, strict=True), 1):
        if np.isfinite(much) and much > _TIMES / 2 * most + 1e-6:
            raise UserCodeError(
                f"loss {number} of {len(once[0])} that layers add in training "
                f"(add_loss, regularisers) is {much:.6g} of {cut} records that come "
                f"{_TIMES} times each, and {most:.6g} where they come once, expected "
                f"that it does not grow with the records: {_ADVICE}"
            )
