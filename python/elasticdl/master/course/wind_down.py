"""How a job ends: workers leave, a last checkpoint, PS leave, what is left is killed.

Owns the order and the bounds of waiting. Called by the loop once. Must not decide how
the job ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from elasticdl.errors import JournalError, PlatformError
from elasticdl.job.words import ExitReason, JobState, ReplicaState
from elasticdl.master import job_state
from elasticdl.master.job_state import Job, JobEnding
from elasticdl.master.members.member import Member
from elasticdl.master.members.membership import Stop
from elasticdl.master.model.checkpoint_requests import STILL_SECONDS
from elasticdl.master.model.checkpointing import THE_END
from elasticdl.master.patience import END_SECONDS, within
from elasticdl.master.tasks import facts
from elasticdl.runner.base import Runner

log = logging.getLogger(__name__)

_OVER = "the job is over"
_UNWRITTEN = "it lacks the job's end"
# A PS has nothing to finish: its checkpoint is written before it is stopped.
_PS_SECONDS = 3.0
# A killed process is gone within milliseconds; the platform's word may take longer.
_KILLED_SECONDS = 5.0
# Workers whose reports cannot be journaled would wait in vain for their answers.
_UNHEARD_SECONDS = 1.0
_LOOK_SECONDS = 0.2
# Members of a group know of a dead connection in 5 s, and say so in 2 s. Replicas find
# a new master within a second or two.
_REGROUP_SECONDS = 15.0


class Unheard(Protocol):
    """Returns what is wrong with a replica that is silent or hangs; "" if it works."""

    def __call__(self, member: Member, *, now: float) -> str: ...


@dataclass
class _Refusals:
    """Since when a disk has taken no checkpoint, and whether that is enough."""

    patience: float  # seconds
    since: float | None = None

    def suffice(self, *, now: float, still_since: float | None, asked: bool) -> bool:
        """Note one more, of a checkpoint that stood still or was refused now."""
        if self.since is None:
            self.since = now if still_since is None else still_since
        # One from before that was refused says little of the disk of now.
        tells = asked or still_since is not None
        return tells and now - self.since >= self.patience


class WindDown:
    """Ends the replicas of one job."""

    def __init__(self, job: Job, runner: Runner, *, unheard: Unheard) -> None:
        """End the replicas of this job.

        `unheard` returns what is wrong with a replica that is silent or hangs.
        """
        self._job = job
        self._parts = job.parts
        self._runner = runner
        self._unheard = unheard
        self._lost = ""  # why the model cannot be had from who has it

    async def run(self, ending: JobEnding) -> JobEnding:
        """Return when no replica is left and the journal has the end.

        What is returned also says what could not be saved. Raises SupersededError if
        another master has the job: then nothing more is asked of the platform.
        """
        stopped = ending.state is JobState.STOPPED
        # A model that a worker has must be written before the worker leaves.
        outlives = self._parts.holder.outlives_workers
        if stopped and not outlives:
            ending = await self._checkpoint(ending)
        await self._let_workers_leave(
            _OVER if ending.state is JobState.SUCCEEDED else f"the job {ending.state}"
        )
        if stopped and outlives:
            ending = await self._checkpoint(ending)
        await self._let_ps_leave()
        self._parts.ledger.record(
            facts.JobStateFact(
                state=ending.state,
                message=ending.message,
                exit_code=int(ending.exit_code),
                time=self._job.clock(),
            )
        )
        try:
            await self._parts.ledger.commit()
        except JournalError as error:
            log.error("%s", error)
            if str(error) not in ending.message:
                said = filter(None, (ending.message, str(error), _UNWRITTEN))
                ending = self._job.end_with("; ".join(said))
        self._job.enter(ending.state)
        return ending

    async def _let_workers_leave(self, cause: str) -> None:
        stops: list[Stop] = []
        self._parts.holder.job_is_over()
        for member in self._parts.table.workers():
            if not member.drain:
                now = self._job.clock()
                stops += self._parts.membership.drain(member, cause, now=now)
        self._parts.signals.bump()
        self._parts.signals.work()
        await self._stop(stops)
        grace = self._job.spec.worker.grace_seconds
        if self._parts.ledger.trouble:
            grace = min(grace, _UNHEARD_SECONDS)
        await self._until(lambda: not self._parts.table.workers(), grace)
        await self._kill(self._parts.table.workers())

    async def _let_ps_leave(self) -> None:
        def present() -> list[Member]:
            return [member for member in self._parts.table.ps() if member is not None]

        for member in present():
            member.dismiss(_OVER)
            if member.state is ReplicaState.SCHEDULED:  # there is nothing to end
                now = self._job.clock()
                self._parts.membership.ended(member, ExitReason.DELETED, now=now)
        self._parts.signals.bump()
        await self._until(lambda: not any(m.registered for m in present()), _PS_SECONDS)
        await self._kill(present())

    async def _kill(self, members: list[Member]) -> None:
        await self._stop([Stop(m.key, 0.0, m.why_it_goes or _OVER) for m in members])
        if members:
            await self._until(
                lambda: all(m.key not in self._parts.table.members for m in members),
                _KILLED_SECONDS,
            )

    async def _checkpoint(self, ending: JobEnding) -> JobEnding:
        """Write a checkpoint of all training since the newest one; no time limit.

        One that moves is waited for; a disk that refuses is, as the journal waits for
        it. A second signal ends all of this at once.
        """
        job, checkpoints = self._job, self._parts.checkpoints
        patience = min(job.spec.master.journal_wait_seconds, job_state.STOP_SECONDS)
        refusals = _Refusals(patience)
        asked, before = False, checkpoints.newest
        if checkpoints.request is not None:  # a stop waits for it anew
            checkpoints.request.moves(job.clock())
        # A checkpoint that counts what the journal has not would be ahead of it.
        while not self._parts.ledger.failed and await self._has_model():
            failures, newest = checkpoints.failures, checkpoints.newest
            still_since = await self._until_written()
            if self._lost:
                break
            now = job.clock()
            # One that was given up for the loss of a replica is asked for again.
            written = asked and checkpoints.newest is not before
            if checkpoints.up_to_date or written:
                return ending
            if checkpoints.newest is not newest:
                refusals.since = None  # one that was under way
            elif checkpoints.failures != failures and refusals.suffice(
                now=now, still_since=still_since, asked=asked
            ):
                break
            if checkpoints.schedule.may_hurry(now=now) or not asked:
                asked, before = True, checkpoints.newest
                checkpoints.ask(THE_END, now=now)
            else:
                await self._parts.signals.wait_for_loop(_LOOK_SECONDS)
                await self._hold()
        return await self._without_checkpoint(ending, asked=asked)

    async def _without_checkpoint(self, ending: JobEnding, *, asked: bool) -> JobEnding:
        """Return the end with why the newest training is in no checkpoint."""
        job, checkpoints = self._job, self._parts.checkpoints
        trained = self._parts.holder.begun and job.trains and job.joined
        if not trained or checkpoints.up_to_date:
            return ending  # nothing was trained since the newest one
        # Those of a disk that does not answer may be there.
        await within(END_SECONDS, checkpoints.look(), str(checkpoints.directory))
        where = checkpoints.resumes_from
        way_on = f"it resumes from {where}" if where else checkpoints.nothing_left
        problem = (
            self._parts.ledger.failed
            or self._lost
            or checkpoints.problem
            or (
                "the last checkpoint was not completed"
                if asked
                else "no checkpoint was written, since not all of the model is there"
            )
        )
        message = f"{ending.message}; {problem}; {way_on}"
        log.error("%s", message)
        return job.end_with(message)

    async def _until_written(self) -> float | None:
        """Wait for the checkpoint in progress; return since when it stands still.

        None if it does not: it is written, refused, or given up for a lost replica.
        """
        checkpoints, holder = self._parts.checkpoints, self._parts.holder
        ledger = self._parts.ledger
        # A stop waits for a disk a minute, whether it refuses or does not answer.
        still = min(STILL_SECONDS, job_state.STOP_SECONDS)
        while checkpoints.busy and not ledger.failed and await self._has_model():
            now = self._job.clock()
            moved = checkpoints.request.moves_since if checkpoints.request else now
            if checkpoints.watch(now=now, still_seconds=still):
                return moved
            if self._is_lost(now=now):
                return None
            if holder.can_regroup:
                holder.tick(now=now)
            await self._parts.signals.wait_for_loop(_LOOK_SECONDS)
            await self._hold()
        return None

    def _is_lost(self, *, now: float) -> bool:
        """Whether who has the model does not answer any more, and nobody else has it.

        A PS that is frozen, or a worker in an endless step, would be waited for without
        an end. A group that is left by its leader forms a round of the others.
        """
        said = [self._unheard(member, now=now) for member in self._owners()]
        wrong = [why for why in said if why]
        # Each PS has a part of the model, each member of a group all of it.
        parts = self._parts.holder.outlives_workers
        if not wrong or not (parts or all(said)):
            return False
        self._lost = f"the last checkpoint was not completed: {', '.join(wrong)}"
        return True

    def _owners(self) -> list[Member]:
        """Return who has the model."""
        members = self._parts.table.members.values()
        return [member for member in members if self._parts.holder.holds(member)]

    async def _has_model(self) -> bool:
        """Whether the model can be written; members that are left form a round first.

        Who was lost in the end may have led, or broken the round of who leads. And who
        has the model may not have found a master yet that has just begun.
        """
        job, holder = self._job, self._parts.holder
        until = job.clock() + _REGROUP_SECONDS
        while not job.can_snapshot and (holder.can_regroup or self._is_expected()):
            now = job.clock()
            if now >= until:
                break
            if holder.can_regroup:
                holder.tick(now=now)
            await self._parts.signals.wait_for_loop(_LOOK_SECONDS)
            await self._hold()
        return job.can_snapshot

    def _is_expected(self) -> bool:
        """Whether all who have the model live, and some said nothing to this master."""
        owners = self._owners()
        begun = [member.ready or member.initialized for member in owners]
        silent = [member.worker is None and member.ps is None for member in owners]
        return self._parts.holder.begun and all(begun) and any(silent)

    async def _hold(self) -> None:
        """Raise SupersededError if the replicas belong to another master now.

        A master that slept for long while it waited here is told by nothing else.
        """
        if self._parts.ledger.trouble:
            return  # nobody else can have taken a journal that cannot be written
        with contextlib.suppress(JournalError):
            await self._parts.ledger.hold()

    async def _stop(self, stops: list[Stop]) -> None:
        if stops:
            await self._hold()

        async def one(stop: Stop) -> None:
            try:
                await self._runner.stop(
                    stop.key, grace_seconds=stop.grace_seconds, reason=stop.reason
                )
            except PlatformError as error:
                log.warning("%s", error)

        await asyncio.gather(*(one(stop) for stop in stops))

    async def _until(self, done: Callable[[], bool], seconds: float) -> None:
        until = self._job.clock() + seconds
        while not done():
            left = until - self._job.clock()
            if left <= 0:
                return
            await self._parts.signals.wait_for_loop(min(left, _LOOK_SECONDS))
            await self._hold()
