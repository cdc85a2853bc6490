"""The user's optimizer: where it comes from and its learning rate.

Owns the choice between the module's function and the compiled model. Called by
`definition`. Applies nothing.
"""

from __future__ import annotations

from typing import Any

import keras

from elasticdl.errors import UserCodeError
from elasticdl.job.spec import ModelSpec
from elasticdl.model import user_code
from elasticdl.model.symbols import Symbols
from elasticdl.model.user_code import ModelCode, did_you_mean


def choose_optimizer(
    names: ModelSpec, code: ModelCode, symbols: Symbols, model: keras.Model
) -> keras.optimizers.Optimizer:
    """Return the optimizer of the module's function, else of the compiled model.

    Raises UserCodeError when there is neither, or it is none of Keras's.
    """
    function = symbols.optimizer
    compiled = bool(getattr(model, "compiled", False))
    missing = [
        name
        for name, there in (
            (names.loss, symbols.loss is not None),
            (names.optimizer, function is not None),
        )
        if not there
    ]
    if missing and not compiled:
        defined = user_code.public_names_of(code)
        raise UserCodeError(
            f"{code.main_file} has no {' and no '.join(f'`{m}`' for m in missing)}"
            f", and {symbols.model_name}() returned a model that is not "
            "compiled; add the functions, or call model.compile(optimizer, loss, "
            "metrics)" + did_you_mean(missing[0], defined)
        )
    if function is None:
        optimizer = model.optimizer
    else:
        with code.running(f"{names.optimizer}()"):
            optimizer = function() if callable(function) else function
    if not isinstance(optimizer, keras.optimizers.Optimizer):
        raise UserCodeError(
            f"{names.optimizer}() returned {type(optimizer).__name__}, "
            "expected an optimizer of keras.optimizers"
        )
    return optimizer


def base_learning_rate(optimizer: Any) -> float | None:
    """Return the optimizer's learning rate; None when it follows a schedule."""
    inner = getattr(optimizer, "_learning_rate", None)
    if isinstance(inner, keras.optimizers.schedules.LearningRateSchedule):
        return None
    return float(keras.ops.convert_to_numpy(optimizer.learning_rate))
