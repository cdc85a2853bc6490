"""Clipping by norms that no PS can take: of all variables, or of one that is cut.

Owns when it is the worker that clips. Called by the transfer, beside the step. Pure
NumPy: must not import TensorFlow.

Norms are of the gradient with repeated rows summed, as on a PS. In sync mode with
several workers each clips its own gradient, and the mean of those is applied; Keras
would clip the mean.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from elasticdl.tensor.placement import Layout
from elasticdl.worker.steps.packing import Gradient, RowGradient, sum_repeated


@dataclass(frozen=True)
class Clipping:
    """Clipping in the worker before a push; `global_norm` is of all variables."""

    global_norm: float | None = None
    norm: float | None = None
    cut: frozenset[int] = frozenset()  # variables that `norm` is for

    @staticmethod
    def of(
        layout: Layout, *, clipnorm: float | None, global_clipnorm: float | None
    ) -> Clipping:
        """Return the part of Keras's two options that the worker carries out."""
        if global_clipnorm and global_clipnorm > 0:
            return Clipping(global_norm=global_clipnorm)
        if not clipnorm or clipnorm <= 0:
            return Clipping()
        names = enumerate(variable.name for variable in layout.variables)
        cut = frozenset(index for index, name in names if name in layout.cut)
        return Clipping(norm=clipnorm, cut=cut)

    def clip(self, gradients: Sequence[Gradient]) -> Sequence[Gradient]:
        """Return the clipped gradients, one for each variable, in new arrays."""
        if self.global_norm is not None:
            summed = [_summed(gradient) for gradient in gradients]
            squares = sum(_square_sum(gradient) for gradient in summed)
            factor = _factor(self.global_norm, squares)
            return [_scaled(gradient, factor) for gradient in summed]
        if self.norm is None or not self.cut:
            return gradients
        clipped = list(gradients)
        for index in self.cut:
            gradient = _summed(gradients[index])
            factor = _factor(self.norm, _square_sum(gradient))
            clipped[index] = _scaled(gradient, factor)
        return clipped


def _summed(gradient: Gradient) -> Gradient:
    return sum_repeated(gradient) if isinstance(gradient, RowGradient) else gradient


def _square_sum(gradient: Gradient) -> float:
    if gradient is None:
        return 0.0
    array = gradient.values if isinstance(gradient, RowGradient) else gradient
    flat = array.reshape(-1)
    return float(np.dot(flat, flat))


def _factor(most: float, squares: float) -> np.float32:
    # A norm that is no number spoils everything, as in Keras: nothing hides it.
    return np.float32(most / np.maximum(np.sqrt(squares), most))


def _scaled(gradient: Gradient, factor: np.float32) -> Gradient:
    if gradient is None or factor == 1:
        return gradient
    if isinstance(gradient, RowGradient):
        return RowGradient(gradient.rows, gradient.values * factor)
    return gradient * factor
