"""The model's own training step, traced and called as Keras's `fit` does.

Owns what a model with an overridden `train_step` gets in strategy local: its own
optimizers, its own number of backward passes. Chosen by worker.trainer_maker. Knows
nothing of gradients.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import keras
import tensorflow as tf

from elasticdl.errors import UserCodeError
from elasticdl.model.definition import ModelDefinition
from elasticdl.model.state import layers_of
from elasticdl.model.variables import trained_variables
from elasticdl.worker.steps.step import Tensors, Traced


class OwnStep:
    """Calls `model.train_step`, which applies its gradients itself."""

    def __init__(self, definition: ModelDefinition) -> None:
        """Take a module with a built model that overrides train_step."""
        self._definition = definition
        self._metrics = list(definition.model.metrics)
        self.variables = trained_variables(definition.model)
        self._traced = Traced(self._compute, jit=definition.jit_compile)

    def trace(self, features: Tensors, targets: Tensors) -> None:
        """Trace for batches like this one, so that optimizers create their slots."""
        self._traced.trace([], [features, targets])

    def apply(self, features: Tensors, targets: Tensors) -> float:
        """Train on a batch; return train_step's loss, or its first value.

        Metrics begin anew at each step, so that it is the loss of this batch.
        """
        return float(self._traced(features, targets))

    def _compute(self, features: Tensors, targets: Tensors) -> tf.Tensor:
        for metric in self._metrics:
            metric.reset_state()
        said = self._definition.train_itself(features, targets)
        if not isinstance(said, dict) or not said:
            raise UserCodeError(
                f"train_step of {type(self._definition.model).__name__} returned "
                f"{said!r}, expected a dict with `loss` in it"
            )
        loss = said.get("loss", next(iter(said.values())))
        return tf.cast(tf.reduce_sum(loss), tf.float32)


def other_optimizers(model: keras.Model) -> list[keras.optimizers.Optimizer]:
    """Return the model's optimizers besides that of `compile`, in a fixed order.

    They are attributes of the model or of a model inside of it, or in lists, tuples and
    dicts there: first by layer, then by the attribute's name, then by index or key.
    """
    found: dict[int, keras.optimizers.Optimizer] = {}
    for layer in layers_of(model):
        for _, value in sorted(vars(layer).items()):
            found.update({id(one): one for one in _optimizers_in(value, ())})
    found.pop(id(model.optimizer), None)
    return list(found.values())


def _optimizers_in(
    value: Any, around: tuple[int, ...]
) -> Iterator[keras.optimizers.Optimizer]:
    """Yield the optimizers in a structure; `around` are its containers."""
    if isinstance(value, keras.optimizers.Optimizer):
        yield value
    elif isinstance(value, Mapping | list | tuple) and id(value) not in around:
        items = (
            [value[key] for key in sorted(value, key=str)]
            if isinstance(value, Mapping)
            else value
        )
        for item in items:
            yield from _optimizers_in(item, (*around, id(value)))
