"""How much of the old value of each state variable a step keeps.

Owns finding it out: BatchNormalization says it; of layers and losses of the user's own
it is tried by two passes in training mode that differ in the state alone. Called once
by the worker, before it trains. Changes no variable.

It decides how the steps of several workers are put together (tensor/shared_state.py):

    a moving mean      keeps its momentum, whatever the layer calls it
    a count, a sum     keeps all: the steps of all workers add up
    some of its rows   keeps all: what is changed is added
    anything else      (a last value, a vector that is normalised): nothing; the last
                       step's value counts
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from elasticdl.model.state import layers_of
from elasticdl.model.tracing import GraphFunction
from elasticdl.model.variables import NamedVariable
from elasticdl.tensor.shared_state import StateLayout, StateVariable

# What single precision, and rounding to 16 bits, leave of an exact share.
_ROUNDING = 0.01

Pass = Callable[[Any, Any], Any]  # of features and labels, in training mode


class DefinitionWithState(Protocol):
    """The parts of the user's module that are needed here (model.definition)."""

    @property
    def model(self) -> keras.Model:
        """The built model."""

    def call(self, features: Any, *, training: bool) -> Any:
        """Return the model's outputs."""

    def training_loss(self, features: Any, labels: Any, predictions: Any) -> Any:
        """Return the scalar to minimise; an own compute_loss may change state too."""


def state_layout(
    definition: DefinitionWithState,
    shared: Sequence[NamedVariable],
    features: Any,
    labels: Any,
) -> StateLayout:
    """Return the layout of a model's shared state, in its order.

    `features` and `labels` are those of some batch, for what only a try can tell.
    """
    keeps: dict[int, float] = {}
    for layer in layers_of(definition.model):
        if isinstance(layer, keras.layers.BatchNormalization):
            for variable in (layer.moving_mean, layer.moving_variance):
                keeps[id(variable)] = float(layer.momentum)
    others = [v.variable for v in shared if id(v.variable) not in keeps]
    if others:

        def one_pass(features: Any, labels: Any) -> None:
            predictions = definition.call(features, training=True)
            definition.training_loss(features, labels, predictions)

        trained = definition.model.trainable_variables
        found = measured_keeps(one_pass, (features, labels), others, trained)
        keeps.update({id(v): keep for v, keep in zip(others, found, strict=True)})
    return StateLayout(
        tuple(StateVariable(v.name, v.shape, keeps[id(v.variable)]) for v in shared)
    )


def measured_keeps(
    one_pass: Pass,
    batch: tuple[Any, Any],
    variables: Sequence[keras.Variable],
    trained: Sequence[keras.Variable] = (),
) -> list[float]:
    """Return by variable the share of its old value that its new one contains.

    `trained` are those that the pass may have regularisers of.
    """

    def moved(shift: Any) -> list[Any]:
        # Regularisers ask the scope for the values.
        mapping = [(v, v.value) for v in trained]
        mapping += [(v, v.value + tf.cast(shift, v.value.dtype)) for v in variables]
        # The same random numbers in both: seeds, too, change in the scope alone.
        with keras.StatelessScope(mapping, collect_losses=True) as scope:
            one_pass(*batch)
        return [tf.cast(scope.get_current_value(v), tf.float64) for v in variables]

    traced = GraphFunction(moved)
    pairs = zip(traced(tf.constant(0.0)), traced(tf.constant(1.0)), strict=True)
    return [keep_of(after.numpy() - before.numpy()) for before, after in pairs]


def keep_of(slopes: NDArray[np.float64]) -> float:
    """Return the kept share, given by element how much of a shift by one remains."""
    whole = np.all(np.isfinite(slopes))
    if not whole or slopes.min() < -_ROUNDING or slopes.max() > 1 + _ROUNDING:
        return 0.0
    if slopes.max() - slopes.min() > _ROUNDING:
        return 1.0 if slopes.max() > 1 - _ROUNDING else 0.0
    keep = float(np.clip(np.median(slopes), 0.0, 1.0))
    return round(keep, 4)
