"""Where a job's model is while it trains, as far as snapshots and tables must know.

Owns what follows of it from the specification. Made by `master.assembly`; read by the
parts that ask for snapshots. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass

from elasticdl.job.spec.job import JobSpec, JobType, Strategy, UpdateMode


@dataclass(frozen=True)
class Holding:
    """How many replicas hold the model, and how."""

    num_ps: int  # 0: no PS has it
    ticketed: bool = False  # a snapshot's gradients are known from the ticket of PS 0
    in_worker: bool = False  # a copy is made between two of its steps
    in_group: bool = False  # each worker has it, and all make steps together

    @staticmethod
    def of(spec: JobSpec) -> Holding:
        """Return the holding of a job."""
        if spec.type is not JobType.TRAIN:  # only read: each worker loads a checkpoint
            return Holding(0)
        if spec.strategy is Strategy.LOCAL:
            return Holding(0, in_worker=True)
        if spec.strategy is Strategy.ALL_REDUCE:
            return Holding(0, in_worker=True, in_group=True)
        return Holding(spec.ps.replicas, ticketed=spec.ps.mode is UpdateMode.SYNC)

    @property
    def shards(self) -> int:
        """Number of files of a checkpoint."""
        return max(1, self.num_ps)

    @property
    def pins(self) -> int:
        """Number of replicas that pin evaluation's snapshot; 0: workers hold it."""
        return self.num_ps
