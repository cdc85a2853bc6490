"""What a soak job looks like and what happens to it, decided by a seed alone.

Owns the ranges. Called by `faults`, which runs it. Must not touch a process.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

RECORDS = 1437  # of digits/train
BATCH = 16


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

    def __str__(self) -> str:
        words = [self.kind, self.role, f"{self.amount:g}" if self.amount else ""]
        return " ".join(word for word in words if word)


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
    def least_epochs(self) -> int:
        """Epochs of some 20 s of work, and enough to learn what there is."""
        steps = 20 * self.num_workers / (self.step_seconds + 0.002)
        return max(12, min(60, round(steps * BATCH / RECORDS)))

    def __str__(self) -> str:
        return (
            f"{self.mode}, {self.num_ps} PS, {self.num_workers} workers, "
            f"{self.batches_per_task} batches a task, steps of "
            f"{self.step_seconds * 1000:.0f} ms"
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


def _fault(draw: random.Random, workers: int) -> Fault:
    after = draw.uniform(0.2, 6.0)
    role = draw.choice(["worker", "ps", "master"])
    kind = draw.choices(
        ["kill", "freeze", "capacity", "scale", "full disk", "slow disk"],
        [6, 1, 1, 1, 1, 1],
    )[0]
    if kind == "capacity":
        return Fault(after, kind, amount=draw.randint(0, workers))
    if kind == "scale":
        return Fault(after, kind, amount=draw.randint(1, 4))
    if kind == "full disk":
        return Fault(after, kind, draw.choice(["ps", "master"]), draw.uniform(1, 8))
    if kind == "slow disk":
        return Fault(after, kind, amount=draw.uniform(0.05, 0.5))
    return Fault(after, kind, role)
