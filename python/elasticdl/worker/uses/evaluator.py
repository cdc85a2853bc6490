"""Evaluation tasks, and the sum of them turned into results.

Owns the pass over a task's records with a pinned version in the model; what leaves is
the state of the metrics, never outputs. Called by the loop. Knows nothing of rounds.
"""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np

from elasticdl.job.tasks import Task, TaskOutcome, TaskReport
from elasticdl.model.definition import ModelDefinition
from elasticdl.model.feeding import Feeder, kind_of
from elasticdl.model.measures.masks import put_masks
from elasticdl.tensor import codec
from elasticdl.worker.progress import WorkerProgress
from elasticdl.worker.steps.step import Traced
from elasticdl.worker.tasks.records import LoadedTask
from elasticdl.worker.trainer import InModel, ModelSource, Values
from elasticdl.worker.uses.finite import Expect, any_values
from elasticdl.worker.uses.model_values import ModelValues


class Evaluator:
    """Evaluates tasks with the values of a snapshot."""

    def __init__(
        self,
        definition: ModelDefinition,
        feeder: Feeder,
        *,
        trainer: ModelSource,
        borrowed: ModelValues,
        progress: WorkerProgress,
        expect: Expect = any_values,
    ) -> None:
        """Take a module with a built model, and a feeder in evaluation mode.

        `expect` refuses values that the job is not to go on with.
        """
        self._feeder = feeder
        self._trainer = trainer
        self._borrowed = borrowed
        self._progress = progress
        self._expect = expect
        self._expected_in = -1  # a round, whose tasks have the same values
        self._metrics = definition.metrics()
        self._cached: tuple[str, Values | InModel] | None = None
        # Traced for any number of records: what Keras weighs by a batch's static size
        # (losses of single outputs) must not depend on which sizes came first.
        self._forward = Traced(definition.evaluate_batch, jit=False)
        self._is_traced = False

    def forget(self) -> None:
        """Drop the cached snapshot (the PS were rewound)."""
        self._cached = None

    def evaluate(self, loaded: LoadedTask) -> TaskReport:
        """Return the report of an evaluation task, with metric states to add."""
        task = loaded.task
        values = self._values(task)
        self._metrics.reset()
        records = 0
        with self._borrowed.set_to(values):
            self._look_at(task)
            for batch in loaded.fed(self._feeder.batches(loaded.records)):
                self._progress.begins(kind_of(batch))
                if not self._is_traced:
                    self._forward.trace([], [batch.features, batch.labels])
                    self._is_traced = True
                loss, outputs, masks = self._forward(batch.features, batch.labels)
                self._metrics.update(
                    batch.labels, put_masks(outputs, masks), loss, batch.num_records
                )
                records += batch.num_records
                self._progress.ended()
        return TaskReport(
            task_id=task.task_id,
            lease_id=task.lease_id,
            outcome=TaskOutcome.DONE,
            records=records,
            model_version=values.version,
            bad_records=loaded.bad_with(self._feeder.bad),
            state=encode_state(self._metrics.state()),
        )

    def _look_at(self, task: Task) -> None:
        if task.round != self._expected_in:
            self._expect()
            # A large table is not read for each task of a round.
            self._expected_in = task.round

    def summarize(self, task: Task) -> TaskReport:
        """Return the report of a SUMMARIZE task: results of the summed states."""
        self._metrics.load_state(decode_state(task.state))
        results = self._metrics.results()
        self._metrics.reset()
        return TaskReport(
            task_id=task.task_id,
            lease_id=task.lease_id,
            outcome=TaskOutcome.DONE,
            results_json=results_json(results),
        )

    def _values(self, task: Task) -> Values | InModel:
        model = task.model
        if not model.snapshot:
            return self._trainer.values(model)
        if self._cached is None or self._cached[0] != model.snapshot:
            self._cached = None  # not two versions in memory at once
            self._cached = (model.snapshot, self._trainer.values(model))
        return self._cached[1]


def encode_state(state: dict[str, np.ndarray[Any, Any]]) -> bytes:
    """Return metric states as one frame."""
    return codec.join(codec.encode(b"", state))


def decode_state(data: bytes) -> dict[str, np.ndarray[Any, Any]]:
    """Return the states that `encode_state` wrote."""
    return dict(codec.decode(data).tensors)


def results_json(results: dict[str, float]) -> str:
    """Return results as JSON; a value that is not finite becomes null."""
    return json.dumps({k: v if math.isfinite(v) else None for k, v in results.items()})
