"""True statistics of BatchNormalization layers, and how far the moving ones are.

True are mean and variance of what a layer is fed from the whole training set, for the
weights as they are. The layers before it are in inference mode **with their true
statistics in place**. That is what training mode comes to when the batch is the whole
set, so it is what moving statistics are an estimate of. Training mode itself would add
the chance of batches and of Dropout; inference mode with the moving statistics of the
layers before would make the truth of one layer depend on the errors of another.

Distances are in the units in which a layer uses its statistics: a mean's in standard
deviations, a variance's as the logarithm of the ratio, both with the layer's epsilon,
so that a channel that is always zero counts as what it is. Each is the root of the mean
square over the channels of a layer.
"""

from __future__ import annotations

from dataclasses import dataclass

import keras
import numpy as np

_ROWS = 1000  # of a forward pass


@dataclass(frozen=True)
class Distance:
    """How far the moving statistics of one layer are from the true ones."""

    layer: str
    mean: float  # standard deviations
    variance: float  # |ln(moving / true)|
    ratio: float  # moving variance / true one, geometric mean over channels


class Statistics:
    """The BatchNormalization layers of one functional model, and the images."""

    def __init__(self, model: keras.Model, features: np.ndarray) -> None:
        self._layers = [
            layer
            for layer in model.layers
            if isinstance(layer, keras.layers.BatchNormalization)
        ]
        self._fed = [keras.Model(model.inputs, layer.input) for layer in self._layers]
        self._features = features

    def put_true(self) -> list[Distance]:
        """Put the true statistics in the place of the moving ones; the distances."""
        found = []
        for layer, fed in zip(self._layers, self._fed, strict=True):
            mean, variance = self._moments(fed)
            found.append(_distance(layer, mean, variance))
            layer.moving_mean.assign(mean)
            layer.moving_variance.assign(variance)
        return found

    def _moments(self, fed: keras.Model) -> tuple[np.ndarray, np.ndarray]:
        # About the mean of a first part, so that no digit is lost in the squares.
        about, count = None, 0
        total = squares = np.float64(0)
        for start in range(0, len(self._features), _ROWS):
            part = fed.predict_on_batch(self._features[start : start + _ROWS])
            part = part.reshape(-1, part.shape[-1]).astype(np.float64)
            about = part.mean(0) if about is None else about
            part = part - about
            count += len(part)
            total = total + part.sum(0)
            squares = squares + np.square(part).sum(0)
        mean = total / count
        return about + mean, squares / count - np.square(mean)


def _distance(
    layer: keras.layers.BatchNormalization, mean: np.ndarray, variance: np.ndarray
) -> Distance:
    true = variance + layer.epsilon
    off = (layer.moving_mean.numpy() - mean) / np.sqrt(true)
    ratio = np.log((layer.moving_variance.numpy() + layer.epsilon) / true)
    return Distance(layer.name, _rms(off), _rms(ratio), float(np.exp(ratio.mean())))


def _rms(values: np.ndarray) -> float:
    return float(np.sqrt(np.mean(np.square(values))))
