"""EXPORT tasks: the final or the best model, written for serving.

Owns which values go where. Called by the loop. Knows nothing of formats.
"""

from __future__ import annotations

import json
import logging
from pathlib import Path

from elasticdl.checkpoint.layout import AVERAGE
from elasticdl.job.spec.job import ExportSpec
from elasticdl.job.tasks import ModelVersion, Task, TaskOutcome, TaskReport
from elasticdl.model.definition import ModelDefinition
from elasticdl.model.export import export_model
from elasticdl.model.optimizers import inner_optimizer
from elasticdl.worker.trainer import ModelSource
from elasticdl.worker.uses.model_values import ModelValues

log = logging.getLogger(__name__)

BEST = "best"


class ModelExporter:
    """Writes the model out."""

    def __init__(
        self,
        definition: ModelDefinition,
        spec: ExportSpec,
        *,
        trainer: ModelSource,
        borrowed: ModelValues,
    ) -> None:
        """Take a module with a built model, and where to write."""
        self._definition = definition
        self._spec = spec
        self._trainer = trainer
        self._borrowed = borrowed

    def export(self, task: Task) -> TaskReport:
        """Write the model; return the report with its paths."""
        model = task.model
        if task.target != BEST and inner_optimizer(self._definition.optimizer).use_ema:
            model = ModelVersion(AVERAGE)
        values = self._trainer.values(model)
        directory = Path(self._spec.dir)
        if task.target == BEST:
            directory /= BEST
        with self._borrowed.set_to(values):
            paths = export_model(
                self._definition.model,
                directory,
                self._spec.formats,
                input_signature=self._definition.input_signature,
            )
        log.info("Exported %s", ", ".join(str(path) for path in paths))
        return TaskReport(
            task_id=task.task_id,
            lease_id=task.lease_id,
            outcome=TaskOutcome.DONE,
            model_version=values.version,
            results_json=json.dumps({"paths": [str(path) for path in paths]}),
        )
