"""A trainer for jobs that do not train: the values of a checkpoint, nothing else.

Owns loading them into the model once. Called by the loop through `Trainer`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import keras

from elasticdl.checkpoint import reshard
from elasticdl.checkpoint.layout import AVERAGE
from elasticdl.errors import JobError, UnfitError
from elasticdl.job.tasks import ModelVersion
from elasticdl.model.state import is_seed, non_trainable
from elasticdl.model.variables import mismatches, trainable_variables
from elasticdl.worker.local.checkpoint import LocalState
from elasticdl.worker.trainer import BatchDone, BatchPosition, InModel
from elasticdl.worker.untrained import load_untrained


class FixedTrainer:
    """Trainer of evaluation and prediction jobs, which only loads a model."""

    trained = 0
    acknowledged = 0

    def __init__(
        self,
        model: keras.Model,
        path: Path,
        *,
        optimizer: Callable[[], LocalState] | None = None,
    ) -> None:
        """Load a checkpoint into the model.

        `optimizer`: it says itself with which values training ends.

        Raises CheckpointError if it is missing, torn, or of another model.
        """
        whole = reshard.load_all(path)
        # Averages are what a model trained with them is meant to be used with.
        averages = {} if optimizer else whole.slots.get(AVERAGE, {})
        values = {**whole.states, **whole.values, **averages}
        variables = trainable_variables(model)
        wrong = mismatches(variables, variables, values)
        if wrong:
            raise UnfitError(
                f"{path}: does not fit the model: {'; '.join(wrong)}; "
                "expected a checkpoint of the same model module and parameters"
            )
        for item in variables:
            item.variable.assign(values[item.name])
        state = non_trainable(model)
        # Each worker has seeds of its own, whatever those of one trainer were.
        own = [item for item in state.own if not is_seed(item)]
        load_untrained(replace(state, own=own), values, path)
        if optimizer is not None:
            optimizer().end(path, whole)
        self.version = whole.version

    def train_batch(self, features: Any, labels: Any, at: BatchPosition) -> BatchDone:
        del features, labels, at
        raise JobError("a job that does not train was given a training task")

    def flush(self) -> None:
        """Do nothing: nothing is trained."""

    def recover(self) -> None:
        """Do nothing: there are no PS."""

    def values(self, model: ModelVersion) -> InModel:
        del model
        return InModel(self.version)

    def between_steps(self) -> None:
        """Do nothing: there are no steps."""

    def variables_changed(self) -> None:
        """Do nothing: the model's variables are the only copy of the values."""

    def close(self) -> None:
        """Do nothing: there is no connection to close."""
