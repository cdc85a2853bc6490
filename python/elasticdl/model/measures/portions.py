"""What of a step adds up over portions of its records, and how.

Owns the rules by which portions that are computed apart make the step of all records:
what each portion's loss weighs, and which state is a count. Called by the workers of
strategy allReduce, before they train and in their step. Changes no variable.

What Keras divides a loss by is known for its own losses (`measures.divisors`). Of
anything else a batch is tried, whole and in two portions, also with labels, features or
predictions that make these unlike (`measures.spread`), and with gaps in the labels:
what is no mean over records is refused, since it would train another model on two
workers than on one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol

import keras
import numpy as np
import tensorflow as tf

from elasticdl.errors import UserCodeError
from elasticdl.model.measures.added import (
    DRAWN,
    DRAWS,
    drawn_again,
    of_records,
    refuse_beside_divisor,
    refuse_sums,
    refuse_uneven_added,
)
from elasticdl.model.measures.gaps import LEAST_RECORDS, lighter, with_gaps
from elasticdl.model.measures.in_portions import (
    InPortions,
    NotTriedError,
    num_rows,
    repeated,
    tried_in_portions,
)
from elasticdl.model.measures.moved_weights import (
    OTHERS,
    Places,
    later,
    trial_values,
    with_moved,
)
from elasticdl.model.measures.moves import Movement
from elasticdl.model.measures.spread import draws, first_dimensions, spread
from elasticdl.model.measures.state_trial import StateTrial, untried
from elasticdl.model.measures.unlike import num_first, unlike
from elasticdl.model.optimizers import inner_optimizer
from elasticdl.model.overrides import overrides
from elasticdl.model.state import is_seed, layers_of, non_trainable
from elasticdl.model.tracing import GraphFunction

log = logging.getLogger(__name__)

# A step in which the loss divides by nothing, as of masked records alone, is weighed by
# its records: they always count so much beside what the loss divides by.
LEAST_WEIGHT = 1e-6
# What sums in another order, and 16 bits, leave of an equal loss.
_ROUNDING = 1e-3
_ROUNDING_16 = 3e-2
_LATE = 1_000_000  # steps: what a loss begins with little of is whole by then


class PortionDefinition(Protocol):
    """The parts of the user's module that are needed here (model.definition)."""

    @property
    def model(self) -> keras.Model:
        """The built model."""

    def call(self, features: Any, *, training: bool) -> Any:
        """Return the model's outputs."""

    def training_loss(self, features: Any, labels: Any, predictions: Any) -> tf.Tensor:
        """Return the scalar to minimise, including the model's own losses."""

    def loss_divisor(self, labels: Any, predictions: Any) -> tf.Tensor | None:
        """Return by what the loss divides its sum; None: by the number of records."""


def refuse_uneven(definition: PortionDefinition, features: Any, labels: Any) -> None:
    """Raise UserCodeError if the loss of a batch is not that of its portions, weighed.

    Tried on one batch in inference mode: without dropout, and with the moving
    statistics of BatchNormalization.
    """
    seeds = [v.variable for v in non_trainable(definition.model).own if is_seed(v)]
    added: list[Any] = []

    def one(
        features: Any,
        labels: Any,
        draw: Any = 0,
        *,
        moves: Callable[..., Any] = _as_is,
        late: Sequence[Any] = (),
        moved: Places = (),
    ) -> Any:
        # Regularisers ask the scope for the values.
        values = trial_values(definition.model, moved)
        values += [(v, v.value + tf.cast(draw, v.value.dtype)) for v in seeds]
        values += [(v, tf.cast(_LATE, v.value.dtype)) for v in late]
        with keras.StatelessScope(values, collect_losses=True) as scope:
            out = moves(definition.call(features, training=False))
            try:
                loss = definition.training_loss(features, labels, out)
            except UserCodeError as error:
                raise NotTriedError(error) from error
            weight = definition.loss_divisor(labels, out)
            added[:] = definition.model.losses
            beside = [] if weight is None else of_records(scope, features)
            weight = tf.constant(-1.0) if weight is None else weight
            return loss, weight, beside, first_dimensions(out)

    def with_values(moved: Places) -> GraphFunction:
        return GraphFunction(partial(one, moved=moved), reduce_retracing=True)

    traced, moved = with_moved(
        with_values, definition.model, lambda function: function(features, labels)[0]
    )
    bound = _ROUNDING_16 if _is_16_bits(definition.model) else _ROUNDING
    tried = _refuse_differing(
        traced, features, labels, bound=bound, told=logging.WARNING
    )
    for changed in unlike(features, labels, adds=bool(added)):
        _refuse_differing(traced, *changed, bound=bound)
    if tried is not None:
        own = overrides(definition.model, "compute_loss")  # it sees the features, too
        later = partial(one, late=_step_counts(definition.model), moved=moved)
        _refuse_apart(later, features, labels, tried, bound=bound, sees_features=own)


def _refuse_apart(
    one: Callable[..., Any],
    features: Any,
    labels: Any,
    tried: InPortions,
    *,
    bound: float,
    sees_features: bool,
) -> None:
    """Raise UserCodeError as `refuse_uneven`, with predictions moved apart."""
    found, counts = tried
    dimensions = zip(*(each for *_, each in found), strict=True)
    # In the whole and in both portions: a table as an output may have as many rows.
    of_records = [each == counts for each in dimensions]
    rows = int(tf.nest.flatten(features)[0].shape[0])
    if rows < LEAST_RECORDS:
        times = -(-LEAST_RECORDS // rows)
        features, labels = repeated((features, labels), times)
        rows *= times
    first = num_first(rows)
    by_record = draws(rows, first)

    def one_apart(given: Any, labels: Any, draw: Any = 0) -> Any:
        features, by_record = given
        moves = partial(spread, by_record=by_record, of_records=of_records)
        return one(features, labels, draw, moves=moves)

    traced = GraphFunction(one_apart, reduce_retracing=True)
    given = [(features, each) for each in (labels, *with_gaps(labels, first))]
    if sees_features:
        given += unlike(features, labels, adds=True)
        given.append((lighter(features, first), labels))
    for changed, targets in given:
        _refuse_differing(traced, (changed, by_record), targets, bound=bound)


def _step_counts(model: keras.Model) -> list[Any]:
    optimizer = getattr(model, "optimizer", None)
    if optimizer is None:
        return []
    # Not `iterations`: that is no variable where gradients accumulate.
    return [v for v in inner_optimizer(optimizer).variables if v.name == "iteration"]


def _as_is(outputs: Any) -> Any:
    return outputs


def _refuse_differing(
    traced: Callable[..., Any],
    features: Any,
    labels: Any,
    *,
    bound: float,
    told: int = logging.DEBUG,
) -> InPortions | None:
    """Raise UserCodeError if the loss of a batch is not that of its portions.

    Returns what `_tried` does.
    """
    tried = tried_in_portions(traced, features, labels, told=told)
    if tried is None:
        return None
    (whole, *parts), (rows, *counts) = tried
    refuse_beside_divisor([one[2] for one in tried[0]], num_rows((features, labels)))
    found = [float(loss) for loss, *_ in parts]
    weights = [
        float(weight) + LEAST_WEIGHT * count if weight >= 0 else float(count)
        for (_, weight, *_), count in zip(parts, counts, strict=True)
    ]
    expected = float(np.average(found, weights=weights))
    loss = float(whole[0])
    least = 1e-6
    if bound > _ROUNDING:  # 16 bits round parts that make up for each other
        least += bound * max(map(abs, found))
    is_number = np.isfinite([loss, expected]).all()
    if not is_number or np.isclose(loss, expected, rtol=bound, atol=least):
        return tried
    again = [float(traced(features, labels, tf.constant(n))[0]) for n in range(DRAWS)]
    least += DRAWN * (max(again) - min(again))
    if not np.isfinite(least) or np.isclose(loss, expected, rtol=bound, atol=least):
        return tried
    raise UserCodeError(
        f"the loss of a batch of {rows} records is {loss:.6g}, and that of its first "
        f"{counts[0]} and last {counts[1]} is {found[0]:.6g} and {found[1]:.6g}, "
        f"expected their mean, {expected:.6g}: workers of strategy allReduce compute "
        "portions of a step and average them by their records; let the loss and "
        'add_loss be a mean over records (reduction="sum_over_batch_size", '
        "tf.reduce_mean), or set strategy: local"
    )


def try_training(
    definition: PortionDefinition,
    variables: Sequence[Any],
    features: Any,
    labels: Any,
) -> list[Movement]:
    """Return by variable how portions move it.

    What is neither an average nor a sum, as a queue of the newest records, is told in
    the log.

    Tried on one batch in training mode. Raises UserCodeError if what layers add to the
    loss there is no mean over records, or has another divisor than the loss.
    """
    model = definition.model
    seeds = [v.variable for v in non_trainable(model).own if is_seed(v)]
    assigned: set[int] = set()  # the places of those that a step assigns
    unknown = set(range(len(variables)))  # of those that it is not known of

    def one(
        features: Any,
        labels: Any,
        draw: Any,
        begins: list[Any],
        *,
        moved: Places,
        other: int = 0,
    ) -> Any:
        # Regularisers ask the scope for the values.
        values = trial_values(model, moved, other=other)
        # Seeds are the same for all members, so that they find the same.
        values += [(v, tf.zeros_like(v.value) + tf.cast(draw, v.dtype)) for v in seeds]
        values += zip(variables, begins, strict=True)
        with keras.StatelessScope(values, collect_losses=True) as scope:
            out = definition.call(features, training=True)
            loss = definition.training_loss(features, labels, out)
            divides = tf.constant(definition.loss_divisor(labels, out) is not None)
            recorded = of_records(scope, features)
            added = [tf.reduce_sum(tf.cast(one, tf.float64)) for one in model.losses]
        reached = [_current(scope, v) for v in variables]
        assigned.update(
            at for at, begin in enumerate(begins) if reached[at] is not begin
        )
        unknown.clear()
        dense = [tf.cast(one, tf.float64) for one in _dense(out)]
        return reached, added, dense, recorded, divides, loss

    def with_values(moved: Places, other: int = 0) -> Callable[..., Any]:
        with_them = partial(one, moved=moved, other=other)
        function = GraphFunction(with_them, reduce_retracing=True)

        def traced(
            features: Any, labels: Any, draw: int = 0, begins: Sequence[Any] = ()
        ) -> Any:
            begins = begins or [v.value for v in variables]
            # Of tensors, or each number were traced anew.
            return function(
                features, labels, tf.constant(draw), [tf.constant(x) for x in begins]
            )

        return traced

    traced, moved = with_moved(
        with_values, model, lambda function: function(features, labels)[-1]
    )
    tried = tried_in_portions(traced, features, labels)
    if tried is None:
        return untried(variables, assigned | unknown, model)
    found, counts = tried
    reached, _, outputs, recorded, *_ = zip(*found, strict=True)
    bound = _ROUNDING_16 if _is_16_bits(model) else _ROUNDING
    is_cut = _is_cut(outputs, bound=bound)
    batch, rules = (features, labels), (is_cut, _is_16_bits(model))
    _refuse_added(traced, tried, batch, *rules)
    for other in range(1, OTHERS + 1) if recorded[0] else ():
        way = partial(with_values(moved, other), begins=later(variables))
        _refuse_added(way, tried_in_portions(way, *batch), batch, *rules)
    if not is_cut:
        drawn = traced(features, labels, 1)[2]
        is_drawn = not _are_close(drawn, outputs[0], bound=bound)
        _tell_of_whole_batches(model, is_drawn=is_drawn)
    trial = StateTrial(variables, traced, batch, reached, counts)
    return trial.movements(assigned, model)


def _refuse_added(
    traced: Callable[..., Any],
    tried: InPortions | None,
    batch: tuple[Any, Any],
    is_cut: bool,
    is_16_bits: bool,
) -> None:
    """Raise UserCodeError if what layers add to the loss is not that of portions.

    Args:
        traced: What was tried.
        tried: What it gave; None if it could not be.
        batch: Features and labels.
        is_cut: Portions give the rows that the batch gives.
        is_16_bits: The model computes in 16 bits.
    """
    if tried is None:
        return
    found, counts = tried
    _, added, _, recorded, divides, losses = zip(*found, strict=True)
    if not added[0]:
        return
    if divides[0]:
        refuse_beside_divisor(recorded, num_rows(batch))

    def adds(*given: Any) -> Any:
        return traced(*given)[1]

    again = partial(drawn_again, adds, *batch)
    if not is_cut or refuse_uneven_added(
        added, counts, again, loss=float(losses[0]), is_16_bits=is_16_bits
    ):
        refuse_sums(adds, *batch)


def _dense(outputs: Any) -> list[Any]:
    found = [one for one in tf.nest.flatten(outputs) if isinstance(one, tf.Tensor)]
    return [one for one in found if one.dtype.is_floating]


def _is_cut(outputs: Sequence[Sequence[Any]], *, bound: float) -> bool:
    """Whether portions give the rows that the batch gives."""
    found = []
    for whole, *parts in zip(*outputs, strict=True):
        shape = np.shape(whole)
        fits = shape and all(np.shape(part)[1:] == shape[1:] for part in parts)
        together = np.concatenate(parts) if fits else whole
        same = fits and np.shape(together) == shape
        found.append(same and np.allclose(together, whole, rtol=bound, atol=bound))
    return bool(found) and all(found)


def _are_close(some: Sequence[Any], others: Sequence[Any], *, bound: float) -> bool:
    pairs = zip(some, others, strict=True)
    return all(np.allclose(a, b, rtol=bound, atol=bound) for a, b in pairs)


def _tell_of_whole_batches(model: keras.Model, *, is_drawn: bool) -> None:
    """Log that layers look at other records in training, if nothing else explains it.

    `is_drawn`: the outputs depend on random numbers.
    """
    normalize = keras.layers.BatchNormalization
    if is_drawn or any(isinstance(one, normalize) for one in layers_of(model)):
        return
    log.warning(
        "In training the model gives other outputs for a batch than for its portions: "
        "a layer looks at several records at once. Workers of strategy allReduce "
        "compute portions of a step, so that it looks at those of a portion, and what "
        "is trained depends on their number; set strategy: local if it should not"
    )


def _current(scope: Any, variable: Any) -> Any:
    value = scope.get_current_value(variable)
    return variable.value if value is None else value


def _is_16_bits(model: keras.Model) -> bool:
    return any("16" in v.dtype for v in model.variables) or any(
        "16" in str(getattr(layer, "compute_dtype", ""))
        for layer in model._flatten_layers()  # noqa: SLF001
    )
