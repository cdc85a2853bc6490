"""What a worker says that it is at, by the type of its task.

Owns the table. Read by `worker.loop` and `worker.group.beside`.
"""

from __future__ import annotations

from elasticdl.job.tasks import TaskType
from elasticdl.job.words import GoodputCause, WorkerPhase

_PHASES: dict[int, tuple[WorkerPhase, str]] = {
    TaskType.TRAINING: (WorkerPhase.TRAIN, GoodputCause.TRAIN),
    TaskType.EVALUATION: (WorkerPhase.EVALUATE, GoodputCause.EVALUATE),
    TaskType.SUMMARIZE: (WorkerPhase.EVALUATE, GoodputCause.EVALUATE),
    TaskType.PREDICTION: (WorkerPhase.PREDICT, GoodputCause.PREDICT),
    TaskType.EXPORT: (WorkerPhase.EXPORT, GoodputCause.EXPORT),
    TaskType.PREPARE: (WorkerPhase.PREPARE, GoodputCause.START),
    TaskType.SHARDS: (WorkerPhase.PREPARE, GoodputCause.START),
}


def phase_of(task_type: int) -> tuple[WorkerPhase, str]:
    """Return the phase of a type of task, and the cause in the goodput ledger."""
    return _PHASES.get(task_type, (WorkerPhase.IDLE, GoodputCause.IDLE))
