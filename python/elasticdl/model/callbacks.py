"""Callbacks of the model module: described for the master, or run as a schedule.

Owns which callback classes are understood and why others are refused. Called by
`definition`. The master (master/model/callbacks.py) acts on the description, without
Keras.

The JSON is a list of {"class": ..., then Keras's own parameter names}; `monitor` has no
`val_` in front, `mode` is `min` or `max`.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Sequence
from typing import Any

import keras

from elasticdl import callbacks as classic
from elasticdl.errors import UserCodeError
from elasticdl.model.measures.metrics import MetricSet
from elasticdl.model.user_code import ModelCode, did_you_mean

_REFUSED = {
    "TensorBoard": "the scalars come from the master's metrics, not from a callback",
    "CSVLogger": "each evaluation is in the job's report.json and in the master's log",
    "History": "each evaluation is in the job's report.json",
    "ProgbarLogger": "the command line shows progress",
    "BackupAndRestore": "checkpoints do this; see the `checkpoint` section",
    "TerminateOnNaN": "`training.onNanLoss: stop` does this, and is the default",
    "SwapEMAWeights": "the moving average would be one of each worker's own",
}
_WHY_OTHERS = (
    "its methods would have to run in the master, which has no Keras and no model"
)


def callbacks_json(
    callbacks: Sequence[Any], metrics: MetricSet, learning_rate: float | None
) -> str:
    """Return the description of all callbacks.

    Raises UserCodeError naming all that cannot be used, with the reason for each.
    """
    described = []
    problems = []
    if sum(isinstance(c, keras.callbacks.ReduceLROnPlateau) for c in callbacks) > 1:
        problems.append(
            "ReduceLROnPlateau is there more than once, and one of them alone can set "
            "the learning rate; leave one"
        )
    for callback in callbacks:
        try:
            described.append(_describe(callback, metrics, learning_rate))
        except UserCodeError as error:
            problems.append(str(error))
    if problems:
        raise UserCodeError("callbacks(): " + "; ".join(problems))
    return json.dumps(described)


def _describe(
    callback: Any, metrics: MetricSet, learning_rate: float | None
) -> dict[str, Any]:
    kind = keras.callbacks
    if type(callback) is kind.EarlyStopping:
        return {
            "class": "EarlyStopping",
            **_monitor(callback, metrics),
            "patience": int(callback.patience),
            "min_delta": abs(float(callback.min_delta)),
            "baseline": _optional(callback.baseline),
            "restore_best_weights": bool(callback.restore_best_weights),
            "start_from_epoch": int(callback.start_from_epoch),
        }
    if type(callback) is kind.ModelCheckpoint:
        return _describe_checkpoint(callback, metrics)
    if type(callback) is kind.ReduceLROnPlateau:
        _check_rate(callback, learning_rate)
        return {
            "class": "ReduceLROnPlateau",
            **_monitor(callback, metrics),
            "factor": float(callback.factor),
            "patience": int(callback.patience),
            "min_delta": abs(float(callback.min_delta)),
            "cooldown": int(callback.cooldown),
            "min_lr": float(callback.min_lr),
            "learning_rate": learning_rate,
        }
    if isinstance(callback, kind.LearningRateScheduler | classic.LearningRateScheduler):
        _refuse_own_methods(callback)
        _check_rate(callback, learning_rate)
        return {"class": "LearningRateScheduler"}
    if isinstance(callback, classic.MaxStepsStopping):
        _refuse_own_methods(callback)
        return {"class": "MaxStepsStopping", "max_steps": callback.max_steps}
    name = type(callback).__name__
    raise UserCodeError(f"{name} is not supported: {_REFUSED.get(name, _WHY_OTHERS)}")


def _check_rate(callback: Any, learning_rate: float | None) -> None:
    if learning_rate is None:
        raise UserCodeError(
            f"{type(callback).__name__} needs a plain learning rate, the optimizer has "
            "a schedule, or is several (MultiOptimizer); use one of the two"
        )


def _refuse_own_methods(callback: Any) -> None:
    """Raise UserCodeError for a subclass with methods that nobody would call."""
    ours = ("keras.", "elasticdl.")
    own = [vars(callback)] + [
        vars(kind)
        for kind in type(callback).__mro__
        if not kind.__module__.startswith(ours)
    ]
    names = {n for found in own for n in found if n.startswith("on_")}
    if names:
        raise UserCodeError(
            f"{type(callback).__name__}.{min(names)} is not supported: {_WHY_OTHERS}; "
            "its schedule alone is called"
        )


def _describe_checkpoint(callback: Any, metrics: MetricSet) -> dict[str, Any]:
    if not callback.save_best_only:
        raise UserCodeError(
            "ModelCheckpoint without save_best_only is not supported: the `checkpoint` "
            "section writes checkpoints; with save_best_only=True the best model is "
            "exported"
        )
    if callback.save_freq != "epoch":
        raise UserCodeError(
            f"ModelCheckpoint(save_freq={callback.save_freq}) is not supported: it is "
            "evaluations that tell which model is the best one; leave save_freq out, "
            "and set evaluation.everySteps"
        )
    return {
        "class": "ModelCheckpoint",
        **_monitor(callback, metrics),
        "filepath": str(callback.filepath),
        "save_best_only": True,
        "save_weights_only": bool(callback.save_weights_only),
        "initial_value_threshold": _optional(callback.best),
    }


def _optional(value: Any) -> float | None:
    return None if value is None else float(value)


def _monitor(callback: Any, metrics: MetricSet) -> dict[str, str]:
    """Return the monitored evaluation metric and which direction is better."""
    kind = type(callback).__name__
    name = str(callback.monitor).removeprefix("val_")
    known = metrics.names()
    if name not in known:
        raise UserCodeError(
            f"{kind} monitors `{callback.monitor}`, which is no evaluation metric"
            + did_you_mean(name, known)
        )
    mode = str(callback.mode)
    if mode not in ("min", "max"):
        mode = metrics.direction(name) or _mode_by_name(name) or ""
    if not mode:
        raise UserCodeError(
            f"{kind}: whether a higher `{name}` is better is not known; give "
            "mode='max' or mode='min'"
        )
    return {"monitor": name, "mode": mode}


def _mode_by_name(name: str) -> str | None:
    last = name.rsplit("/", 1)[-1].lower()
    if any(word in last for word in ("acc", "auc", "precision", "recall", "f1")):
        return "max"
    if any(word in last for word in ("loss", "error", "mse", "mae", "rmse")):
        return "min"
    return None


class Schedule:
    """Learning-rate callbacks: a function of the epoch (Keras) or version (classic)."""

    def __init__(
        self, callbacks: Sequence[Any], base: float | None, code: ModelCode
    ) -> None:
        """Keep the schedules in order; later ones win, as in Keras."""
        self._code = code
        self._by_version = [
            c.schedule
            for c in callbacks
            if isinstance(c, classic.LearningRateScheduler)
        ]
        self._by_epoch = [
            c.schedule
            for c in callbacks
            if isinstance(c, keras.callbacks.LearningRateScheduler)
        ]
        if self._by_epoch and base is None:
            raise UserCodeError(
                "LearningRateScheduler needs a plain learning rate, the optimizer has "
                "a schedule, or is several (MultiOptimizer); use one of the two"
            )
        # Learning rate of each epoch so far: a schedule may build on the one before.
        self._rates: list[float] = []
        self._base = base or 0.0

    def learning_rate_of(self, version: int, epoch: int) -> float | None:
        """Return the rate at a model version in an epoch (from 0), None if unset."""
        if not (self._by_epoch or self._by_version):
            return None
        rate: float | None = None
        with self._code.running("LearningRateScheduler's schedule"):
            if self._by_epoch:
                while len(self._rates) <= epoch:
                    current = self._rates[-1] if self._rates else self._base
                    for schedule in self._by_epoch:
                        current = _rate(_call(schedule, len(self._rates), current))
                    self._rates.append(current)
                rate = self._rates[epoch]
            for schedule in self._by_version:
                rate = _rate(schedule(version))
        return rate


def _call(schedule: Callable[..., Any], epoch: int, rate: float) -> Any:
    # Keras passes the present rate to schedules that take it.
    try:
        takes_rate = len(inspect.signature(schedule).parameters) > 1
    except (TypeError, ValueError):
        takes_rate = False
    return schedule(epoch, rate) if takes_rate else schedule(epoch)


def _rate(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        raise UserCodeError(
            f"a learning-rate schedule returned {value!r}, expected a number"
        ) from None
