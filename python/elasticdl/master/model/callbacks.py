"""Callbacks that need only evaluation results: they run in the master.

Owns early stopping, best model and learning-rate reduction, with the parameters and the
arithmetic of the Keras callbacks of the same names, one evaluation round in the place
of an epoch. Called by `master.model.evaluation_rounds`. Pure: the state is the history
of results, so a restarted master feeds the journaled results again.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from elasticdl.errors import UserCodeError

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
class KeepBest:
    """Action: export the model of the finished round as the best so far."""

    reason: str


Action = StopTraining | ScaleLearningRate | KeepBest


class Callback(Protocol):
    """Reacts to each evaluation with actions."""

    def on_evaluation(self, metrics: Mapping[str, float]) -> list[Action]:
        """Return the actions that follow from the metrics of a round."""

    def kept(self, metrics: Mapping[str, float]) -> None:
        """Note that a round's model is kept, even if the round does not count.

        Comes before all evaluations.
        """


class _OfTheCourse:
    """Base of callbacks for which only rounds that count matter."""

    def kept(self, metrics: Mapping[str, float]) -> None:
        """Do nothing: a round that counts is reported by `on_evaluation`."""


class _Monitor:
    """Whether a metric improved by at least `min_delta`."""

    def __init__(self, parameters: Mapping[str, Any]) -> None:
        self.name = str(parameters.get("monitor", "val_loss"))
        mode = parameters.get("mode", "auto")
        known = any(word in self.name for word in _GREATER_IS_BETTER)
        self._sign = 1.0 if mode == "max" or (mode != "min" and known) else -1.0
        self._min_delta = abs(float(parameters.get("min_delta", 0.0) or 0.0))
        self.best: float | None = None
        baseline = parameters.get("baseline")
        if baseline is not None:
            self.best = float(baseline)
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
        better = self.best is None or self._sign * (value - self.best) > self._min_delta
        if value == value and better:  # noqa: PLR0124 - false for NaN alone
            self.best = value
            return True
        return False


class EarlyStopping(_OfTheCourse):
    """Stops when the metric has not improved for `patience` rounds."""

    def __init__(self, parameters: Mapping[str, Any]) -> None:
        """Take the parameters of keras.callbacks.EarlyStopping."""
        self._monitor = _Monitor(parameters)
        self._patience = int(parameters.get("patience", 0))
        self._skip = int(parameters.get("start_from_epoch", 0))
        self._wait = 0
        self._stopped = False

    def on_evaluation(self, metrics: Mapping[str, float]) -> list[Action]:
        """Return StopTraining once, when patience is exhausted."""
        value = self._monitor.value(metrics)
        if value is None or self._stopped:
            return []
        if self._skip > 0:
            self._skip -= 1
            return []
        if self._monitor.improved(value):
            self._wait = 0
            return []
        self._wait += 1
        if self._wait < max(1, self._patience):
            return []
        self._stopped = True
        return [
            StopTraining(
                f"early stopping: {self._monitor.name} has not improved on "
                f"{self._monitor.best} for {self._wait} evaluations"
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

    def __init__(self, parameters: Mapping[str, Any]) -> None:
        """Take the parameters of keras.callbacks.ModelCheckpoint."""
        self._monitor = _Monitor(parameters)
        self._best_only = bool(parameters.get("save_best_only", True))

    def kept(self, metrics: Mapping[str, float]) -> None:
        """Take a kept model's metric as the bar for the next ones."""
        value = self._monitor.value(metrics)
        if value is not None:
            self._monitor.improved(value)

    def on_evaluation(self, metrics: Mapping[str, float]) -> list[Action]:
        """Return KeepBest if the round is the best so far."""
        value = self._monitor.value(metrics)
        if value is None:
            return []
        if self._monitor.improved(value) or not self._best_only:
            return [KeepBest(f"{self._monitor.name} is {value:.6g}")]
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

    def kept(self, metrics: Mapping[str, float]) -> None:
        """Tell callbacks of a kept model; see Callback."""
        for callback in self.callbacks:
            callback.kept(metrics)


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
