"""A master, put together: runs its job to the end and leaves the report.

Owns what comes after the loop. Made by `master.assembly`; run by `master.serving` and
tests. Decides nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

from elasticdl.errors import JournalError, SpecError
from elasticdl.files import write_whole
from elasticdl.job import folder
from elasticdl.job.spec.job import JobSpec
from elasticdl.job.words import JobState
from elasticdl.master.calls.servicer import MasterServicer
from elasticdl.master.course.loop import MasterLoop
from elasticdl.master.job_state import Job, JobEnding
from elasticdl.master.patience import END_SECONDS, REPORT_SECONDS, within
from elasticdl.master.telling import status
from elasticdl.master.telling.gauges import Gauges
from elasticdl.master.telling.publishing import Publishing

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Master:
    """An assembled master; the caller serves its servicer."""

    job: Job
    servicer: MasterServicer
    loop: MasterLoop
    gauges: Gauges
    publishing: Publishing

    async def run(
        self,
        call_itself: Callable[[], Awaitable[object]] | None = None,
        *,
        edits: AsyncIterator[JobSpec | SpecError] | None = None,
    ) -> JobEnding | None:
        """Run the job to its end, write the report and log the last line.

        None if it was handed over to another master. The arguments: see Loop.run.
        """
        job = self.job
        over = job.ending if job.state.ended else None
        ending = over or await self.loop.run(call_itself, edits=edits)
        if ending is None:
            try:
                await job.parts.ledger.commit()
            except JournalError as error:  # nobody was told that it is written
                log.error("%s", error)
            await self.publishing.leave()
            log.info("job %s goes on under another master", job.spec.name)
            return None
        waits: list[Awaitable[object]] = []
        document = folder.read_report(job.job_dir) if over else None
        if document is None:
            document = status.report(job, now=job.clock())
            file, text = job.job_dir.report_file, document.model_dump_json(indent=2)
            loop = asyncio.get_running_loop()
            written = loop.run_in_executor(None, _write, file, text)
            waits.append(await within(END_SECONDS, written, str(file)))
        job.reported(document)
        # The platform is told though a disk does not answer. Who waits for the report
        # is answered until it is there.
        waits.append(await self.publishing.close(document))
        await within(REPORT_SECONDS, asyncio.gather(*waits), str(job.job_dir.root))
        log.log(
            logging.ERROR if ending.state is JobState.FAILED else logging.INFO,
            "job %s %s: %d records, %d steps, %.1f s%s",
            job.spec.name,
            ending.state,
            document.records,
            document.steps,
            document.seconds,
            f": {ending.message}" if ending.message else "",
        )
        return ending


def _write(path: Path, text: str) -> None:
    try:
        write_whole(path, text + "\n", durable=True)
    except OSError as error:
        log.error("%s: the report cannot be written: %s", path, error.strerror)
