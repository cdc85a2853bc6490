"""The one place that acts: events in, decisions asked for, replicas started and ended.

Owns the order of things: what was decided is in the journal before the platform is
asked. Made by `master.assembly`. All state is changed in this event loop, so nothing
needs a lock.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable
from typing import Any, TypeVar

from elasticdl.errors import (
    DataError,
    ElasticDLError,
    ExitCode,
    JournalError,
    PlatformError,
    RpcError,
    SpecError,
)
from elasticdl.job.context import set_log_level
from elasticdl.job.in_force import put_in_force
from elasticdl.job.spec.job import JobSpec, JobType
from elasticdl.job.words import EndCause, JobState
from elasticdl.master import live_edits
from elasticdl.master.attention import PAUSE_SECONDS, Attention
from elasticdl.master.calls.lost_leases import LostLeases
from elasticdl.master.course.launching import Launching
from elasticdl.master.course.resting import Resting
from elasticdl.master.course.sizing import tasks_left
from elasticdl.master.course.stages import Stages
from elasticdl.master.course.watchdog import Verdict, Watchdog
from elasticdl.master.course.wind_down import WindDown
from elasticdl.master.happenings import EditRefused, JobEdited
from elasticdl.master.job_state import STOP_SECONDS, Job, JobEnding
from elasticdl.master.members.member import Member
from elasticdl.master.members.membership import Departure, Stop
from elasticdl.master.tasks import data_plan, facts
from elasticdl.master.telling.publishing import Publishing
from elasticdl.runner.base import Observation, Runner

log = logging.getLogger(__name__)

T = TypeVar("T")

# The loop is woken by events; this bounds the cost of a missed one.
_LONGEST_SLEEP_SECONDS = 2.0
# A delay of the master's own calls is worth a line in the log from here on.
_LATE_SECONDS = 1.0
# The loop rests so many times as long as it was busy.
_REST = 3.0
# How often a master with nothing to write looks whether it is the job's master still.
_HOLD_SECONDS = 2.0
# What an edit that is not taken is answered with.
_NOT_LIVE = (
    f"refused on a running job: {{}}; only {', '.join(live_edits.LIVE)} may change. "
    "The job goes on as it was"
)
_NOT_WITHOUT = (
    "refused: {}, which fits no job as this one runs, without the changes that are "
    "refused beside it. The job goes on as it was"
)
_TOO_LATE = (
    "refused: {}, for the job is over; if it was stopped or failed, launch it again: "
    "it goes by the file then"
)


class MasterLoop:
    """The master's loop: runs one job until it ends."""

    def __init__(
        self,
        job: Job,
        runner: Runner,
        lost_leases: LostLeases,
        stages: Stages,
        publishing: Publishing,
    ) -> None:
        """Run this job with this runner."""
        self._job = job
        self._parts = job.parts
        self._runner = runner
        self._lost_leases = lost_leases
        self._stages = stages
        self._publishing = publishing
        self._launching = Launching(job, runner)
        self._resting = Resting(self._parts.ledger)
        self._watchdog = Watchdog(job)
        self._counting: asyncio.Task[None] | None = None
        self._attention = Attention(now=job.clock())
        self._held_at = job.clock()
        self._handing_over = False

    def hand_over(self) -> None:
        """Leave job and replicas to another master, unless the job is ending."""
        self._handing_over = True
        self._parts.signals.wake()

    async def run(
        self,
        call_itself: Callable[[], Awaitable[object]] | None = None,
        *,
        edits: AsyncIterator[JobSpec | SpecError] | None = None,
    ) -> JobEnding | None:
        """Run the job; return its end, when all replicas are gone.

        None if another master shall go on with it. Raises SupersededError if one has
        done so already: then nothing must be asked of the platform, nor written.
        `call_itself` calls this master as a replica does; without it only the event
        loop is known to be on time. `edits`: what the values file says whenever it has
        changed, where it is a file that is edited.
        """
        hear = self._hear(call_itself or (lambda: asyncio.sleep(0)))
        tasks = [
            asyncio.create_task(hear, name="attention"),
            asyncio.create_task(self._watch_platform(), name="platform"),
        ]
        if edits is not None:
            tasks.append(asyncio.create_task(self._take_edits(edits), name="edits"))
        job = self._job
        self._lost_leases.take_over(now=job.clock())
        self._attention.heard(now=job.clock())
        try:
            while not self._over:
                await self._turn()
                self._check(tasks)
            if job.ending is None and not job.finished:
                return None
            if job.ending is None:
                job.end(JobState.SUCCEEDED, job.message, ExitCode.OK)
            await self._hold_to_the_end()
            ending = job.ending or JobEnding(JobState.SUCCEEDED, "", ExitCode.OK)
            end = WindDown(job, self._runner, unheard=self._unheard)
            return await self._while_told(end.run(ending))
        finally:
            for task in [*tasks, *self._passing()]:
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task

    async def _hold_to_the_end(self) -> None:
        """Carry out the last stops. Raises SupersededError."""
        with contextlib.suppress(JournalError):  # then nobody else can have taken it
            await self._parts.ledger.hold()
        await self._launching.stop_all()

    @property
    def _over(self) -> bool:
        job = self._job
        return self._handing_over or job.finished or job.ending is not None

    def _check(self, tasks: Iterable[asyncio.Task[None]]) -> None:
        """Fail the job if a task that should never end has ended."""
        for task in [*tasks, *self._passing()]:
            if task.done() and not task.cancelled() and task.exception():
                log.error("%s ended", task.get_name(), exc_info=task.exception())
                self._job.end(JobState.FAILED, f"internal: {task.exception()!r}")

    def _passing(self) -> list[asyncio.Task[None]]:
        """Return the tasks that end by themselves."""
        return [t for t in (self._counting, self._launching.trial) if t is not None]

    async def _turn(self) -> None:
        job = self._job
        now = job.clock()
        self._tick(now)
        self._end_standstill(now)
        self._stages.advance(now=now)
        if self._stages.needs_count and self._counting is None:
            self._counting = asyncio.create_task(self._count(), name="count")
        self._publishing.update(now=now)
        busy = job.clock() - now
        asked = self._launching.decided(now=now)
        refused = self._parts.ledger.refused_seconds
        try:
            await self._while_told(self._parts.ledger.commit())
            if asked or now - self._held_at >= _HOLD_SECONDS:
                await self._while_told(self._parts.ledger.hold())
                self._held_at = now
            await self._launching.act(asked)
            if self._parts.ledger.wants_compaction():
                await self._while_told(self._parts.ledger.compact())
        except JournalError as error:
            job.end(JobState.FAILED, str(error), error.exit_code)
        # A disk that takes nothing holds all answers up; one that is slow some.
        if refused := self._parts.ledger.refused_seconds - refused:
            self._put_off(refused)
        if not self._over:
            # With 1,000 workers a look at all of them takes milliseconds, and each
            # report asks for one: the calls of workers come first.
            await asyncio.sleep(_REST * busy)
            sleep = self._sleep_seconds(job.clock())
            await self._parts.signals.wait_for_loop(sleep)

    async def _while_told(self, work: Coroutine[Any, Any, T]) -> T:
        """Return when the journal has written, or all replicas are gone.

        The job is published meanwhile: a disk that refuses is waited for, and where
        nobody can ask the master nobody else says so.
        """
        task = asyncio.ensure_future(work)
        try:
            while not (await asyncio.wait([task], timeout=_LONGEST_SLEEP_SECONDS))[0]:
                if not self._job.state.ended:  # which is told with the report
                    self._publishing.update(now=self._job.clock())
            return task.result()
        finally:
            task.cancel()

    async def _hear(self, call_itself: Callable[[], Awaitable[object]]) -> None:
        """Call the master itself for ever; its own delay is nobody's silence."""
        while True:
            try:
                await call_itself()
            except RpcError as error:
                log.warning("the master does not reach itself: %s", error)
            else:
                now = self._job.clock()
                late = self._attention.heard(now=now, stopped=self._job.stopped())
                if late > 0.0:
                    self._put_off(late)
                    self._parts.table.excuse(late, now=now)
                    if late >= self._job.spec.worker.dead_seconds:
                        # As after a time in which there was no master.
                        self._lost_leases.take_over(now=now)
                    self._parts.signals.wake()
                if late > _LATE_SECONDS:
                    log.warning("the master was late with its answers by %.1f s", late)
            await asyncio.sleep(PAUSE_SECONDS)

    def _put_off(self, seconds: float) -> None:
        """Leave seconds in which callers got no answers out of what waits for them."""
        now, parts = self._job.clock(), self._parts
        parts.table.put_off_stops(seconds)
        parts.holder.put_off(seconds, now=now)
        if parts.checkpoints.request is not None:
            parts.checkpoints.request.put_off(seconds, now=now)
        self._watchdog.put_off(seconds, now=now)

    def _tick(self, now: float) -> None:
        """Do what is due by time or after a heartbeat."""
        parts, spec = self._parts, self._job.spec
        self._judge(now)
        parts.granted.look(now=self._job.unix())
        if parts.table.grant is not None:
            parts.table.no_more_than(tasks_left(self._job))
        workers = self._resting.wanted(self._job, now=now)
        self._launching.add_stops(parts.membership.plan(workers=workers, now=now))
        self._launching.add_stops(parts.membership.overdue(now=now))
        if parts.table.take_orders():
            parts.signals.bump()
        for member in parts.table.never_seen(now=now):
            member.launch_again()
        self._lost_leases.expire(now=now)
        parts.holder.tick(now=now)
        if parts.ledger.queue is not None or spec.type is JobType.EVALUATE:
            done, leased = self._job.records()
            self._job.speed.take(done, now=now)
            self._job.pace.take(
                done,
                leased=leased,
                workers=0 if spec.paused else parts.table.num_at_work,
                now=now,
            )
        if self._job.can_snapshot:
            parts.checkpoints.tick(version=self._job.version, now=now)

    def _end_standstill(self, now: float) -> None:
        """Resume or end a job in which nothing moves."""
        verdict, what = self._watchdog.ask(now=now)
        if verdict is Verdict.GO_BACK:
            self._parts.holder.go_back(what, now=now)
        elif verdict is Verdict.END:
            self._job.end(
                JobState.FAILED,
                f"{what}; launched again, the job goes on from its newest checkpoint",
            )

    def _judge(self, now: float) -> None:
        """End replicas that are silent or hang."""
        parts, spec = self._parts, self._job.spec
        if not self._attention.behind(now=now):
            for member in parts.table.dead(now=now):
                self._dismiss(member, EndCause.SILENT, now=now)
        for member in parts.table.take_suspects():
            patience = self._lost_leases.patience(member)
            if member.is_hung(spec.worker, patience=patience):
                self._dismiss(member, EndCause.HUNG, now=now)

    def _unheard(self, member: Member, *, now: float) -> str:
        """Return what is wrong with a member that is silent or hangs; "" if it works.

        At a job's end nobody is launched in its place.
        """
        if self._attention.behind(now=now):
            return ""
        worker = self._job.spec.worker
        silent_at = member.silent_at(worker)
        if silent_at is not None and silent_at <= now:
            since = max(member.last_heard, member.since)
            return f"{member.name} has not been heard for {now - since:.0f} s"
        # A worker that writes its model waits for a disk, as a stop does.
        waits = member.worker is not None and (
            member.worker.phase_seconds < STOP_SECONDS
        )
        patience = self._lost_leases.patience(member)
        if not waits and member.is_hung(worker, patience=patience):
            return f"{member.name} hangs"
        return ""

    def _dismiss(self, member: Member, cause: EndCause, *, now: float) -> None:
        self._launching.add_stops([Stop(member.key, 0.0, cause)])
        departure = self._parts.membership.give_up_on(member, cause, now=now)
        self._departed([departure], now=now)

    def _departed(self, departures: Iterable[Departure], *, now: float) -> None:
        parts = self._parts
        for departure in departures:
            member, held = departure.member, ""
            if member.is_worker:
                held = self._lost_leases.recover(member, departure.reason, now=now)
                parts.signals.wake()
            if parts.membership.leaving or member.drain:
                parts.holder.left(member)
            else:
                parts.holder.lost(member, now=now)
            if departure.give_up is not None:
                self._job.end(
                    JobState.FAILED,
                    departure.give_up.with_records(held),
                    departure.give_up.exit_code,
                )

    def observe(self, observation: Observation) -> None:
        """Apply an observation of the platform."""
        now = self._job.clock()
        departures, stops = self._parts.membership.observe(observation, now=now)
        self._departed(departures, now=now)
        self._launching.add_stops(stops)
        self._parts.signals.wake()

    def _sleep_seconds(self, now: float) -> float:
        parts = self._parts
        queue = parts.ledger.queue
        times = [
            parts.table.next_time(),
            self._resting.next_time(self._job.spec),
            parts.checkpoints.schedule.next_time() if self._job.trains else None,
            parts.rounds.schedule.next_time(),
            parts.side.next_deadline(),
            queue.next_deadline() if queue else None,
        ]
        due = [time - now for time in times if time is not None and time > now]
        sleep = min([*due, _LONGEST_SLEEP_SECONDS])
        return max(sleep, 0.01)

    # -- watching -----------------------------------------------------------------

    async def _watch_platform(self) -> None:
        try:
            async for observation in self._runner.watch():
                self.observe(observation)
        except PlatformError as error:
            self._job.end(JobState.FAILED, str(error), error.exit_code)

    async def _count(self) -> None:
        loop = asyncio.get_running_loop()
        result: data_plan.Shards | DataError
        try:
            result = await loop.run_in_executor(None, data_plan.count, self._job.spec)
        except DataError as error:
            result = error
        except (ElasticDLError, OSError) as error:
            result = DataError(str(error))
        self._counting = None
        self._stages.counted(result)

    async def _take_edits(self, edits: AsyncIterator[JobSpec | SpecError]) -> None:
        async for edited in edits:
            self.edit(edited)

    def grant(self, text: str) -> None:
        """Take the text of the annotation by which the job is given its size."""
        parts = self._parts
        if parts.granted.take(text, now=self._job.unix()):
            parts.signals.bump()
            parts.signals.work()
        parts.signals.wake()

    def edit(self, edited: JobSpec | SpecError) -> None:
        """Apply an edit of the values file, as far as a running job allows it.

        What came of it is told at once: the next master would not know of it.
        """
        self._edit(edited)
        self._publishing.tell()

    def _edit(self, edited: JobSpec | SpecError) -> None:
        job = self._job
        if isinstance(edited, SpecError):
            log.error("the edited values file is refused, nothing changes: %s", edited)
            refused = EditRefused(time=job.clock(), text=str(edited))
            self._parts.signals.diary.say(refused)
            return
        if job.state is JobState.FINISHING:
            edited = self._with_epochs_so_far(edited)
        edit = live_edits.compare(job.spec, edited)
        too_late = job.finished or job.ending is not None
        if too_late:
            edit = live_edits.too_late(job.spec, edit)
        self._refuse(edit, too_late=too_late)
        if not edit.accepted:
            return
        for change in edit.accepted:
            log.info("changed: %s", change)
            path, old, new = change.path, change.old, change.new
            taken = JobEdited(time=job.clock(), path=path, old=old, new=new)
            self._parts.signals.diary.say(taken)
        set_log_level(str(edit.spec.log.level))
        self._parts.ledger.record(facts.SpecificationFact(job=edit.spec.document()))
        try:
            put_in_force(job.job_dir, edit.spec)
        except OSError as error:  # the next edit, or master, will
            log.error("%s: %s", job.job_dir.in_force_file, error.strerror)
        if job.trains and edit.spec.training.epochs != job.spec.training.epochs:
            self._parts.ledger.set_epochs(edit.spec.training.epochs)
        job.change_spec(edit.spec)

    def _with_epochs_so_far(self, spec: JobSpec) -> JobSpec:
        """Return the specification with the old epochs: all records are done."""
        before = self._job.spec.training.epochs
        if spec.training.epochs == before:
            return spec
        change = live_edits.FieldChange("training.epochs", before, spec.training.epochs)
        self._say_refused(f"refused: {change}, for all records are done", str(change))
        training = spec.training.model_copy(update={"epochs": before})
        return spec.model_copy(update={"training": training})

    def _refuse(self, edit: live_edits.Edit, *, too_late: bool) -> None:
        """Report which changes are refused, and why."""
        for change in edit.refused:
            text = _NOT_WITHOUT if live_edits.is_live(change.path) else _NOT_LIVE
            if too_late:
                text = _TOO_LATE
            self._say_refused(text.format(change), str(change))

    def _say_refused(self, text: str, change: str) -> None:
        log.error("%s", text)
        refused = EditRefused(time=self._job.clock(), text=text, change=change)
        self._parts.signals.diary.say(refused)
