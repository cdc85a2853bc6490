"""One evaluation round: how far it is, and of which version.

Owns what is known of a round while it is under way. Called by `evaluation_rounds`. Must
not know tasks' leases, results of other rounds or callbacks' reasons.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from elasticdl.job.heartbeats import SnapshotDone
from elasticdl.job.status import EvaluationResult
from elasticdl.job.tasks import ExportTarget, Ticket
from elasticdl.master.model.callbacks import Action
from elasticdl.master.model.evaluation import MetricSums


@dataclass
class Round:
    """The round in progress."""

    number: int
    why: str
    since: float
    epochs_done: int
    version: int
    snapshot: str = ""
    # Of the workers' own model, where there is no snapshot; None before a report.
    own_version: int | None = None
    pinned: dict[int, SnapshotDone] = field(default_factory=dict)
    started: bool = False
    left: int = 0
    sums: MetricSums = field(default_factory=MetricSums)
    point: str = ""  # of training, when it was opened
    result: EvaluationResult | None = None  # while its model is being written
    aside: tuple[ExportTarget, ...] = ()  # what for
    writing: int = 0  # how many of these are not written yet
    actions: list[Action] = field(default_factory=list)  # once that is done

    def pin(self, snapshot: str) -> None:
        """Ask for a snapshot of this name."""
        self.snapshot = snapshot

    def pinned_by(self, index: int, done: SnapshotDone) -> None:
        """Note that a replica pinned its part; the first one names the version."""
        self.pinned[index] = done
        if index == 0:
            self.version = done.version

    def start(self, *, tasks: int) -> None:
        """Note that the round's tasks are leased from now on."""
        self.started, self.left = True, tasks

    def done_with(self, version: int) -> bool:
        """Note that a worker measured, or wrote, its own model, of this version.

        Returns whether it is the one that others had.
        """
        if self.own_version is None:
            self.own_version = version
        self.version = max(self.version, version)
        return version == self.own_version

    def task_done(self) -> bool:
        """Count a finished task; return whether it was the last."""
        self.left -= 1
        return self.left == 0

    def act_later(self, actions: list[Action]) -> None:
        """Carry these actions out when the round is over."""
        self.actions = actions

    def keep(self, result: EvaluationResult, aside: tuple[ExportTarget, ...]) -> None:
        """Note that the round's model is being written aside, once for each target."""
        self.result, self.aside, self.writing = result, aside, len(aside)

    def written(self) -> bool:
        """Count a model that was written; return whether it was the last."""
        self.writing -= 1
        return self.writing == 0

    @property
    def ticket(self) -> Ticket | None:
        """The ticket of the pinned version in sync mode, once PS 0 sent it."""
        first = self.pinned.get(0)
        return first.ticket if first else None
