"""Where a job's model is while it trains, as far as snapshots and tables must know.

Owns what follows of it from the specification. Made by `master.assembly`; read by the
parts that ask for snapshots. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass

from elasticdl.job.spec.job import JobSpec, JobType, Strategy, UpdateMode


@dataclass(frozen=True)
class Holding:
    """Who has the model, in numbers."""

    num_ps: int  # 0: no PS has it
    ticketed: bool = False  # a snapshot's gradients are known from the ticket of PS 0
    in_worker: bool = False  # a copy is made between two of its steps

    @staticmethod
    def of(spec: JobSpec) -> Holding:
        """Return where the model of such a job is."""
        if spec.type is not JobType.TRAIN:  # only read: each worker loads a checkpoint
            return Holding(0)
        if spec.strategy is Strategy.LOCAL:
            return Holding(0, in_worker=True)
        return Holding(spec.ps.replicas, ticketed=spec.ps.mode is UpdateMode.SYNC)

    @property
    def shards(self) -> int:
        """How many files a checkpoint has."""
        return max(1, self.num_ps)

    @property
    def pins(self) -> int:
        """How many replicas keep a snapshot for evaluation; 0: workers have it."""
        return self.num_ps
