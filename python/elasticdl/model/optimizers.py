"""The user's optimizer: where it comes from and its learning rate.

Owns the choice between the module's function and the compiled model, and what the PS
are told of it. Called by `definition` and the worker. Applies nothing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import keras

from elasticdl.errors import UserCodeError
from elasticdl.job.spec.job import ModelSpec
from elasticdl.model import user_code
from elasticdl.model.symbols import Symbols
from elasticdl.model.user_code import ModelCode, did_you_mean
from elasticdl.model.variables import NamedVariable


def choose_optimizer(
    names: ModelSpec, code: ModelCode, symbols: Symbols, model: keras.Model
) -> keras.optimizers.Optimizer:
    """Return the optimizer of the module's function, else that of `compile`.

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
    with code.running("the optimizer's learning_rate"):
        base_learning_rate(optimizer)
    return optimizer


def inner_optimizer(
    optimizer: keras.optimizers.Optimizer,
) -> keras.optimizers.Optimizer:
    """Return the optimizer inside a LossScaleOptimizer; any other itself."""
    return getattr(optimizer, "inner_optimizer", optimizer)


def ends_with_other_values(optimizer: keras.optimizers.Optimizer) -> bool:
    """Whether the model is meant to be used with other values than it trains with.

    So it is with averages (use_ema), and where an optimizer of one's own says what
    `fit` ends with.
    """
    # Those of a MultiOptimizer, too.
    every = _with_inner(optimizer)
    return any(one.use_ema for one in every) or ends_its_own_way(optimizer)


def ends_its_own_way(optimizer: keras.optimizers.Optimizer) -> bool:
    """Whether a `finalize_variable_values` that is not Keras's sets the last values."""
    return any(
        not _is_of_keras(one.finalize_variable_values)
        for one in (optimizer, *_with_inner(optimizer))
    )


def keeps_no_gradient(
    optimizer: keras.optimizers.Optimizer, variables: Sequence[Any]
) -> bool:
    """Whether gradients may be in memory that is written again after an update.

    A variable that is assigned a gradient has it uncopied from then on. Keras's own
    optimizers assign results alone, but to variables that gradients overwrite; who
    knows what others do.
    """
    return all(
        _is_of_keras(type(one)) and "update_step" not in vars(one)
        for one in (optimizer, *_with_inner(optimizer))
    ) and not any(getattr(v, "overwrite_with_gradient", False) for v in variables)


def _with_inner(
    optimizer: keras.optimizers.Optimizer,
) -> tuple[keras.optimizers.Optimizer, ...]:
    inner = inner_optimizer(optimizer)
    return (inner, *getattr(inner, "optimizers", ()))


def _is_of_keras(thing: Any) -> bool:
    return str(getattr(thing, "__module__", "")).startswith("keras.")


def without_loss_scale(
    optimizer: keras.optimizers.Optimizer,
) -> keras.optimizers.Optimizer:
    """Return the inner optimizer without its own factor: the worker scales."""
    inner = inner_optimizer(optimizer)
    inner.loss_scale_factor = None
    return inner


def optimizer_json(
    optimizer: keras.optimizers.Optimizer, variables: Sequence[NamedVariable]
) -> str:
    """Return class and configuration as JSON, for the PS.

    Without the loss scale, which is the workers' business. Beside Keras's keys it has
    `exclude_from_weight_decay`, names of variables, which Keras does not serialize.
    """
    inner = inner_optimizer(optimizer)
    tree = keras.optimizers.serialize(inner)
    tree["config"]["loss_scale_factor"] = None
    if inner.weight_decay:
        # What Keras itself asks at each step; there is no public name for it.
        decays = inner._use_weight_decay  # noqa: SLF001
        # Keras asks with TensorFlow's variable, whose name has the layers in it.
        excluded = [v.name for v in variables if not decays(v.variable.value)]
        if excluded:
            tree["exclude_from_weight_decay"] = excluded
    return json.dumps(tree)


def base_learning_rate(optimizer: Any) -> float | None:
    """Return the optimizer's learning rate; None if it has none that can be set.

    So it is with a schedule, a function, and the optimizers in a MultiOptimizer.

    Raises UserCodeError where an optimizer of one's own says what is no number.
    """
    optimizer = inner_optimizer(optimizer)
    if hasattr(optimizer, "optimizers"):
        return None
    if callable(getattr(optimizer, "_learning_rate", None)):
        return None
    rate = optimizer.learning_rate
    try:
        return float(keras.ops.convert_to_numpy(rate))
    except (TypeError, ValueError) as error:
        raise UserCodeError(
            f"the learning_rate of the optimizer {type(optimizer).__name__} is "
            f"{rate!r}; expected a number, a schedule, or a function without arguments"
        ) from error


def own_rate(
    optimizer: keras.optimizers.Optimizer, code: ModelCode
) -> Callable[[int], float] | None:
    """Return the learning rate by step, from 0, if only user code can compute it.

    None where it is a number or one of Keras's schedules: PS know those.
    """
    inner = inner_optimizer(optimizer)
    rate = inner._learning_rate  # noqa: SLF001 - the property has computed it already
    schedules = keras.optimizers.schedules
    if isinstance(rate, schedules.LearningRateSchedule):
        if type(rate) is getattr(schedules, type(rate).__name__, None):
            return None
        dtype = keras.backend.standardize_dtype(inner.iterations.dtype)

        def at(step: int) -> float:
            with code.running(f"{type(rate).__name__}, the learning rate's schedule,"):
                return float(rate(keras.ops.convert_to_tensor(step, dtype)))

        return at
    if isinstance(rate, keras.Variable) or not callable(rate):
        return None

    def now(_step: int) -> float:
        with code.running("the optimizer's learning rate"):
            return float(rate())

    return now
