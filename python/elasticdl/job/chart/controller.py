"""The chart's keys below `controller`: who decides the sizes of all jobs together.

Owns each key, its default and its meaning, but for those of the controller of
TrainingJobs. Used by `job.chart.values`. Must not know how sizes are decided.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from elasticdl.job.chart.monitoring import metrics_readers
from elasticdl.job.chart.pods import PlatformPodValues
from elasticdl.job.chart.training_jobs import TrainingJobsValues
from elasticdl.job.spec.base import OBJECT_OR_NONE_PATTERN, SpecModel
from elasticdl.job.spec.kubernetes_types import (
    NetworkPeer,
    ResourceRequirements,
)

_Share = Annotated[float, Field(gt=0, le=1)]


def _resources() -> dict[str, Any]:
    return {
        "requests": {"cpu": "100m", "memory": "192Mi"},
        "limits": {"cpu": "1", "memory": "512Mi"},
    }


def _ceilings() -> dict[str, float]:
    return {"cpu": 0.97, "memory": 0.97}


class RunsInValues(SpecModel):
    """The platform whose controller decides here too."""

    namespace: str = Field(
        "",
        pattern=OBJECT_OR_NONE_PATTERN,
        description="Its namespace; empty is none.",
    )
    account: str = Field(
        "elasticdl-controller",
        pattern=OBJECT_OR_NONE_PATTERN,
        description="The account of its controller.",
    )


class ControllerValues(PlatformPodValues):
    """The controller of a cluster."""

    enabled: bool = Field(
        False,
        description="Platform: run it; one is enough for a cluster. It reads nodes and "
        "pods of all namespaces, and changes ConfigMaps of this one.",
    )
    training_jobs: TrainingJobsValues = Field(
        default_factory=TrainingJobsValues,
        description="The controller of TrainingJobs: a job as an object of Kubernetes, "
        "for `kubectl apply`, `get` and `scale`; docs/trainingjob.md.",
    )
    runs_in: RunsInValues = Field(
        default_factory=RunsInValues,
        description="Platform: let the controller of another platform decide about the "
        "jobs of this namespace.",
    )
    also_in: list[str] = Field(
        default_factory=list,
        description="Namespaces whose platforms name this one in `controller.runsIn`. "
        "It finds them by their pods; named here, it sees a job before it has any.",
    )
    replicas: int = Field(
        2, ge=1, description="Pods of it; one decides, the others wait for its Lease."
    )
    ceilings: dict[str, _Share] = Field(
        default_factory=_ceilings,
        description="Part of what all nodes have that pods may hold, by resource: "
        "workers are added up to there, and leave when others need more. What is not "
        "named is 1.",
    )
    freeze_seconds: float = Field(
        30.0,
        ge=0,
        description="A job that gave or got workers for the sake of fairness is left "
        "alone for so long.",
    )
    resources: ResourceRequirements = Field(
        default_factory=_resources,
        description="Requests and limits, as in a container.",
    )
    metrics_from: list[NetworkPeer] = Field(
        default_factory=metrics_readers,
        description="Who may read its metrics (port 8080), as a list of "
        "NetworkPolicyPeer; as `networkPolicy.metricsFrom`.",
    )
