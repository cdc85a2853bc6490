"""Keras's masks beside the tensors that they belong to.

Owns the only look at the attribute in which Keras keeps them: a mask goes with a tensor
of a layer to loss and metrics, and is lost where another tensor takes its place, as in
a cast or on the way out of a tf.function. Knows nothing of losses.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

_ATTRIBUTE = "_keras_mask"


def with_mask_of(tensor: Any, original: Any) -> Any:
    """Return `tensor` with the mask of `original`, if it has one."""
    mask = getattr(original, _ATTRIBUTE, None)
    if mask is not None:
        setattr(tensor, _ATTRIBUTE, mask)
    return tensor


def masks_of(tree: Any) -> list[Any]:
    """Return the mask, or None, of each tensor of a nest."""
    return [getattr(tensor, _ATTRIBUTE, None) for tensor in tf.nest.flatten(tree)]


def put_masks(tree: Any, masks: list[Any]) -> Any:
    """Return the nest with these masks on its tensors."""
    for tensor, mask in zip(tf.nest.flatten(tree), masks, strict=True):
        if mask is not None:
            setattr(tensor, _ATTRIBUTE, mask)
    return tree
