"""Workers by the thousand, as a master sees them: they beat, lease and report.

Owns the simulated workers, all in one event loop, so that they take little of the cores
that they share with the master. What they say is what the product's worker says, at its
default times; the master is a process of its own (master_role.py).
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from dataclasses import dataclass

import grpc
import grpc.aio
import psutil
from elasticdl.metrics.ledger import CAUSES
from elasticdl.proto import master_pb2
from elasticdl.rpc.channel import connect_aio
from master_role import MasterRig
from roles import TOKEN

SERVICE = "/elasticdl.Master/"
TASK_SECONDS = 1.0
HEARTBEAT_SECONDS = 1.0  # the default
_LEASE_WAIT_SECONDS = 1.0
_CALL_SECONDS = 15.0


class Worker:
    """One simulated worker with a connection of its own."""

    def __init__(self, rig: MasterRig, index: int) -> None:
        self.beats = 0  # that were answered
        self.fenced = False  # the master has given it up
        self.errors: Counter[str] = Counter()  # by status and details
        self.lease_seconds: list[float] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._replica = rig.replica(index)
        self._channel = connect_aio(rig.address, TOKEN)
        self._register = self._method("Register", master_pb2.RegisterReply)
        self._ready = self._method("ModelReady", master_pb2.ModelReadyReply)
        self._lease = self._method("Lease", master_pb2.LeaseReply)
        self._sync = self._method("WorkerSync", master_pb2.WorkerSyncReply)
        self._steps = 0
        self._held: list[int] = []
        self._began = time.monotonic()

    def _method(self, name: str, reply: type) -> grpc.aio.UnaryUnaryMultiCallable:  # type: ignore[type-arg] # of any messages
        return self._channel.unary_unary(
            SERVICE + name,
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=reply.FromString,
        )

    async def join(self) -> None:
        """Come up as a worker does."""
        request = master_pb2.RegisterRequest(replica=self._replica, pid=1)
        await self._register(request, timeout=60.0)
        await self._ready(
            master_pb2.ModelReadyRequest(
                replica=self._replica, callbacks_json="[]", custom_reader=True
            ),
            timeout=60.0,
        )

    def begin(self, delay: float) -> None:
        """Live from now on; the first task is asked for after a delay."""
        self._tasks = [
            asyncio.create_task(self._beat()),
            asyncio.create_task(self._work(delay)),
        ]

    async def end(self) -> None:
        """Fall silent."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._channel.close()

    async def _beat(self) -> None:
        """Say again and again that it lives."""
        revision = 0
        while True:
            request = master_pb2.WorkerSyncRequest(
                replica=self._replica,
                worker=master_pb2.Worker(
                    phase="train",
                    step=self._steps,
                    model_version=self._steps,
                    step_seconds=TASK_SECONDS,
                    seconds=dict.fromkeys(CAUSES, time.monotonic() - self._began),
                    memory_bytes=1 << 30,
                    lease_ids=self._held,
                ),
                seen_revision=revision,
                hold_seconds=HEARTBEAT_SECONDS,
            )
            try:
                reply = await self._sync(request, timeout=_CALL_SECONDS)
            except grpc.RpcError as error:
                if self._failed(error):
                    return
                await asyncio.sleep(HEARTBEAT_SECONDS / 8)
                continue
            revision = reply.revision
            self.beats += 1

    async def _work(self, delay: float) -> None:
        """Train a task each second; report it and lease the next in one call."""
        await asyncio.sleep(delay)
        due = time.perf_counter()
        reports: list[master_pb2.TaskReport] = []
        while True:
            request = master_pb2.LeaseRequest(
                replica=self._replica,
                reports=reports,
                want=1,
                wait_seconds=_LEASE_WAIT_SECONDS,
            )
            began = time.perf_counter()
            try:
                reply = await self._lease(request, timeout=_CALL_SECONDS)
            except grpc.RpcError as error:
                if self._failed(error):
                    return
                await asyncio.sleep(0.05)
                continue
            self.lease_seconds.append(time.perf_counter() - began)
            self._steps += len(reports)
            self._held = [task.lease_id for task in reply.tasks]
            due = max(due + TASK_SECONDS, time.perf_counter())
            await asyncio.sleep(due - time.perf_counter())
            reports = [
                master_pb2.TaskReport(
                    task_id=task.task_id,
                    lease_id=task.lease_id,
                    outcome=master_pb2.DONE,
                    records=1,
                    steps=1,
                )
                for task in reply.tasks
            ]

    def _failed(self, error: grpc.RpcError) -> bool:
        """Count an error; whether the master has given this worker up."""
        code = error.code()
        if code is grpc.StatusCode.ABORTED:
            self.fenced = True
            return True
        self.errors[f"{code.name}: {error.details()}"] += 1
        return False


@dataclass(frozen=True)
class Seen:
    """What was seen of all workers together in a while."""

    seconds: float
    lease_seconds: list[float]
    beats: int
    lost: int  # workers that the master gave up, all of which lived
    errors: Counter[str]
    cores: float  # that the master used
    own_cores: float  # that this process used


async def living(rig: MasterRig) -> list[Worker]:
    """Return all workers of the rig, up and at work."""
    workers = [Worker(rig, index) for index in range(rig.workers)]
    many = asyncio.Semaphore(64)

    async def join(worker: Worker) -> None:
        async with many:
            await worker.join()

    await asyncio.gather(*(join(worker) for worker in workers))
    for number, worker in enumerate(workers):
        worker.begin(number / len(workers) * TASK_SECONDS)
    return workers


async def crowd_of(rig: MasterRig, *, warm: float, seconds: float) -> Seen:
    """Let all workers of the rig work for so long; return what was seen."""
    workers = await living(rig)
    await asyncio.sleep(warm)
    for worker in workers:
        worker.lease_seconds.clear()
        worker.beats = 0
    master = psutil.Process(rig.process.pid if rig.process else 0)
    own = psutil.Process()
    before, own_before = master.cpu_times(), own.cpu_times()
    began = time.perf_counter()
    await asyncio.sleep(seconds)
    took = time.perf_counter() - began
    after, own_after = master.cpu_times(), own.cpu_times()
    seen = Seen(
        seconds=took,
        lease_seconds=[each for worker in workers for each in worker.lease_seconds],
        beats=sum(worker.beats for worker in workers),
        lost=sum(worker.fenced for worker in workers),
        errors=sum((worker.errors for worker in workers), Counter()),
        cores=(after.user + after.system - before.user - before.system) / took,
        own_cores=(
            own_after.user + own_after.system - own_before.user - own_before.system
        )
        / took,
    )
    await asyncio.gather(*(worker.end() for worker in workers))
    return seen
