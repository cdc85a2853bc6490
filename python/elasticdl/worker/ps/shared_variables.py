"""The model's shared state as one vector: what a step put in, what came of all workers.

Owns the vector that the next step begins with, and reading and writing the variables
in one call each. Called by the PS trainer, between steps. Knows nothing of PS.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from elasticdl.model.variables import NamedVariable
from elasticdl.tensor.shared_state import Floats, SharedState, StateLayout, StateShare


class SharedVariables:
    """Non-trainable variables that all workers move (tensor/shared_state.py)."""

    def __init__(self, variables: Sequence[NamedVariable], layout: StateLayout) -> None:
        """Take a built model's variables, in the layout's order."""
        self.layout = layout
        self._variables = [item.variable.value for item in variables]
        # Traced once: two calls a step, however many layers there are.
        self._gather = tf.function(self._gathered, autograph=False)
        self._scatter = tf.function(self._scattered, autograph=False)
        self._exact = all(v.dtype == tf.float32 for v in self._variables)
        self._before = self._read()

    @property
    def values(self) -> Floats:
        """The values at the start of the next step."""
        return self._before

    @property
    def state(self) -> SharedState:
        """The values with their layout."""
        return SharedState(self.layout, self._before)

    def share(self) -> StateShare | None:
        """Return the contribution of the last step; None without shared state."""
        if not self._variables:
            return None
        before, self._before = self._before, self._read()
        return self.layout.share(before, self._before)

    def undo(self) -> None:
        """Undo the last step, before `share` is called."""
        if self._variables:
            self._write(self._before)

    def take(self, values: Floats, ahead: StateShare | None = None) -> None:
        """Set the values for the next step, with the contributions made since."""
        if self._variables:
            self._write(values if ahead is None else self.layout.moved(values, ahead))

    def _read(self) -> Floats:
        if not self._variables:
            return np.empty(0, np.float32)
        return np.asarray(self._gather().numpy())

    def _write(self, values: Floats) -> None:
        self._scatter(tf.constant(values))
        # Variables of 16 bits round what they are given.
        self._before = values if self._exact else self._read()

    def _gathered(self) -> Any:
        flat = [tf.reshape(tf.cast(v, tf.float32), [-1]) for v in self._variables]
        return tf.concat(flat, 0)

    def _scattered(self, values: Any) -> None:
        parts = tf.split(values, [v.size for v in self.layout.variables])
        for variable, part in zip(self._variables, parts, strict=True):
            whole = tf.reshape(part, variable.shape)
            variable.assign(tf.cast(whole, variable.dtype))
