"""EXPORT tasks: the final model and those of rounds, written for serving.

Owns which values go where: the model of a round is written aside, and moved to its
place by a task of its own, once the journal has it. Called by the loop. Knows nothing
of formats.
"""

from __future__ import annotations

import json
import logging
from pathlib import Path

from elasticdl.checkpoint.layout import AVERAGE
from elasticdl.job.spec.job import ExportSpec
from elasticdl.job.tasks import (
    ExportTarget,
    ModelVersion,
    Task,
    TaskOutcome,
    TaskReport,
)
from elasticdl.model.definition import ModelDefinition
from elasticdl.model.export import export_model
from elasticdl.model.optimizers import ends_with_other_values
from elasticdl.worker.trainer import ModelSource
from elasticdl.worker.uses.finite import Expect, any_values
from elasticdl.worker.uses.model_values import ModelValues
from elasticdl.worker.uses.models_aside import Aside, RoundOf, clear_left_aside

log = logging.getLogger(__name__)


class ModelExporter:
    """Writes the model out."""

    def __init__(
        self,
        definition: ModelDefinition,
        spec: ExportSpec,
        *,
        job: str,
        trainer: ModelSource,
        borrowed: ModelValues,
        expect: Expect = any_values,
    ) -> None:
        """Take a module with a built model, where to write, and the job's name.

        `expect` refuses values that are not to be written.
        """
        self._definition = definition
        self._spec = spec
        self._job = job
        self._trainer = trainer
        self._borrowed = borrowed
        self._expect = expect

    def export(self, task: Task) -> TaskReport:
        """Write or move a model; return the report with its paths."""
        directory = Path(self._spec.dir)
        version = 0
        if task.move:
            place = _place(directory, task.target)
            paths = self._aside(task).move_to(place, self._spec.formats)
        elif task.round:
            aside = self._aside(task)
            aside.clear(but=task.beside)
            version, paths = self._write(task.model, aside.path)
        else:
            others = ends_with_other_values(self._definition.optimizer)
            model = ModelVersion(AVERAGE) if others else task.model
            version, paths = self._write(model, directory)
        if task.target == ExportTarget.FINAL:
            clear_left_aside(directory, RoundOf(self._job, task.life, task.beside))
        log.info("Exported %s", ", ".join(str(path) for path in paths))
        return TaskReport(
            task_id=task.task_id,
            lease_id=task.lease_id,
            outcome=TaskOutcome.DONE,
            model_version=version,
            results_json=json.dumps({"paths": [str(path) for path in paths]}),
        )

    def _aside(self, task: Task) -> Aside:
        # What is restored at the end was kept for that.
        final = task.target == ExportTarget.FINAL
        target = ExportTarget.RESTORED if final else ExportTarget(task.target)
        model = RoundOf(self._job, task.life, task.round)
        return Aside(Path(self._spec.dir), target, model)

    def _write(self, model: ModelVersion, directory: Path) -> tuple[int, list[Path]]:
        """Write a version's values; return which it was, and the paths."""
        values = self._trainer.values(model)
        with self._borrowed.set_to(values):
            self._expect()
            paths = export_model(
                self._definition.model,
                directory,
                self._spec.formats,
                input_signature=self._definition.input_signature,
            )
        return values.version, paths


def _place(directory: Path, target: str) -> Path:
    return directory / target if target == ExportTarget.BEST else directory
