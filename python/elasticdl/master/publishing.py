"""Shows the job where people look who do not ask the master.

Owns when a status is built for that, and what is left out of it. Called by the loop and
at the end by `master.assembly`. Must not know where it is shown.
"""

from __future__ import annotations

from elasticdl.job.status import JobReport, JobStatus
from elasticdl.master import status
from elasticdl.master.job_state import Job
from elasticdl.master.notices import Notices
from elasticdl.runner.publisher import Notice, Publisher

# A ConfigMap holds 1 MiB; all of them are in the report.
_MOST_RELAUNCHES = 50
_MOST_DETAIL = 500


class Publishing:
    """Publishes one job."""

    def __init__(self, job: Job, publisher: Publisher) -> None:
        """Begin with nothing shown."""
        self._job = job
        self._publisher = publisher
        self._notices = Notices()
        self._next = 0.0
        self._shown: JobStatus | None = None

    def update(self, *, now: float) -> None:
        """Show what changed, as often as the publisher wants it."""
        if now < self._next:
            return
        self._next = now + self._publisher.period_seconds
        self._show(now=now)

    def notice(self, notice: Notice) -> None:
        """Tell what no status says."""
        self._publisher.notice(notice)

    async def close(self, report: JobReport) -> None:
        """Show the end."""
        last = self._show(now=self._job.clock())
        await self._publisher.close(
            status=last.model_dump_json(),
            report=_short_report(report).model_dump_json(),
        )

    def _show(self, *, now: float) -> JobStatus:
        built = status.build(self._job, now=now)
        for notice in self._notices.of(built):
            self._publisher.notice(notice)
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
    return full.model_copy(update={"relaunches": relaunches})


def _short_report(full: JobReport) -> JobReport:
    """Return the report without its long lists; whole it is in the job's folder."""
    return full.model_copy(
        update={
            "relaunches": full.relaunches[-_MOST_RELAUNCHES:],
            "replays": full.replays[-_MOST_RELAUNCHES:],
            "bad_records": full.bad_records[-_MOST_RELAUNCHES:],
            "evaluations": full.evaluations[-_MOST_RELAUNCHES:],
        }
    )
