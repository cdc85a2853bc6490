"""Compiles what every optimizer needs of the kernels, so that an image has them.

Run once where an image is built (images/*/Dockerfile) with NUMBA_CACHE_DIR. A PS on
a processor of the same kind then compiles nothing; on another it compiles its own.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import fields

from elasticdl.ps.optimizers.keras_config import OptimizerConfig
from elasticdl.ps.optimizers.optimizer import Optimizer
from elasticdl.ps.optimizers.rule import Rule
from elasticdl.ps.optimizers.rules import RULES
from elasticdl.ps.optimizers.schedules import schedule_from_config


def run() -> None:
    """Compile the kernels of all rules and the functions around them."""
    # Accumulated gradients are dense, so without it rows are updated as rows.
    for (name, rule), accumulation in itertools.product(_rules(), (None, 2)):
        config = OptimizerConfig(
            class_name=name,
            options={},
            learning_rate=0.1,
            weight_decay=0.1,
            clipnorm=None,
            clipvalue=None,
            accumulation_steps=accumulation,
            ema_momentum=0.9,
            ema_overwrite_frequency=None,
            no_decay=frozenset(),
        )
        schedule = schedule_from_config(0.1)
        Optimizer(text="", config=config, rule=rule, schedule=schedule).warm_up()


def _rules() -> Iterator[tuple[str, Rule]]:
    """Yield each rule with all its switches, and each number both zero and non-zero."""
    for name, rule in RULES.items():
        values = []
        for field in fields(rule):
            choice = (False, True) if field.type == "bool" else (0.0, 0.5)
            values.append([(field.name, value) for value in choice])
        for chosen in itertools.product(*values):
            yield name, rule(**dict(chosen))


if __name__ == "__main__":
    run()
