"""Which form of step a model gets.

Owns the look at a model that decides. Called once, when a worker is put together.
"""

from __future__ import annotations

import logging

import keras
import tensorflow as tf

from elasticdl.errors import UserCodeError
from elasticdl.model.state import layers_of
from elasticdl.tensor.placement import GradientKind
from elasticdl.worker.steps.buffer_step import BufferStep
from elasticdl.worker.steps.loss_scale import LossScale
from elasticdl.worker.steps.step import (
    GradientStep,
    StepDefinition,
    Tensors,
    refuse_untrained,
)
from elasticdl.worker.steps.variable_step import VariableStep

log = logging.getLogger(__name__)


def choose_step(
    definition: StepDefinition,
    batch: tuple[Tensors, Tensors],
    *,
    optimizer: keras.optimizers.Optimizer | None,
    scale: LossScale | None = None,
) -> tuple[GradientStep, list[GradientKind]]:
    """Return the fastest correct step for this model, and the kinds of its gradients.

    Some layers (a wrapped SavedModel, rematerialization) read their variables behind
    Keras's back: with parameters as tensors they would get no gradient. A variable
    without gradient is therefore looked at a second time.

    Args:
        definition: The module, its model built.
        batch: Features and labels of any batch.
        optimizer: Given if gradients are also applied here, between pulls; one without
            a loss scale of its own.
        scale: How the loss is scaled.
    """
    variables = VariableStep(
        definition, optimizer=optimizer, guard=True, on_ps=True, scale=scale
    )
    if optimizer is None and not _is_traced_apart(definition.model):
        buffers = BufferStep(definition, scale)
        try:
            kinds = buffers.kinds(*batch)
        except UserCodeError:
            raise
        except Exception as error:  # noqa: BLE001 - border: the user's model is traced
            log.info("the model's own variables are used: %s", error)
        else:
            if GradientKind.FROZEN not in kinds or variables.kinds(*batch) == kinds:
                refuse_untrained(kinds)
                return buffers, kinds
    kinds = variables.kinds(*batch)
    refuse_untrained(kinds)
    return variables, kinds


def _is_traced_apart(model: keras.Model) -> bool:
    """Whether a `call` is a tf.function, which keeps what it was traced with first.

    Parameters of one form of a batch would be those of all.
    """
    calls = (layer.call for layer in (model, *layers_of(model)))
    return any(
        isinstance(call, tf.types.experimental.GenericFunction) for call in calls
    )
