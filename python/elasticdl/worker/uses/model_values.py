"""Other values in the model for a while: a pinned version, a loaded checkpoint.

Owns putting them in and taking the training's own state back afterwards. Called by
evaluation, prediction and export. Knows nothing of where values come from.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import keras
import tensorflow as tf

from elasticdl.model.state import non_trainable, read_state, write_state
from elasticdl.model.variables import trainable_variables
from elasticdl.worker.trainer import InModel, ModelSource, Values


class ModelValues:
    """Lends the model's variables for evaluation and export."""

    def __init__(self, model: keras.Model, trainer: ModelSource) -> None:
        """Take the model and its trainer."""
        self._trainable = trainable_variables(model)
        self._shared = non_trainable(model).shared
        self._trainer = trainer

    @contextmanager
    def set_to(self, values: Values | InModel) -> Iterator[None]:
        """Run a block with these values in the model."""
        if isinstance(values, InModel):
            yield
            return
        before = read_state(self._shared)
        try:
            for item, array in zip(self._trainable, values.trainable, strict=True):
                item.variable.value.assign(tf.convert_to_tensor(array))
            write_state(self._shared, values.state)
            yield
        finally:
            write_state(self._shared, before)
            self._trainer.variables_changed()
