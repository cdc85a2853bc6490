"""Models of evaluation rounds that are kept: the best one, and one to be restored.

Owns which there are and which of them are in their places. A worker writes a model
aside, the journal says that it is kept, and only then is it moved: so what is in `best`
is what the job tells of, whoever is lost in between. Called by `evaluation_rounds`,
which says when. Pure: it gives out tasks and takes what became of them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator

from elasticdl.job.status import EvaluationResult
from elasticdl.job.tasks import ExportTarget, ModelVersion, Task, TaskType
from elasticdl.master.tasks import model_facts


class KeptModels:
    """The models that are kept, oldest first."""

    def __init__(
        self,
        pasts: Iterable[model_facts.EvaluationFact],
        exports: Iterable[model_facts.ExportFact],
    ) -> None:
        """Take what earlier masters recorded, of undone rounds too."""
        self._all = deque(
            (past for past in pasts if past.kept or past.aside),
            maxlen=model_facts.EvaluationFact.KEPT,
        )
        moved = (fact.round for fact in exports if fact.target == ExportTarget.BEST)
        self._moved = max(moved, default=0)  # the newest round; numbers only grow

    def results(self) -> Iterator[tuple[EvaluationResult, ExportTarget]]:
        """Yield each model's result and what it is kept for."""
        for past in self._all:
            for target in _targets(past):
                yield past.result, target

    def add(self, past: model_facts.EvaluationFact) -> None:
        """Note a round whose model lies aside."""
        self._all.append(past)

    def newest(self, target: ExportTarget) -> model_facts.EvaluationFact | None:
        """Return the round whose model is kept for this, in its place or aside."""
        return next((p for p in reversed(self._all) if target in _targets(p)), None)

    @property
    def best(self) -> EvaluationResult | None:
        """The result of the model in `best`."""
        found = (
            past.result
            for past in reversed(self._all)
            if past.kept
            or (ExportTarget.BEST in past.aside and past.number <= self._moved)
        )
        return next(found, None)

    @property
    def restored(self) -> EvaluationResult | None:
        """The result of the model that is the final one, where one is restored."""
        newest = self.newest(ExportTarget.RESTORED)
        return newest.result if newest is not None else None

    def moved(self, task: Task) -> None:
        """Note that a round's model is in its place now."""
        if task.target == ExportTarget.BEST:
            self._moved = max(self._moved, task.round)

    @property
    def moving(self) -> int:
        """The round whose model is to be moved to `best`; 0: none."""
        newest = self.newest(ExportTarget.BEST)
        if newest is None or not newest.aside or newest.number <= self._moved:
            return 0
        return newest.number

    def to_write(
        self, target: ExportTarget, number: int, model: ModelVersion, *, epoch: int
    ) -> Task:
        """Return the task that writes a round's model aside."""
        before = self.newest(target)
        return Task(
            type=TaskType.EXPORT,
            target=target,
            round=number,
            model=model,
            epoch=epoch,
            beside=before.number if before is not None else 0,
        )

    def to_move(self) -> Task | None:
        """Return the task that moves the best model to its place; None: it is there."""
        number = self.moving
        return _move(ExportTarget.BEST, number) if number else None

    def to_restore(self) -> Task | None:
        """Return the task that makes the restored model the final one, if there is."""
        newest = self.newest(ExportTarget.RESTORED)
        return _move(ExportTarget.FINAL, newest.number) if newest is not None else None


def _move(target: ExportTarget, number: int) -> Task:
    return Task(type=TaskType.EXPORT, target=target, round=number, move=True)


def _targets(past: model_facts.EvaluationFact) -> tuple[ExportTarget, ...]:
    if past.kept:  # as journals said of models that were written to `best` at once
        return (ExportTarget.BEST,)
    return past.aside
