"""The Master service: calls in, answers out, nothing decided.

Owns the mapping of errors to gRPC statuses and the waiting of long polls. Registered by
`master.main` with the server of the event loop.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import grpc.aio

from elasticdl.errors import (
    ElasticDLError,
    FencedError,
    JournalError,
    SupersededError,
)
from elasticdl.job.heartbeats import (
    ModelInfo,
    PsHeartbeat,
    PsOrders,
    Registration,
    RegistrationReply,
    WorkerHeartbeat,
    WorkerOrders,
)
from elasticdl.job.tasks import LeaseReply, LeaseRequest, ReplicaId, Task
from elasticdl.job.words import JobState
from elasticdl.master.calls.heartbeats import Heartbeats
from elasticdl.master.calls.leasing import Leasing
from elasticdl.master.calls.ps_heartbeats import PsHeartbeats
from elasticdl.master.calls.stagger import until_place
from elasticdl.master.job_state import Job
from elasticdl.master.telling import status
from elasticdl.rpc.errors import status_of

log = logging.getLogger(__name__)

_MOST_HOLD_SECONDS = 30.0  # Shorter than the idle time-outs of proxies and meshes.
# Of many workers each is heard of more rarely: no more than so many heartbeats a second
# reach the master, and so many calls that lease and report, as far as these can wait.
_CALLS_PER_SECOND = 200.0
# What a worker did between two calls is lost with it: never more than this for it, and
# with the number above never more than 5 ms of what all workers do.
_MOST_BETWEEN_CALLS_SECONDS = 5.0
# A worker that calls shortly before its place in the cycle was on it; the next call is
# on the next one. Tasks are leased for the time between calls: never for a part of one.
_LEASE_AT_LEAST = 1 / 2
# No heartbeat is held for longer than a cycle.
_BEAT_AT_LEAST = 1 / 8
# Who waits for longer than he asked for still gets his answer before he gives up.
_MOST_EXTRA_SECONDS = 2.0

Reply = TypeVar("Reply")
ServicerContext = grpc.aio.ServicerContext[Any, Any]
Method = Callable[[Any, Any, ServicerContext], Awaitable[Reply]]


def _answering(method: Method[Reply]) -> Method[Reply]:
    """Map ElasticDL's errors to gRPC statuses; a failing journal ends the job."""

    @functools.wraps(method)
    async def call(self: Any, request: Any, context: ServicerContext) -> Reply:
        try:
            return await method(self, request, context)
        except SupersededError as error:
            self.job.parts.signals.wake()  # the loop ends; callers find the next one
            await context.abort(grpc.StatusCode.UNAVAILABLE, str(error))
        except JournalError as error:
            self.job.end(JobState.FAILED, str(error), error.exit_code)
            await context.abort(grpc.StatusCode.UNAVAILABLE, str(error))
        except ElasticDLError as error:
            await context.abort(status_of(error), str(error))
        except Exception as error:
            # The caller would try again for ever, and the job would stand still.
            log.error("a call failed", exc_info=error)
            message = f"internal: {error!r}; the master's log has the trace"
            self.job.end(JobState.FAILED, message)
            await context.abort(grpc.StatusCode.UNAVAILABLE, message)
        raise AssertionError("abort raises")

    return call


class MasterServicer:
    """Maps RPCs to the job's parts. All methods run in one event loop."""

    def __init__(
        self,
        job: Job,
        leasing: Leasing,
        heartbeats: Heartbeats,
        ps: PsHeartbeats | None,
    ) -> None:
        """Serve this job; `ps` is None for a job without PS."""
        self.job = job
        self._parts = job.parts
        self._leasing = leasing
        self._heartbeats = heartbeats
        self._ps = ps
        self._in_journal = self._parts.holder.decided

    @_answering
    async def Register(  # noqa: N802 - the name is the RPC's
        self, request: Registration, _: ServicerContext
    ) -> RegistrationReply:
        """Register a replica."""
        reply = self._heartbeats.register(request, now=self.job.clock())
        await self._parts.ledger.commit()
        return reply

    @_answering
    async def ModelReady(  # noqa: N802 - the name is the RPC's
        self, request: ModelInfo, _: ServicerContext
    ) -> None:
        """Note that a worker has built the model."""
        self._heartbeats.model_ready(request, now=self.job.clock())
        await self._parts.ledger.commit()

    @_answering
    async def Lease(  # noqa: N802 - the name is the RPC's
        self, request: LeaseRequest, _: ServicerContext
    ) -> LeaseReply:
        """Take reports and lease tasks; wait until there is a task."""
        clock = self.job.clock
        member = self._parts.table.require(request.replica)
        steps_waited = self._parts.rounds.stops_training
        withheld = not self.job.may_train
        self._parts.holder.answered(request.ps_versions, rewind=request.ps_rewind)
        results = [
            self._leasing.report(member, report, now=clock())
            for report in request.reports
        ]
        if results and withheld and self.job.may_train:
            self._parts.signals.work()  # an evaluation was due behind what is reported
        seconds = min(self._patient(request.wait_seconds), _MOST_HOLD_SECONDS)
        until = clock() + seconds
        tasks: list[Task] = []
        unwritten = bool(results)
        while request.want > 0:
            member = self._parts.table.require(request.replica)
            tasks = self._leasing.held_by(member, request, now=clock())
            tasks += self._leasing.give(member, request.want - len(tasks), now=clock())
            left = until - clock()
            if tasks or self.job.finished or member.drain or left <= 0:
                break
            if not (member.ready or self._parts.data.may_prepare):
                break  # it has a model to build meanwhile
            if steps_waited and not self._parts.rounds.stops_training:
                break  # it may have steps to make, and waits with them
            if unwritten:
                await self._parts.ledger.commit()
                unwritten = False
                continue  # others may have reported meanwhile
            await self._parts.signals.wait_for_work(left)
        finished = self.job.finished
        if tasks or unwritten or finished:
            # One write for what was reported and what is leased. Who is told that the
            # job is over leaves: the report that made it so has to be on disk before.
            with self._leasing.answering(tasks):
                await self._parts.ledger.commit()
        return LeaseReply(
            tasks=tuple(tasks),
            results=tuple(results),
            finished=finished,
            call_seconds=until_place(
                member.key.index,
                cycle_seconds=min(self._fair_seconds, _MOST_BETWEEN_CALLS_SECONDS),
                now=clock(),
                at_least=_LEASE_AT_LEAST,
            ),
            # Of a job that ends nobody gets the rest of the evaluation.
            steps_wait=self._parts.rounds.stops_training
            and not (self.job.ending or member.drain or finished),
        )

    @_answering
    async def WorkerSync(  # noqa: N802 - the name is the RPC's
        self, request: WorkerHeartbeat, _: ServicerContext
    ) -> WorkerOrders:
        """Answer a worker's heartbeat as soon as there is news."""
        lost = self._heartbeats.worker(request, now=self.job.clock())
        signals = self._parts.signals
        if not lost and request.seen_revision == signals.revision:
            seconds = min(self._patient(request.hold_seconds), self._most_hold)
            if seconds > request.hold_seconds:
                place = until_place(
                    request.replica.index,
                    cycle_seconds=seconds,
                    now=self.job.clock(),
                    at_least=_BEAT_AT_LEAST,
                )
                seconds = min(seconds, place)
            await signals.wait_for_revision(seconds)
        reply = self._heartbeats.worker_reply(request, lost)
        await self._keep_decided(request.replica)
        return reply

    @_answering
    async def PsSync(  # noqa: N802 - the name is the RPC's
        self, request: PsHeartbeat, _: ServicerContext
    ) -> PsOrders:
        """Answer a PS's heartbeat as soon as there is news."""
        if self._ps is None:
            raise FencedError("a PS says that it is there, but the job has none: leave")
        self._ps.take(request, now=self.job.clock())
        signals = self._parts.signals
        if request.seen_revision == signals.ps_revision:
            await signals.wait_for_ps_revision(
                min(request.hold_seconds, self._most_hold)
            )
        reply = self._ps.reply(request)
        if self._parts.holder.answers_are_durable:
            # The next master has to know of each worker that counts no more.
            await self._commit_for(request.replica)
        await self._keep_decided(request.replica)
        return reply

    async def _keep_decided(self, replica: ReplicaId) -> None:
        """Return when the journal has the rewinds and rounds that may be told."""
        decided = self._parts.holder.decided
        if decided != self._in_journal:
            await self._commit_for(replica)
            self._in_journal = decided

    async def _commit_for(self, replica: ReplicaId) -> None:
        """Return when the journal has what a heartbeat's answer tells."""
        with self._parts.table.answering(replica, self.job.clock):
            await self._parts.ledger.commit()

    @property
    def _most_hold(self) -> float:
        """Return how long a heartbeat is held; its sender must not seem silent."""
        return self.job.spec.worker.dead_seconds / 2

    def _patient(self, seconds: float) -> float:
        """Return how long a worker is told to wait that asked for so many seconds."""
        longest = seconds + _MOST_EXTRA_SECONDS
        return min(max(seconds, self._fair_seconds), longest)

    @property
    def _fair_seconds(self) -> float:
        """Return the interval of each worker's calls, given the number of workers."""
        return self._parts.table.num_workers / _CALLS_PER_SECOND

    async def Echo(  # noqa: N802 - the name is the RPC's
        self, _request: tuple[()], _: ServicerContext
    ) -> None:
        """Return at once.

        The master calls itself to measure its own delay; a replica asks whether there
        is a master, whose other answers wait for the journal.
        """

    @_answering
    async def Status(  # noqa: N802 - the name is the RPC's
        self, _request: tuple[()], _: ServicerContext
    ) -> str:
        """Return the job as JSON (job.status.JobStatus)."""
        document = status.build(self.job, now=self.job.clock())
        return document.model_dump_json()

    @_answering
    async def Stop(  # noqa: N802 - the name is the RPC's
        self, reason: str, _: ServicerContext
    ) -> None:
        """Ask for a clean end of the job."""
        self.job.end(JobState.STOPPED, reason or "asked to stop", status.STOPPED)
        await asyncio.sleep(0)
