"""Adam and its kin: optimizers that follow a decaying mean of gradients.

Owns their formulas. Called through `ps/optimizers/rules.py`. Knows what
`ps/optimizers/rule.py` says.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from elasticdl.ps.optimizers import update_kernels as kernels
from elasticdl.ps.optimizers.floats import power
from elasticdl.ps.optimizers.kernels import Floats
from elasticdl.ps.optimizers.rule import Rule, Slots

_F = np.float32
_ONE = np.float32(1)


@dataclass(frozen=True)
class Adam(Rule):
    """Adam; AdamW is Adam with weight decay, which all optimizers share."""

    beta_1: float
    beta_2: float
    epsilon: float
    amsgrad: bool

    @property
    def initial_slots(self) -> Mapping[str, float]:
        """First and second moment; with amsgrad the largest second one too."""
        return {"m": 0.0, "v": 0.0} | ({"vhat": 0.0} if self.amsgrad else {})

    def update(
        self, values: Floats, grads: Floats, slots: Slots, *, step: int, rate: float
    ) -> None:
        """Apply a dense gradient.

        The bias correction is made in float32 like Keras's: `1 - beta_2**step` loses
        four digits there at first, which a float64 one would not.
        """
        power_1, power_2 = (power(_F(b), step + 1) for b in (self.beta_1, self.beta_2))
        alpha = _F(rate) * np.sqrt(_ONE - power_2) / (_ONE - power_1)
        figures = alpha, _F(1 - self.beta_1), _F(1 - self.beta_2), _F(self.epsilon)
        m, v = slots["m"], slots["v"]
        if self.amsgrad:
            kernels.amsgrad(values, grads, m, v, slots["vhat"], *figures)
        else:
            kernels.adam(values, grads, m, v, *figures)


@dataclass(frozen=True)
class Adamax(Rule):
    """Adamax: Adam by the largest gradient."""

    beta_1: float
    beta_2: float
    epsilon: float

    @property
    def initial_slots(self) -> Mapping[str, float]:
        """First moment and the decaying maximum."""
        return {"momentum": 0.0, "norm": 0.0}

    def update(
        self, values: Floats, grads: Floats, slots: Slots, *, step: int, rate: float
    ) -> None:
        """Apply a dense gradient."""
        correction = _ONE - power(_F(self.beta_1), step + 1)
        figures = _F(1 - self.beta_1), _F(self.beta_2), correction, _F(self.epsilon)
        m, norm = slots["momentum"], slots["norm"]
        kernels.adamax(values, grads, m, norm, _F(rate), *figures)


@dataclass(frozen=True)
class Nadam(Rule):
    """Adam with Nesterov momentum and Keras's fixed momentum schedule."""

    beta_1: float
    beta_2: float
    epsilon: float

    @property
    def initial_slots(self) -> Mapping[str, float]:
        """First and second moment."""
        return {"momentum": 0.0, "velocity": 0.0}

    def update(
        self, values: Floats, grads: Floats, slots: Slots, *, step: int, rate: float
    ) -> None:
        """Apply a dense gradient. All figures are float32 tensors in Keras too."""
        beta_1, beta_2 = _F(self.beta_1), _F(self.beta_2)
        now, ahead = (
            beta_1 * (_ONE - _F(0.5) * power(_F(0.96), step + k)) for k in (1, 2)
        )
        product = nadam_product(self.beta_1, step + 1)
        kernels.nadam(
            values,
            grads,
            slots["momentum"],
            slots["velocity"],
            _F(rate),
            _ONE - beta_1,
            _ONE - beta_2,
            ahead,
            _ONE - product * ahead,
            _ONE - now,
            _ONE - product,
            _ONE - power(beta_2, step + 1),
            _F(self.epsilon),
        )


@lru_cache(maxsize=4)
def nadam_product(beta_1: float, updates: int) -> np.float32:
    """Return Keras's `u_product` of Nadam after so many updates.

    It depends on their number alone, so it needs no place in slots and checkpoints.
    """
    return _F(kernels.nadam_product(_F(beta_1), updates))


@dataclass(frozen=True)
class Lion(Rule):
    """Lion: steps of one size, by the sign of the moment."""

    beta_1: float
    beta_2: float

    @property
    def initial_slots(self) -> Mapping[str, float]:
        """The moment."""
        return {"momentum": 0.0}

    def update(
        self, values: Floats, grads: Floats, slots: Slots, *, step: int, rate: float
    ) -> None:
        """Apply a dense gradient."""
        del step
        beta_1, beta_2 = _F(self.beta_1), _F(self.beta_2)
        figures = beta_1, _ONE - beta_1, beta_2, _ONE - beta_2
        kernels.lion(values, grads, slots["momentum"], _F(rate), *figures)
