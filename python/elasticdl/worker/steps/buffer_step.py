"""The fast step: parameters are tensors that share an arena's memory.

Owns the way without copies: TensorFlow reads the pulled values where they lie, and the
gradients are read where TensorFlow left them. Chosen by worker.step_choice.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from elasticdl.model.specs import Shape
from elasticdl.model.state import non_trainable
from elasticdl.model.variables import trained_variables
from elasticdl.tensor.placement import GradientKind
from elasticdl.worker.steps.loss_scale import LossScale
from elasticdl.worker.steps.packing import Arena
from elasticdl.worker.steps.step import (
    RecordingScope,
    StepDefinition,
    StepResult,
    Tensors,
    Traced,
    agreed,
    as_gradients,
    kind_of,
    refuse_assigned,
    refuse_moving,
    refuse_reading,
)


class BufferStep:
    """Step whose parameters share the arena's memory, without a copy."""

    def __init__(
        self, definition: StepDefinition, scale: LossScale | None = None
    ) -> None:
        """Take a module with a built model, and the loss scale."""
        self._definition = definition
        self._scale = scale
        self._variables = trained_variables(definition.model)
        self._frozen = [v.variable for v in non_trainable(definition.model).frozen]
        # Metrics of layers are for evaluations, which count by themselves.
        self._metrics = {id(v) for v in definition.model.metrics_variables}
        self._traced = Traced(self._compute, jit=definition.jit_compile)
        self._kinds: list[GradientKind] = []
        # Views are made once per arena: arenas take turns.
        self._views: dict[int, tuple[Arena, list[Any]]] = {}
        self._parameters: list[Any] = []

    def kinds(self, features: Tensors, labels: Tensors) -> list[GradientKind]:
        specs = [tf.TensorSpec(v.shape, tf.float32) for v in self._variables]
        self._traced.trace([specs], [features, labels])
        return self._kinds

    def load(self, arena: Arena) -> None:
        held = self._views.get(id(arena))
        if held is None:
            views = [
                tf.experimental.dlpack.from_dlpack(array.__dlpack__())
                for array in arena.arrays
            ]
            held = self._views[id(arena)] = (arena, views)
        self._parameters = held[1]

    def run(
        self,
        features: Tensors,
        labels: Tensors,
        shapes: tuple[Shape, ...] | None = None,
    ) -> StepResult:
        loss, gradients, fine = self._traced(
            self._parameters, features, labels, shapes=shapes
        )
        gradients = as_gradients(gradients, self._kinds)
        return StepResult(float(loss), gradients, overflow=not fine)

    def _compute(
        self, parameters: list[Any], features: Tensors, labels: Tensors
    ) -> Any:
        mapping = list(zip(self._variables, parameters, strict=True))
        with tf.GradientTape() as tape:
            tape.watch(parameters)
            with RecordingScope(mapping) as scope:
                out = self._definition.call(features, training=True)
                loss = self._definition.training_loss(features, labels, out)
                scaled = loss if self._scale is None else self._scale.scaled(loss)
        gradients, fine = tape.gradient(scaled, parameters), True
        if self._scale is not None:
            gradients, fine = self._scale.unscaled(gradients)
        kinds = [kind_of(g) for g in gradients]
        self._kinds = agreed(self._kinds, kinds, self._variables)
        finite = tf.math.is_finite(loss)
        refuse_assigned([v for v in self._variables if id(v) in scope.assigned])
        refuse_moving([v for v in self._frozen if id(v) in scope.assigned])
        refuse_reading(self._definition.optimizer)
        for key, variable in scope.assigned.items():
            if key not in self._metrics:
                # A batch whose loss is not a number must not spoil the statistics.
                old = variable.value
                new = tf.cast(scope.get_current_value(variable), old.dtype)
                variable.assign(tf.where(finite, new, old))
        return loss, [g for g in gradients if g is not None], fine
