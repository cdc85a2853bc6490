"""One training step as a TensorFlow function, in two forms.

Owns what is traced. `BufferStep` takes the parameters as tensors that share memory with
an arena: nothing is copied on the way in or out. `VariableStep` keeps them in the
model's own variables and can apply the gradients there; it works for every model that
Keras trains, and is what strategy local runs. Called by the trainers, which know only
GradientStep. Must not know PS or tasks.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import keras
import numpy as np
import tensorflow as tf

from elasticdl.errors import UserCodeError
from elasticdl.tensor.placement import Kind
from elasticdl.worker.packing import Arena, Gradient, RowGradient

logger = logging.getLogger(__name__)

Tensors = Any  # a tensor, or a nest of them as the user's feed gives it


class Definition(Protocol):
    """What a step needs of the user's module (model.definition)."""

    @property
    def model(self) -> keras.Model:
        """The built model."""

    @property
    def jit_compile(self) -> bool:
        """Whether to compile with XLA."""

    def call(self, features: Tensors, *, training: bool) -> Tensors:
        """Return the model's outputs."""

    def training_loss(
        self, features: Tensors, labels: Tensors, predictions: Tensors
    ) -> tf.Tensor:
        """Return the scalar to minimise, the model's own losses in it."""


@dataclass(frozen=True)
class StepResult:
    """What a step gives: its loss and a gradient per trainable variable."""

    loss: float
    gradients: list[Gradient]

    @property
    def finite(self) -> bool:
        """Whether the loss is a number that can be learnt from."""
        return math.isfinite(self.loss)


class GradientStep(Protocol):
    """Computes the gradients of one batch at given parameters."""

    def kinds(self, features: Tensors, labels: Tensors) -> list[Kind]:
        """Trace for batches like this one; say how each gradient comes."""

    def load(self, arena: Arena) -> None:
        """Take new parameter values; the arena must stay as it is until the next."""

    def run(self, features: Tensors, labels: Tensors) -> StepResult:
        """Compute one batch. The model's non-trainable state moves on with it."""


def relaxed(nest: Tensors) -> Tensors:
    """Return specs of a batch that leave the number of records open."""

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


def kind_of(gradient: Any) -> Kind:
    """Return how a traced gradient comes."""
    if gradient is None:
        return Kind.FROZEN
    return Kind.ROWWISE if isinstance(gradient, tf.IndexedSlices) else Kind.DENSE


def as_gradient(gradient: Any) -> Gradient:
    """Return a computed gradient as NumPy views of TensorFlow's memory."""
    if gradient is None:
        return None
    if isinstance(gradient, tf.IndexedSlices):
        rows = np.asarray(gradient.indices).astype(np.int64, copy=False)
        values = np.asarray(gradient.values)
        return RowGradient(rows, values.reshape(len(rows), -1))
    return np.asarray(gradient)


def _changing(model: keras.Model) -> list[Any]:
    """Return the variables that a step moves besides the trainable ones."""
    others = {id(v) for v in (*model.trainable_variables, *model.metrics_variables)}
    return [v for v in model.variables if id(v) not in others]


class _Traced:
    """A traced function of (fixed arguments, a batch of any number of records)."""

    def __init__(self, function: Callable[..., Any], *, jit: bool) -> None:
        self._function = tf.function(function, reduce_retracing=True, jit_compile=jit)
        # XLA compiles for fixed shapes anyway.
        self._relax = not jit

    def trace(self, fixed: Sequence[Tensors], batch: Sequence[Tensors]) -> None:
        if self._relax:
            try:
                self._function.get_concrete_function(*fixed, *relaxed(tuple(batch)))
            except (ValueError, TypeError, tf.errors.OpError) as error:
                # Models with a fixed batch size. If it is another mistake, the exact
                # trace meets it again and tells it.
                logger.debug("traced with the exact batch size: %s", error)
            else:
                return
        exact = tf.nest.map_structure(tf.type_spec_from_value, tuple(batch))
        self._function.get_concrete_function(*fixed, *exact)

    def __call__(self, *arguments: Tensors) -> Any:
        return self._function(*arguments)


class BufferStep:
    """Parameters are tensors that share the arena's memory; nothing is copied."""

    def __init__(self, definition: Definition) -> None:
        """Take a module whose model is built."""
        self._definition = definition
        self._variables = list(definition.model.trainable_variables)
        self._state = _changing(definition.model)
        self._traced = _Traced(self._compute, jit=definition.jit_compile)
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
        loss, gradients = self._traced(self._parameters, features, labels)
        # The traced function drops None from its result, so the kinds tell where.
        found = iter(gradients)
        return StepResult(
            float(loss),
            [
                None if kind is Kind.FROZEN else as_gradient(next(found))
                for kind in self._kinds
            ],
        )

    def _compute(
        self, parameters: list[Any], features: Tensors, labels: Tensors
    ) -> Any:
        mapping = list(zip(self._variables, parameters, strict=True))
        with tf.GradientTape() as tape:
            tape.watch(parameters)
            with keras.StatelessScope(mapping, collect_losses=True) as scope:
                out = self._definition.call(features, training=True)
                loss = self._definition.training_loss(features, labels, out)
        gradients = tape.gradient(loss, parameters)
        self._kinds = [kind_of(g) for g in gradients]
        finite = tf.math.is_finite(loss)
        for variable in self._state:
            new = scope.get_current_value(variable)
            if new is not None:
                # A batch whose loss is not a number must not spoil the statistics.
                old = variable.value
                new = tf.cast(new, old.dtype)
                variable.assign(tf.where(finite, new, old))
        return loss, [g for g in gradients if g is not None]


class VariableStep:
    """Parameters are the model's own variables; gradients may be applied there."""

    def __init__(
        self,
        definition: Definition,
        *,
        optimizer: keras.optimizers.Optimizer | None = None,
        guard: bool = False,
    ) -> None:
        """Take a module whose model is built; its variables hold the parameters.

        Args:
            definition: The module.
            optimizer: Applies the gradients within the step; None leaves that to PS.
            guard: Let a batch whose loss is not a number change nothing.
        """
        self._definition = definition
        self._optimizer = optimizer
        self._guard = guard
        self._variables = list(definition.model.trainable_variables)
        if optimizer is not None:
            optimizer.build(self._variables)
        self._traced = _Traced(self._compute, jit=definition.jit_compile)
        self._kinds: list[Kind] = []

    def kinds(self, features: Tensors, labels: Tensors) -> list[Kind]:
        """See GradientStep."""
        self._traced.trace([], [features, labels])
        return self._kinds

    def load(self, arena: Arena) -> None:
        """See GradientStep."""
        for variable, array in zip(self._variables, arena.arrays, strict=True):
            variable.assign(tf.experimental.dlpack.from_dlpack(array.__dlpack__()))

    def run(self, features: Tensors, labels: Tensors) -> StepResult:
        """See GradientStep."""
        loss, gradients = self._traced(features, labels)
        found = iter(gradients)
        return StepResult(
            float(loss),
            [
                None if kind is Kind.FROZEN else as_gradient(next(found))
                for kind in self._kinds
            ],
        )

    def apply(self, features: Tensors, labels: Tensors) -> float:
        """Compute a batch, apply its gradients here and return the loss."""
        return float(self._traced(features, labels)[0])

    def _compute(self, features: Tensors, labels: Tensors) -> Any:
        state = _changing(self._definition.model) if self._guard else []
        before = [tf.identity(v.value) for v in state]
        with tf.GradientTape() as tape:
            out = self._definition.call(features, training=True)
            loss = self._definition.training_loss(features, labels, out)
        gradients = tape.gradient(loss, [v.value for v in self._variables])
        self._kinds = [kind_of(g) for g in gradients]
        finite = tf.math.is_finite(loss)
        for variable, old in zip(state, before, strict=True):
            variable.assign(tf.where(finite, variable.value, old))
        if self._optimizer is not None:
            self._apply(self._optimizer, gradients, finite)
        return loss, [g for g in gradients if g is not None]

    def _apply(
        self, optimizer: keras.optimizers.Optimizer, gradients: list[Any], finite: Any
    ) -> None:
        pairs = [
            (gradient, variable)
            for gradient, variable in zip(gradients, self._variables, strict=True)
            if gradient is not None
        ]

        def apply() -> int:
            optimizer.apply_gradients(pairs)
            return 0

        if self._guard:
            tf.cond(finite, apply, lambda: 0)
        else:
            apply()


def choose_step(
    definition: Definition,
    batch: tuple[Tensors, Tensors],
    *,
    optimizer: keras.optimizers.Optimizer | None,
) -> tuple[GradientStep, list[Kind]]:
    """Return the fastest step that is right for this model, and the gradients' kinds.

    Some layers (a wrapped SavedModel, rematerialization) read their variables behind
    Keras's back: with parameters as tensors they would get no gradient. A variable
    without gradient is therefore looked at a second time.

    Args:
        definition: The module, its model built.
        batch: Features and labels of any batch.
        optimizer: Given if gradients are also applied here, between pulls.
    """
    variables = VariableStep(definition, optimizer=optimizer, guard=True)
    if optimizer is None:
        buffers = BufferStep(definition)
        try:
            kinds = buffers.kinds(*batch)
        except UserCodeError:
            raise
        except Exception as error:  # noqa: BLE001 - border: the user's model is traced
            logger.info("the model's own variables are used: %s", error)
        else:
            if Kind.FROZEN not in kinds or variables.kinds(*batch) == kinds:
                return buffers, kinds
    return variables, variables.kinds(*batch)
