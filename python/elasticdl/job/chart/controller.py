"""The chart's keys below `controller`: who decides the sizes of all jobs together.

Owns each key, its default and its meaning. Used by `job.chart.values`. Must not know
how sizes are decided.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from elasticdl.job.chart.monitoring import metrics_readers
from elasticdl.job.chart.pods import OwnPodValues, container_security, pod_security
from elasticdl.job.spec.base import OBJECT_OR_NONE_PATTERN, SpecModel
from elasticdl.job.spec.kubernetes_types import (
    NetworkPeer,
    PodSecurityContext,
    ResourceRequirements,
    SecurityContext,
    Toleration,
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


class ControllerValues(OwnPodValues):
    """The controller of a cluster."""

    enabled: bool = Field(
        False,
        description="Platform: run it; one is enough for a cluster. It reads nodes and "
        "pods of all namespaces, and changes ConfigMaps of this one.",
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
    image: str = Field(
        "", description="Image; empty is that of masters, as `images` says."
    )
    image_pull_policy: Literal["Always", "IfNotPresent", "Never"] = Field(
        "IfNotPresent", description="When it is pulled."
    )
    pull_secrets: list[str] = Field(
        default_factory=list, description="Names of Secrets that it is pulled with."
    )
    resources: ResourceRequirements = Field(
        default_factory=_resources,
        description="Requests and limits, as in a container.",
    )
    node_selector: dict[str, str] = Field(
        default_factory=dict, description="Labels that its nodes must have."
    )
    tolerations: list[Toleration] = Field(
        default_factory=list, description="Tolerations, as in a pod."
    )
    security_context: PodSecurityContext = Field(
        default_factory=pod_security,
        description="Security context of the pods; a key with null is left to the "
        "cluster.",
    )
    container_security_context: SecurityContext = Field(
        default_factory=container_security,
        description="Security context of the container, the same.",
    )
    metrics_from: list[NetworkPeer] = Field(
        default_factory=metrics_readers,
        description="Who may read its metrics (port 8080), as a list of "
        "NetworkPolicyPeer; as `networkPolicy.metricsFrom`.",
    )
