"""Shows the job where people look who do not ask the master.

Owns when a status is built for that, and what is left out of it. Called by the loop,
and at the end by `master.master`. What happened is found here once, for the job's
history and for the notices of the platform. Must not know where it is shown.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from elasticdl.job.history import Decision
from elasticdl.job.status import JobReport, JobStatus
from elasticdl.job.words import Happening
from elasticdl.master.job_state import Job
from elasticdl.master.telling import status
from elasticdl.master.telling.happenings import Decisions
from elasticdl.master.telling.history import Recorder
from elasticdl.master.telling.notices import notices
from elasticdl.runner.publisher import Publisher

log = logging.getLogger(__name__)

_LOOK_SECONDS = 2.0
# With 1,000 workers a look takes milliseconds: it is rarer then, a 50th of the time.
_REST = 50.0
# A ConfigMap holds 1 MiB; all of them are in the report.
_MOST_RELAUNCHES = 50
_MOST_DETAIL = 500


class Publishing:
    """Publishes one job."""

    def __init__(self, job: Job, publisher: Publisher) -> None:
        """Begin with nothing shown."""
        self._job = job
        self._publisher = publisher
        self._recorder = Recorder(job, publisher)
        self._decisions = Decisions(told_until=self._recorder.told_until)
        self._looked: tuple[object, ...] = ()
        self._next_look = self._earliest_look = 0.0
        self._next_show = 0.0
        self._shown: JobStatus | None = None

    def update(self, *, now: float) -> None:
        """Show what changed, as often as the publisher wants it; note it anyway."""
        if self._job.parts.table.settling:
            return  # that nobody runs would be no news, but a mistake
        news = self._mark() != self._looked
        if now < (self._earliest_look if news else self._next_look):
            return
        built = self._look(now=now)
        if now >= self._next_show:
            self._next_show = now + self._publisher.period_seconds
            self._show(built)
        seconds = min(_LOOK_SECONDS, self._publisher.period_seconds)
        self._earliest_look = now + _REST * (self._job.clock() - now)
        self._next_look = max(now + seconds, self._earliest_look)

    def _mark(self) -> tuple[object, ...]:
        """Return what differs when something happened that is to be told at once."""
        job, parts = self._job, self._job.parts
        newest = parts.keeper.newest
        return (
            job.state,
            parts.relaunches.total,
            parts.relaunches.recovered,
            parts.ledger.rewinds,
            parts.keeper.failures,
            newest.manifest.version if newest else None,
        )

    def decided(self, decisions: Sequence[Decision]) -> None:
        """Tell and note what no status says."""
        self._recorder.decided(decisions)
        for notice in notices(decisions):
            self._publisher.notice(notice)

    async def leave(self) -> None:
        """Note what there is: another master of the job goes on."""
        await self._recorder.close(self._look(now=self._job.clock()))

    async def close(self, report: JobReport) -> None:
        """Show the end."""
        built = self._look(now=self._job.clock())
        await self._recorder.close(built)
        await self._publisher.close(
            status=self._show(built).model_dump_json(),
            report=_short_report(report).model_dump_json(),
        )

    def _look(self, *, now: float) -> JobStatus:
        self._looked = self._mark()
        built = status.build(self._job, now=now)
        found = self._decisions.of(built)
        for waits in notices(one for one in found if one.kind == Happening.PENDING):
            log.warning("%s", waits.message)  # nobody else says that
        self.decided(found)
        self._recorder.observe(built, now=now)
        return built

    def _show(self, built: JobStatus) -> JobStatus:
        self._publisher.headline(built.ending or str(built.state), built.message)
        short = _short(built)
        if self._shown is None or _content(short) != _content(self._shown):
            self._shown = short
            self._publisher.status(short.model_dump_json())
        return short


def _content(shown: JobStatus) -> JobStatus:
    """Return it without what changes though nothing happens."""
    return shown.model_copy(
        update={"time": 0.0, "checkpoint_age_seconds": None, "goodput_seconds": {}}
    )


def _short(full: JobStatus) -> JobStatus:
    relaunches = [
        r.model_copy(update={"detail": r.detail[:_MOST_DETAIL]})
        for r in full.relaunches[-_MOST_RELAUNCHES:]
    ]
    left_out = len(full.relaunches) - len(relaunches)
    return full.model_copy(
        update={
            "relaunches": relaunches,
            "relaunches_before": full.relaunches_before + left_out,
        }
    )


def _short_report(full: JobReport) -> JobReport:
    """Return the report without its long lists; whole it is in the job's folder."""
    relaunches = full.relaunches[-_MOST_RELAUNCHES:]
    left_out = len(full.relaunches) - len(relaunches)
    return full.model_copy(
        update={
            "relaunches": relaunches,
            "relaunches_before": full.relaunches_before + left_out,
            "replays": full.replays[-_MOST_RELAUNCHES:],
            "bad_records": full.bad_records[-_MOST_RELAUNCHES:],
            "evaluations": full.evaluations[-_MOST_RELAUNCHES:],
        }
    )
