"""Training in one process: the plain Keras loop, no parameter servers.

Owns the version (its own step count) and the checkpoint that the master asks for.
Called by the loop through `Trainer`.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any

import keras

from elasticdl.checkpoint.layout import AVERAGE
from elasticdl.job.tasks import REMEMBERED_TASKS, ModelVersion
from elasticdl.model.optimizer_variables import refuse_later_ones, variables_of
from elasticdl.worker.local.own_step import OwnStep
from elasticdl.worker.steps.learning_rate import LearningRate
from elasticdl.worker.steps.variable_step import VariableStep
from elasticdl.worker.trainer import (
    BatchDone,
    BatchPosition,
    InModel,
    NanLossError,
)

log = logging.getLogger(__name__)


class LocalTrainer:
    """Trains in place, with the user's own optimizer."""

    def __init__(
        self,
        step: VariableStep | OwnStep,
        optimizer: keras.optimizers.Optimizer,
        *,
        rate: LearningRate,
        version: int,
        skip_nan: bool,
        between_steps: Callable[[int, Mapping[int, int]], bool],
    ) -> None:
        """Take a step that applies its gradients itself.

        Args:
            step: With the optimizer in it.
            optimizer: The same.
            rate: Its learning rate, set here.
            version: Of the values that the model has now.
            skip_nan: Go on after a loss that is not a number.
            between_steps: Called between steps with the version and, by task, the
                leading records trained; writes checkpoints when asked for.
        """
        self._step = step
        self._optimizer = optimizer
        self._begun_with = variables_of(optimizer)
        self._rate = rate
        self._version = version
        self._skip_nan = skip_nan
        self._between_steps = between_steps
        self._trained = 0
        self._applied: OrderedDict[int, int] = OrderedDict()

    @property
    def trained(self) -> int:
        return self._trained

    @property
    def acknowledged(self) -> int:
        return self._trained

    def train_batch(self, features: Any, labels: Any, at: BatchPosition) -> BatchDone:
        self._rate.set_for(self._version, at.epoch)
        loss = self._step.apply(features, labels)
        if not self._trained:
            refuse_later_ones(self._optimizer, self._begun_with)
        skipped = not abs(loss) < float("inf")
        if skipped and not self._skip_nan:
            raise NanLossError(f"loss is {loss}")
        self._version += 0 if skipped else 1
        self._trained += 1
        if at.records_done:
            self._applied[at.task_id] = at.records_done
            self._applied.move_to_end(at.task_id)
            if len(self._applied) > REMEMBERED_TASKS:
                self._applied.popitem(last=False)
        self.between_steps()
        return BatchDone(loss, self._version, skipped)

    def flush(self) -> None:
        """Do nothing: no batch is in progress between steps."""

    def recover(self) -> None:
        raise RuntimeError("strategy local has no PS that could be rewound")

    def values(self, model: ModelVersion) -> InModel:
        if model.snapshot == AVERAGE:  # as Keras's fit does when it ends
            self._optimizer.finalize_variable_values(self._step.variables)
        return InModel(self._version)

    def between_steps(self) -> None:
        self._between_steps(self._version, self._applied)

    def variables_changed(self) -> None:
        """Do nothing: the model's variables are the only copy of the values."""

    def close(self) -> None:
        """Do nothing: there is no connection to close."""
