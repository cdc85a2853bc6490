"""The fast step: parameters are tensors that share an arena's memory.

Owns the way without copies: TensorFlow reads the pulled values where they lie, and the
gradients are read where TensorFlow left them. Chosen by worker.step_choice.
"""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf

from elasticdl.tensor.placement import Kind
from elasticdl.worker.loss_scale import LossScale
from elasticdl.worker.packing import Arena
from elasticdl.worker.step import (
    Definition,
    StepResult,
    Tensors,
    Traced,
    as_gradients,
    changing_variables,
    kind_of,
)


class BufferStep:
    """Parameters are tensors that share the arena's memory; nothing is copied."""

    def __init__(self, definition: Definition, scale: LossScale | None = None) -> None:
        """Take a module whose model is built, and how its loss is scaled."""
        self._definition = definition
        self._scale = scale
        self._variables = list(definition.model.trainable_variables)
        self._state = changing_variables(definition.model)
        self._traced = Traced(self._compute, jit=definition.jit_compile)
        self._kinds: list[Kind] = []
        # Views are made once per arena: arenas take turns.
        self._views: dict[int, tuple[Arena, list[Any]]] = {}
        self._parameters: list[Any] = []

    def kinds(self, features: Tensors, labels: Tensors) -> list[Kind]:
        """See GradientStep."""
        specs = [tf.TensorSpec(v.shape, tf.float32) for v in self._variables]
        self._traced.trace([specs], [features, labels])
        return self._kinds

    def load(self, arena: Arena) -> None:
        """See GradientStep."""
        held = self._views.get(id(arena))
        if held is None:
            views = [
                tf.experimental.dlpack.from_dlpack(array.__dlpack__())
                for array in arena.arrays
            ]
            held = self._views[id(arena)] = (arena, views)
        self._parameters = held[1]

    def run(self, features: Tensors, labels: Tensors) -> StepResult:
        """See GradientStep."""
        loss, gradients, fine = self._traced(self._parameters, features, labels)
        gradients = as_gradients(gradients, self._kinds)
        return StepResult(float(loss), gradients, overflow=not fine)

    def _compute(
        self, parameters: list[Any], features: Tensors, labels: Tensors
    ) -> Any:
        mapping = list(zip(self._variables, parameters, strict=True))
        with tf.GradientTape() as tape:
            tape.watch(parameters)
            with keras.StatelessScope(mapping, collect_losses=True) as scope:
                out = self._definition.call(features, training=True)
                loss = self._definition.training_loss(features, labels, out)
                scaled = loss if self._scale is None else self._scale.scaled(loss)
        gradients, fine = tape.gradient(scaled, parameters), True
        if self._scale is not None:
            gradients, fine = self._scale.unscaled(gradients)
        self._kinds = [kind_of(g) for g in gradients]
        finite = tf.math.is_finite(loss)
        for variable in self._state:
            new = scope.get_current_value(variable)
            if new is not None:
                # A batch whose loss is not a number must not spoil the statistics.
                old = variable.value
                new = tf.cast(new, old.dtype)
                variable.assign(tf.where(finite, new, old))
        return loss, [g for g in gradients if g is not None], fine
