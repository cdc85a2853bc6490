"""The chart's keys below `pods`: what pods have beyond the job's specification.

Owns each key, its default and its meaning. Used by `job.chart.values`. Must not know
how the templates use them.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import Field

from elasticdl.job.spec.base import (
    OBJECT_OR_NONE_PATTERN,
    QUANTITY_PATTERN,
    SpecModel,
)
from elasticdl.job.spec.kubernetes_types import (
    Affinity,
    Container,
    DnsConfig,
    EnvFromSource,
    EnvVar,
    HostAlias,
    Lifecycle,
    PodSecurityContext,
    ResourceClaim,
    ResourceRequirements,
    SecurityContext,
    Toleration,
    TopologySpread,
    Volume,
    VolumeMount,
)
from elasticdl.job.spec.labels import Annotations, Image, Labels


class OwnPodValues(SpecModel):
    """Settings of pods that are no role of a job: exporter, TensorBoard."""

    labels: Labels = Field(default_factory=dict, description="Labels of its pod.")
    annotations: Annotations = Field(
        default_factory=dict, description="Annotations of its pod."
    )
    env: list[EnvVar] = Field(
        default_factory=list, description="Environment, as in a container."
    )
    affinity: Affinity = Field(
        default_factory=dict, description="Affinity, as in a pod."
    )
    priority_class_name: str = Field(
        "",
        pattern=OBJECT_OR_NONE_PATTERN,
        description="PriorityClass; empty is the cluster's default.",
    )


def pod_security() -> dict[str, Any]:
    return {
        "runAsNonRoot": True,
        "runAsUser": 10001,
        "runAsGroup": 10001,
        "fsGroup": 10001,
        "fsGroupChangePolicy": "OnRootMismatch",
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def container_security() -> dict[str, Any]:
    return {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


class PlatformPodValues(OwnPodValues):
    """Settings of the pods of a platform's own process: exporter, controllers."""

    enabled: bool = Field(False, description="Platform: run it.")
    image: Image = Field(
        "", description="Image; empty is that of masters, as `images` says."
    )
    image_pull_policy: Literal["Always", "IfNotPresent", "Never"] = Field(
        "IfNotPresent", description="When it is pulled."
    )
    pull_secrets: list[str] = Field(
        default_factory=list, description="Names of Secrets that it is pulled with."
    )
    resources: ResourceRequirements = Field(
        default_factory=dict, description="Requests and limits, as in a container."
    )
    node_selector: Labels = Field(
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


class PodValues(SpecModel):
    """Settings of the pods of one role beyond the job's specification.

    A key with null is told to the chart: in a role it takes away what `common` says.
    """

    null_is_a_value: ClassVar[bool] = True

    labels: Labels | None = Field(
        default_factory=dict, description="Labels of the pods."
    )
    annotations: Annotations | None = Field(
        default_factory=dict, description="Annotations of the pods."
    )
    node_selector: Labels | None = Field(
        default_factory=dict, description="Labels that their nodes must have."
    )
    affinity: Affinity | None = Field(
        default_factory=dict, description="Affinity, as in a pod."
    )
    tolerations: list[Toleration] | None = Field(
        default_factory=list, description="Tolerations, as in a pod."
    )
    topology_spread_constraints: list[TopologySpread] | None = Field(
        default_factory=list, description="Topology spread constraints, as in a pod."
    )
    runtime_class_name: str | None = Field(
        "", pattern=OBJECT_OR_NONE_PATTERN, description="RuntimeClass, as `nvidia`."
    )
    scheduler_name: str | None = Field(
        "",
        pattern=OBJECT_OR_NONE_PATTERN,
        description="Scheduler; empty is the cluster's own.",
    )
    env: list[EnvVar] | None = Field(
        default_factory=list,
        description="Environment in the form of a container, which also reads Secrets, "
        "ConfigMaps and fields of the pod; plain values fit into `job.env` too.",
    )
    env_from: list[EnvFromSource] | None = Field(
        default_factory=list,
        description="Whole Secrets and ConfigMaps as environment, as in a container.",
    )
    volumes: list[Volume] | None = Field(
        default_factory=list,
        description="Volumes of any kind, as in a pod; claims and host paths fit into "
        "`job.volumes` too.",
    )
    volume_mounts: list[VolumeMount] | None = Field(
        default_factory=list, description="Where they appear, as in a container."
    )
    tmp_size_limit: str | None = Field(
        "",
        pattern=f"{QUANTITY_PATTERN}|^$",
        description="Most that `/tmp` may hold, on the node's disk: a pod that writes "
        "more is evicted. Empty is no limit.",
    )
    init_containers: list[Container] | None = Field(
        default_factory=list, description="Run before the role, as in a pod."
    )
    sidecars: list[Container] | None = Field(
        default_factory=list,
        description="Containers that run beside the role and end with it, as in a pod: "
        "made as init containers with `restartPolicy: Always`. One without a security "
        "context has that of the role.",
    )
    host_aliases: list[HostAlias] | None = Field(
        default_factory=list, description="Lines of `/etc/hosts`, as in a pod."
    )
    dns_config: DnsConfig | None = Field(
        default_factory=dict, description="DNS settings, as in a pod."
    )
    host_users: bool | None = Field(
        True,
        description="false gives the pods user ids of their own on the node (a user "
        "namespace), where the cluster can.",
    )
    resource_claims: list[ResourceClaim] | None = Field(
        default_factory=list,
        description="Devices by dynamic resource allocation, as in a pod: the role's "
        "container is given all of them.",
    )
    lifecycle: Lifecycle | None = Field(
        default_factory=dict,
        description="Hooks of the role's container, as in a pod. What runs before the "
        "stop takes from the time that a role has to end.",
    )
    security_context: PodSecurityContext | None = Field(
        default_factory=dict,
        description="Security context of the pod, over the one of all roles.",
    )
    container_security_context: SecurityContext | None = Field(
        default_factory=dict,
        description="Security context of the container, over the one of all roles.",
    )


class CommonPodValues(PodValues):
    """What the pods of all roles have."""

    security_context: PodSecurityContext | None = Field(
        default_factory=pod_security,
        description="Security context of the pod: the restricted Pod Security "
        "Standard. A key with null is left to the cluster, as `runAsUser: null`.",
    )
    container_security_context: SecurityContext | None = Field(
        default_factory=container_security,
        description="Security context of the container, the same. Writable are `/tmp` "
        "and the volumes.",
    )


class PodsValues(SpecModel):
    """Pod settings: lists of `common` and a role are joined, other keys replaced."""

    common: CommonPodValues = Field(
        default_factory=CommonPodValues, description="All roles."
    )
    master: PodValues = Field(
        default_factory=PodValues,
        description="The master alone; the same keys, null takes away what `common` "
        "says. Cannot change while the job runs, nor can what `common` says: "
        "Kubernetes keeps a Job's pod as it is.",
    )
    ps: PodValues = Field(
        default_factory=PodValues, description="PS alone; the same keys."
    )
    worker: PodValues = Field(
        default_factory=PodValues, description="Workers alone; the same keys."
    )
