"""What one seed means: a job and the faults that meet it.

Owns the draw. Pure: must not import the product.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import Any

# Faults by name; tests/simulation/faults.py has one function for each.
KINDS = (
    "kill_worker", "kill_ps", "kill_master", "kill_all_ps", "kill_ps_and_master",
    "kill_ps_at_end", "kill_worker_at_end", "kill_master_at_write", "kill_ps_at_write",
    "kill_master_at_step", "power_cut", "freeze_worker", "freeze_ps", "freeze_master",
    "bad_network", "cut_off", "full_disk", "slow_disk", "clock", "ghost_master",
    "damage_checkpoint", "list_again", "stop_job",
)  # fmt: skip


# Those of strategy local, which has a worker in the place of PS.
LOCAL_KINDS = (
    "kill_worker", "kill_master", "kill_worker_and_master", "kill_worker_at_end",
    "kill_worker_at_write", "kill_master_at_write", "kill_master_at_step", "power_cut",
    "freeze_worker", "freeze_master", "bad_network", "cut_off", "full_disk",
    "slow_disk", "clock", "ghost_master", "damage_checkpoint", "list_again", "stop_job",
)  # fmt: skip


# Edits by name; faults.py has one function for each too.
EDITS = ("pause", "scale", "more_epochs")


@dataclass(frozen=True)
class Fault:
    """Something that goes wrong."""

    kind: str
    at: float  # as a share of how long the job would take undisturbed
    seconds: float
    number: int


@dataclass(frozen=True)
class Evaluation:
    """When the job is evaluated, beside at its end."""

    records: int = 0  # to evaluate on; 0: never
    every_steps: int = 0
    at_epoch_end: bool = False
    keeps_best: bool = False  # and exports the model at the end
    restores: bool = False  # the best model is the exported one


@dataclass(frozen=True)
class Earlier:
    """The job before, whose checkpoint a job begins with (`checkpoint.initFrom`)."""

    sync: bool
    num_ps: int  # half the time as many as the job has: only then ids of pushes go on
    workers: int
    every_steps: int
    names_folder: bool  # initFrom names its checkpoints, not the last one of them


@dataclass(frozen=True)
class Scenario:
    """A job and its faults."""

    seed: int
    sync: bool
    num_ps: int
    workers: int
    recovery: str
    epochs: int
    batches_per_task: int
    num_records: int
    sources: int
    step_seconds: float
    slowest_step: float
    feed_seconds: float
    every_seconds: float
    every_steps: int
    shuffle: bool
    lease_seconds: float
    journal_wait: float
    preempt: float
    faults: tuple[Fault, ...]
    edits: tuple[Fault, ...] = ()  # of the values file, while the job runs
    evaluation: Evaluation = Evaluation()
    earlier: Earlier | None = None
    strategy: str = "parameterServer"

    batch_size = 4

    @property
    def local(self) -> bool:
        """Whether the one worker has the parameters."""
        return self.strategy == "local"

    @property
    def most_epochs(self) -> int:
        """Epochs that records are told apart in: an edit adds one at most."""
        return self.epochs + any(edit.kind == "more_epochs" for edit in self.edits)

    @property
    def scales(self) -> bool:
        """Whether the number of workers is edited."""
        return any(edit.kind == "scale" for edit in self.edits)

    @property
    def kinds(self) -> set[str]:
        """What goes wrong."""
        return {fault.kind for fault in self.faults}

    @property
    def seconds(self) -> float:
        """About how long the job takes undisturbed."""
        steps = self.epochs * self.num_records / self.batch_size / self.workers
        return 2.0 + steps * (self.step_seconds * 1.2 + 0.01)

    def document(self) -> dict[str, Any]:
        """Return the job as a values file says it."""
        data = {"training": "toy", "shuffle": self.shuffle}
        if self.evaluation.records:
            data["validation"] = "toy-validation"
        whole: dict[str, Any] = {
            "name": "toy",
            "strategy": self.strategy,
            "model": {"zoo": "zoo", "definition": "toy.model"},
            "data": data,
            "evaluation": {
                "everySteps": self.evaluation.every_steps,
                "atEpochEnd": self.evaluation.at_epoch_end,
            },
            "training": {
                "epochs": self.epochs,
                "batchSize": self.batch_size,
                "batchesPerTask": self.batches_per_task,
            },
            "tasks": {"leaseSeconds": self.lease_seconds},
            "checkpoint": {
                "everySeconds": self.every_seconds,
                "everySteps": self.every_steps,
                "keep": 0,
            },
            "master": {"journalWaitSeconds": self.journal_wait},
            "worker": {"replicas": self.workers, "startSeconds": 60},
        }
        if not self.local:
            whole["ps"] = {
                "replicas": self.num_ps,
                "mode": "sync" if self.sync else "async",
                "recovery": self.recovery,
            }
        return whole


def draw(seed: int, only: tuple[str, ...] = (), *, local: bool = False) -> Scenario:
    """Return what a seed means; with `only`, of these faults alone.

    A seed of strategy local is another job than the same seed with parameter servers.
    """
    if local:
        return _local(seed, only or LOCAL_KINDS)
    chance = random.Random(f"scenario {seed}")
    sync = chance.random() < 0.5
    count = chance.choice([1, 1, 2] if only else [0, 1, 1, 1, 2, 2, 3])
    chosen = [chance.choice(only or KINDS) for _ in range(count)]
    num_ps = chance.choice([1, 2, 2, 3])
    return Scenario(
        seed=seed,
        sync=sync,
        num_ps=num_ps,
        workers=chance.choice([1, 2, 2, 3]),
        recovery="auto" if sync else chance.choice(["auto", "auto", "rewind"]),
        epochs=chance.choice([1, 1, 2]),
        batches_per_task=chance.choice([1, 2, 5, 12, 24]),
        num_records=chance.choice([48, 96, 192]),
        sources=chance.choice([1, 2]),
        step_seconds=chance.choice([0.005, 0.02, 0.1, 0.3]),
        slowest_step=chance.choice([1.0, 1.5, 3.0]),
        feed_seconds=chance.choice([0.0, 0.0, 0.005]),
        every_seconds=chance.choice([0, 0.5, 2, 60]),
        every_steps=chance.choice([0, 0, 5, 16]),
        shuffle=chance.random() < 0.5,
        lease_seconds=chance.choice([10.0, 600.0]),
        journal_wait=chance.choice([5.0, 60.0]),
        preempt=chance.choice([0.0, 0.02, 0.2]),
        faults=tuple(
            Fault(
                kind,
                chance.uniform(0.05, 1.05),
                chance.choice([0.1, 1.0, 3.0, 12.0, 30.0]),
                chance.randrange(400),
            )
            for kind in chosen
        ),
        edits=_edits(random.Random(f"edits {seed}")),
        evaluation=_evaluation(random.Random(f"evaluation {seed}")),
        earlier=_earlier(random.Random(f"earlier {seed}"), num_ps),
    )


def _local(seed: int, kinds: tuple[str, ...]) -> Scenario:
    """Return a job whose one worker has the parameters, and is evaluated."""
    of_ps = draw(seed, kinds)
    evaluation = _evaluation(random.Random(f"evaluation {seed}"), always=True)
    return replace(
        of_ps,
        strategy="local",
        sync=False,
        num_ps=1,
        workers=1,
        recovery="rewind",
        edits=tuple(edit for edit in of_ps.edits if edit.kind != "scale"),
        evaluation=evaluation,
        earlier=of_ps.earlier and replace(of_ps.earlier, num_ps=1),
    )


def _earlier(chance: random.Random, num_ps: int) -> Earlier | None:
    """Return whose checkpoint a job begins with: nobody's in three jobs of four."""
    if chance.random() < 3 / 4:
        return None
    return Earlier(
        sync=chance.random() < 0.5,
        num_ps=chance.choice([num_ps, num_ps, 1, 2, 3]),
        workers=chance.choice([1, 2, 3]),
        every_steps=chance.choice([0, 5]),
        names_folder=chance.random() < 0.5,
    )


def _evaluation(chance: random.Random, *, always: bool = False) -> Evaluation:
    """Return how a job is evaluated: two of three are not, unless all are."""
    if chance.random() < 2 / 3 and not always:
        return Evaluation()
    drawn = Evaluation(
        records=chance.choice([8, 30]),
        every_steps=chance.choice([0, 3, 10]),
        at_epoch_end=chance.random() < 0.5,
        keeps_best=chance.random() < 0.5,
    )
    restores = drawn.keeps_best and chance.random() < 0.5
    return replace(drawn, restores=restores)


def _edits(chance: random.Random) -> tuple[Fault, ...]:
    """Return what is edited: nothing in two jobs of three."""
    kinds = chance.choice([(), (), EDITS[:1], EDITS[1:2], EDITS[2:], EDITS])
    kinds = kinds if chance.random() < 2 / 3 else ()
    return tuple(
        Fault(
            kind,
            chance.uniform(0.1, 0.9),
            chance.choice([0.5, 3.0, 12.0]),
            chance.randrange(400),
        )
        for kind in kinds
    )
