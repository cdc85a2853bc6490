"""Prediction tasks: outputs of a loaded model, to the user's processor or to files.

Owns the pass over a task's records. Called by the loop. Knows nothing of formats.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Protocol

import keras
import tensorflow as tf

from elasticdl.errors import DataError
from elasticdl.job.tasks import LIVE, Task, TaskOutcome, TaskReport
from elasticdl.model.definition import ModelDefinition
from elasticdl.model.feeding import Feeder, kind_of
from elasticdl.model.tracing import GraphFunction
from elasticdl.worker.progress import WorkerProgress
from elasticdl.worker.tasks.records import LoadedTask
from elasticdl.worker.trainer import Trainer
from elasticdl.worker.uses.model_values import ModelValues
from elasticdl.worker.uses.prediction_files import (
    PredictionFiles,
    merged,
    named_outputs,
    of_records,
)


class Sink(Protocol):
    """Receiver of a task's predictions."""

    def batch(self, outputs: Any) -> None:
        """Take the outputs of a batch, as arrays."""

    def task_done(self, task: Task, numbers: Sequence[int] | None) -> None:
        """Make the predictions permanent. A task may be repeated.

        `numbers`: of the predicted records, where they are known.
        """

    def task_begins(self) -> None:
        """Discard what an interrupted task left."""


class FileSink:
    """The default: one file per task."""

    def __init__(
        self, files: PredictionFiles, *, of_any_length: Collection[str] = frozenset()
    ) -> None:
        """Write through `files`; see `prediction_files.merged`."""
        self._files = files
        self._of_any_length = of_any_length
        self._batches: list[Any] = []

    def task_begins(self) -> None:
        self._batches = []

    def batch(self, outputs: Any) -> None:
        self._batches.append(outputs)

    def task_done(self, task: Task, numbers: Sequence[int] | None) -> None:
        columns = merged(self._batches, of_any_length=self._of_any_length)
        self._batches = []
        if not any(columns.values()):
            return  # a file without columns would be of another form than the others
        self._files.write(task.task_id, of_records(columns, task.source, numbers))


def of_any_length(model: keras.Model) -> frozenset[str]:
    """Return the columns of the outputs [batch, None], as far as the model tells.

    A batch that is padded to a length of 1 has lists, as the others have.
    """
    # Of Functional models; a subclassed one has no such attribute.
    shapes = {
        name: getattr(tensor, "shape", ())
        for name, tensor in named_outputs(getattr(model, "output", None)).items()
    }
    return frozenset(name for name, shape in shapes.items() if shape[1:] == (None,))


class ProcessorSink:
    """Sink of the user's PredictionOutputsProcessor."""

    def __init__(
        self, processor: Any, definition: ModelDefinition, worker_index: int
    ) -> None:
        """Call `processor.process(predictions, worker_id)` per batch."""
        self._processor = processor
        self._code = definition.code
        self._worker_index = worker_index

    def task_begins(self) -> None:
        """Do nothing: a processor knows batches only."""

    def batch(self, outputs: Any) -> None:
        with self._code.running("PredictionOutputsProcessor.process"):
            self._processor.process(outputs, self._worker_index)

    def task_done(self, task: Task, numbers: Sequence[int] | None) -> None:
        """Do nothing: a processor writes with each batch."""


class Predictor:
    """Predicts tasks with the trainer's values."""

    def __init__(
        self,
        definition: ModelDefinition,
        feeder: Feeder,
        sink: Sink,
        *,
        trainer: Trainer,
        borrowed: ModelValues,
        progress: WorkerProgress,
    ) -> None:
        """Take a module with a built model, and a feeder in prediction mode."""
        self._feeder = feeder
        self._sink = sink
        self._trainer = trainer
        self._borrowed = borrowed
        self._progress = progress
        self._outputs = GraphFunction(definition.predict, reduce_retracing=True)

    def predict(self, loaded: LoadedTask) -> TaskReport:
        """Return the report of a prediction task."""
        task = loaded.task
        records = 0
        self._sink.task_begins()
        with self._borrowed.set_to(self._trainer.values(LIVE)):
            for batch in loaded.fed(self._feeder.batches(loaded.records)):
                self._progress.begins(kind_of(batch))
                outputs = self._outputs(batch.features)
                self._sink.batch(tf.nest.map_structure(_array, outputs))
                records += batch.num_records
                self._progress.ended()
        unfed = self._feeder.bad
        if not records and len(loaded.records) > len(unfed):
            raise DataError(f"{task.source}: feed made no batch of its records")
        self._sink.task_done(task, self._numbers(loaded))
        return TaskReport(
            task_id=task.task_id,
            lease_id=task.lease_id,
            outcome=TaskOutcome.DONE,
            records=records,
            bad_records=loaded.bad_with(unfed),
        )

    def _numbers(self, loaded: LoadedTask) -> list[int] | None:
        """Return the numbers of the records that were predicted, if they are known."""
        numbers = loaded.numbers
        if numbers is None or not self._feeder.order_preserved:
            return None
        unfed = {bad.index for bad in self._feeder.bad}
        return [n for place, n in enumerate(numbers) if place not in unfed]


def _array(output: Any) -> Any:
    return None if output is None else output.numpy()  # the model leaves some out
