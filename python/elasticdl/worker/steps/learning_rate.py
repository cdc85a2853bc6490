"""The learning rate of an optimizer that a worker applies itself.

Owns what the rate is at a version, and setting it where it changes. Called by the
trainers, with parameter servers by one that applies gradients between pulls. Must not
know the master.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import keras
import numpy as np

from elasticdl.model.optimizers import base_learning_rate, inner_optimizer


class LearningRate:
    """The optimizer's learning rate, set only when it changes."""

    def __init__(
        self,
        optimizer: keras.optimizers.Optimizer,
        rate_of: Callable[[int, int], float | None],
        scale: Callable[[], float],
    ) -> None:
        """Take the optimizer and what its rate is made of.

        Args:
            optimizer: Whose rate is set.
            rate_of: (version, epoch) -> rate; None for the optimizer's own.
            scale: What callbacks in the master make of it.
        """
        self._optimizer = optimizer
        self._rate_of = rate_of
        self._scale = scale
        self._base = base_learning_rate(optimizer)
        self._set = self._base
        self._lock = threading.Lock()
        self._aside: float | None = None  # what it is again after a gradient

    def at(self, version: int, epoch: int) -> float | None:
        """Return the rate; None for a schedule inside the optimizer.

        Keras lets nobody override that one.
        """
        base = self._rate_of(version, epoch)
        base = self._base if base is None else base
        return None if base is None else base * self._scale()

    @property
    def last(self) -> float | None:
        """What the rate was set to last; None: nobody sets it."""
        return self._set

    def took(self, last: float | None) -> None:
        """Note what it was set to where another worker's optimizer was taken over."""
        self._set = last

    @property
    def own(self) -> float | None:
        """Return the rate where the optimizer moved it since it was set, else None."""
        now = None if self._set is None else base_learning_rate(self._optimizer)
        moved = now is not None and np.float32(now) != np.float32(self._set)
        return now if moved else None

    def restore(self, own: float, last: float) -> None:
        """Go on with a rate that the optimizer had moved, until another one is set."""
        if self._set is not None:
            self._optimizer.learning_rate = own
            self._set = last

    def set(self, wanted: float | None) -> None:
        """Set this rate; None leaves it as it is."""
        if wanted is not None and wanted != self._set:
            self._optimizer.learning_rate = wanted
            self._set = wanted

    @contextmanager
    def during(self, wanted: float | None) -> Iterator[None]:
        """Have this rate meanwhile, which a loss may read; then what it was before.

        A gradient that is computed with it may never be applied.
        """
        if wanted is None or wanted == self._set:
            yield
            return
        with self._lock:
            self._aside = base_learning_rate(self._optimizer)
            self._optimizer.learning_rate = wanted
        try:
            yield
        finally:
            with self._lock:
                self._optimizer.learning_rate = self._aside
                self._aside = None

    def value_of(self, variable: Any) -> float | None:
        """Return what a variable is between steps, if it is the rate; else None.

        Another thread may ask while a gradient is computed.
        """
        with self._lock:
            if self._set is None or self._optimizer_rate() is not variable:
                return None
            now = base_learning_rate(self._optimizer)
            return now if self._aside is None else self._aside

    def _optimizer_rate(self) -> Any:
        return inner_optimizer(self._optimizer).learning_rate

    def set_for(self, version: int, epoch: int) -> None:
        """Set the rate of a version."""
        self.set(self.at(version, epoch))
