"""Tasks before the model: whatever has to be done so that there is data.

Owns the leases of a worker that has not built its model. Called by main before
TensorFlow is imported, and again while the data is being made by another worker. Must
not import TensorFlow.
"""

from __future__ import annotations

import functools
import logging
import threading
from collections.abc import Callable

from elasticdl.errors import ElasticDLError
from elasticdl.job.tasks import (
    LeaseReply,
    LeaseRequest,
    ReplicaId,
    Task,
    TaskReport,
    TaskType,
)
from elasticdl.job.words import WorkerPhase
from elasticdl.rpc.retry import retry
from elasticdl.worker.progress import WorkerProgress
from elasticdl.worker.tasks.errands import Errands
from elasticdl.worker.tasks.reports import failure

log = logging.getLogger(__name__)

Lease = Callable[[LeaseRequest], LeaseReply]


class EarlyTasks:
    """Runs PREPARE and SHARDS tasks one by one."""

    def __init__(
        self,
        lease: Lease,
        replica: ReplicaId,
        errands: Errands,
        *,
        leaving: threading.Event,
        progress: WorkerProgress,
    ) -> None:
        """Take the lease call and the errands that do the work."""
        self._lease = lease
        self._replica = replica
        self._errands = errands
        self._leaving = leaving
        self._progress = progress
        self._held: list[int] = []

    @property
    def held(self) -> list[int]:
        """The leases that this worker holds."""
        return list(self._held)

    def run(self, wait_seconds: float) -> bool:
        """Run the present tasks; return whether the job continues.

        Args:
            wait_seconds: How long the first call may wait for something to do.
        """
        reports: list[TaskReport] = []
        while not self._leaving.is_set():
            request = LeaseRequest(
                replica=self._replica,
                reports=tuple(reports),
                want=1,
                wait_seconds=0.0 if reports else wait_seconds,
            )
            reply = retry(functools.partial(self._asked, request), stop=self._leaving)
            self._held = [task.lease_id for task in reply.tasks]
            reports = [self._do(task) for task in reply.tasks]
            if reply.finished:
                return False
            if not reports:
                return True
        return False

    def _asked(self, request: LeaseRequest) -> LeaseReply:
        self._progress.touch()  # who waits for the master does not hang
        return self._lease(request)

    def _do(self, task: Task) -> TaskReport:
        phase = self._progress.phase
        self._progress.enter(WorkerPhase.PREPARE)
        try:
            if task.type == TaskType.PREPARE:
                return self._errands.prepare(task)
            if task.type == TaskType.SHARDS:
                return self._errands.shards(task)
            return failure(task, f"type {task.type} before the model was built")
        except ElasticDLError as error:
            log.error("%s", error)
            return failure(task, str(error), fatal=True, exit_code=error.exit_code)
        finally:
            self._progress.enter(phase)
