"""What the platform is asked for: replicas tried, started and stopped.

Owns the calls to the runner while the job runs, and the trial before the first start.
Held by the loop, which says whom to stop; whom to start is in the table of members.
Must not decide either.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from dataclasses import dataclass

from elasticdl.errors import PlatformError
from elasticdl.job.spec.quantity import format_bytes
from elasticdl.job.words import JobState, ReplicaState
from elasticdl.master.job_state import Job
from elasticdl.master.members.member import Member
from elasticdl.master.members.membership import Stop
from elasticdl.runner.base import Launch, Runner

log = logging.getLogger(__name__)

_START_RETRY_SECONDS = 1.0  # Gives the platform a moment after a refusal.
_LAST_STOPS = 5  # tries


@dataclass(frozen=True)
class Asked:
    """What one turn of the loop asks of the platform."""

    stops: tuple[Stop, ...]
    starts: tuple[Member, ...]

    def __bool__(self) -> bool:
        """Whether anything is asked."""
        return bool(self.stops or self.starts)


class Launching:
    """Requests the replicas of one job from its runner."""

    def __init__(self, job: Job, runner: Runner) -> None:
        """Start; a dry run is skipped if an earlier master has started replicas."""
        self._job = job
        self._parts = job.parts
        self._runner = runner
        self._stops: list[Stop] = []  # to be carried out
        self._tried = bool(job.parts.table.members)
        self.trial: asyncio.Task[None] | None = None

    def decided(self, *, now: float) -> Asked:
        """Return what to ask of the platform now.

        Asked for before the journal is written: whoever is scheduled during that write
        has a generation that is not on the disk yet, and that the next master would
        give once more. Such a replica waits for the next turn.
        """
        return Asked(tuple(self._stops), tuple(self._parts.table.due(now=now)))

    def add_stops(self, stops: Iterable[Stop]) -> None:
        """Carry out these stops in the next turn, or at the end."""
        self._stops += stops

    async def act(self, asked: Asked) -> None:
        """Carry out the stops, then start the replicas that are due."""
        self._stops = self._stops[len(asked.stops) :]
        later = {stop.key for stop in self._stops}
        # First stops, then starts: a PS keeps its name.
        await self._stop_all_of(asked.stops)
        due = [
            member
            for member in asked.starts
            if member.state is ReplicaState.SCHEDULED and member.key not in later
        ]
        if self._tried:
            await asyncio.gather(*(self._start(member) for member in due))
        elif due and self.trial is None:
            # Beside the loop: a platform that is away answers when it is back.
            first = {member.key.role: member for member in reversed(due)}
            launches = [self._launch(member) for member in first.values()]
            self.trial = asyncio.create_task(self._try(launches), name="trial")

    async def stop_all(self, *, pause: float = _START_RETRY_SECONDS) -> None:
        """Carry out the remaining stops after the loop has ended, with retries.

        Some are of replicas that are in no table any more: nobody else would end them.
        """
        for _ in range(_LAST_STOPS):
            if not self._stops:
                return
            await self._stop_once()
            if self._stops:
                await asyncio.sleep(pause)
        for stop in self._stops:
            log.error("%s could not be ended (%s)", stop.key, stop.reason)

    async def _stop_once(self) -> None:
        stops, self._stops = self._stops, []
        await self._stop_all_of(stops)

    async def _stop_all_of(self, stops: Iterable[Stop]) -> None:
        await asyncio.gather(*(self._stop(stop) for stop in stops))

    async def _try(self, launches: list[Launch]) -> None:
        try:
            await self._runner.check(launches)
        except PlatformError as error:
            self._job.end(JobState.FAILED, str(error), error.exit_code)
        else:
            self._tried = True
            self._parts.signals.wake()

    async def _stop(self, stop: Stop) -> None:
        try:
            await self._runner.stop(
                stop.key, grace_seconds=stop.grace_seconds, reason=stop.reason
            )
        except PlatformError as error:
            log.warning("%s", error)
            self._stops.append(stop)

    async def _start(self, member: Member) -> None:
        self._parts.membership.launched(member, now=self._job.clock())
        try:
            await self._runner.start(self._launch(member))
        except PlatformError as error:
            log.warning("%s not started: %s; trying again", member.name, error)
            if member.state is ReplicaState.LAUNCHED:
                member.launch_again(self._job.clock() + _START_RETRY_SECONDS)

    def _launch(self, member: Member) -> Launch:
        job = self._job
        spec = job.spec.worker if member.is_worker else job.spec.ps
        return Launch(
            key=member.key,
            generation=member.generation,
            cpu=spec.resources.cpu,
            memory=format_bytes(member.memory_bytes),
            priority=member.priority,
            grace_seconds=job.spec.worker.grace_seconds,
            env=job.spec.env_of(member.key.role),
        )
