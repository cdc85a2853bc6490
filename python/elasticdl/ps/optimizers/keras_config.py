"""Reads `keras.optimizers.serialize`'s tree and refuses what a PS cannot run.

Owns the checks and their messages. Called by `ps/optimizers/optimizer.py`. Knows
nothing of formulas or buffers. The tree comes from `model/optimizers.py`: loss scales
are taken off there, and `global_clipnorm` is the worker's business.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from elasticdl.errors import SpecError
from elasticdl.ps.optimizers.rules import RULE_KEYS, RULES

_COMMON = frozenset(
    {
        "name", "learning_rate", "weight_decay", "clipnorm", "global_clipnorm",
        "clipvalue", "use_ema", "ema_momentum", "ema_overwrite_frequency",
        "loss_scale_factor", "gradient_accumulation_steps",
    }
)  # fmt: skip
_MODULES = ("keras.optimizers", "keras.src.optimizers")
_WHOLE = "its update needs a whole variable at once, and variables are cut over PS"
_REASONS = {
    "Lamb": _WHOLE,
    "Adafactor": _WHOLE,
    "Muon": _WHOLE,
    "ScheduleFreeAdamW": "it trains at other values than those that are evaluated",
    "MultiOptimizer": "it is several optimizers, and a PS runs one",
}


@dataclass(frozen=True)
class OptimizerConfig:
    """A Keras optimizer's config; None where an option is off."""

    class_name: str
    options: Mapping[str, Any]  # the config as Keras wrote it
    learning_rate: object  # a number, or a serialized schedule
    weight_decay: float | None
    clipnorm: float | None
    clipvalue: float | None
    accumulation_steps: int | None
    ema_momentum: float | None
    ema_overwrite_frequency: int | None
    no_decay: frozenset[str]  # variables without weight decay


def parse_config(text: str) -> OptimizerConfig:
    """Return the checked configuration. Raises SpecError, see `optimizer_from_json`."""
    try:
        tree = json.loads(text)
        name, module = tree["class_name"], tree.get("module")
        config = tree["config"]
        no_decay = frozenset(tree.get("exclude_from_weight_decay", ()))
        learning_rate = config["learning_rate"]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise SpecError(
            f"optimizer: got {text[:200]!r} ({error!r}), expected the JSON of "
            "keras.optimizers.serialize(optimizer)"
        ) from error
    _check_class(str(name), module, tree.get("registered_name"))
    _check_options(name, config)
    try:
        return OptimizerConfig(
            class_name=name,
            options=config,
            learning_rate=learning_rate,
            weight_decay=_number(config.get("weight_decay")),
            clipnorm=_above_zero(config.get("clipnorm")),
            clipvalue=_above_zero(config.get("clipvalue")),
            accumulation_steps=config.get("gradient_accumulation_steps") or None,
            ema_momentum=_number(config["ema_momentum"])
            if config.get("use_ema")
            else None,
            ema_overwrite_frequency=config.get("ema_overwrite_frequency") or None,
            no_decay=no_decay,
        )
    except (TypeError, ValueError) as error:
        raise SpecError(
            f"optimizer {name}: {error}; got {config}, expected numbers"
        ) from error


def _check_class(name: str, module: object, registered_name: object) -> None:
    if name in RULES and module in _MODULES and not registered_name:
        return
    supported = f"supported are {', '.join(RULES)} of keras.optimizers"
    if module in _MODULES and not registered_name:
        reason = _REASONS.get(name, "no PS can run it yet")
    else:
        reason = (
            "it is not one of Keras's own optimizers, and a PS does not run the user's "
            "Python code"
        )
    raise SpecError(
        f"optimizer {name}: {reason}; {supported}; with strategy: local any optimizer "
        "works"
    )


def _check_options(name: str, config: Mapping[str, Any]) -> None:
    reasons = []
    accumulates = config.get("gradient_accumulation_steps")
    if (config.get("global_clipnorm") or 0) > 0 and accumulates:
        reasons.append(
            "global_clipnorm with gradient_accumulation_steps needs the norm of the "
            "accumulated gradient of all variables, and each PS has some: use "
            "clipvalue, or a larger batch instead of accumulation"
        )
    if config.get("loss_scale_factor"):
        reasons.append("loss_scale_factor is taken off by the worker, but came along")
    known = _COMMON | RULE_KEYS[name]
    missing = sorted(RULE_KEYS[name] - set(config))
    if missing:
        reasons.append(f"its config lacks {', '.join(missing)}")
    reasons += [
        f"option {key}: got {config[key]!r}, which this version does not know"
        for key in sorted(set(config) - known)
        if config[key] is not None and config[key] is not False
    ]
    if reasons:
        raise SpecError(
            f"optimizer {name}: {'; '.join(reasons)}. With strategy: local every "
            "option works"
        )


def _number(value: object) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{value!r} is not a number")
    return float(value)


def _above_zero(value: object) -> float | None:
    # Keras ignores a clip value of zero or less.
    number = _number(value)
    return number if number is not None and number > 0 else None
