"""One training step as a TensorFlow function: what it needs, what it gives.

Owns the protocol of both forms (worker.buffer_step, worker.variable_step) and what they
share: tracing for any number of records, gradients as NumPy views. Trainers know only
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
from elasticdl.model.optimizers import inner_optimizer
from elasticdl.model.specs import Shape, forms, forms_of, relaxed
from elasticdl.model.tracing import GraphFunction
from elasticdl.tensor.placement import GradientKind
from elasticdl.worker.steps.packing import Arena, Gradient, RowGradient

log = logging.getLogger(__name__)

# What is run of the user's code where a step is traced: the model's call and its loss.
TRACED = "a training step"
Tensors = Any  # a tensor, or a nest of them as the user's feed gives it


class StepDefinition(Protocol):
    """The parts of the user's module that a step needs (model.definition)."""

    @property
    def model(self) -> keras.Model:
        """The built model."""

    @property
    def optimizer(self) -> keras.optimizers.Optimizer:
        """The user's optimizer."""

    @property
    def jit_compile(self) -> bool:
        """Whether to compile with XLA."""

    def call(self, features: Tensors, *, training: bool) -> Tensors:
        """Return the model's outputs."""

    def training_loss(
        self, features: Tensors, labels: Tensors, predictions: Tensors
    ) -> tf.Tensor:
        """Return the scalar to minimise, including the model's own losses."""


@dataclass(frozen=True)
class StepResult:
    """The loss of a step, and a gradient per trainable variable."""

    loss: float
    gradients: list[Gradient]
    overflow: bool = False  # float16 could not hold them: to be left out

    @property
    def finite(self) -> bool:
        """Whether the loss is finite."""
        return math.isfinite(self.loss)


class GradientStep(Protocol):
    """Computes the gradients of a batch at given parameters."""

    def kinds(self, features: Tensors, labels: Tensors) -> list[GradientKind]:
        """Trace for batches like this one; return the kind of each gradient."""

    def load(self, arena: Arena) -> None:
        """Take new parameter values; the arena must not change until the next call."""

    def run(
        self, features: Tensors, labels: Tensors, shapes: tuple[Shape, ...] | None
    ) -> StepResult:
        """Compute one batch. The model's non-trainable state advances.

        `shapes` of all tensors, where they are known.
        """


def kind_of(gradient: Any) -> GradientKind:
    """Return the kind of a traced gradient."""
    if gradient is None:
        return GradientKind.FROZEN
    return (
        GradientKind.ROWWISE
        if isinstance(gradient, tf.IndexedSlices)
        else GradientKind.DENSE
    )


def agreed(
    before: Sequence[GradientKind], now: list[GradientKind], variables: Sequence[Any]
) -> list[GradientKind]:
    """Return the kinds of a trace's gradients, which earlier traces must share.

    The PS were told once which variables have gradients of which kind; a batch of
    another form is traced anew. Raises UserCodeError where its gradients are others.
    """
    for was, is_now, variable in zip(before, now, variables, strict=bool(before)):
        if was is not is_now:
            raise UserCodeError(
                f"the gradient of `{variable.path}` is {is_now} for a batch of this "
                f"form, and was {was} for the first one; expected that what the model "
                "does with a variable does not depend on the form of its inputs. Let "
                "feed give all batches alike, or set strategy: local"
            )
    return now


def refuse_untrained(kinds: Sequence[GradientKind]) -> None:
    """Raise UserCodeError where no variable has a gradient."""
    if any(kind is not GradientKind.FROZEN for kind in kinds):
        return
    raise UserCodeError(
        f"the loss has a gradient for none of the model's {len(kinds)} trainable "
        "variables, so that there is nothing to train; expected at least one: set "
        "trainable=True on a layer, or let the loss depend on it"
    )


def as_gradient(gradient: Any) -> Gradient:
    """Return a computed gradient as NumPy views of TensorFlow's memory."""
    if gradient is None:
        return None
    if isinstance(gradient, tf.IndexedSlices):
        rows = np.asarray(gradient.indices).astype(np.int64, copy=False)
        values = np.asarray(gradient.values)
        # Not -1: a batch without a single id has no rows to divide by.
        row_size = math.prod(values.shape[1:])
        return RowGradient(rows, values.reshape(len(rows), row_size))
    return np.asarray(gradient)


def as_gradients(
    computed: Sequence[Any], kinds: Sequence[GradientKind]
) -> list[Gradient]:
    """Return the gradients of a traced step, which omits variables without one."""
    found = iter(computed)
    return [
        None if kind is GradientKind.FROZEN else as_gradient(next(found))
        for kind in kinds
    ]


class RecordingScope(keras.StatelessScope):
    """Keeps what a call assigns to variables, and to which ones.

    Also those that the model does not list: Keras's generator of unseeded random
    numbers, and variables that user code keeps elsewhere.
    """

    def __init__(self, mapping: Sequence[tuple[Any, Any]]) -> None:
        """Take the variables that have other values inside, and these values."""
        super().__init__(mapping, collect_losses=True)
        self.assigned: dict[int, Any] = {}

    def add_update(self, update: tuple[Any, Any]) -> None:
        """See keras.StatelessScope."""
        variable = update[0]
        if variable._initializer is not None:  # noqa: SLF001
            # Its value here would be a constant of the trace.
            raise RuntimeError(f"`{variable.path}` is made while the step is traced")
        self.assigned[id(variable)] = variable
        # As with a variable of TensorFlow: whoever reads it next gets a value, and no
        # gradient passes to what it was made of.
        super().add_update((variable, tf.stop_gradient(update[1])))


def refuse_assigned(
    variables: Sequence[Any], *, why: str = "would not reach the parameter servers"
) -> None:
    """Raise UserCodeError: the model's call assigns trainable variables."""
    if variables:
        raise UserCodeError(
            f"a layer assigns its trainable variable `{variables[0].path}` while it is "
            f"called (as SpectralNormalization does), which {why}; set strategy: "
            "local, or leave the layer out"
        )


def refuse_moving(frozen: Sequence[Any]) -> None:
    """Raise UserCodeError: the model's call assigns what a frozen layer keeps."""
    if frozen:
        raise UserCodeError(
            f"a layer with trainable=False assigns its variable `{frozen[0].path}` "
            "while it is called, and workers keep the weights of such layers as they "
            "are; make the layer trainable and its weights not (add_weight(..., "
            "trainable=False)), or set strategy: local"
        )


def refuse_reading(optimizer: keras.optimizers.Optimizer) -> None:
    """Raise UserCodeError if what is traced so far reads the optimizer's variables.

    With parameter servers nobody moves them in a worker.
    """
    inner = inner_optimizer(optimizer)
    captured = {id(t) for t in tf.compat.v1.get_default_graph().external_captures}
    read = [v for v in inner.variables if id(v.value.handle) in captured]
    if read:
        raise UserCodeError(
            f"the model's call or loss reads `{read[0].name}` of the optimizer, which "
            "runs on the parameter servers: here it would stay what it was at first; "
            "count steps in a variable of the model (add_weight(..., "
            "trainable=False)), or set strategy: local"
        )


def assigned_in_graph(variables: Sequence[Any]) -> list[Any]:
    """Return the variables that the traced graph assigns so far."""
    graph = tf.compat.v1.get_default_graph()
    handles = {
        op.inputs[0].name
        for op in graph.get_operations()
        if op.type.startswith("Assign") and op.inputs
    }
    return [v for v in variables if graph.capture(v.value.handle).name in handles]


def changing_variables(model: keras.Model) -> list[Any]:
    """Return the variables besides trainable ones that a step changes."""
    others = {id(v) for v in (*model.trainable_variables, *model.metrics_variables)}
    return [v for v in model.variables if id(v) not in others]


class Traced:
    """A traced function of (fixed arguments, a batch of any number of records)."""

    def __init__(self, function: Callable[..., Any], *, jit: bool) -> None:
        self._function = GraphFunction(function, reduce_retracing=True, jit_compile=jit)
        # XLA compiles for fixed shapes anyway.
        self._relax = not jit
        self._concrete: Any = None  # for batches of any number of records
        self._form: tuple[Shape, ...] = ()  # of which they are
        self._fixed = 0  # arguments before the batch
        self._fitting: tuple[Shape, ...] | None = None  # shapes that were of this form

    def trace(self, fixed: Sequence[Tensors], batch: Sequence[Tensors]) -> None:
        self._fixed, self._fitting = len(fixed), None
        if self._relax:
            try:
                self._concrete = self._function.get_concrete_function(
                    *fixed, *relaxed(tuple(batch))
                )
            except (ValueError, TypeError, tf.errors.OpError) as error:
                # Models with a fixed batch size. If it is another mistake, the exact
                # trace meets it again and tells it.
                log.debug("traced with the exact batch size: %s", error)
            else:
                self._form = forms_of(*batch)
                return
        exact = tf.nest.map_structure(tf.type_spec_from_value, tuple(batch))
        self._function.get_concrete_function(*fixed, *exact)

    def __call__(
        self, *arguments: Tensors, shapes: tuple[Shape, ...] | None = None
    ) -> Any:
        """Call it. `shapes` of the batch's tensors, where they are known."""
        # Which trace fits need not be found out again at each step: with ten
        # parameters that is a third of what calling a function costs. But TensorFlow
        # does not look at shapes then: a batch padded to another length would be
        # computed with the first one's, where that stands in the graph.
        if self._concrete is not None and self._fits(arguments, shapes):
            try:
                return self._concrete(*arguments)
            except TypeError:  # raised before anything is computed
                log.debug("a batch of another form than the first: traced again")
        return self._function(*arguments)

    def _fits(
        self, arguments: Sequence[Tensors], shapes: tuple[Shape, ...] | None
    ) -> bool:
        if shapes is None:
            return forms_of(*arguments[self._fixed :]) == self._form
        if shapes == self._fitting:
            return True
        fits = forms(shapes) == self._form
        if fits:
            self._fitting = shapes
        return fits
