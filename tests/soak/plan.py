"""What a soak job looks like and what happens to it, decided by a seed alone.

Owns the ranges. Called by `faults`, which chooses seeds, and `one`, which runs a job.
Must not touch a process.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

BATCH = 64
# The digits as often in one file: an epoch has 449 batches, so that tasks of 400 fit.
COPIES = 20
# After two epochs the model hardly moves any more: six async jobs of one kind, three of
# them without their master for a while, had 0.9816 to 0.9839. A difference of 0.01 is
# no noise.
LEAST_EPOCHS = 2
# An undisturbed job shows its accuracy up to this epoch. Later ones change little.
CALM_EPOCHS = 3
MOST_WORKERS = 4


@dataclass(frozen=True)
class Fault:
    """One thing that happens to a job.

    Attributes:
        after: Seconds since the one before, or since all workers were at work.
        kind: kill, freeze, capacity, scale, full disk, slow disk.
        role: Whom it meets; nobody in particular for capacity and scale.
        amount: CPUs, workers, or seconds that it lasts.
    """

    after: float
    kind: str
    role: str = ""
    amount: float = 0.0

    @property
    def name(self) -> str:
        """What it is called in tables: `kill ps`."""
        return f"{self.kind} {self.role}".strip()

    def __str__(self) -> str:
        return f"{self.name} {self.amount:.3g}" if self.amount else self.name


@dataclass(frozen=True)
class Plan:
    """A job and its faults."""

    seed: int
    mode: str
    num_ps: int
    num_workers: int
    batches_per_task: int
    step_seconds: float
    checkpoint_seconds: float
    faults: tuple[Fault, ...]

    @property
    def most_workers(self) -> int:
        """The most that the job has at any time."""
        scaled = [int(f.amount) for f in self.faults if f.kind == "scale"]
        return max([self.num_workers, *scaled])

    @property
    def last_workers(self) -> int:
        """How many the job has after its faults."""
        scaled = [int(f.amount) for f in self.faults if f.kind == "scale"]
        return scaled[-1] if scaled else self.num_workers

    def __str__(self) -> str:
        return (
            f"{self.mode}, {self.num_ps} PS, {self.num_workers} workers, "
            f"{self.batches_per_task} batches a task, steps of "
            f"{self.step_seconds * 1000:.0f} ms, a checkpoint every "
            f"{self.checkpoint_seconds:.0f} s"
        )


def plan(seed: int) -> Plan:
    """Return the plan of a seed."""
    draw = random.Random(seed)
    workers = draw.randint(1, 3)
    return Plan(
        seed=seed,
        mode=draw.choice(["async", "sync"]),
        num_ps=draw.randint(1, 4),
        num_workers=workers,
        batches_per_task=round(5 * 80 ** draw.random()),
        step_seconds=round(0.001 * 100 ** draw.random(), 4),
        checkpoint_seconds=draw.choice([1.0, 3.0, 1000.0]),
        faults=tuple(_fault(draw, workers) for _ in range(draw.randint(2, 5))),
    )


def calm_plan(mode: str, workers: int) -> Plan:
    """Return an undisturbed job: what decides its accuracy is its mode and workers."""
    return Plan(-1, mode, 2, workers, 40, 0.0, 1000.0, ())


def _fault(draw: random.Random, workers: int) -> Fault:
    after = draw.uniform(0.2, 5.0)
    role = draw.choice(["worker", "ps", "master"])
    kind = draw.choices(
        ["kill", "freeze", "capacity", "scale", "full disk", "slow disk"],
        [6, 1, 1, 1, 1, 1],
    )[0]
    if kind == "capacity":
        return Fault(after, kind, amount=draw.randint(0, workers))
    if kind == "scale":
        return Fault(after, kind, amount=draw.randint(1, MOST_WORKERS))
    if kind == "full disk":
        return Fault(after, kind, draw.choice(["ps", "master"]), draw.uniform(1, 8))
    if kind == "slow disk":
        return Fault(after, kind, amount=draw.uniform(0.05, 0.5))
    return Fault(after, kind, role)
