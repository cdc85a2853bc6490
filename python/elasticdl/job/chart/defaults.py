"""The chart's key `jobs`: what a platform says for all jobs of its namespace.

Owns which keys of a job a platform may say. Used by `job.chart.values`. How it meets
what a job says is in `job.values.defaults`, and in the chart's `_defaults.tpl`.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from elasticdl.job.chart.network import CaBundleValues, ProxyValues
from elasticdl.job.chart.pods import PodsValues
from elasticdl.job.chart.sections import ImagesValues, StateValues
from elasticdl.job.spec.base import OBJECT_OR_NONE_PATTERN, SpecModel
from elasticdl.job.spec.kubernetes_types import NetworkPeer
from elasticdl.job.spec.labels import Annotations, Labels


class AccountNames(SpecModel):
    """Names of the accounts, not whether the chart creates them."""

    master: str = Field("", pattern=OBJECT_OR_NONE_PATTERN, description="Of masters.")
    job: str = Field(
        "", pattern=OBJECT_OR_NONE_PATTERN, description="Of PS and workers."
    )


class ClassName(SpecModel):
    """Name of a PriorityClass, not whether the chart creates it."""

    name: str = Field("", pattern=OBJECT_OR_NONE_PATTERN, description="Its name.")


class ClassNames(SpecModel):
    """The classes behind `high` and `low`."""

    high: ClassName = Field(default_factory=ClassName, description="Behind `high`.")
    low: ClassName = Field(default_factory=ClassName, description="Behind `low`.")


class MetricsReaders(SpecModel):
    """Who may read metrics."""

    metrics_from: list[NetworkPeer] = Field(
        default_factory=list, description="As `networkPolicy.metricsFrom`."
    )


class JobDefaults(SpecModel):
    """The job keys that a platform may set; only keys that are written count."""

    images: ImagesValues = Field(default_factory=ImagesValues, description="Images.")
    pods: PodsValues = Field(default_factory=PodsValues, description="Pods.")
    state: StateValues = Field(default_factory=StateValues, description="Volume.")
    proxy: ProxyValues = Field(default_factory=ProxyValues, description="Proxies.")
    ca_bundle: CaBundleValues = Field(
        default_factory=CaBundleValues, description="Certificate authorities."
    )
    service_accounts: AccountNames = Field(
        default_factory=AccountNames, description="Accounts."
    )
    priority_classes: ClassNames = Field(
        default_factory=ClassNames, description="Classes."
    )
    network_policy: MetricsReaders = Field(
        default_factory=MetricsReaders, description="Metrics."
    )
    openshift: bool = Field(False, description="As `openshift`.")
    common_labels: Labels = Field(default_factory=dict, description="Labels.")
    common_annotations: Annotations = Field(
        default_factory=dict, description="Annotations."
    )


class JobsValues(SpecModel):
    """What a platform says for all jobs of its namespace; docs/defaults.md."""

    create: bool = Field(
        True,
        description="Platform: make the ConfigMap. False for a second platform in one "
        "namespace, as one that runs the exporter alone.",
    )
    defaults: JobDefaults = Field(
        default_factory=JobDefaults,
        description="Keys of a job's values, with what they are where the job leaves "
        "them at the chart's default: `images`, `pods`, `state`, `proxy`, `caBundle`, "
        "`openshift`, `commonLabels`, `commonAnnotations`, "
        "`networkPolicy.metricsFrom`, and the names in `serviceAccounts` and "
        "`priorityClasses`. The platform's own `images.registry`, "
        "`images.pullSecrets`, `openshift`, accounts and classes are among them "
        "without being repeated.",
    )
    fixed: list[Annotated[str, Field(pattern=r"^[A-Za-z]+(\.[A-Za-z]+)*$")]] = Field(
        default_factory=list,
        description="Paths that jobs must leave as they are by then, as "
        "`images.registry`, `pods.common.securityContext` (for each role too) or "
        "`job.volumes`. A job that says something else is refused.",
    )
