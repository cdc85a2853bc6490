"""What a subclassed model is served with: the form of its features.

Owns which extents are open. Called by `definition`. Must not know how it is written.
"""

from __future__ import annotations

import functools
import logging
from typing import Any

import keras
import tensorflow as tf

from elasticdl.model.building import Extents
from elasticdl.model.specs import relaxed
from elasticdl.model.tracing import GraphFunction
from elasticdl.model.user_code import short

log = logging.getLogger(__name__)


def signature_of(model: keras.Model, features: Any, extents: Extents) -> Any:
    """Return specs of an example's features, with an open number of records.

    Extents that the feed leaves open are open here: a server is asked for texts of
    other lengths than the first batch was padded to. A model that needs them known
    gets those of the example.
    """
    closed = _specs(features, {})
    opened = _specs(features, extents)
    if keras.tree.flatten(opened) == keras.tree.flatten(closed):
        return closed
    try:
        served = functools.partial(model, training=False)
        GraphFunction(served).get_concrete_function(opened)
    except Exception as error:  # noqa: BLE001 - the user's call is run
        log.warning(
            "the exported model takes features of these shapes alone, %s: with open "
            "ones its call fails (%s)",
            [tuple(spec.shape) for spec in keras.tree.flatten(closed)],
            short(error),
        )
        return closed
    return opened


def _specs(features: Any, extents: Extents) -> Any:
    def spec(path: tuple[Any, ...], tensor: Any) -> Any:
        if not isinstance(tensor, tf.Tensor):  # ragged or sparse
            return relaxed(tensor)
        name = "_".join(str(part) for part in path) or None
        shape = [None, *extents.get(id(tensor), tensor.shape[1:])]
        return tf.TensorSpec(shape, tensor.dtype, name=name)

    found = [spec(path, t) for path, t in keras.tree.flatten_with_path(features)]
    return keras.tree.pack_sequence_as(features, found)
