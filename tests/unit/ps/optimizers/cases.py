"""Serialized Keras optimizers, made without Keras, for all tests of the PS."""

from __future__ import annotations

import json
from typing import Any

from elasticdl.ps.optimizers.optimizer import Optimizer, optimizer_from_json

COMMON = {
    "name": "o",
    "learning_rate": 0.1,
    "weight_decay": None,
    "clipnorm": None,
    "global_clipnorm": None,
    "clipvalue": None,
    "use_ema": False,
    "ema_momentum": 0.99,
    "ema_overwrite_frequency": None,
    "loss_scale_factor": None,
    "gradient_accumulation_steps": None,
}
_ADAM = {"beta_1": 0.9, "beta_2": 0.99, "epsilon": 1e-7}
OWN: dict[str, dict[str, Any]] = {
    "SGD": {"momentum": 0.0, "nesterov": False},
    "Adam": {**_ADAM, "amsgrad": False},
    "AdamW": {**_ADAM, "amsgrad": False},
    "Adagrad": {"initial_accumulator_value": 0.1, "epsilon": 1e-7},
    "RMSprop": {"rho": 0.9, "momentum": 0.0, "epsilon": 1e-7, "centered": False},
    "Adadelta": {"rho": 0.95, "epsilon": 1e-7},
    "Adamax": _ADAM,
    "Nadam": _ADAM,
    "Ftrl": {
        "learning_rate_power": -0.5,
        "initial_accumulator_value": 0.1,
        "l1_regularization_strength": 0.0,
        "l2_regularization_strength": 0.0,
        "l2_shrinkage_regularization_strength": 0.0,
        "beta": 0.0,
    },
    "Lion": {"beta_1": 0.9, "beta_2": 0.99},
}
# Each optimizer, and each option that makes another path through the code.
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "sgd": ("SGD", {}),
    "momentum": ("SGD", {"momentum": 0.9}),
    "nesterov": ("SGD", {"momentum": 0.9, "nesterov": True}),
    "adam": ("Adam", {}),
    "amsgrad": ("Adam", {"amsgrad": True}),
    "adamw": ("AdamW", {"weight_decay": 0.1}),
    "adagrad": ("Adagrad", {}),
    "adagrad-decay": ("Adagrad", {"weight_decay": 0.1}),
    "rmsprop": ("RMSprop", {}),
    "rmsprop-momentum": ("RMSprop", {"momentum": 0.9}),
    "rmsprop-centered": ("RMSprop", {"centered": True, "epsilon": 1e-3}),
    "rmsprop-both": ("RMSprop", {"centered": True, "momentum": 0.5, "epsilon": 1e-3}),
    "adadelta": ("Adadelta", {}),
    "adamax": ("Adamax", {}),
    "nadam": ("Nadam", {}),
    "ftrl": ("Ftrl", {}),
    "ftrl-regularized": (
        "Ftrl",
        {
            "learning_rate_power": -0.7,
            "l1_regularization_strength": 0.05,
            "l2_regularization_strength": 0.1,
            "l2_shrinkage_regularization_strength": 0.01,
            "beta": 0.3,
        },
    ),
    "lion": ("Lion", {}),
    "average": (
        "SGD",
        {"use_ema": True, "ema_momentum": 0.5, "ema_overwrite_frequency": 2},
    ),
    "clipvalue": ("Adam", {"clipvalue": 0.5}),
    "accumulation": ("Adam", {"gradient_accumulation_steps": 2}),
    "accumulation-nadam": ("Nadam", {"gradient_accumulation_steps": 2}),
}


def tree(kind: str, **options: Any) -> dict[str, Any]:
    """Return what `keras.optimizers.serialize` gives."""
    return {
        "module": "keras.optimizers",
        "class_name": kind,
        "config": COMMON | OWN[kind] | options,
        "registered_name": None,
    }


def make(kind: str, **options: Any) -> Optimizer:
    """Return the PS's optimizer of a Keras class and its options."""
    return optimizer_from_json(json.dumps(tree(kind, **options)))


def case(name: str) -> Optimizer:
    """Return one of CASES."""
    kind, options = CASES[name]
    return make(kind, **options)
