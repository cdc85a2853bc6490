"""A function of a batch, tried on the batch and on two portions of it.

Owns how batches are cut. Called by `measures.portions` and `measures.state_trial`. Must
not know what is compared.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import tensorflow as tf

from elasticdl.errors import UserCodeError
from elasticdl.model.measures.unlike import num_first

log = logging.getLogger(__name__)

# What a function gives for a batch and its two portions, and the records of these.
InPortions = tuple[list[Any], tuple[int, int, int]]


class NotTriedError(Exception):
    """The loss needs what the model gives in training alone."""


def tried_in_portions(
    function: Callable[..., Any],
    features: Any,
    labels: Any,
    *,
    told: int = logging.DEBUG,
) -> InPortions | None:
    """Return what a function gives for a batch and two portions, and their records.

    None where the batch cannot be cut, or the model takes batches of one size alone.
    """
    try:
        batch = (features, labels)
        rows = num_rows(batch)
        if rows == 1:
            batch, rows = repeated(batch, 2), 2
        first = num_first(rows)
        found = [function(*each) for each in (batch, *cut_in_two(batch, first, rows))]
    except UserCodeError:
        raise
    except Exception as error:  # noqa: BLE001 - the user's code, which a step can run
        log.log(
            told,
            "A batch could not be computed in portions before the first step (%r), so "
            "that it was not tried whether they train what the batch does; expected a "
            "loss that is a mean over records, else set strategy: local",
            error,
        )
        return None
    return [_as_arrays(each) for each in found], (rows, first, rows - first)


def computed(function: Callable[..., Any], given: Iterable[Any]) -> list[Any]:
    """Return what a function gives for each of several batches; nothing if it fails."""
    try:
        return [_as_arrays(function(*each)) for each in given]
    except Exception as error:  # noqa: BLE001 - as above
        log.debug("A changed batch could not be computed: %r", error)
        return []


def num_rows(batch: Any) -> int:
    """Return the records of a batch."""
    return int(tf.nest.flatten(batch[0])[0].shape[0])


def _as_arrays(found: Any) -> Any:
    return tf.nest.map_structure(_numpy, found)


def _numpy(tensor: Any) -> Any:
    return tensor.numpy()


def cut_in_two(batch: Any, first: int, rows: int) -> Iterator[Any]:
    for start, end in ((0, first), (first, rows)):
        yield rows_of(batch, start, end)


def rows_of(batch: Any, start: int, end: int) -> Any:
    """Return the records of a batch from one on to before another."""
    return tf.nest.map_structure(lambda tensor: _rows(tensor, start, end), batch)


def _rows(tensor: Any, start: int, end: int) -> Any:
    if tensor is None:
        return None
    if isinstance(tensor, tf.SparseTensor):
        shape = tensor.dense_shape
        begin = tf.concat([[start], tf.zeros_like(shape[1:])], 0)
        size = tf.concat([[end - start], shape[1:]], 0)
        return tf.sparse.slice(tensor, begin, size)
    return tensor[start:end]


def repeated(batch: Any, times: int) -> Any:
    return tf.nest.map_structure(lambda t: _again(t, times), batch)


def _again(tensor: Any, times: int) -> Any:
    if tensor is None:
        return None
    if isinstance(tensor, tf.SparseTensor):
        return tf.sparse.concat(0, [tensor] * times)
    return tf.concat([tensor] * times, 0)
