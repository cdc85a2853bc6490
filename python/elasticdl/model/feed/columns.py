"""The default feed for records that show their columns: no Example is made or parsed.

Owns how an array, or text with its different values, becomes a tensor. Called by
`feed.default`. It gives what parsing the rows' Examples gives, value by value.
"""

from __future__ import annotations

import math
import weakref

import numpy as np
import tensorflow as tf

from elasticdl.data.formats.example_rows import Column, Distinct, Texts

_MOST_WHOLE = 2**24  # Below it a 32-bit float is one whole number.
_NUMPY = {tf.int64: np.int64, tf.float32: np.float32}


def unrounded(values: tf.Tensor, name: str, dtype: tf.DType) -> tf.Tensor:
    """Return a feature's values, which an Input of type `dtype` takes.

    Where floats are to be integers (ids of a column that had missing values), they give
    tf.errors.InvalidArgumentError if one may stand for several: no record is trained
    as another id's.
    """
    if not (values.dtype.is_floating and dtype.is_integer):
        return values
    held = tf.reduce_all(tf.abs(values) < _MOST_WHOLE)
    told = (
        f"feature `{name}` is of 32-bit floats and the Input takes integers: from "
        f"{_MOST_WHOLE} on such floats stand for several whole numbers, and NaN for "
        "none; write the column as integers"
    )
    with tf.control_dependencies([tf.debugging.Assert(held, [told])]):
        return tf.identity(values)


class ColumnTensors:
    """Makes tensors of columns. The values of a text column are handed over once."""

    def __init__(self) -> None:
        """Begin without any text."""
        self._distinct: weakref.WeakKeyDictionary[Distinct, tf.Tensor] = (
            weakref.WeakKeyDictionary()
        )

    def fits(self, column: Column, stored: tf.DType) -> bool:
        """Whether `tensor` can make one of this column."""
        if isinstance(column, Texts):
            return bool(stored == tf.string)
        return (
            isinstance(column, np.ndarray)
            and column.dtype.kind in "fiub"
            and stored in _NUMPY
        )

    def tensor(
        self,
        column: Column,
        *,
        name: str,
        stored: tf.DType,
        shape: tuple[int, ...],
        dtype: tf.DType,
    ) -> tf.Tensor:
        """Return a column's rows, each of `shape`, as `dtype`.

        Raises tf.errors.OpError where `unrounded` does, and where rows have another
        number of values, as lists of a later file may: they would make other records.
        """
        if not self.fits(column, stored):
            raise _unlike(name, "values of another number or type")
        if isinstance(column, Texts):
            # A file's own dictionary may number its values by other types.
            wide = np.int32 if np.can_cast(column.codes.dtype, np.int32) else np.int64
            codes = _rows(column.codes.astype(wide, copy=False), shape, name)
            # By itself: `tf.gather` and `tf.reshape` cost three times as much.
            return tf.raw_ops.Gather(
                params=self._values(column.distinct), indices=codes
            )
        array = np.asarray(column).astype(_NUMPY[stored], copy=False)
        # A constant copies: what a reader keeps decoded must not be the step's.
        values = tf.constant(_rows(array, shape, name))
        return tf.cast(unrounded(values, name, dtype), dtype)

    def _values(self, distinct: Distinct) -> tf.Tensor:
        made = self._distinct.get(distinct)
        if made is None:
            made = self._distinct[distinct] = tf.constant(distinct.values, tf.string)
        return made


def _rows(values: np.ndarray, shape: tuple[int, ...], name: str) -> np.ndarray:
    found, wanted = math.prod(values.shape[1:]), math.prod(shape)
    if found != wanted:
        raise _unlike(name, f"{found} values a record")
    return values.reshape(len(values), *shape)


def _unlike(name: str, what: str) -> tf.errors.OpError:
    """Return what a parser raises of records; who called looks which ones they are."""
    expected = "expected those of the first record"
    return tf.errors.InvalidArgumentError(None, None, f"{name}: {what}, {expected}")
