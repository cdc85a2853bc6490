"""Specs of batches: any number of records, tensors of any kind.

Owns what stays open when something is traced for batches that may differ in size, and
what tells batches apart for which one trace does not do.
Used by the checks of loss and model and by the worker's steps.
"""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf


def relaxed(nest: Any) -> Any:
    """Return specs of a batch with an open number of records."""

    def spec(value: Any) -> Any:
        whole = tf.type_spec_from_value(value)
        if isinstance(whole, tf.TensorSpec) and whole.shape.rank:
            return tf.TensorSpec([None, *whole.shape[1:]], whole.dtype)
        if isinstance(whole, tf.RaggedTensorSpec) and whole.shape.rank:
            return tf.RaggedTensorSpec(
                [None, *whole.shape[1:]],
                whole.dtype,
                ragged_rank=whole.ragged_rank,
                row_splits_dtype=whole.row_splits_dtype,
            )
        if isinstance(whole, tf.SparseTensorSpec) and whole.shape.rank:
            return tf.SparseTensorSpec([None, *whole.shape[1:]], whole.dtype)
        return whole

    return tf.nest.map_structure(spec, nest)


Shape = tuple[int | None, ...]


def shapes_of(*nests: Any) -> tuple[Shape, ...]:
    """Return the shapes of all tensors of a batch in order; () for a scalar."""
    shapes = (getattr(leaf, "shape", ()) for leaf in tf.nest.flatten(nests))
    return tuple(
        tuple(s.as_list() if isinstance(s, tf.TensorShape) else s) for s in shapes
    )


def forms(shapes: tuple[Shape, ...]) -> tuple[Shape, ...]:
    """Return shapes without the number of records: the key of a relaxed trace."""
    return tuple(shape[1:] for shape in shapes)


def forms_of(*nests: Any) -> tuple[Shape, ...]:
    """Return the shapes of tensors without the number of records."""
    return forms(shapes_of(*nests))


def takes_one_size(model: keras.Model) -> bool:
    """Return whether an input of a built model has a fixed number of records."""
    inputs = getattr(model, "inputs", None) or []  # a subclassed model may have none
    return any(leaf.shape[0] is not None for leaf in tf.nest.flatten(inputs))
