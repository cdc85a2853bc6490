"""What the planner says: a plan, and in figures what it is about.

Owns the frozen types of a plan. Made by `planner.plan`; the controller writes grants of
it and logs it, commands print it. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from elasticdl.planner.memory import Memory
from elasticdl.planner.view import PODS, JobKey


@dataclass(frozen=True)
class Holding:
    """One resource of the cluster: who holds how much of what is there."""

    resource: str
    supply: int  # of ready, uncordoned nodes, no less than what is held there
    limit: int  # the ceiling
    serving: int = 0
    training: int = 0
    other: int = 0
    asked: int = 0  # by pods that go before workers and have no node yet

    @property
    def used(self) -> int:
        """Return what is held now."""
        return self.serving + self.training + self.other


@dataclass(frozen=True)
class JobFigures:
    """One job: its bounds, what it was given, what it has."""

    key: JobKey
    min: int
    max: int  # 0: of fixed size
    size: int  # decided; of a fixed job, its replicas
    running: int
    waiting: int  # workers without a node
    share: float  # of the cluster, of the resource it has most of, by weight
    reason: str


@dataclass(frozen=True)
class Summary:
    """The cluster that a plan was made for."""

    nodes: int
    supply_nodes: int
    holdings: tuple[Holding, ...] = ()
    jobs: tuple[JobFigures, ...] = ()

    def line(self) -> str:
        """Return one line for a log."""
        parts = [f"{self.supply_nodes} of {self.nodes} nodes"]
        parts += [
            f"{one.resource} {one.used / one.supply:.1%} used "
            f"(serving {one.serving / one.supply:.1%}, "
            f"training {one.training / one.supply:.1%}, "
            f"ceiling {one.limit / one.supply:.0%})"
            for one in self.holdings
            if one.supply and one.resource != PODS
        ]
        workers = sum(job.running for job in self.jobs)
        waiting = sum(job.waiting for job in self.jobs)
        parts.append(f"{len(self.jobs)} jobs, {workers} workers, {waiting} waiting")
        return "; ".join(parts)


@dataclass(frozen=True)
class Plan:
    """How many workers each job that takes part is to have."""

    sizes: Mapping[JobKey, int]
    leave: Mapping[JobKey, tuple[int, ...]]  # indexes of workers; () where nobody goes
    reasons: Mapping[JobKey, str]  # also of jobs of fixed size
    memory: Memory  # for the next plan
    summary: Summary
    again_at: float | None = None  # when time alone could change something
