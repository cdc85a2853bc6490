"""The optimizers that a PS can run, by Keras's class names.

Owns the formulas of Keras 3 for those that are not kin of Adam
(`ps/optimizers/adam_rules.py`). Called by `ps/optimizers/keras_config.py` and
`ps/optimizers/optimizer.py`. A new optimizer is one class and its entry in RULES; its
fields are the entries of Keras's config by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields

import numpy as np

from elasticdl.ps.optimizers import update_kernels as kernels
from elasticdl.ps.optimizers.adam_rules import Adam, Adamax, Lion, Nadam
from elasticdl.ps.optimizers.kernels import Floats, Ids
from elasticdl.ps.optimizers.rule import Rule, Slots

_F = np.float32
_NONE = np.empty(0, np.float32)


@dataclass(frozen=True)
class SGD(Rule):
    """Stochastic gradient descent, with momentum and Nesterov's variant of it."""

    momentum: float
    nesterov: bool

    @property
    def initial_slots(self) -> Mapping[str, float]:
        """Return no slot without momentum, as in Keras."""
        return {"momentum": 0.0} if self.momentum else {}

    @property
    def touches_all_rows(self) -> bool:
        """Whether momentum moves rows without gradient."""
        return self.momentum != 0

    def update(
        self, values: Floats, grads: Floats, slots: Slots, *, step: int, rate: float
    ) -> None:
        """Apply a dense gradient."""
        del step
        if not self.momentum:
            kernels.sgd(values, grads, _F(rate))
            return
        kernel = kernels.nesterov if self.nesterov else kernels.momentum
        kernel(values, grads, slots["momentum"], _F(rate), _F(self.momentum))

    def update_rows(
        self, values: Floats, ids: Ids, rows: Floats, slots: Slots, *, rate: float
    ) -> None:
        """Apply rows; only without momentum."""
        del slots
        kernels.sgd_rows(values, ids, rows, _F(rate))


@dataclass(frozen=True)
class Adagrad(Rule):
    """Adagrad; its accumulator starts at Keras's `initial_accumulator_value`."""

    initial_accumulator_value: float
    epsilon: float

    @property
    def initial_slots(self) -> Mapping[str, float]:
        """The sum of squares."""
        return {"accumulator": self.initial_accumulator_value}

    @property
    def touches_all_rows(self) -> bool:
        """Return False: a row without gradient stays."""
        return False

    def update(
        self, values: Floats, grads: Floats, slots: Slots, *, step: int, rate: float
    ) -> None:
        """Apply a dense gradient."""
        del step
        figures = _F(rate), _F(self.epsilon)
        kernels.adagrad(values, grads, slots["accumulator"], *figures)

    def update_rows(
        self, values: Floats, ids: Ids, rows: Floats, slots: Slots, *, rate: float
    ) -> None:
        """Apply rows."""
        figures = _F(rate), _F(self.epsilon)
        kernels.adagrad_rows(values, ids, rows, slots["accumulator"], *figures)


@dataclass(frozen=True)
class RMSprop(Rule):
    """RMSprop, also centered and with momentum."""

    rho: float
    momentum: float
    epsilon: float
    centered: bool

    @property
    def initial_slots(self) -> Mapping[str, float]:
        """Mean of squares; moments and mean if used."""
        moments = {"momentum": 0.0} if self.momentum > 0 else {}
        mean = {"average_gradient": 0.0} if self.centered else {}
        return {"velocity": 0.0} | moments | mean

    def update(
        self, values: Floats, grads: Floats, slots: Slots, *, step: int, rate: float
    ) -> None:
        """Apply a dense gradient."""
        del step
        kernels.rmsprop(
            values,
            grads,
            slots["velocity"],
            slots.get("momentum", _NONE),
            slots.get("average_gradient", _NONE),
            _F(rate),
            _F(self.rho),
            _F(1 - self.rho),
            _F(self.momentum),
            _F(self.epsilon),
        )


@dataclass(frozen=True)
class Adadelta(Rule):
    """Adadelta."""

    rho: float
    epsilon: float

    @property
    def initial_slots(self) -> Mapping[str, float]:
        """Means of squared gradients and of squared updates."""
        return {"accumulated_grad": 0.0, "accumulated_delta_var": 0.0}

    def update(
        self, values: Floats, grads: Floats, slots: Slots, *, step: int, rate: float
    ) -> None:
        """Apply a dense gradient."""
        del step
        squares, moves = slots["accumulated_grad"], slots["accumulated_delta_var"]
        figures = _F(rate), _F(self.rho), _F(1 - self.rho), _F(self.epsilon)
        kernels.adadelta(values, grads, squares, moves, *figures)


@dataclass(frozen=True)
class Ftrl(Rule):
    """Follow the regularized leader, with the shrinkage of Keras."""

    learning_rate_power: float
    initial_accumulator_value: float
    l1_regularization_strength: float
    l2_regularization_strength: float
    l2_shrinkage_regularization_strength: float
    beta: float

    @property
    def initial_slots(self) -> Mapping[str, float]:
        """Sum of squares, and the linear term that determines the values."""
        return {"accumulator": self.initial_accumulator_value, "linear": 0.0}

    def update(
        self, values: Floats, grads: Floats, slots: Slots, *, step: int, rate: float
    ) -> None:
        """Apply a dense gradient."""
        del step
        two, speed = _F(2), _F(rate)
        l2 = _F(self.l2_regularization_strength) + _F(self.beta) / (two * speed)
        kernels.ftrl(
            values,
            grads,
            slots["accumulator"],
            slots["linear"],
            speed,
            _F(-self.learning_rate_power),
            _F(self.l1_regularization_strength),
            two * l2,
            _F(2 * self.l2_shrinkage_regularization_strength),
        )


# By Keras's class name.
RULES: Mapping[str, type[Rule]] = {
    "SGD": SGD,
    "Adam": Adam,
    "AdamW": Adam,
    "Adagrad": Adagrad,
    "RMSprop": RMSprop,
    "Adadelta": Adadelta,
    "Adamax": Adamax,
    "Nadam": Nadam,
    "Ftrl": Ftrl,
    "Lion": Lion,
}
# Config entries of each beyond those that all optimizers have.
RULE_KEYS: Mapping[str, frozenset[str]] = {
    name: frozenset(field.name for field in fields(rule))
    for name, rule in RULES.items()
}
