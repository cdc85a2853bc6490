"""The chart's keys of the controller of TrainingJobs: `controller.trainingJobs`.

Owns each key, its default and its meaning. Part of `job.chart.controller`. Must not
know what the controller does.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from elasticdl.job.chart.pods import OwnPodValues, container_security, pod_security
from elasticdl.job.spec.base import SpecModel
from elasticdl.job.spec.kubernetes_types import (
    PodSecurityContext,
    ResourceRequirements,
    SecurityContext,
    Toleration,
)


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


class TrainingJobsValues(OwnPodValues):
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
    image: str = Field(
        "",
        description="Image; empty is `elasticdl/training-jobs` of `images.registry`, "
        "with the tag in `images.tag`.",
    )
    image_pull_policy: Literal["Always", "IfNotPresent", "Never"] = Field(
        "IfNotPresent", description="When it is pulled."
    )
    pull_secrets: list[str] = Field(
        default_factory=list, description="Names of Secrets that it is pulled with."
    )
    resources: ResourceRequirements = Field(
        default_factory=_resources,
        description="Requests and limits, as in a container. Helm, which renders the "
        "jobs' objects in it, needs most of it.",
    )
    node_selector: dict[str, str] = Field(
        default_factory=dict, description="Labels that its node must have."
    )
    tolerations: list[Toleration] = Field(
        default_factory=list, description="Tolerations, as in a pod."
    )
    security_context: PodSecurityContext = Field(
        default_factory=pod_security,
        description="Security context of the pod; a key with null is left to the "
        "cluster.",
    )
    container_security_context: SecurityContext = Field(
        default_factory=container_security,
        description="Security context of the container, the same.",
    )
