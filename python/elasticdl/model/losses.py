"""The loss of a batch, in both forms of the model module.

Owns what a loss must be: one floating-point number. Called by `definition`. Knows
nothing of gradients.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import keras
import tensorflow as tf

from elasticdl.errors import UserCodeError
from elasticdl.model.metric_parts import full_precision
from elasticdl.model.user_code import ModelCode, takes_predictions_first


@dataclass(frozen=True)
class Loss:
    """The module's loss function, or the compiled model's where there is none."""

    code: ModelCode
    name: str
    function: Callable[..., Any] | None
    model: keras.Model

    def of_batch(self, labels: Any, predictions: Any) -> tf.Tensor:
        """Return the loss alone, float32. Raises UserCodeError if it is no scalar."""
        predictions = full_precision(predictions)
        if self.function is None:
            compiled = getattr(self.model, "_compile_loss", None)
            if compiled is None:
                # A model with a compute_loss of its own.
                value = self.model.compute_loss(y=labels, y_pred=predictions)
            else:
                value = compiled(labels, predictions)
            return checked_value(value, "loss")
        pair = (labels, predictions)
        if takes_predictions_first(self.function):
            pair = (predictions, labels)
        with self.code.running(f"{self.name}(labels, predictions)"):
            value = self.function(*pair)
        return checked_value(value, self.name)

    def of_step(self, features: Any, labels: Any, predictions: Any) -> tf.Tensor:
        """Return the loss with weight and activity regularisers and `add_loss` terms.

        Those belong to the model's latest call.
        """
        if self.function is None:
            with self.code.running("compute_loss"):
                value = self.model.compute_loss(
                    x=features, y=labels, y_pred=full_precision(predictions)
                )
            return checked_value(value, "compute_loss")
        total = self.of_batch(labels, predictions)
        for extra in self.model.losses:
            total += tf.cast(tf.reduce_sum(extra), tf.float32)
        return total


def check_loss(
    code: ModelCode, loss: Callable[[Any, Any], Any], labels: Any, predictions: Any
) -> None:
    """Trace the loss on the shapes at hand; raises UserCodeError when it is unfit.

    Traced, not run: made-up labels may be no legal ones.
    """

    def spec(tensor: Any) -> tf.TensorSpec:
        return tf.TensorSpec([None, *tensor.shape[1:]], tensor.dtype)

    traced = tf.function(loss)
    with code.running("loss(labels, predictions)"):
        traced.get_concrete_function(
            tf.nest.map_structure(spec, labels),
            tf.nest.map_structure(spec, predictions),
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
            "of it"
        )
    if not tensor.dtype.is_floating:
        raise UserCodeError(
            f"{name}(labels, predictions) returned {tensor.dtype.name}, expected a "
            "floating-point number, or no gradient can reach the model"
        )
    return tf.cast(tensor, tf.float32)
