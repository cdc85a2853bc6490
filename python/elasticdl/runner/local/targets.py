"""Where Prometheus finds the roles of a job on this machine: `targets.json`.

Owns the file's form (Prometheus's file_sd); it is the publisher of the local platform.
Made by `master.main`, called by `master.telling.publishing`. In a cluster pods are
found by their labels instead. Must not know what is measured.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
from pathlib import Path

from elasticdl.files import write_whole
from elasticdl.job.context import LOOPBACK, join_address
from elasticdl.job.names import NAMESPACE_LOCAL, Role
from elasticdl.job.status import JobStatus
from elasticdl.job.words import ReplicaState
from elasticdl.runner.publisher import Notice

log = logging.getLogger(__name__)

Target = tuple[str, int, int]  # role, index, port

_CLOSE_SECONDS = 5.0


class TargetsFile:
    """Keeps the Prometheus targets file of a job current; a `runner.Publisher`."""

    period_seconds = 1.0
    history_period_seconds = math.inf

    def __init__(self, path: Path, *, job: str) -> None:
        """Write nothing yet: the first status does."""
        self._path = path
        self._job = job
        self._wanted: list[Target] | None = None
        self._written: list[Target] | None = None
        self._writing: asyncio.Task[None] | None = None
        self._failed = False

    def status(self, document: str) -> None:
        """Write the file if a replica came or went, or changed its port."""
        self._want(targets_of(JobStatus.model_validate_json(document)))

    def headline(self, state: str, message: str) -> None:
        """Do nothing; `elasticdl status` shows it."""

    def history(self, document: bytes) -> None:
        """Do nothing; the job's folder has it."""

    def notice(self, notice: Notice) -> None:
        """Do nothing; the log has it."""

    async def close(self, *, status: str, report: str) -> None:
        """Write an empty list: there is nothing to scrape any more."""
        del status, report
        self._want([])
        if self._writing is not None:  # for ever, where its disk does not answer
            await asyncio.wait([self._writing], timeout=_CLOSE_SECONDS)

    def _want(self, targets: list[Target]) -> None:
        self._wanted = targets
        if self._writing is None or self._writing.done():
            self._writing = asyncio.ensure_future(self._write())

    async def _write(self) -> None:
        loop = asyncio.get_running_loop()
        while self._wanted is not None and self._wanted != self._written:
            targets = self._wanted
            text = document_of(self._job, targets)
            try:
                await loop.run_in_executor(None, self._put, text)
            except OSError as error:  # nothing but a scrape depends on it
                if not self._failed:
                    log.warning("%s: cannot be written: %s", self._path, error.strerror)
                self._failed = True
                if self._wanted is targets:
                    return  # the next status tries again
            else:
                self._written, self._failed = targets, False

    def _put(self, text: str) -> None:
        # Prometheus may read at any time.
        write_whole(self._path, text, durable=False)


def targets_of(status: JobStatus) -> list[Target]:
    """Return the current metrics endpoints, sorted."""
    found: list[Target] = [(str(Role.MASTER), 0, status.master_metrics_port)]
    found += [
        (replica.role, replica.index, replica.metrics_port)
        for replica in status.replicas
        if replica.state in (ReplicaState.RUNNING, ReplicaState.DRAINING)
    ]
    return sorted(target for target in found if target[2])


def document_of(job: str, targets: list[Target]) -> str:
    """Return the file's text: a group for each target, with the labels of all jobs."""
    groups = [
        {
            "targets": [join_address(LOOPBACK, port)],
            "labels": {
                "namespace": NAMESPACE_LOCAL,
                "training_job": job,
                "role": role,
                "index": str(index),
            },
        }
        for role, index, port in targets
    ]
    return json.dumps(groups, indent=1) + "\n"
