"""The chart's keys of monitoring: what Grafana and Prometheus are given.

Owns each key, its default and its meaning, as `job.chart_values` does for the others.
Must not know what dashboards and rules hold.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from elasticdl.job.spec_base import SpecModel

_WholeSeconds = Annotated[int, Field(ge=0)]
_Share = Annotated[float, Field(gt=0, le=1)]
_Factor = Annotated[float, Field(ge=1)]


class DashboardsValues(SpecModel):
    """The dashboards, as ConfigMaps that Grafana's sidecar loads."""

    enabled: bool = Field(False, description="Platform: make them.")
    label: str = Field(
        "grafana_dashboard", description="Label that the sidecar looks for."
    )
    label_value: str = Field("1", description="Value of that label.")
    folder: str = Field(
        "",
        description="Grafana's folder, as annotation `grafana_folder`; empty is what "
        "the sidecar has.",
    )


class ThresholdsValues(SpecModel):
    """The numbers beyond which alerts fire."""

    no_step_seconds: _WholeSeconds = Field(
        600, description="ElasticDLNoStep: seconds since the last step."
    )
    below_minimum_seconds: _WholeSeconds = Field(
        600, description="ElasticDLBelowMinimum: seconds with too few workers."
    )
    pending_seconds: _WholeSeconds = Field(
        900, description="ElasticDLPendingTooLong: seconds that replicas are pending."
    )
    checkpoint_intervals: _Factor = Field(
        3,
        description="ElasticDLCheckpointTooOld: age of the newest checkpoint over the "
        "interval that the job asks for (or a minute, where that is shorter).",
    )
    ps_memory_ratio: _Share = Field(
        0.85, description="ElasticDLPsMemory: memory of a PS over its limit."
    )
    replay_ratio: _Share = Field(
        0.2, description="ElasticDLReplayRatio: replayed records over all given out."
    )
    hot_shard_ratio: _Factor = Field(
        1.5,
        description="ElasticDLHotShard: traffic of a PS over the mean of the job's. "
        "With two PS it is 2 at most.",
    )


class RulesValues(SpecModel):
    """Alerts and recording rules, as a PrometheusRule of the Prometheus operator."""

    enabled: bool = Field(
        False,
        description="Platform: make it; once for each Prometheus, since the rules are "
        "about the jobs of all namespaces.",
    )
    labels: dict[str, str] = Field(
        default_factory=dict,
        description="Labels that the operator's `ruleSelector` asks for, as "
        "`release: prometheus`.",
    )
    thresholds: ThresholdsValues = Field(
        default_factory=ThresholdsValues, description="When alerts fire."
    )


class MonitoringValues(SpecModel):
    """What Grafana and Prometheus are given."""

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
