"""Loss scaling: keeps small gradients from vanishing in float16.

Owns the scale of one worker, which lives in its graph. Called by the steps. Gradients
leave a worker without it, so no PS knows of scales; each worker finds its own again
after a restart, at the price of some skipped batches.
"""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf


class LossScale:
    """Keras's `loss_scale_factor`, or the moving scale of `LossScaleOptimizer`."""

    def __init__(self, first: float, growth_steps: int | None) -> None:
        """Take the initial scale; `growth_steps` is None for a constant one."""
        self._growth_steps = growth_steps
        self._scale = tf.Variable(first, dtype=tf.float32, trainable=False)
        self._good = tf.Variable(0, dtype=tf.int64, trainable=False)

    @staticmethod
    def of(optimizer: keras.optimizers.Optimizer) -> LossScale | None:
        """Return the optimizer's loss scale; None without one."""
        if isinstance(optimizer, keras.optimizers.LossScaleOptimizer):
            steps = optimizer.dynamic_growth_steps
            return LossScale(optimizer.initial_scale, steps)
        factor = optimizer.loss_scale_factor
        return LossScale(factor, None) if factor else None

    def scaled(self, loss: tf.Tensor) -> tf.Tensor:
        """Return the loss of which gradients are taken."""
        return loss * self._scale

    def unscaled(self, gradients: list[Any]) -> tuple[list[Any], tf.Tensor]:
        """Return the true gradients, and whether they are finite.

        An overflow halves a moving scale; so many good steps in a row double it.
        Inside a tf.function, once for each step.
        """
        there = [g for g in gradients if g is not None]
        scale = self._scale.read_value()
        if self._growth_steps is None:
            fine = tf.constant(True)
        else:
            fine = tf.reduce_all(
                [tf.reduce_all(tf.math.is_finite(_values(g))) for g in there]
            )
            good = tf.where(fine, self._good + 1, 0)
            grown = good >= self._growth_steps
            self._scale.assign(
                tf.where(fine, tf.where(grown, scale * 2.0, scale), scale * 0.5)
            )
            self._good.assign(tf.where(grown, tf.zeros_like(good), good))
        return [_divided(g, scale) for g in gradients], fine


def _values(gradient: Any) -> tf.Tensor:
    return gradient.values if isinstance(gradient, tf.IndexedSlices) else gradient


def _divided(gradient: Any, scale: tf.Tensor) -> Any:
    if gradient is None:
        return None
    if isinstance(gradient, tf.IndexedSlices):
        values = gradient.values / scale
        return tf.IndexedSlices(values, gradient.indices, gradient.dense_shape)
    return gradient / scale
