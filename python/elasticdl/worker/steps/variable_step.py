"""The general step: parameters are the model's own variables.

Owns a step that works for every model Keras trains and can apply its gradients in the
same graph; strategy local runs on it, and PS workers that apply between pulls. Chosen
by worker.step_choice.
"""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf

from elasticdl.errors import UserCodeError
from elasticdl.model.specs import Shape
from elasticdl.model.state import non_trainable
from elasticdl.model.variables import trained_variables
from elasticdl.tensor.placement import GradientKind
from elasticdl.worker.steps.fused_update import fuse
from elasticdl.worker.steps.loss_scale import LossScale
from elasticdl.worker.steps.packing import Arena
from elasticdl.worker.steps.step import (
    StepDefinition,
    StepResult,
    Tensors,
    Traced,
    agreed,
    as_gradients,
    assigned_in_graph,
    changing_variables,
    kind_of,
    refuse_assigned,
    refuse_moving,
    refuse_reading,
    refuse_untrained,
)


class VariableStep:
    """Step on the model's own variables; it may apply gradients there."""

    def __init__(
        self,
        definition: StepDefinition,
        *,
        optimizer: keras.optimizers.Optimizer | None = None,
        guard: bool = False,
        on_ps: bool = False,
        scale: LossScale | None = None,
    ) -> None:
        """Take a module with a built model, whose variables hold the parameters.

        Args:
            definition: The module.
            optimizer: Applies the gradients within the step; None leaves that to PS.
            guard: Let a batch whose loss is not a number change nothing.
            on_ps: Refuse a model whose call assigns its trainable or frozen variables,
                or reads those of the optimizer.
            scale: How the loss is scaled. None leaves that to `optimizer`.
        """
        self._definition = definition
        self._optimizer = optimizer
        self._guard = guard
        self._on_ps = on_ps
        self._scale = scale
        self.variables = trained_variables(definition.model)
        self._frozen = [v.variable for v in non_trainable(definition.model).frozen]
        if optimizer is not None:
            fuse(optimizer, self.variables)
            if not optimizer.built:
                optimizer.build(self.variables)
        self._traced = Traced(self._compute, jit=definition.jit_compile)
        self._kinds: list[GradientKind] = []

    def kinds(self, features: Tensors, labels: Tensors) -> list[GradientKind]:
        self._traced.trace([], [features, labels])
        return self._kinds

    def load(self, arena: Arena) -> None:
        for variable, array in zip(self.variables, arena.arrays, strict=True):
            variable.assign(tf.experimental.dlpack.from_dlpack(array.__dlpack__()))

    def run(
        self,
        features: Tensors,
        labels: Tensors,
        shapes: tuple[Shape, ...] | None = None,
    ) -> StepResult:
        loss, gradients, fine = self._traced(features, labels, shapes=shapes)
        gradients = as_gradients(gradients, self._kinds)
        return StepResult(float(loss), gradients, overflow=not fine)

    def apply(self, features: Tensors, labels: Tensors) -> float:
        """Compute a batch, apply its gradients and return the loss."""
        return float(self._traced(features, labels)[0])

    def _compute(self, features: Tensors, labels: Tensors) -> Any:
        state = changing_variables(self._definition.model) if self._guard else []
        before = [tf.identity(v.value) for v in state]
        with tf.GradientTape() as tape:
            out = self._definition.call(features, training=True)
            loss = self._definition.training_loss(features, labels, out)
            scaled = self._scaled(loss)
        if self._on_ps:
            refuse_assigned(assigned_in_graph(self.variables))
            refuse_moving(assigned_in_graph(self._frozen))
            refuse_reading(self._definition.optimizer)
        gradients = tape.gradient(scaled, [v.value for v in self.variables])
        fine: Any = True
        if self._scale is not None:
            gradients, fine = self._scale.unscaled(gradients)
        kinds = [kind_of(g) for g in gradients]
        traced = self._kinds if self._on_ps else []
        self._kinds = agreed(traced, kinds, self.variables)
        finite = tf.math.is_finite(loss)
        for variable, old in zip(state, before, strict=True):
            variable.assign(tf.where(finite, variable.value, old))
        if self._optimizer is not None:
            refuse_untrained(kinds)
            _refuse_scaled_rows(self._optimizer, kinds, self.variables)
            self._apply(self._optimizer, gradients, tf.logical_and(finite, fine))
        return loss, [g for g in gradients if g is not None], fine

    def _scaled(self, loss: tf.Tensor) -> tf.Tensor:
        if self._scale is not None:
            return self._scale.scaled(loss)
        # Keras's optimizers take their own scale off when they apply.
        return loss if self._optimizer is None else self._optimizer.scale_loss(loss)

    def _apply(
        self, optimizer: keras.optimizers.Optimizer, gradients: list[Any], finite: Any
    ) -> None:
        pairs = [
            (gradient, variable)
            for gradient, variable in zip(gradients, self.variables, strict=True)
            if gradient is not None
        ]

        def apply() -> int:
            optimizer.apply_gradients(pairs)
            return 0

        if self._guard:
            tf.cond(finite, apply, lambda: 0)
        else:
            apply()


def _refuse_scaled_rows(
    optimizer: keras.optimizers.Optimizer,
    kinds: list[GradientKind],
    variables: list[Any],
) -> None:
    if not optimizer.loss_scale_factor or GradientKind.ROWWISE not in kinds:
        return
    path = variables[kinds.index(GradientKind.ROWWISE)].path
    name, factor = type(optimizer).__name__, optimizer.loss_scale_factor
    raise UserCodeError(
        f"{name}(loss_scale_factor={factor}) cannot be applied: the gradient of "
        f"`{path}` comes as rows, which Keras does not take the factor off; use "
        f"keras.optimizers.LossScaleOptimizer({name}(...)), or train with parameter "
        "servers"
    )
