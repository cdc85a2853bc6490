"""A step of a group in two halves: a share's gradient, and applying the mean of all.

Owns the two traced functions and the layout of the vector that members exchange: the
gradients of all variables, the model's float state, then what is counted. Made by
`worker.trainer_maker`, called by `worker.group.loop`. Must not know other members.

The gradient that is exchanged is of the loss as the optimizer scales it: an overflow in
one member is one in the sum, so that all of them leave the step out alike.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from elasticdl.model.feeding import Batch
from elasticdl.model.variables import NamedVariable
from elasticdl.worker.group.plan import Outcome
from elasticdl.worker.steps.step import StepDefinition, Tensors, Traced
from elasticdl.worker.steps.variable_step import VariableStep

Floats = NDArray[np.float32]
_COUNTS = 3  # at the vector's end: sum of losses by rows, rows, records that were read


@dataclass(frozen=True)
class ShareBatches:
    """The batches of a member's share of a step."""

    batches: Sequence[Batch]
    records: int  # that were read


class GroupStep:
    """Computes gradients, and applies them with the user's own optimizer."""

    def __init__(
        self,
        definition: StepDefinition,
        optimizer: keras.optimizers.Optimizer,
        shared: Sequence[NamedVariable],
        *,
        skip_nan: bool,
    ) -> None:
        """Take a module with a built model, its optimizer and its float state.

        `skip_nan`: a step whose loss is not a number changes nothing.
        """
        self._definition = definition
        self._optimizer = optimizer
        self._shared = shared
        self.variables = list(definition.model.trainable_variables)
        if not optimizer.built:
            optimizer.build(self.variables)
        self._with_gradient: list[Any] = []
        self._gradient = Traced(self._compute, jit=definition.jit_compile)
        self._apply = tf.function(self._apply_mean)
        self.num_gradients = 0  # floats at the vector's beginning
        self._num_state = sum(_size(item.shape) for item in shared)
        self._before: list[NDArray[Any]] = []
        # That of strategy local; it cannot take a constant scale off rows of gradients.
        self._whole = None
        if not optimizer.loss_scale_factor:
            self._whole = VariableStep(definition, optimizer=optimizer, guard=skip_nan)

    def trace(self, features: Tensors, labels: Tensors) -> None:
        """Trace for batches like this one."""
        self._gradient.trace([], [features, labels])
        self.num_gradients = sum(_size(v.shape) for v in self._with_gradient)
        self.begin()

    @property
    def size(self) -> int:
        """Floats of the vector that members exchange."""
        return self.num_gradients + self._num_state + _COUNTS

    def begin(self) -> None:
        """Note the float state: each attempt at the next step begins with it."""
        self._before = [item.numpy() for item in self._shared]

    def compute(self, share: ShareBatches) -> Floats:
        """Return this member's part of a step: sums over its rows."""
        total = np.zeros(self.size, np.float32)
        gradients = total[: self.num_gradients]
        state = total[self.num_gradients : -_COUNTS]
        self._write_state(self._before)
        for number, batch in enumerate(share.batches):
            loss, gradient = self._gradient(batch.features, batch.labels)
            rows = np.float32(batch.num_records)
            if number:
                gradients += rows * gradient.numpy()
            else:
                np.multiply(rows, gradient.numpy(), out=gradients)
            if self._shared:
                state += rows * self._flat_state()
            total[-3] += float(loss) * rows
            total[-2] += rows
        total[-1] = share.records
        return total

    def can_be_alone(self, share: ShareBatches) -> bool:
        """Whether `alone` can make a step of these batches."""
        return self._whole is not None and len(share.batches) == 1

    def alone(self, share: ShareBatches) -> Outcome:
        """Make a step of one batch in one go, as strategy local does."""
        if self._whole is None:
            raise RuntimeError("the optimizer's scale is taken off summed gradients")
        (batch,) = share.batches
        self._write_state(self._before)
        loss = self._whole.apply(batch.features, batch.labels)
        self.begin()
        return Outcome(
            records=share.records,
            rows=batch.num_records,
            loss=loss,
            skipped=not np.isfinite(loss),
        )

    def nothing(self) -> Floats:
        """Return the part of a member without records."""
        return np.zeros(self.size, np.float32)

    def apply(self, summed: Floats) -> Outcome:
        """Apply the sum of all members' parts; return what they made together."""
        loss_sum, rows, records = (float(x) for x in summed[-_COUNTS:])
        if not rows:
            return Outcome(records=round(records), rows=0, loss=0.0)
        loss = loss_sum / rows
        outcome = Outcome(
            records=round(records),
            rows=round(rows),
            loss=loss,
            skipped=not np.isfinite(loss),
        )
        if outcome.skipped:
            self._write_state(self._before)
            return outcome
        self._apply(
            tf.convert_to_tensor(summed[: self.num_gradients]),
            tf.constant(1.0 / rows, tf.float32),
        )
        if self._shared:
            mean = summed[self.num_gradients : -_COUNTS] / np.float32(rows)
            self._write_state(_cut(mean, [item.shape for item in self._shared]))
        self.begin()
        return outcome

    @property
    def state_before(self) -> list[NDArray[Any]]:
        """The float state before the step under way."""
        return self._before

    def _compute(self, features: Tensors, labels: Tensors) -> Any:
        with tf.GradientTape() as tape:
            out = self._definition.call(features, training=True)
            loss = self._definition.training_loss(features, labels, out)
            scaled = self._optimizer.scale_loss(loss)
        found = tape.gradient(scaled, [v.value for v in self.variables])
        self._with_gradient = [
            variable
            for variable, gradient in zip(self.variables, found, strict=True)
            if gradient is not None
        ]
        flat = [
            tf.reshape(tf.cast(tf.convert_to_tensor(gradient), tf.float32), [-1])
            for gradient in found
            if gradient is not None
        ]
        return tf.cast(loss, tf.float32), tf.concat(flat, 0)

    def _apply_mean(self, summed: tf.Tensor, scale: tf.Tensor) -> None:
        sizes = [_size(v.shape) for v in self._with_gradient]
        parts = tf.split(summed * scale, sizes)
        self._optimizer.apply_gradients(
            [
                (tf.reshape(part, variable.shape), variable)
                for part, variable in zip(parts, self._with_gradient, strict=True)
            ]
        )

    def _flat_state(self) -> Floats:
        return np.concatenate(
            [np.ravel(item.numpy()).astype(np.float32) for item in self._shared]
        )

    def _write_state(self, values: Iterable[NDArray[Any]]) -> None:
        for item, value in zip(self._shared, values, strict=True):
            item.variable.assign(value)


def _size(shape: Sequence[int]) -> int:
    return int(np.prod(tuple(shape), dtype=np.int64))


def _cut(flat: Floats, shapes: Sequence[Sequence[int]]) -> list[Floats]:
    found, at = [], 0
    for shape in shapes:
        size = _size(shape)
        found.append(flat[at : at + size].reshape(tuple(shape)))
        at += size
    return found
