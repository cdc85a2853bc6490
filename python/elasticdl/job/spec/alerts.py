"""What a job says of its own alerts: numbers in place of the platform's.

Owns the keys of `job.alerts`; those of the chart's `monitoring.rules.thresholds` have
the same names. The master shows them to Prometheus, whose rules prefer them. Must not
know the rules.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from elasticdl.job.spec.base import SpecModel

_Number = Annotated[float | None, Field(ge=0)]


class AlertsSpec(SpecModel):
    """Thresholds of the alerts about this job; an absent one follows the platform."""

    no_step_seconds: _Number = Field(
        None, description="ElasticDLNoStep: seconds without a step."
    )
    preparing_seconds: _Number = Field(
        None, description="ElasticDLPreparingTooLong: seconds until it trains."
    )
    checkpoint_intervals: _Number = Field(
        None, description="ElasticDLCheckpointTooOld: intervals of unsaved work."
    )
    volume_free_ratio: _Number = Field(
        None, description="ElasticDLVolumeNearFull: share of the volume that is free."
    )
    journal_blocked_seconds: _Number = Field(
        None, description="ElasticDLJournalBlocked: seconds of waiting for the volume."
    )
    ps_memory_ratio: _Number = Field(
        None, description="ElasticDLPsMemory: memory of a PS over its limit."
    )
    replay_ratio: _Number = Field(
        None, description="ElasticDLReplayRatio: replayed records over all given out."
    )
    goodput_ratio: _Number = Field(
        None, description="ElasticDLGoodputLow: share of the time at work that trains."
    )
    relaunches: _Number = Field(
        None, description="ElasticDLRelaunchStorm: replicas that failed in 30 minutes."
    )
    master_restarts: _Number = Field(
        None, description="ElasticDLMasterRestarted: restarts in an hour."
    )
    nonfinite_ratio: _Number = Field(
        None, description="ElasticDLNonFiniteLoss: share of batches in 30 minutes."
    )
    hot_shard_ratio: _Number = Field(
        None, description="ElasticDLHotShard: traffic of a PS over the job's mean."
    )
