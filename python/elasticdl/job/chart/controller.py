"""The chart's keys of controllers: `controller`.

Owns which there are. Part of `job.chart.values`.
"""

from __future__ import annotations

from pydantic import Field

from elasticdl.job.chart.training_jobs import TrainingJobsValues
from elasticdl.job.spec.base import SpecModel


class ControllerValues(SpecModel):
    """Processes of a platform that decide something for jobs."""

    training_jobs: TrainingJobsValues = Field(
        default_factory=TrainingJobsValues,
        description="The controller of TrainingJobs: a job as an object of Kubernetes, "
        "for `kubectl apply`, `get` and `scale`; docs/trainingjob.md.",
    )
