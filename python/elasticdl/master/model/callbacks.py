"""Callbacks that need only evaluation results: they run in the master.

Owns early stopping, best model and learning-rate reduction, with the parameters and the
arithmetic of the Keras callbacks of the same names, one evaluation round in the place
of an epoch. Called by `master.model.evaluation_rounds`. Pure: the state is the history
of results, so a restarted master feeds the journaled results again.
"""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from elasticdl.errors import UserCodeError
from elasticdl.job.tasks import ExportTarget

log = logging.getLogger(__name__)

_GREATER_IS_BETTER = ("acc", "auc", "precision", "recall", "f1", "fbeta", "r2")


@dataclass(frozen=True)
class StopTraining:
    """Action: lease no more training tasks."""

    reason: str


@dataclass(frozen=True)
class ScaleLearningRate:
    """Action: multiply the base learning rate by `scale` (not cumulative)."""

    scale: float
    reason: str


@dataclass(frozen=True)
class KeepModel:
    """Action: keep the model of the finished round as the best so far."""

    reason: str
    target: ExportTarget = ExportTarget.BEST


Action = StopTraining | ScaleLearningRate | KeepModel


class Callback(Protocol):
    """Reacts to each evaluation with actions."""

    @property
    def exports(self) -> str:
        """Why it needs the model to be exported, as a sentence; "" if it does not."""

    def on_evaluation(self, metrics: Mapping[str, float]) -> list[Action]:
        """Return the actions that follow from the metrics of a round."""

    def kept(self, metrics: Mapping[str, float], target: ExportTarget) -> None:
        """Note that a round's model is kept, even if the round does not count.

        Comes before all evaluations.
        """


class _OfTheCourse:
    """Base of callbacks for which only rounds that count matter."""

    exports = ""

    def kept(self, metrics: Mapping[str, float], target: ExportTarget) -> None:
        """Do nothing: a round that counts is reported by `on_evaluation`."""


class _Monitor:
    """Whether a metric improved by at least `min_delta`."""

    def __init__(
        self, parameters: Mapping[str, Any], *, best: float | None = None
    ) -> None:
        self.name = str(parameters.get("monitor", "val_loss"))
        mode = parameters.get("mode", "auto")
        known = any(word in self.name for word in _GREATER_IS_BETTER)
        self._sign = 1.0 if mode == "max" or (mode != "min" and known) else -1.0
        self._min_delta = abs(float(parameters.get("min_delta", 0.0) or 0.0))
        self.best = best
        self._warned = False

    def value(self, metrics: Mapping[str, float]) -> float | None:
        """Return the metric, named with or without Keras's `val_`."""
        for name in (self.name, self.name.removeprefix("val_")):
            if name in metrics:
                return metrics[name]
        if not self._warned:
            self._warned = True
            log.warning(
                "a callback monitors %r, but evaluation gives %s; it does nothing",
                self.name,
                ", ".join(sorted(metrics)) or "no metric",
            )
        return None

    def improved(self, value: float) -> bool:
        """Take the value as the best one if it is better; NaN never is."""
        if self.beats(value, self.best):
            self.best = value
            return True
        return False

    def beats(self, value: float, other: float | None) -> bool:
        """Whether a value is better than another one; NaN never is."""
        if math.isnan(value):
            return False
        return other is None or self._sign * (value - other) > self._min_delta


class EarlyStopping:
    """Stops when the metric has not improved for `patience` rounds.

    With `restore_best_weights` the final model is the best one of the rounds that it
    looks at, whether it stops the job or not, as in Keras.
    """

    def __init__(self, parameters: Mapping[str, Any]) -> None:
        """Take the parameters of keras.callbacks.EarlyStopping."""
        self._monitor = _Monitor(parameters)
        # A model that is kept stays the one to beat when a rewind undoes its round.
        self._restored = _Monitor(parameters)
        self._restores = bool(parameters.get("restore_best_weights"))
        baseline = parameters.get("baseline")
        self._baseline = None if baseline is None else float(baseline)
        self._patience = int(parameters.get("patience", 0))
        self._skip = int(parameters.get("start_from_epoch", 0))
        self._wait = 0
        self._stopped = False

    @property
    def exports(self) -> str:
        """Why an export is needed; "" if it is not."""
        if not self._restores:
            return ""
        return (
            "and EarlyStopping(restore_best_weights=True) makes the best model the "
            "exported one: name a folder, or leave restore_best_weights out"
        )

    def kept(self, metrics: Mapping[str, float], target: ExportTarget) -> None:
        """Take the metric of a model that is kept as the bar for the next ones."""
        value = self._restored.value(metrics)
        if value is not None and target == ExportTarget.RESTORED:
            self._restored.improved(value)

    def on_evaluation(self, metrics: Mapping[str, float]) -> list[Action]:
        """Return StopTraining once, when patience is exhausted, and models to keep."""
        value = self._monitor.value(metrics)
        if value is None:
            return []
        if self._skip > 0:
            self._skip -= 1
            return []
        actions: list[Action] = []
        if self._restores and self._restored.improved(value):
            name = self._monitor.name
            reason = f"{name} is {value:.6g}, to be restored at the end"
            actions.append(KeepModel(reason, ExportTarget.RESTORED))
        return [*actions, *self._stop(value)]

    def _stop(self, value: float) -> list[Action]:
        if self._stopped:
            return []
        self._wait += 1
        if self._monitor.improved(value):
            if self._monitor.beats(value, self._baseline):
                self._wait = 0
            return []
        if self._wait < self._patience:
            return []
        self._stopped = True
        best = self._monitor.best
        reached = best is not None and self._monitor.beats(best, self._baseline)
        return [
            StopTraining(
                f"early stopping: {self._monitor.name} has not improved on "
                f"{best if reached else self._baseline} for {self._wait} evaluations"
            )
        ]


class ReduceLROnPlateau(_OfTheCourse):
    """Multiplies the learning rate by `factor` when the metric stands still."""

    def __init__(self, parameters: Mapping[str, Any]) -> None:
        """Take the parameters of keras.callbacks.ReduceLROnPlateau.

        `learning_rate`, the optimizer's at the start, makes `min_lr` a bound.
        """
        self._monitor = _Monitor({"min_delta": 1e-4, **parameters})
        self._factor = float(parameters.get("factor", 0.1))
        self._patience = int(parameters.get("patience", 10))
        self._cooldown = int(parameters.get("cooldown", 0))
        start = float(parameters.get("learning_rate") or 0.0)
        least = float(parameters.get("min_lr", 0.0) or 0.0)
        self._least_scale = least / start if start else 0.0
        self._scale = 1.0
        self._wait = 0
        self._cooling = 0

    def on_evaluation(self, metrics: Mapping[str, float]) -> list[Action]:
        """Return a reduction when patience is exhausted and the cooldown is over."""
        value = self._monitor.value(metrics)
        if value is None:
            return []
        if self._cooling:
            self._cooling -= 1
            self._wait = 0
        if self._monitor.improved(value):
            self._wait = 0
            return []
        if self._cooling:
            return []
        self._wait += 1
        if self._wait < max(1, self._patience):
            return []
        self._wait = 0
        self._cooling = self._cooldown
        scale = max(self._scale * self._factor, self._least_scale)
        if scale >= self._scale * (1 - 1e-9):
            return []
        self._scale = scale
        return [
            ScaleLearningRate(
                scale, f"{self._monitor.name} stands at {self._monitor.best}"
            )
        ]


class BestModel:
    """Keeps the model of the best round (ModelCheckpoint with save_best_only)."""

    exports = (
        "and ModelCheckpoint keeps the best model in the folder `best` there: name a "
        "folder, or leave ModelCheckpoint out"
    )

    def __init__(self, parameters: Mapping[str, Any]) -> None:
        """Take the parameters of keras.callbacks.ModelCheckpoint."""
        threshold = parameters.get("initial_value_threshold")
        best = None if threshold is None else float(threshold)
        self._monitor = _Monitor(parameters, best=best)
        self._best_only = bool(parameters.get("save_best_only", True))

    def kept(self, metrics: Mapping[str, float], target: ExportTarget) -> None:
        """Take a kept model's metric as the bar for the next ones."""
        value = self._monitor.value(metrics)
        if value is not None and target == ExportTarget.BEST:
            self._monitor.improved(value)

    def on_evaluation(self, metrics: Mapping[str, float]) -> list[Action]:
        """Return KeepModel if the round is the best so far."""
        value = self._monitor.value(metrics)
        if value is None:
            return []
        if self._monitor.improved(value) or not self._best_only:
            return [KeepModel(f"{self._monitor.name} is {value:.6g}")]
        return []


_KNOWN: dict[str, Callable[[Mapping[str, Any]], Callback]] = {
    "EarlyStopping": EarlyStopping,
    "ReduceLROnPlateau": ReduceLROnPlateau,
    "ModelCheckpoint": BestModel,
    "BestModel": BestModel,
}
MAX_STEPS = "MaxStepsStopping"


@dataclass(frozen=True)
class CallbackSet:
    """The job's callbacks, and the bound on steps that one of them may set."""

    callbacks: tuple[Callback, ...] = ()
    max_steps: int = 0
    text: str = "[]"  # it was made of

    def renewed(self) -> CallbackSet:
        """Return the same callbacks in their initial state."""
        return from_json(self.text)

    def on_evaluation(self, metrics: Mapping[str, float]) -> list[Action]:
        """Return the actions of one round, in the callbacks' order."""
        return [a for c in self.callbacks for a in c.on_evaluation(metrics)]

    def kept(self, metrics: Mapping[str, float], target: ExportTarget) -> None:
        """Tell callbacks of a kept model; see Callback."""
        for callback in self.callbacks:
            callback.kept(metrics, target)

    def check(self, *, export_dir: str, evaluates: bool) -> None:
        """Raise UserCodeError if a callback keeps a model and no folder is named.

        Without evaluations none is kept.
        """
        for callback in self.callbacks if evaluates else ():
            if callback.exports and not export_dir:
                raise UserCodeError(f"export.dir is empty, {callback.exports}")


def from_json(text: str) -> CallbackSet:
    """Return the callbacks of the master from a worker's description of the module's.

    Raises UserCodeError if the description is not a list of {"class": ...}.
    """
    try:
        described: Sequence[Mapping[str, Any]] = json.loads(text or "[]")
        found = [
            _KNOWN[one["class"]](one) for one in described if one["class"] in _KNOWN
        ]
        steps = [
            int(one["max_steps"]) for one in described if one["class"] == MAX_STEPS
        ]
    except (ValueError, TypeError, KeyError) as error:
        raise UserCodeError(
            f"the callbacks cannot be read: got {text!r}, expected a list of "
            f'{{"class": name, ...}} ({error}); check the parameters of `callbacks`'
        ) from error
    return CallbackSet(tuple(found), min(steps, default=0), text or "[]")
