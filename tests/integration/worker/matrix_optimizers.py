"""Optimizers of the matrix against plain Keras: every one, and its options.

`USUAL` and `CROSSED` are made of the tables here; matrix_product.py puts them into the
modules of matrix.py.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

from tests.integration.worker.matrix_texts import DECAY, OWN_SCHEDULE

OPTIMIZERS = {
    "SGD": ("0.1", "0.1, momentum=0.9", "0.1, momentum=0.9, nesterov=True"),
    "Adam": ("0.05", "0.05, amsgrad=True"),
    "AdamW": ("0.05, weight_decay=0.1",),
    "Adamax": ("0.05",),
    "Nadam": ("0.05",),
    "Ftrl": ("0.1", "0.1, l1_regularization_strength=0.01"),
    "Lion": ("0.01",),
    "Adagrad": ("0.1",),
    "RMSprop": ("0.02", "0.02, momentum=0.5", "0.02, centered=True, epsilon=1e-3"),
    "Adadelta": ("1.0",),
    "Lamb": ("0.05",),
    "Adafactor": ("0.05",),
    "Muon": ("0.05",),
}
NOT_ON_PS = ("Lamb", "Adafactor", "Muon")
COMMON = (
    "weight_decay=0.1",
    "clipnorm=0.1",
    "global_clipnorm=0.1",
    "clipvalue=0.02",
    "use_ema=True, ema_momentum=0.8",
    "use_ema=True, ema_overwrite_frequency=2",
    "gradient_accumulation_steps=2",
    "loss_scale_factor=8.0",
)
IN_EVERY_TEST = ("SGD", "Adam")  # with the common options


@dataclass(frozen=True)
class Optimizer:
    """What a module says to compile, and the text that it needs before."""

    name: str
    text: str
    before: str = ""
    on_ps: bool = True


def _of(name: str, options: str) -> Optimizer:
    text = f"{name}({options})"
    return Optimizer(text, f"keras.optimizers.{text}", on_ps=name not in NOT_ON_PS)


def _with_common(names: tuple[str, ...]) -> list[Optimizer]:
    return [
        _of(name, f"{OPTIMIZERS[name][0]}, {option}")
        for name, option in itertools.product(names, COMMON)
        if option.split("=")[0] not in OPTIMIZERS[name][0]
    ]


USUAL = (
    *(_of(name, options) for name, each in OPTIMIZERS.items() for options in each),
    *_with_common(IN_EVERY_TEST),
    Optimizer(
        "Adam(schedules.ExponentialDecay(0.05, 2, 0.5))",
        "keras.optimizers.Adam("
        "keras.optimizers.schedules.ExponentialDecay(0.05, 2, 0.5))",
    ),
    Optimizer(
        "LossScaleOptimizer(SGD(0.1))",
        "keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.1))",
    ),
    *(
        Optimizer(
            f"own schedule of the learning rate, {name}",
            f"keras.optimizers.{name}(Falling())",
            before=OWN_SCHEDULE,
        )
        for name in IN_EVERY_TEST
    ),
    Optimizer("exclude_from_weight_decay", "decaying()", before=DECAY),
)
# The common options of the others.
CROSSED = tuple(_with_common(tuple(n for n in OPTIMIZERS if n not in IN_EVERY_TEST)))
