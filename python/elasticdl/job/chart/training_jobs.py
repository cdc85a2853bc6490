"""The chart's keys of the controller of TrainingJobs: `controller.trainingJobs`.

Owns each key, its default and its meaning. Part of `job.chart.controller`. Must not
know what the controller does.
"""

from __future__ import annotations

from typing import Any

from pydantic import Field

from elasticdl.job.chart.pods import PlatformPodValues
from elasticdl.job.spec.base import SpecModel
from elasticdl.job.spec.kubernetes_types import (
    ResourceRequirements,
)
from elasticdl.job.spec.labels import Image


def _resources() -> dict[str, Any]:
    return {
        "requests": {"cpu": "50m", "memory": "256Mi"},
        "limits": {"cpu": "1", "memory": "1Gi"},
    }


class DefinitionValues(SpecModel):
    """The CustomResourceDefinition."""

    create: bool = Field(
        True,
        description="Make it with this release, and keep it when that is uninstalled: "
        "without it all TrainingJobs of the cluster would go. It is one for the whole "
        "cluster: false in all platforms but one.",
    )


class TrainingJobsValues(PlatformPodValues):
    """The controller of TrainingJobs: a job as an object of Kubernetes."""

    enabled: bool = Field(
        False,
        description="Platform: run it, for the TrainingJobs of this namespace. It may "
        "do here what somebody may who submits jobs, but reads no Secret; "
        "docs/trainingjob.md.",
    )
    definition: DefinitionValues = Field(
        default_factory=DefinitionValues,
        description="The CustomResourceDefinition TrainingJob.",
    )
    image: Image = Field(
        "",
        description="Image; empty is `elasticdl/training-jobs` of `images.registry`, "
        "with the tag in `images.tag`.",
    )
    resources: ResourceRequirements = Field(
        default_factory=_resources,
        description="Requests and limits, as in a container. Helm, which renders the "
        "jobs' objects in it, needs most of it.",
    )
