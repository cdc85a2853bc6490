"""The chart's keys of monitoring: what Grafana and Prometheus are given.

Owns each key, its default and its meaning, as `job.chart.values` does for the others.
Must not know what dashboards and rules hold.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from elasticdl.job.chart.pods import OwnPodValues, PlatformPodValues
from elasticdl.job.names import LABEL_SCRAPES
from elasticdl.job.spec.base import OBJECT_OR_NONE_PATTERN, SpecModel
from elasticdl.job.spec.kubernetes_types import (
    NetworkPeer,
    ResourceRequirements,
)
from elasticdl.job.spec.labels import (
    LABEL_KEY_PATTERN,
    LABEL_VALUE_PATTERN,
    Image,
    Labels,
    PrometheusLabels,
)

# Prometheus has no durations above 292 years, and drops all rules beside one.
_WholeSeconds = Annotated[int, Field(ge=0, le=1_000_000_000)]
_Share = Annotated[float, Field(gt=0, le=1)]
_Factor = Annotated[float, Field(ge=1)]


def metrics_readers() -> list[dict[str, Any]]:
    """Return who may read metrics: this namespace and namespaces with its label."""
    labels = {LABEL_SCRAPES: "true"}
    return [{"podSelector": {}}, {"namespaceSelector": {"matchLabels": labels}}]


class DashboardsValues(SpecModel):
    """The dashboards, as ConfigMaps that Grafana's sidecar loads."""

    enabled: bool = Field(False, description="Platform: make them.")
    label: str = Field(
        "grafana_dashboard",
        pattern=LABEL_KEY_PATTERN,
        description="Label that the sidecar looks for.",
    )
    label_value: str = Field(
        "1", pattern=LABEL_VALUE_PATTERN, description="Value of that label."
    )
    folder: str = Field(
        "",
        description="Grafana's folder, as annotation `grafana_folder`; empty is what "
        "the sidecar has.",
    )


class ThresholdsValues(SpecModel):
    """Thresholds of the alerts."""

    no_step_seconds: _WholeSeconds = Field(
        600,
        description="ElasticDLNoStep: seconds in which workers could train and made no "
        "step.",
    )
    preparing_seconds: _WholeSeconds = Field(
        3600, description="ElasticDLPreparingTooLong: seconds until a job trains."
    )
    below_minimum_seconds: _WholeSeconds = Field(
        600, description="ElasticDLBelowMinimum: seconds with too few workers."
    )
    ps_pending_seconds: _WholeSeconds = Field(
        600, description="ElasticDLPsPending: seconds that a PS is pending."
    )
    checkpoint_intervals: _Factor = Field(
        3,
        description="ElasticDLCheckpointTooOld: age of work that no checkpoint holds "
        "over the interval that the job asks for (or a minute, where that is shorter).",
    )
    volume_free_ratio: _Share = Field(
        0.05,
        description="ElasticDLVolumeNearFull: share that is free of the volume with "
        "the job's folder.",
    )
    journal_blocked_seconds: _WholeSeconds = Field(
        20, description="ElasticDLJournalBlocked: seconds of waiting for the volume."
    )
    ps_memory_ratio: _Share = Field(
        0.85, description="ElasticDLPsMemory: memory of a PS over its limit."
    )
    replay_ratio: _Share = Field(
        0.2, description="ElasticDLReplayRatio: replayed records over all given out."
    )
    goodput_ratio: _Share = Field(
        0.3,
        description="ElasticDLGoodputLow: share of the time in which workers ran and "
        "had training to do.",
    )
    relaunches: int = Field(
        10,
        ge=0,
        description="ElasticDLRelaunchStorm: replicas that failed in half an hour.",
    )
    master_restarts: int = Field(
        2, ge=0, description="ElasticDLMasterRestarted: restarts in an hour."
    )
    nonfinite_ratio: _Share = Field(
        0.01,
        description="ElasticDLNonFiniteLoss: share of the batches of half an hour.",
    )
    hot_shard_ratio: _Factor = Field(
        1.5,
        description="ElasticDLHotShard: traffic of a PS over the mean of the job's. "
        "With two PS it is 2 at most.",
    )
    master_absent_seconds: _WholeSeconds = Field(
        600, description="ElasticDLMasterAbsent: seconds without a master that runs."
    )
    target_down_seconds: _WholeSeconds = Field(
        600, description="ElasticDLTargetDown: seconds that a process does not answer."
    )


class AlertValues(SpecModel):
    """Overrides of one alert by a platform."""

    enabled: bool = Field(True, description="Whether it is there at all.")
    severity: str = Field("", description="Its label `severity`; empty is ours.")
    labels: PrometheusLabels = Field(
        default_factory=dict, description="More labels, as of a team or a route."
    )


class RulesValues(SpecModel):
    """Alerts and recording rules, as a PrometheusRule of the Prometheus operator."""

    enabled: bool = Field(
        False,
        description="Platform: make it; once for each Prometheus, since the rules are "
        "about the jobs of all namespaces.",
    )
    labels: Labels = Field(
        default_factory=dict,
        description="Labels that the operator's `ruleSelector` asks for, as "
        "`release: prometheus`.",
    )
    alert_labels: PrometheusLabels = Field(
        default_factory=dict, description="Labels of all alerts."
    )
    alerts: dict[str, AlertValues] = Field(
        default_factory=dict,
        description="Alerts by name, where one shall be off, or have another severity "
        "or more labels: `ElasticDLHotShard: {enabled: false}`.",
    )
    runbook_url: str = Field(
        "https://github.com/elasticdl/elasticdl/blob/main/docs/monitoring.md",
        description="Page of the runbooks; `#` and the alert's name in small letters "
        "come behind it.",
    )
    thresholds: ThresholdsValues = Field(
        default_factory=ThresholdsValues,
        description="When alerts fire. A job says its own in `job.alerts`.",
    )


def _exporter_resources() -> dict[str, Any]:
    return {
        "requests": {"cpu": "50m", "memory": "128Mi"},
        "limits": {"cpu": "500m", "memory": "512Mi"},
    }


class ExporterValues(PlatformPodValues):
    """The platform exporter: who uses what in the cluster."""

    enabled: bool = Field(
        False,
        description="Platform: run it; one is enough for a cluster. It reads nodes, "
        "pods and Jobs of all namespaces, by a ClusterRole, and writes nothing.",
    )
    serving_priority: int = Field(
        1,
        description="Pods of at least this priority count as serving. 0 also counts "
        "those that have no PriorityClass.",
    )
    serving_labels: dict[str, str] = Field(
        default_factory=dict,
        description="Pods with all these labels count as serving too.",
    )
    resources: ResourceRequirements = Field(
        default_factory=_exporter_resources,
        description="Requests and limits, as in a container. It keeps 700 bytes of "
        "each pod, but holds the whole list for a moment when it begins: more than "
        "5,000 pods need more memory.",
    )
    metrics_from: list[NetworkPeer] = Field(
        default_factory=metrics_readers,
        description="Who may read its metrics (port 8080), as a list of "
        "NetworkPolicyPeer; as `networkPolicy.metricsFrom`.",
    )


class PodMonitorValues(SpecModel):
    """The PodMonitor that the Prometheus operator scrapes by."""

    enabled: bool = Field(
        False,
        description="Platform: make it, for the pods of all jobs of this namespace "
        "and, with it, for the exporter.",
    )
    labels: Labels = Field(
        default_factory=dict,
        description="Labels that the operator's `podMonitorSelector` asks for, as "
        "`release: prometheus`.",
    )
    interval: str = Field(
        "15s", pattern=r"^[0-9]+(ms|s|m)$", description="Time between two scrapes."
    )
    scrape_timeout: str = Field(
        "",
        pattern=r"^([0-9]+(ms|s|m))?$",
        description="How long one may take; empty is what Prometheus has.",
    )
    sample_limit: int = Field(
        0,
        ge=0,
        description="Most series of one pod: of one that shows more nothing is taken. "
        "0 is no limit; a worker shows about 50.",
    )
    namespace: str = Field(
        "",
        description="Namespace to make the PodMonitors in, where Prometheus looks in "
        "one alone; empty is the release's.",
    )
    relabelings: list[dict[str, Any]] = Field(
        default_factory=list,
        description="Rules for the labels of targets, as in a PodMonitor, after those "
        "that make `namespace`, `training_job`, `role` and `index`. Where several "
        "clusters share a store, `- {targetLabel: cluster, replacement: NAME}`.",
    )
    metric_relabelings: list[dict[str, Any]] = Field(
        default_factory=list,
        description="Rules for the series of a scrape, after those that let each role "
        "show its own metrics alone; as `- {sourceLabels: [__name__], regex: "
        "elasticdl_.+_bucket, action: drop}`.",
    )


def _tensorboard_resources() -> dict[str, Any]:
    return {
        "requests": {"cpu": "50m", "memory": "256Mi"},
        "limits": {"cpu": "1", "memory": "1Gi"},
    }


class TensorboardValues(OwnPodValues):
    """TensorBoard for the event files of the job's master."""

    enabled: bool = Field(
        False,
        description="Job: run it, as Deployment and Service "
        "`elasticdl-<job>-tensorboard`, until the release is uninstalled. It reads the "
        "job's volume, so on several nodes that has to be ReadWriteMany.",
    )
    image: Image = Field(
        "", description="Image; empty is the one of the job's workers."
    )
    priority_class_name: str = Field(
        "",
        pattern=OBJECT_OR_NONE_PATTERN,
        description="PriorityClass; empty is that of the job's master.",
    )
    resources: ResourceRequirements = Field(
        default_factory=_tensorboard_resources,
        description="Requests and limits, as in a container.",
    )
    allowed_from: list[NetworkPeer] = Field(
        default_factory=list,
        description="Who may open it (port 6006), as a list of NetworkPolicyPeer. It "
        "asks for no password: empty is nobody but `kubectl port-forward`.",
    )


class MonitoringValues(SpecModel):
    """The objects for Grafana and Prometheus."""

    dashboards: DashboardsValues = Field(
        default_factory=DashboardsValues,
        description="Platform: dashboards for Grafana, as ConfigMaps that its sidecar "
        "loads.",
    )
    rules: RulesValues = Field(
        default_factory=RulesValues,
        description="Platform: alerts and recording rules, as a PrometheusRule. Its "
        "definition has to be in the cluster, as the Prometheus operator brings it.",
    )
    exporter: ExporterValues = Field(
        default_factory=ExporterValues,
        description="Platform: what the cluster has for pods and who holds it, for "
        "utilisation without kube-state-metrics; docs/metrics.md.",
    )
    pod_monitor: PodMonitorValues = Field(
        default_factory=PodMonitorValues,
        description="Platform: PodMonitors, where the Prometheus operator is. Made "
        "whenever it is asked for: the definition has to be in the cluster.",
    )
    scrape_annotations: bool = Field(
        False,
        description="Job: annotate its pods with `prometheus.io/scrape`, `port` and "
        "`path`, for a Prometheus that goes by them; docs/metrics.md.",
    )
    tensorboard: TensorboardValues = Field(
        default_factory=TensorboardValues,
        description="Job: TensorBoard, which shows loss, evaluations, workers and "
        "goodput over the job's steps; docs/observe.md.",
    )
