"""What of a Keras model's own ways this product takes, and what it cannot.

Owns the rules for methods that a model overrides and for options of compile, layers and
variables that a worker with parameter servers would pass over. Called by `definition`
once the model is built. What is refused is named, with what to do instead. Knows
nothing of steps.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import keras
import tensorflow as tf

from elasticdl.errors import UserCodeError
from elasticdl.job.spec.job import JobSpec, JobType, OnNanLoss
from elasticdl.job.spec.kinds import Strategy
from elasticdl.model.symbols import Symbols

log = logging.getLogger(__name__)

# A training step, or an evaluation, of the model's own: run where one process trains.
TRAINING_METHODS = ("train_step",)
EVALUATION_METHODS = ("test_step", "compute_metrics", "get_metrics_result")
# Loops: there is none of Keras's here that they could take part in.
_LOOPS = (
    "fit",
    "evaluate",
    "predict",
    "train_on_batch",
    "test_on_batch",
    "predict_on_batch",
    "make_train_function",
    "make_test_function",
    "make_predict_function",
)


def overrides(model: keras.Model, name: str) -> bool:
    """Return whether the user overrides a method of keras.Model."""
    if name in vars(model):
        return True
    for kind in type(model).__mro__:
        if name in vars(kind):
            return not kind.__module__.startswith("keras.")
    return False


def trains_itself(model: keras.Model) -> bool:
    """Return whether the model overrides train_step."""
    return any(overrides(model, name) for name in TRAINING_METHODS)


def evaluates_itself(model: keras.Model) -> bool:
    """Return whether the model overrides test_step or compute_metrics."""
    return any(overrides(model, name) for name in EVALUATION_METHODS)


def compiled_with_xla(model: keras.Model) -> bool:
    """Return whether `compile` got `jit_compile=True`; "auto" does not count."""
    return compiled_option(model, "jit_compile") is True


def compiled_option(model: keras.Model, name: str) -> Any:
    """Return an argument of `compile`; None if the model is not compiled."""
    config = getattr(model, "_compile_config", None)
    return None if config is None else config.config.get(name)


def refuse_unsupported(
    model: keras.Model,
    optimizer: keras.optimizers.Optimizer,
    strategy: Strategy | None,
) -> None:
    """Raise UserCodeError naming every Keras feature that would have no effect.

    `strategy`: of a job that trains; None for another one.
    """
    problems = list(_anywhere(model))
    if strategy is not None and not trains_itself(model):
        problems += _chosen_by_property(model)
    if strategy is Strategy.PARAMETER_SERVER:
        problems += [*_on_ps(model), *_optimizer_on_ps(optimizer)]
    elif strategy is Strategy.ALL_REDUCE:
        problems += _in_group(model)
    if problems:
        raise UserCodeError("; ".join(problems))
    steps = getattr(model, "steps_per_execution", 1)
    if isinstance(steps, int) and steps > 1:
        log.warning(
            "compile(steps_per_execution=%d) changes nothing here: each batch is a "
            "step of its own",
            steps,
        )


def _anywhere(model: keras.Model) -> Iterator[str]:
    name = type(model).__name__
    for method in _LOOPS:
        if overrides(model, method):
            yield (
                f"{name}.{method} is never called: the job's loop takes the place of "
                "Keras's; override train_step or test_step instead"
            )
    if getattr(model, "run_eagerly", False) or tf.config.functions_run_eagerly():
        yield (
            "run_eagerly=True is not supported, a step is traced once; leave it out, "
            "and use tf.print to look into a step"
        )
    for layer in _layers(model):
        if getattr(layer, "quantization_mode", None):
            yield (
                f"layer `{layer.path}` is quantized ({layer.quantization_mode}), "
                "which cannot be trained; quantize the exported model"
            )


def _chosen_by_property(model: keras.Model) -> Iterator[str]:
    for name in ("trainable_weights", "trainable_variables"):
        if overrides(model, name):
            yield (
                f"{type(model).__name__}.{name} is never asked: what is trained is "
                "what has trainable=True; set trainable = False on the other layers"
            )


def _in_group(model: keras.Model) -> Iterator[str]:
    name = type(model).__name__
    for method in TRAINING_METHODS:
        if overrides(model, method):
            yield (
                f"{name}.{method} runs with strategy: local alone, since a group of "
                "workers applies what compute_loss gives gradients for; set strategy: "
                "local, or override compute_loss"
            )
    for variable in model.trainable_variables:
        if getattr(variable, "overwrite_with_gradient", False):
            yield (
                f"variable `{variable.path}` is overwritten with its gradient "
                "(float8), which cannot be averaged over workers; set strategy: local"
            )
    for layer in _layers(model):
        # Keras looks for a tf.distribute strategy, finds none, and leaves it at that.
        if getattr(layer, "synchronized", False):
            yield (
                f"layer `{layer.path}` has synchronized=True, and workers of strategy "
                "allReduce normalise each portion of a step by itself; leave it out, "
                "or use GroupNormalization or LayerNormalization"
            )


def _on_ps(model: keras.Model) -> Iterator[str]:
    name = type(model).__name__
    for method in (*TRAINING_METHODS, *EVALUATION_METHODS):
        if overrides(model, method):
            yield (
                f"{name}.{method} runs with strategy: local alone, since the "
                "parameter servers apply what compute_loss gives gradients for; set "
                "strategy: local, or override compute_loss"
            )
    for variable in model.trainable_variables:
        if variable.constraint is not None:
            kind = type(variable.constraint).__name__
            yield (
                f"variable `{variable.path}` has the constraint {kind}, which the "
                "parameter servers do not apply; set strategy: local, or leave it out"
            )
        if getattr(variable, "overwrite_with_gradient", False):
            yield (
                f"variable `{variable.path}` is overwritten with its gradient "
                "(float8), which the parameter servers do not do; set strategy: local"
            )


def _optimizer_on_ps(optimizer: keras.optimizers.Optimizer) -> Iterator[str]:
    """Yield what the PS are not told: they get Keras's class and its configuration."""
    name = type(optimizer).__name__
    own = "the parameter servers do not run the user's Python code; set strategy: local"
    inner = getattr(optimizer, "inner_optimizer", None)
    if inner is not None and type(optimizer) is not keras.optimizers.LossScaleOptimizer:
        yield f"optimizer {name} is a LossScaleOptimizer of the user's own, and {own}"
    for one in (optimizer, inner):
        for method in vars(one) if one is not None else ():
            if callable(getattr(type(one), method, None)):
                kind = type(one).__name__
                yield f"{kind}.{method} was replaced on the optimizer, and {own}"
    steps = int(keras.ops.convert_to_numpy(optimizer.iterations))
    if steps:
        yield (
            f"optimizer {name} begins at step {steps} (iterations), the parameter "
            "servers at 0; let its schedule begin there, or set strategy: local"
        )


def refuse_unused(model: keras.Model, spec: JobSpec, symbols: Symbols) -> None:
    """Raise UserCodeError for parts of the module that the model's own step ignores."""
    names, kind = spec.model, type(model).__name__
    if spec.type is JobType.TRAIN and trains_itself(model):
        _refuse_beside_train_step(kind, spec, symbols)
    if symbols.loss is not None and overrides(model, "compute_loss"):
        raise UserCodeError(
            f"{kind} has a compute_loss of its own, and the module has the loss "
            f"function `{names.loss}` too, so that one of them would be passed "
            "over; take one of them out"
        )
    if symbols.metrics is not None and evaluates_itself(model):
        own = next(m for m in EVALUATION_METHODS if overrides(model, m))
        raise UserCodeError(
            f"{kind} has a {own} of its own, which does not use "
            f"`{names.eval_metrics}`; keep these metrics as attributes of the "
            f"model and return them in {own}, or give them to model.compile, and "
            "take the function out"
        )


def _refuse_beside_train_step(kind: str, spec: JobSpec, symbols: Symbols) -> None:
    there = [
        name
        for name, part in (
            (spec.model.loss, symbols.loss),
            (spec.model.optimizer, symbols.optimizer),
        )
        if part is not None
    ]
    if there or spec.training.class_weight:
        what = there or ["training.classWeight"]
        raise UserCodeError(
            f"{kind} has a train_step of its own, which does not use "
            f"{' and '.join(f'`{name}`' for name in what)}; say it in model.compile "
            "and in train_step, and take it out"
        )
    if spec.training.on_nan_loss is OnNanLoss.SKIP:
        raise UserCodeError(
            f"{kind} has a train_step of its own, of which no batch can be left out; "
            "set training.onNanLoss: stop"
        )


def refuse_stateful(model: keras.Model) -> None:
    """Raise UserCodeError for an RNN with `stateful=True`.

    Asked before the model is called, which takes batches of one size alone.
    """
    for layer in _layers(model):
        if getattr(layer, "stateful", False) and isinstance(layer, keras.layers.RNN):
            raise UserCodeError(
                f"layer `{layer.path}` is a stateful RNN, which needs all batches in "
                "the order of one sequence and of one size, but tasks go to any "
                "worker and end with shorter ones; set stateful=False"
            )


def _layers(model: keras.Model) -> list[Any]:
    return list(
        getattr(model, "_flatten_layers", lambda **_: model.layers)(include_self=False)
    )
