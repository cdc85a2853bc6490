"""Shows the job where people look who do not ask the master.

Owns when a status is built for that, and what is left out of it. Called by the loop,
and at the end by `master.master`. What the parts said of what happened is collected
here, for the job's history, its status, and the notices of the platform. Must not know
where it is shown.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Awaitable, Sequence

from elasticdl.job import words
from elasticdl.job.decision import Decision
from elasticdl.job.status import JobReport, JobStatus
from elasticdl.job.words import JobState
from elasticdl.master.happenings import (
    AttentionNeeded,
    Evaluated,
    Happening,
    JobEntered,
    MasterTookOver,
)
from elasticdl.master.job_state import Job
from elasticdl.master.patience import END_SECONDS, within
from elasticdl.master.tasks import facts
from elasticdl.master.telling import status
from elasticdl.master.telling.history import Recorder
from elasticdl.master.telling.notices import notices
from elasticdl.master.telling.sentences import decisions_of
from elasticdl.runner.publisher import Publisher

log = logging.getLogger(__name__)

_LOOK_SECONDS = 2.0  # As often as a sample can be due.
# With 1,000 workers a look takes milliseconds: it is rarer then, a 50th of the time.
_REST = 50.0
# A ConfigMap holds 1 MiB; all of them are in the report.
_MOST_RELAUNCHES = 50
_MOST_DETAIL = 500


class Publishing:
    """Publishes status, history and notices of one job."""

    def __init__(
        self, job: Job, publisher: Publisher, *, takes_over: bool = False
    ) -> None:
        """Begin with what an earlier master left unpublished.

        `takes_over`: from a lost master of the same launch.
        """
        self._job = job
        self._diary = job.parts.signals.diary
        self._publisher = publisher
        self._recorder = Recorder(job, publisher)
        self._untold: list[Happening] = []
        self._state = ""  # of the job that was told last
        self._message = ""  # that was told, without its figures, which change
        self._next_look = self._earliest_look = 0.0
        self._next_show = 0.0
        self._shown: JobStatus | None = None
        self._begin(takes_over=takes_over, now=job.clock())

    def _begin(self, *, takes_over: bool, now: float) -> None:
        ledger = self._job.parts.ledger
        run = ledger.newest_of(facts.RunFact)
        if run is not None and run.time <= self._recorder.told_until:
            self._state = self._recorder.told_state
        if takes_over and not self._job.state.ended:
            taken = MasterTookOver(time=now, generation=ledger.generation)
            self._diary.say(taken)
        # The journal may know what the history does not: its master was lost between.
        self._job.parts.membership.say_since(self._recorder.told_until)
        self._job.parts.relaunches.say_since(self._recorder.told_until)
        self._job.parts.rounds.say_since(self._recorder.told_until)
        self._job.parts.holder.say_since(self._recorder.told_until)
        self._diary.say(JobEntered(time=now, state=self._job.state))
        self._untold += self._diary.take()  # counted by whoever should have told it

    def update(self, *, now: float) -> None:
        """Collect happenings, and publish the job as often as is wanted."""
        self._collect()
        if self._job.parts.table.settling:
            # That nobody runs would be no news, but a mistake; what happens is told,
            # as this master may be lost before it has heard of everybody.
            self._tell()
            return
        if now < (self._earliest_look if self._untold else self._next_look):
            return
        built = self._look(now=now)
        if now >= self._next_show:
            self._next_show = now + self._publisher.period_seconds
            self._show(built)
        seconds = min(_LOOK_SECONDS, self._publisher.period_seconds)
        self._earliest_look = now + _REST * (self._job.clock() - now)
        self._next_look = max(now + seconds, self._earliest_look)

    def tell(self) -> None:
        """Publish happenings without waiting for the next collection."""
        self._collect()
        self._tell()

    def _collect(self) -> None:
        said = self._diary.take()
        self._job.parts.changes.take(said)
        self._untold += said

    async def leave(self) -> None:
        """Write what is queued; another master continues the job."""
        closing = self._recorder.close(self._look(now=self._job.clock()))
        await within(END_SECONDS, closing, str(self._job.job_dir.history_file))

    async def close(self, report: JobReport) -> Awaitable[None]:
        """Publish the end; return what is still to be written of the history."""
        built = self._look(now=self._job.clock())
        history = self._job.job_dir.history_file
        closing = self._recorder.close(built)
        waits = await within(END_SECONDS, closing, str(history))
        await self._publisher.close(
            status=self._show(built).model_dump_json(),
            report=_short_report(report).model_dump_json(),
        )
        return waits

    def _look(self, *, now: float) -> JobStatus:
        """Publish happenings, and return the job's status."""
        self._job.parts.membership.say_who_waits(now=now)
        self._say_what_is_needed(now=now)
        self._collect()
        self._tell()
        built = status.build(self._job, now=now)
        self._recorder.observe(built, now=now)
        return built

    def _say_what_is_needed(self, *, now: float) -> None:
        message = status.message(self._job)
        kind = re.sub(r"\d+", "", message)
        # That a checkpoint failed was said when it did.
        known = kind == self._message or message == self._job.parts.checkpoints.problem
        if message and not known and self._job.ending is None:
            self._diary.say(AttentionNeeded(time=now, message=message))
        self._message = kind

    def _tell(self) -> None:
        """Write happenings to the history and pass them to the platform."""
        untold, self._untold = _newest_state_alone(self._untold, self._state), []
        if not untold:
            return
        for entered in untold:
            if isinstance(entered, JobEntered):
                self._state = entered.state
        name, message = self._job.spec.name, status.message(self._job)
        decisions: list[Decision] = []
        for happening in untold:
            if isinstance(happening, Evaluated):
                self._recorder.evaluated(happening.result)
            decisions += decisions_of(happening, job=name, message=message)
        for waits in notices(
            d for d in decisions if d.kind == words.HappeningKind.PENDING
        ):
            log.warning("%s", waits.message)  # nobody else says that
        self._recorder.decided(decisions)
        self._diary.tell(decisions)
        for notice in notices(decisions):
            self._publisher.notice(notice)

    def _show(self, built: JobStatus) -> JobStatus:
        # Nothing has succeeded before the journal has it.
        ending = built.ending if built.ending != JobState.SUCCEEDED else ""
        self._publisher.headline(ending or str(built.state), built.message)
        short = _short(built)
        if self._shown is None or _content(short) != _content(self._shown):
            self._shown = short
            self._publisher.status(short.model_dump_json())
        return short


def _newest_state_alone(said: Sequence[Happening], told: str) -> list[Happening]:
    """Return the happenings without states that the job has already left.

    Also without the newest one if it is the state that was `told` last.
    """
    states = [one for one in said if isinstance(one, JobEntered)]
    left = states if states and states[-1].state == told else states[:-1]
    return [one for one in said if not any(one is state for state in left)]


def _content(shown: JobStatus) -> JobStatus:
    """Return the status without values that change on their own."""
    return shown.model_copy(
        update={"time": 0.0, "checkpoint_age_seconds": None, "goodput_seconds": {}}
    )


def _short(full: JobStatus) -> JobStatus:
    relaunches = [
        r.model_copy(update={"detail": r.detail[:_MOST_DETAIL]})
        for r in full.relaunches[-_MOST_RELAUNCHES:]
    ]
    left_out = len(full.relaunches) - len(relaunches)
    happened = [
        one.model_copy(update={"detail": one.detail[:_MOST_DETAIL]})
        for one in full.happened
    ]
    return full.model_copy(
        update={
            "relaunches": relaunches,
            "relaunches_before": full.relaunches_before + left_out,
            "happened": happened,
        }
    )


def _short_report(full: JobReport) -> JobReport:
    """Return the report without its long lists, which the job's folder has."""
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
