"""The loss of a batch, in both forms of the model module.

Owns what a loss must be: one floating-point number. Called by `definition`. Knows
nothing of gradients.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import keras
import tensorflow as tf

from elasticdl.errors import UserCodeError
from elasticdl.model.measures.divisors import by_other_than_records, divisor
from elasticdl.model.measures.metric_parts import full_precision
from elasticdl.model.measures.targets import parted
from elasticdl.model.overrides import overrides
from elasticdl.model.specs import relaxed
from elasticdl.model.tracing import GraphFunction
from elasticdl.model.user_code import ModelCode, takes_predictions_first


@dataclass(frozen=True)
class Loss:
    """The module's loss function, or that of `compile` if there is none."""

    code: ModelCode
    name: str
    function: Callable[..., Any] | None
    model: keras.Model

    def plain(self, targets: Any, predictions: Any, features: Any = None) -> tf.Tensor:
        """Return the loss alone, float32. Raises UserCodeError if it is no scalar.

        `features` are for a compute_loss of the model's own.
        """
        labels, weights = parted(targets)
        if self.function is None:
            compiled = getattr(self.model, "_compile_loss", None)
            if compiled is None or overrides(self.model, "compute_loss"):
                return self._of_model(features, targets, predictions, training=False)
            value = compiled(labels, full_precision(predictions), weights)
            return checked_value(value, "loss")
        arguments = [labels, full_precision(predictions)]
        if takes_predictions_first(self.function):
            arguments.reverse()
        if weights is not None:
            if not takes_weights(self.function):
                raise UserCodeError(
                    f"feed gives (features, labels, weights), but {self.name} takes "
                    "no weights; give it a third parameter `weights`, or leave the "
                    "loss to model.compile"
                )
            arguments.append(weights)
        with self.code.running(f"{self.name}(labels, predictions)"):
            value = self.function(*arguments)
        return checked_value(value, self.name)

    def whole(
        self, features: Any, targets: Any, predictions: Any, *, training: bool
    ) -> tf.Tensor:
        """Return the loss with weight and activity regularisers and `add_loss` terms.

        Those belong to the model's latest call, in the same tf.function.
        """
        if self.function is None:
            return self._of_model(features, targets, predictions, training=training)
        total = self.plain(targets, predictions)
        for extra in self.model.losses:
            total += tf.cast(tf.reduce_sum(extra), tf.float32)
        return total

    def divisor(self, targets: Any, predictions: Any) -> tf.Tensor | None:
        """Return by what the loss divides its sum; None: by the number of records.

        Of a function of the user's own it is not known. Call it after `whole`, in the
        same tf.function.
        """
        labels, weights = parted(targets)
        return divisor(self._of_keras(), labels, weights, predictions)

    def is_mean_over_records(self, targets: Any, predictions: Any) -> bool:
        """Whether it divides by the number of records, as far as that is known."""
        _, weights = parted(targets)
        return not by_other_than_records(self._of_keras(), weights, predictions)

    def _of_keras(self) -> list[Any]:
        """Return the losses of Keras that it is made of; none if one is its own."""
        if self.function is not None:
            losses = [self.function]
            if not isinstance(self.function, keras.losses.Loss):
                return []
        else:
            compiled = getattr(self.model, "_compile_loss", None)
            if compiled is None or overrides(self.model, "compute_loss"):
                return []
            losses = [item.loss for item in compiled._flat_losses or ()]  # noqa: SLF001
        if any(type(one).__call__ is not keras.losses.Loss.__call__ for one in losses):
            return []  # what it makes of masks and weights is its own
        return losses

    def _of_model(
        self, features: Any, targets: Any, predictions: Any, *, training: bool
    ) -> tf.Tensor:
        labels, weights = parted(targets)
        # What train_step calls: it knows overrides with and without `training`.
        compute_loss = self.model._compute_loss  # noqa: SLF001
        with self.code.running("compute_loss"):
            value = compute_loss(
                x=features,
                y=labels,
                y_pred=full_precision(predictions),
                sample_weight=weights,
                training=training,
            )
        return checked_value(value, "compute_loss")


def takes_weights(function: Callable[..., Any]) -> bool:
    """Return whether a loss function has a third parameter, for sample weights."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return False
    places = (
        inspect.Parameter.POSITIONAL_ONLY,
        inspect.Parameter.POSITIONAL_OR_KEYWORD,
    )
    return any(p.kind is p.VAR_POSITIONAL for p in parameters) or (
        len([p for p in parameters if p.kind in places]) > 2
        and parameters[2].name in {"weights", "sample_weight", "sample_weights"}
    )


def check_loss(
    code: ModelCode, loss: Loss, features: Any, targets: Any, predictions: Any
) -> None:
    """Trace the loss on the given shapes. Raises UserCodeError if it is unfit.

    Traced, not run: made-up labels may be no legal ones.
    """
    traced = GraphFunction(loss.plain)
    with code.running("loss(labels, predictions)"):
        traced.get_concrete_function(
            relaxed(targets), relaxed(predictions), relaxed(features)
        )


def checked_value(value: Any, name: str) -> tf.Tensor:
    """Return a loss as a float32 scalar tensor, or raise UserCodeError."""
    if value is None:
        raise UserCodeError(
            f"{name}(labels, predictions) returned None, expected one number for the "
            "batch; is a `return` missing?"
        )
    tensor = tf.convert_to_tensor(value)
    if tensor.shape.rank not in (None, 0):
        raise UserCodeError(
            f"{name}(labels, predictions) returned a tensor of shape {tensor.shape}, "
            "expected a scalar, one number for the batch; return tf.reduce_mean(...) "
            "of it; a loss of Keras does so unless it has reduction=None"
        )
    if not tensor.dtype.is_floating:
        raise UserCodeError(
            f"{name}(labels, predictions) returned {tensor.dtype.name}, expected a "
            "floating-point number, or no gradient can reach the model"
        )
    return tf.cast(tensor, tf.float32)
