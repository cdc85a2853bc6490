"""Writes a job's history beside its journal, and what TensorBoard shows.

Owns what is noted when, and what of it is shown outside. Called by
`master.telling.publishing` with what it has found anyway; files are written in a
thread. Nothing here disturbs a job.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from elasticdl.beneath import reader
from elasticdl.job import history
from elasticdl.job.decision import Decision
from elasticdl.job.history import History, HistorySample
from elasticdl.job.status import EvaluationResult, JobStatus
from elasticdl.job.words import HappeningKind, JobState
from elasticdl.master.job_state import Job
from elasticdl.master.telling import sampling, shortening
from elasticdl.master.telling.appending import Appending
from elasticdl.master.telling.sampling import Bounds
from elasticdl.master.telling.tensorboard import Scalars
from elasticdl.runner.publisher import Publisher

log = logging.getLogger(__name__)

_TAIL_BYTES = 256 << 10


class Recorder:
    """Writes the history of one job; belongs to the master's event loop."""

    def __init__(self, job: Job, publisher: Publisher) -> None:
        """Continue the existing file; reads its end."""
        self._job = job
        self._publisher = publisher
        history_file, root = job.job_dir.history_file, job.job_dir.root
        self._file = Appending(history_file, root=root, ending=b"\n")
        now = job.clock()
        # An earlier master has told what happened until then, and this state last.
        tail = _tail(job.job_dir.history_file)
        self.told_until = _newest_time(tail) or now
        self.told_state = _newest_state(tail)
        self._scalars = Scalars(
            job.job_dir.tensorboard_dir,
            now=now,
            generation=job.parts.ledger.generation,
        )
        self._samples = 0
        self._state: JobState | None = None  # of the newest sample
        self._next_sample = 0.0
        self._next_shown = 0.0
        self._changed = False  # since it was shown
        self._working: asyncio.Task[None] | None = None

    def decided(self, decisions: Iterable[Decision]) -> None:
        """Add decisions."""
        for decision in decisions:
            if decision.kind != HappeningKind.EVALUATED:  # that has a line of its own
                self._add(decision)
        self._begin_writing()  # a master that is killed soon has told it

    def evaluated(self, result: EvaluationResult) -> None:
        """Add an evaluation's result."""
        self._add(result)
        self._scalars.evaluated(result)

    def observe(self, status: JobStatus, *, now: float) -> None:
        """Take a sample if one is due."""
        # A state is in the history however short it was, with the PS before they leave.
        if now >= self._next_sample or status.state is not self._state:
            age = now - self._job.started
            self._next_sample = now + sampling.period_seconds(age)
            self._sample(status)
        self._begin_writing()

    async def close(self, status: JobStatus) -> None:
        """Write a last sample and everything queued, and publish it."""
        self._sample(status)
        if self._working is not None:
            await self._working
        self._next_shown = 0.0
        await self._work()

    def _begin_writing(self) -> None:
        if self._working is None or self._working.done():
            self._working = asyncio.ensure_future(self._work())

    def _sample(self, status: JobStatus) -> None:
        worker, table = self._job.spec.worker, self._job.parts.table
        ps = {
            str(member.key.index): sampling.ps_sample(str(member.state), member.ps)
            for member in table.ps()
            if member is not None
        }
        bounds = Bounds(worker.min, worker.max)
        self._add(sampling.sample(status, bounds, ps, number=self._samples))
        self._samples += 1
        self._state = status.state
        self._scalars.sampled(status)

    def _add(self, document: HistorySample | Decision | EvaluationResult) -> None:
        self._file.add(history.line(document).encode())

    async def _work(self) -> None:
        while await self._file.write():  # more may have come meanwhile
            self._changed = True
        if self._changed:
            await self._shorten()
        await self._scalars.file.write()
        now, period = self._job.clock(), self._publisher.history_period_seconds
        if self._changed and now >= self._next_shown and math.isfinite(period):
            self._changed = False
            self._next_shown = now + period
            await self._show()

    async def _shorten(self) -> None:
        path = self._file.path
        loop = asyncio.get_running_loop()
        try:
            await loop.run_in_executor(None, shortening.shorten, path)
        except OSError as error:
            log.warning("%s: cannot be made shorter: %s", path, error.strerror)

    async def _show(self) -> None:
        loop = asyncio.get_running_loop()
        pack = shortening.packed
        try:
            document = await loop.run_in_executor(None, pack, self._file.path)
        except OSError as error:
            log.warning("%s: cannot be read: %s", self._file.path, error.strerror)
        else:
            self._publisher.history(document)


def _tail(path: Path) -> History:
    """Return the end of a history."""
    try:
        with reader(path, root=path.parent) as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL_BYTES))
            return history.parse(file.read().decode(errors="replace").splitlines())
    except OSError:
        return history.parse(())


def _newest_state(tail: History) -> str:
    """Return the state that was told last; "" if none was."""
    told = [one.cause for one in tail.decisions if one.kind == HappeningKind.STATE]
    return told[-1] if told else ""


def _newest_time(tail: History) -> float:
    """Return the time of the newest line; 0 if there is none."""
    documents: Sequence[HistorySample | Decision | EvaluationResult] = [
        *tail.samples[-1:],
        *tail.decisions,
        *tail.evaluations,
    ]
    return max((document.time for document in documents), default=0.0)
