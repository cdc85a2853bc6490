"""A step of a group in two halves: a share's gradient, and applying the mean of all.

Owns the two traced functions and the layout of the vector that members exchange: the
gradients of all variables, the last one first, the model's float state and counters,
then what is counted.
Made by `worker.group_maker`, called by `worker.group.loop`. Must not know other
members.

The gradient that is exchanged is of the loss as the optimizer scales it: an overflow in
one member is one in the sum, so that all of them leave the step out alike.

Backprop computes the last layers' gradients first. They are cut into buckets, and taps
in the graph hand each bucket out while the gradients of earlier layers are computed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from elasticdl.collective.encoding import DIRECT_BYTES
from elasticdl.collective.lent_vectors import CACHE_LINE, Vectors
from elasticdl.model.feeding import Batch
from elasticdl.model.measures.portions import LEAST_WEIGHT, refuse_uneven, try_training
from elasticdl.model.optimizer_variables import refuse_later_ones, variables_of
from elasticdl.model.optimizers import keeps_no_gradient
from elasticdl.model.state import non_trainable
from elasticdl.model.tracing import GraphFunction
from elasticdl.model.variables import NamedVariable, trained_variables
from elasticdl.tensor.placement import GradientKind
from elasticdl.worker.group.buckets import LEAST_FLOATS, Bucket, buckets
from elasticdl.worker.group.moved import MovedState
from elasticdl.worker.group.plan import Outcome
from elasticdl.worker.steps.fused_update import fuse
from elasticdl.worker.steps.step import (
    StepDefinition,
    Tensors,
    Traced,
    agreed,
    assigned_in_graph,
    kind_of,
    refuse_assigned,
    refuse_moving,
    refuse_untrained,
)
from elasticdl.worker.steps.variable_step import VariableStep

Floats = NDArray[np.float32]
# At the vector's end: the sum of losses by their weights, weights, rows, records that
# were read, and those of them that were left out as bad.
_COUNTS = 5


class GroupDefinition(StepDefinition, Protocol):
    """The parts of the user's module that a group's step needs (model.definition)."""

    def loss_divisor(self, labels: Tensors, predictions: Tensors) -> tf.Tensor | None:
        """Return by what the loss divides its sum; None: by the number of records."""


@dataclass(frozen=True)
class ShareBatches:
    """The batches of a member's share of a step."""

    batches: Sequence[Batch]
    records: int  # that were read
    bad: int = 0  # of them, in no batch (data.onBadRecord)


# Takes the number of a bucket, and the vector in which it is.
Ready = Callable[[int, Floats], None]


@dataclass(frozen=True)
class _Portion:
    """A batch of a share while its gradients are computed.

    `hand_out` of the last one: takes the number of a bucket.
    """

    total: Floats
    rows: int
    of: int  # records of the step, which sums are divided by
    first: bool
    hand_out: Callable[[int], None] | None


class GroupStep:
    """Computes gradients, and applies them with the user's own optimizer."""

    def __init__(
        self,
        definition: GroupDefinition,
        optimizer: keras.optimizers.Optimizer,
        moved: Sequence[NamedVariable],
        *,
        skip_nan: bool,
        taps: bool = False,
        least_floats: int = LEAST_FLOATS,
        vectors: Vectors | None = None,
    ) -> None:
        """Take a module with a built model, its optimizer, float state and counters.

        Args:
            definition: The user's module.
            optimizer: The user's own.
            moved: The model's float state and counters.
            skip_nan: A step whose loss is not a number changes nothing.
            taps: Buckets are handed out while others are computed. That needs a second
                inter-op thread: with one alone, taps run when all is computed.
            least_floats: Of a bucket, the same for all members.
            vectors: Makes the one that is exchanged.
        """
        self._definition = definition
        self._optimizer = optimizer
        self.moved = MovedState(moved)
        self.variables = trained_variables(definition.model)
        self._frozen = [v.variable for v in non_trainable(definition.model).frozen]
        self._shares_memory = keeps_no_gradient(optimizer, self.variables)
        fuse(optimizer, self.variables)
        if not optimizer.built:
            optimizer.build(self.variables)
        self._begun_with: list[Any] | None = variables_of(optimizer)
        self._kinds: list[GradientKind] = []
        self._rows_of_gradients = False
        self._gradient = Traced(self._compute, jit=definition.jit_compile)
        self._apply_means = GraphFunction(self._apply_vector)
        self._apply_sums = GraphFunction(self._apply_vector)
        self._taps = taps and not definition.jit_compile
        self._least_floats = least_floats
        self._buckets: list[Bucket] = []
        self._under_way: _Portion | None = None
        self.num_gradients = 0  # floats at the vector's beginning
        self._vectors = vectors or Vectors()
        self._totals: deque[Floats] = deque()
        # That of strategy local; it cannot take a constant scale off rows of gradients.
        self._whole = None
        if not optimizer.loss_scale_factor:
            self._whole = VariableStep(definition, optimizer=optimizer, guard=skip_nan)

    def trace(self, features: Tensors, labels: Tensors) -> None:
        """Trace for batches like this one.

        Raises UserCodeError for a model that portions of a step would train otherwise
        than all of its records at once.
        """
        self._gradient.trace([], [features, labels])
        refuse_uneven(self._definition, features, labels)
        self.moved.moves_by(
            try_training(self._definition, self.moved.variables, features, labels)
        )
        self.num_gradients = sum(_room(v.shape) for v in self._with_gradient)
        self.begin()

    @property
    def size(self) -> int:
        """Floats of the vector that members exchange."""
        return self.num_gradients + self.moved.size + _COUNTS

    def begin(self) -> None:
        """Note the moved state: each attempt at the next step begins with it."""
        self.moved.begin()

    @property
    def ends(self) -> list[int]:
        """Where the vector's buckets end; the last one has what is no gradient too."""
        return [*(bucket.end for bucket in self._buckets[:-1]), self.size]

    def compute(self, share: ShareBatches, ready: Ready, *, of: int = 1) -> Floats:
        """Return this member's part of a step: sums over its rows.

        The vector that is returned stays as it is until the next call; a small one in
        lent memory until the one after it: two members exchange these directly.

        Args:
            share: The own records.
            ready: Called once with each bucket, and the vector in which it is, perhaps
                in a thread of TensorFlow.
            of: Records of all members, which sums of gradients are divided by, so that
                they are means at once where each record is a row.
        """
        total = self._next_total()
        self._vectors.rewrite(total)
        # The first batch sets all gradients.
        total[self.num_gradients if share.batches else 0 :] = 0.0
        state = total[self.num_gradients : -_COUNTS]
        last = len(share.batches) - 1
        handed: set[int] = set()

        def hand_out(bucket: int) -> None:
            handed.add(bucket)
            ready(bucket, total)

        for number, batch in enumerate(share.batches):
            # Each portion begins alike, so that it does not matter whose it is.
            self.moved.rewind()
            rows = batch.num_records
            self._under_way = _Portion(
                total, rows, of, number == 0, hand_out if number == last else None
            )
            try:
                loss, parts, *divisor = self._gradient(batch.features, batch.labels)
                weight = _weight(rows, *divisor)
                begin = self._buckets[-1].begin if self._taps else 0
                _add(self._under_way, begin, parts, weight)
                del parts
            finally:
                self._under_way = None
            self.moved.add(state, rows, of=of)
            total[-5] += float(loss) * weight
            total[-4] += weight
            total[-3] += rows
        total[-2:] = share.records, share.bad
        for bucket in range(len(self._buckets)):
            if bucket not in handed:
                ready(bucket, total)
        return total

    def _next_total(self) -> Floats:
        totals = self._totals
        if not totals or len(totals[0]) != self.size:
            totals.clear()
            is_small = 4 * self.size <= DIRECT_BYTES
            num = 2 if is_small and self._vectors.lends else 1
            totals.extend(self._vectors.new(self.size) for _ in range(num))
        totals.rotate()
        return totals[0]

    def can_be_alone(self, share: ShareBatches) -> bool:
        """Whether `alone` can make a step of these batches."""
        whole = self._whole is not None and not self._rows_of_gradients
        return whole and len(share.batches) == 1

    def alone(self, share: ShareBatches) -> Outcome:
        """Make a step of one batch in one go, as strategy local does."""
        if self._whole is None:
            raise RuntimeError("the optimizer's scale is taken off summed gradients")
        (batch,) = share.batches
        self.moved.rewind()
        loss = self._whole.apply(batch.features, batch.labels)
        self._look_at_variables()
        self.begin()
        return Outcome(
            records=share.records,
            rows=batch.num_records,
            loss=loss,
            skipped=not np.isfinite(loss),
            bad=share.bad,
        )

    def nothing(self) -> Floats:
        """Return the part of a member without records."""
        return np.zeros(self.size, np.float32)

    def apply(self, summed: Floats, *, of: int = 1) -> Outcome:
        """Apply the sum of all members' parts; return what they made together.

        `of`: as for `compute`.
        """
        loss_sum, weights, rows, records, bad = (float(x) for x in summed[-_COUNTS:])
        if not rows:
            return Outcome(records=round(records), rows=0, loss=0.0, bad=round(bad))
        loss = loss_sum / weights
        outcome = Outcome(
            records=round(records),
            rows=round(rows),
            loss=loss,
            skipped=not np.isfinite(loss),
            bad=round(bad),
        )
        if outcome.skipped:
            self.moved.rewind()
            return outcome
        sums = _uncopied(summed[: self.num_gradients])
        if weights == of and self._shares_memory:
            self._apply_means(sums)
        else:
            self._apply_sums(sums, tf.constant(of / weights, tf.float32))
        self._look_at_variables()
        self.moved.apply(summed[self.num_gradients : -_COUNTS], rows, of=of)
        self.begin()
        return outcome

    def _look_at_variables(self) -> None:
        """Refuse, after the first step, an optimizer that made variables in it."""
        before, self._begun_with = self._begun_with, None
        if before is not None:
            refuse_later_ones(self._optimizer, before)

    @property
    def state_before(self) -> list[NDArray[Any]]:
        """The float state and the counters before the step under way."""
        return self.moved.before

    @property
    def _with_gradient(self) -> list[Any]:
        """The variables whose gradients are exchanged, the last one first."""
        return [
            variable
            for variable, kind in zip(self.variables, self._kinds, strict=True)
            if kind is not GradientKind.FROZEN
        ][::-1]

    def _compute(self, features: Tensors, labels: Tensors) -> Any:
        with tf.GradientTape() as tape:
            out = self._definition.call(features, training=True)
            loss = self._definition.training_loss(features, labels, out)
            scaled = self._optimizer.scale_loss(loss)
        refuse_assigned(
            assigned_in_graph(self.variables),
            why="each worker of strategy allReduce would do to another portion",
        )
        refuse_moving(assigned_in_graph(self._frozen))
        divisor = self._definition.loss_divisor(labels, out)
        found = tape.gradient(scaled, [v.value for v in self.variables])
        self._note(found)
        parts = [
            tf.cast(tf.convert_to_tensor(gradient), tf.float32)
            for gradient in reversed(found)
            if gradient is not None
        ]
        said = [] if divisor is None else [divisor]
        if self._taps:
            for number, bucket in enumerate(self._buckets[:-1]):
                tapped = parts[bucket.first : bucket.last]
                call = partial(self._tap, number, len(said))
                tf.numpy_function(call, [*said, *tapped], [])
            parts = parts[self._buckets[-1].first :]
        return tf.cast(loss, tf.float32), parts, *said

    def _tap(self, number: int, num_said: int, *found: NDArray[Any]) -> None:
        """Take a bucket's gradients, and hand it out while others are computed."""
        portion = self._under_way
        if portion is None:
            raise RuntimeError("a step is computed for nobody")
        weight = _weight(portion.rows, *found[:num_said])
        _add(portion, self._buckets[number].begin, found[num_said:], weight)
        if portion.hand_out is not None:
            portion.hand_out(number)

    def _note(self, found: Sequence[Any]) -> None:
        """Keep which variables have gradients. Raises UserCodeError if that changes."""
        kinds = [kind_of(gradient) for gradient in found]
        self._rows_of_gradients |= GradientKind.ROWWISE in kinds
        # Rows are exchanged as dense tensors.
        dense: list[GradientKind] = [
            GradientKind.DENSE if kind is GradientKind.ROWWISE else kind
            for kind in kinds
        ]
        self._kinds = agreed(self._kinds, dense, self.variables)
        self._buckets = buckets(
            [_room(v.shape) for v in self._with_gradient], self._least_floats
        )
        refuse_untrained(dense)

    def _apply_vector(self, sums: tf.Tensor, scale: tf.Tensor | None = None) -> None:
        """Scale and apply; the sums stay, for a member that lacks them.

        Without a scale the optimizer gets the sums' own memory, which the next step
        writes again; one that may keep gradients gets copies, by a scale of 1.
        The graph cuts them by variable, so that the means of all are never there at
        once.
        """
        means, at = [], 0
        for variable in self._with_gradient:
            shape = tuple(variable.shape)
            part = sums[at : at + _size(shape)]
            if scale is not None:
                part *= scale
            means.append(tf.reshape(part, shape))
            at += _room(shape)
        # In the model's order, as `fit` does: an optimizer of one's own may go by it.
        pairs = list(zip(means, self._with_gradient, strict=True))
        self._optimizer.apply_gradients(pairs[::-1])


def _weight(rows: int, *divisor: Any) -> float:
    """Return what a portion's mean is multiplied by to be a sum."""
    return float(divisor[0]) + LEAST_WEIGHT * rows if divisor else float(rows)


def _add(portion: _Portion, at: int, found: Sequence[Any], weight: float) -> None:
    """Add gradients from a place of the vector on, by variable.

    One vector of all is enough so.
    """
    factor = np.float32(weight / portion.of)
    for one in found:
        values = np.asarray(one).reshape(-1)
        out = portion.total[at : at + values.size]
        if portion.first:
            np.multiply(factor, values, out=out)
        else:
            out += factor * values
        at += _room(values.shape)


def _uncopied(values: Floats) -> tf.Tensor:
    """Return values as a tensor, in their own memory if they begin at a cache line."""
    if values.ctypes.data % CACHE_LINE:
        return tf.convert_to_tensor(values)
    return tf.experimental.dlpack.from_dlpack(values.__dlpack__())


def _room(shape: Sequence[int]) -> int:
    """Return the floats that a gradient takes in the vector.

    Each begins at a cache line: TensorFlow cuts such a one out without copying it.
    """
    floats = CACHE_LINE // np.dtype(np.float32).itemsize
    return -(-_size(shape) // floats) * floats


def _size(shape: Sequence[int]) -> int:
    return int(np.prod(tuple(shape), dtype=np.int64))
