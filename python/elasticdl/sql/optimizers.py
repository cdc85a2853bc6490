"""Optimizers that a statement may name, and the arguments that each takes.

Called by `sql.attributes` and `sql.generate`.
"""

from __future__ import annotations

RATE = ("learning_rate",)
COMMON = ("weight_decay", "clipnorm", "clipvalue", "global_clipnorm")
OPTIMIZERS = {
    "adam": ("Adam", (*RATE, "beta_1", "beta_2", "epsilon", "amsgrad")),
    "adamw": ("AdamW", (*RATE, "beta_1", "beta_2", "epsilon", "amsgrad")),
    "sgd": ("SGD", (*RATE, "momentum", "nesterov")),
    "rmsprop": ("RMSprop", (*RATE, "rho", "momentum", "epsilon", "centered")),
    "adagrad": ("Adagrad", (*RATE, "initial_accumulator_value", "epsilon")),
    "adadelta": ("Adadelta", (*RATE, "rho", "epsilon")),
    "adamax": ("Adamax", (*RATE, "beta_1", "beta_2", "epsilon")),
    "nadam": ("Nadam", (*RATE, "beta_1", "beta_2", "epsilon")),
    "ftrl": (
        "Ftrl",
        (
            *RATE,
            "learning_rate_power",
            "initial_accumulator_value",
            "l1_regularization_strength",
            "l2_regularization_strength",
            "beta",
        ),
    ),
}
