"""One class per optimizer: its slots, and how gradients move values.

Owns the formulas of Keras 3, called by `ps/optimizer.py`, which does everything that
all optimizers share (decay, clipping, accumulation, learning rates). Knows nothing of
variables or steps of the job. A new optimizer is one class here and its entry in RULES.

How Keras on TensorFlow treats row-wise gradients (IndexedSlices), found by running it:

- SGD without momentum and Adagrad touch the given rows alone.
- SGD with momentum, Adam and AdamW do the arithmetic `slot - gradient`, which turns the
  gradient dense: every row of the variable moves at every step, as with a gradient of
  zero. `touches_all_rows` says so.
- Keras squares each occurrence of a repeated row by itself, (sum of squares) where the
  gradient's square is (square of the sum). Rows come to a PS with repeated ones summed,
  so Adam's `v` and Adagrad's accumulator follow the true gradient; without repeated
  rows in a batch both are the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from elasticdl.ps import kernels
from elasticdl.ps.floats import power
from elasticdl.ps.kernels import Floats, Ids

Slots = Mapping[str, Floats]


class Rule(Protocol):
    """How one optimizer updates a stretch of values.

    `values`, `grads` and each slot are flat and of one length; `step` counts the
    updates made before (Keras's `iterations`, from 0).
    """

    @property
    def initial_slots(self) -> Mapping[str, float]:
        """Names of the slots and what fills them at the start."""
        ...

    @property
    def touches_all_rows(self) -> bool:
        """Whether a row without gradient moves too; then `update_rows` is not used."""
        ...

    def update(
        self, values: Floats, grads: Floats, slots: Slots, *, step: int, rate: float
    ) -> None:
        """Apply a dense gradient in place."""
        ...

    def update_rows(
        self, values: Floats, ids: Ids, rows: Floats, slots: Slots, *, rate: float
    ) -> None:
        """Apply rows `[n, row size]` in place to a table `[rows, row size]`."""
        ...


@dataclass(frozen=True)
class SGD:
    """Stochastic gradient descent, with momentum and Nesterov's variant of it."""

    momentum: float
    nesterov: bool

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> SGD:
        """Read Keras's `SGD` config."""
        return cls(float(config["momentum"]), bool(config["nesterov"]))

    @property
    def initial_slots(self) -> Mapping[str, float]:
        """No slot without momentum, as in Keras."""
        return {"momentum": 0.0} if self.momentum else {}

    @property
    def touches_all_rows(self) -> bool:
        """Momentum moves rows that got no gradient this time."""
        return self.momentum != 0

    def update(
        self, values: Floats, grads: Floats, slots: Slots, *, step: int, rate: float
    ) -> None:
        """Apply a dense gradient."""
        del step
        if not self.momentum:
            kernels.sgd(values, grads, np.float32(rate))
            return
        kernel = kernels.nesterov if self.nesterov else kernels.momentum
        keep = np.float32(self.momentum)
        kernel(values, grads, slots["momentum"], np.float32(rate), keep)

    def update_rows(
        self, values: Floats, ids: Ids, rows: Floats, slots: Slots, *, rate: float
    ) -> None:
        """Apply rows; without momentum alone."""
        del slots
        kernels.sgd_rows(values, ids, rows, np.float32(rate))


@dataclass(frozen=True)
class Adam:
    """Adam; AdamW is the same with weight decay on, which all optimizers share."""

    beta_1: float
    beta_2: float
    epsilon: float
    amsgrad: bool

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Adam:
        """Read Keras's `Adam` or `AdamW` config."""
        return cls(
            float(config["beta_1"]),
            float(config["beta_2"]),
            float(config["epsilon"]),
            bool(config["amsgrad"]),
        )

    @property
    def initial_slots(self) -> Mapping[str, float]:
        """First and second moment; with amsgrad the largest second one too."""
        return {"m": 0.0, "v": 0.0} | ({"vhat": 0.0} if self.amsgrad else {})

    @property
    def touches_all_rows(self) -> bool:
        """Moments of all rows decay at each step."""
        return True

    def update(
        self, values: Floats, grads: Floats, slots: Slots, *, step: int, rate: float
    ) -> None:
        """Apply a dense gradient.

        The bias correction is made in float32 like Keras's: `1 - beta_2**step` loses
        four digits there at first, which a float64 one would not.
        """
        one = np.float32(1)
        power_1 = power(np.float32(self.beta_1), step + 1)
        power_2 = power(np.float32(self.beta_2), step + 1)
        alpha = np.float32(rate) * np.sqrt(one - power_2) / (one - power_1)
        rise_1 = np.float32(1 - self.beta_1)
        rise_2 = np.float32(1 - self.beta_2)
        epsilon = np.float32(self.epsilon)
        m, v = slots["m"], slots["v"]
        if self.amsgrad:
            vhat = slots["vhat"]
            kernels.amsgrad(values, grads, m, v, vhat, alpha, rise_1, rise_2, epsilon)
        else:
            kernels.adam(values, grads, m, v, alpha, rise_1, rise_2, epsilon)

    def update_rows(
        self, values: Floats, ids: Ids, rows: Floats, slots: Slots, *, rate: float
    ) -> None:
        """Never called: `touches_all_rows`."""
        raise NotImplementedError("Adam moves all rows: apply a dense gradient")


@dataclass(frozen=True)
class Adagrad:
    """Adagrad; its accumulator starts at Keras's `initial_accumulator_value`."""

    initial_accumulator_value: float
    epsilon: float

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Adagrad:
        """Read Keras's `Adagrad` config."""
        return cls(float(config["initial_accumulator_value"]), float(config["epsilon"]))

    @property
    def initial_slots(self) -> Mapping[str, float]:
        """The sum of squares."""
        return {"accumulator": self.initial_accumulator_value}

    @property
    def touches_all_rows(self) -> bool:
        """A row without gradient stays."""
        return False

    def update(
        self, values: Floats, grads: Floats, slots: Slots, *, step: int, rate: float
    ) -> None:
        """Apply a dense gradient."""
        del step
        accumulator, epsilon = slots["accumulator"], np.float32(self.epsilon)
        kernels.adagrad(values, grads, accumulator, np.float32(rate), epsilon)

    def update_rows(
        self, values: Floats, ids: Ids, rows: Floats, slots: Slots, *, rate: float
    ) -> None:
        """Apply rows."""
        accumulator, epsilon = slots["accumulator"], np.float32(self.epsilon)
        kernels.adagrad_rows(values, ids, rows, accumulator, np.float32(rate), epsilon)


# Keras class name -> reader of its config.
RULES: Mapping[str, Callable[[Mapping[str, Any]], Rule]] = {
    "SGD": SGD.from_config,
    "Adam": Adam.from_config,
    "AdamW": Adam.from_config,
    "Adagrad": Adagrad.from_config,
}
# Config entries of each beyond those that all optimizers have.
RULE_KEYS: Mapping[str, frozenset[str]] = {
    "SGD": frozenset({"momentum", "nesterov"}),
    "Adam": frozenset({"beta_1", "beta_2", "epsilon", "amsgrad"}),
    "AdamW": frozenset({"beta_1", "beta_2", "epsilon", "amsgrad"}),
    "Adagrad": frozenset({"initial_accumulator_value", "epsilon"}),
}
