"""The chart's own keys: what a values file may hold beside `kind` and `job`.

Owns each key, its default and its meaning; the chart's values.yaml, its README, its
schema and its defaults file are made from here; those of its larger sections are in
the other modules of `job.chart`. Read by `job.spec.job`, so that a misspelt key
is found on a laptop too. Must not know the job's fields, nor how pods look.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from elasticdl.job.chart.controller import ControllerValues
from elasticdl.job.chart.defaults import JobsValues
from elasticdl.job.chart.monitoring import MonitoringValues, metrics_readers
from elasticdl.job.chart.network import CaBundleValues, ProxyValues
from elasticdl.job.chart.platform import PlatformValues
from elasticdl.job.chart.pods import PodsValues
from elasticdl.job.chart.sections import ImagesValues, StateValues
from elasticdl.job.chart.tls import TlsValues
from elasticdl.job.spec.base import (
    OBJECT_OR_NONE_PATTERN,
    OBJECT_PATTERN,
    QUANTITY_PATTERN,
    PositiveInt,
    SpecModel,
)
from elasticdl.job.spec.kubernetes_types import NetworkPeer
from elasticdl.job.spec.labels import Annotations, Labels

# What only one kind of release reads, also a part of a section. The chart refuses it in
# the other kind, where it would do nothing.
PLATFORM_ONLY = (
    "nameOverride",
    "platform",
    "rbac",
    "claims",
    "controller",
    "monitoring.dashboards",
    "monitoring.rules",
    "monitoring.exporter",
    "monitoring.podMonitor",
)
JOB_ONLY = (
    "run",
    "state",
    "token",
    "tls",
    "pods",
    "proxy",
    "caBundle",
    "monitoring.scrapeAnnotations",
    "monitoring.tensorboard",
)


class TokenValues(SpecModel):
    """The token that every call between the job's roles carries."""

    existing_secret: str = Field(
        "",
        pattern=OBJECT_OR_NONE_PATTERN,
        description="Name of a Secret with the key `token`. Empty makes one, and keeps "
        "it over upgrades; that needs a cluster while the chart is rendered. With "
        "`helm template` it would be new each time: name one; under Argo CD name one, "
        "or ignore that difference, as gitops/ does.",
    )


class ServiceAccountsValues(SpecModel):
    """The accounts that pods run as."""

    create: bool = Field(True, description="Platform: make both.")
    master: str = Field(
        "elasticdl-master",
        pattern=OBJECT_PATTERN,
        description="Of masters; it has the Role, and its name.",
    )
    job: str = Field(
        "elasticdl-job",
        pattern=OBJECT_PATTERN,
        description="Of PS and workers: no rights, no token.",
    )
    annotations: Annotations = Field(
        default_factory=dict,
        description="Platform: for both.",
    )
    master_annotations: Annotations = Field(
        default_factory=dict, description="Platform: for that of masters alone."
    )
    job_annotations: Annotations = Field(
        default_factory=dict,
        description="Platform: for that of PS and workers alone, as a cloud's identity "
        "of those who read data.",
    )
    per_job: bool = Field(
        False,
        description="Job: its master has an account of its own, "
        "`elasticdl-<job>-master`, and a Role that names the job's own objects, in "
        "place of the platform's. Whoever submits it must be allowed to make both; "
        "docs/trust.md.",
    )


class NetworkPolicyValues(SpecModel):
    """Who may connect to a job's pods, if the network plug-in enforces policies."""

    enabled: bool = Field(
        True,
        description="Platform: close all pods of jobs. Job: open master and PS to the "
        "pods of the same job.",
    )
    metrics_from: list[NetworkPeer] = Field(
        default_factory=metrics_readers,
        description="Job: who may read metrics (port 8080), as a list of "
        "NetworkPolicyPeer: pods of the job's namespace, and of namespaces that are "
        "labelled `elasticdl.org/scrapes=true`, as that of Prometheus. Empty is "
        "anybody.",
    )


class RbacValues(SpecModel):
    """The masters' rights on the API server."""

    create: bool = Field(
        True, description="Make the Role and its binding, in the release's namespace."
    )


# The priorities that Kubernetes lets users have.
_LOWEST, _HIGHEST = -2_147_483_648, 1_000_000_000


def _class_name(default: str) -> Any:
    return Field(
        default,
        pattern=OBJECT_PATTERN,
        max_length=253,
        description="Name of the class; jobs have it from their platform.",
    )


def _class_value(default: int) -> Any:
    return Field(
        default,
        ge=_LOWEST,
        le=_HIGHEST,
        description="Priority. A pod without any class has 0; what is below -10 makes "
        "a cluster-autoscaler add no node.",
    )


class HighPriorityValues(SpecModel):
    """The class of masters and PS, without which a job cannot run."""

    name: str = _class_name("elasticdl-high")
    value: int = _class_value(-5)
    preemption_policy: Literal["PreemptLowerPriority", "Never"] = Field(
        "Never",
        description="`PreemptLowerPriority` lets its pods push out whatever is lower, "
        "in all namespaces.",
    )
    description: str = Field(
        "Masters and PS of training jobs: below all that has no class.",
        description="For people.",
    )


class LowPriorityValues(HighPriorityValues):
    """The class of workers."""

    name: str = _class_name("elasticdl-low")
    value: int = _class_value(-10)
    preemption_policy: Literal["PreemptLowerPriority", "Never"] = Field(
        "Never", description="Workers wait for room, and push nothing out."
    )
    description: str = Field(
        "Workers of training jobs: pushed out by all that is higher.",
        description="For people.",
    )


class PriorityClassesValues(SpecModel):
    """The classes behind the words `high` and `low` of `job.<role>.priority`."""

    create: bool = Field(
        True,
        description="Platform: make both, and keep them when the release is "
        "uninstalled: other namespaces use them. False where another release has made "
        "them, or where classes of the cluster are used.",
    )
    high: HighPriorityValues = Field(
        default_factory=HighPriorityValues,
        description="For `priority: high`, and the share of `worker.priority: 0.5`. "
        "Value and policy of a class never change: another value needs another name.",
    )
    low: LowPriorityValues = Field(
        default_factory=LowPriorityValues,
        description="For `priority: low`, the default of workers, and the rest of them "
        "in the share form.",
    )


class ClaimValues(SpecModel):
    """A PersistentVolumeClaim."""

    name: str = Field(pattern=OBJECT_PATTERN, description="Name.")
    existing: bool = Field(
        False, description="It is there already: the release leaves it alone."
    )
    size: str = Field("10Gi", pattern=QUANTITY_PATTERN, description="Size.")
    access_mode: Literal[
        "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod", "ReadOnlyMany"
    ] = Field(
        "ReadWriteMany",
        description="Access mode. ReadWriteOnce is enough where all pods of a job run "
        "on one node.",
    )
    storage_class: str = Field(
        "",
        pattern=OBJECT_OR_NONE_PATTERN,
        description="StorageClass; empty is the cluster's default.",
    )
    keep: bool = Field(
        True, description="Keep it, and the data, when the release is uninstalled."
    )


def _claims() -> list[ClaimValues]:
    return [ClaimValues(name="fileserver-claim")]


class ChartValues(SpecModel):
    """All of the chart's keys."""

    run: PositiveInt = Field(
        1,
        description="Job: one higher runs it again under the same release: a job that "
        "failed, was stopped or still runs goes on from its newest checkpoint, one "
        "that succeeded begins afresh. The only way to change the master's own pod "
        "with `helm upgrade`.",
    )
    name_override: str = Field(
        "",
        pattern=r"^([a-z]([-a-z0-9]{0,38}[a-z0-9])?)?$",
        description="Platform: what its NetworkPolicy and its exporter are called in "
        "place of `elasticdl`. Objects of a job keep their names, by which commands "
        "find them.",
    )
    common_labels: Labels = Field(
        default_factory=dict,
        description="Labels of every object of the release and of its pods, as a cost "
        "centre. In a running job they change with `run`.",
    )
    common_annotations: Annotations = Field(
        default_factory=dict,
        description="Annotations of every object of the release, but for its pods.",
    )
    openshift: bool = Field(
        False,
        description="Leave user and group of all pods to the cluster, as OpenShift's "
        "`restricted-v2` wants it: 10001 is taken out wherever it stands for one.",
    )
    images: ImagesValues = Field(
        default_factory=ImagesValues,
        description="The stock images: of a job's roles, and in a platform of its "
        "exporter and controller; its registry and pull secrets are the default of its "
        "jobs. `job.image` (all roles) and `job.<role>.image` go before "
        "them; the policy is `job.imagePullPolicy`.",
    )
    jobs: JobsValues = Field(
        default_factory=JobsValues,
        description="Defaults for all jobs of the namespace: in a platform they are "
        "said, and kept in the ConfigMap `elasticdl.defaults`. A job's release reads "
        "that; where Helm asks no cluster (Argo CD) it gets the same lines here, from "
        "a file of the platform as the last of its values files. docs/defaults.md.",
    )
    state: StateValues = Field(
        default_factory=StateValues,
        description="Job: the volume of the job's folder (journal, checkpoints), and "
        "usually of its data.",
    )
    token: TokenValues = Field(
        default_factory=TokenValues,
        description="Job: what every call between the job's roles carries.",
    )
    tls: TlsValues = Field(
        default_factory=TlsValues,
        description="Job: certificates, by which the job's roles encrypt their calls "
        "and know each other; docs/trust.md.",
    )
    pods: PodsValues = Field(
        default_factory=PodsValues,
        description="Job: what the job's pods have beyond the job's specification. "
        "Resources, priorities and the grace period are in `job`.",
    )
    proxy: ProxyValues = Field(
        default_factory=ProxyValues,
        description="Job: the site's proxies, as environment of all roles; what the "
        "job's own environment says goes before them.",
    )
    ca_bundle: CaBundleValues = Field(
        default_factory=CaBundleValues,
        description="Job: certificate authorities of the site.",
    )
    service_accounts: ServiceAccountsValues = Field(
        default_factory=ServiceAccountsValues,
        description="ServiceAccounts: the platform makes them, jobs name them.",
    )
    network_policy: NetworkPolicyValues = Field(
        default_factory=NetworkPolicyValues,
        description="NetworkPolicies, in force where the cluster's network plug-in "
        "knows them.",
    )
    platform: PlatformValues = Field(
        default_factory=PlatformValues,
        description="Platform: what the values of its jobs may ask for; docs/trust.md.",
    )
    rbac: RbacValues = Field(
        default_factory=RbacValues,
        description="Platform: what masters may do in this namespace.",
    )
    priority_classes: PriorityClassesValues = Field(
        default_factory=PriorityClassesValues,
        description="PriorityClasses, of the whole cluster: one platform makes them, "
        "jobs go by their names. As they stand training pushes nothing out, and "
        "everything else pushes out training; docs/priorities.md.",
    )
    claims: list[ClaimValues] = Field(
        default_factory=_claims,
        description="Platform: PersistentVolumeClaims for jobs' folders and data.",
    )
    controller: ControllerValues = Field(
        default_factory=ControllerValues,
        description="Platform: who decides the sizes of all elastic jobs together; "
        "docs/cluster.md.",
    )
    monitoring: MonitoringValues = Field(
        default_factory=MonitoringValues,
        description="Monitoring; docs/monitoring.md.",
    )
    global_: dict[str, Any] = Field(
        default_factory=dict,
        alias="global",
        description="Where this chart is part of another one; it reads nothing of it.",
    )
