"""Workers by the thousand, as a master sees them: they beat, lease and report.

Owns the simulated workers, all in one event loop, so that they take little of the cores
that they share with the master. What they say is what the product's worker says, at its
default times; when they lease and report is decided by that worker's own `Ahead`. The
master is a process of its own (master_role.py).
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import time
from collections import Counter, deque
from dataclasses import dataclass
from typing import Any

import grpc
import grpc.aio
import psutil
from elasticdl import __version__
from elasticdl.metrics.goodput import CAUSES
from elasticdl.proto import master_pb2
from elasticdl.rpc.channel import connect_aio
from elasticdl.rpc.task_messages import replica_to_wire
from elasticdl.worker.tasks.ahead import Ahead
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
        self._replica = replica_to_wire(rig.replica(index))
        self._channel = connect_aio(rig.address, TOKEN)
        self._register = self._method("Register", master_pb2.RegisterReply)
        self._model_ready = self._method("ModelReady", master_pb2.ModelReadyReply)
        self._lease = self._method("Lease", master_pb2.LeaseReply)
        self._sync = self._method("WorkerSync", master_pb2.WorkerSyncReply)
        self._steps = 0
        self._held: set[int] = set()
        self._began = time.monotonic()
        self.reported = 0  # tasks, acknowledged
        self._ahead = Ahead(far=True)  # async, the default
        self._ready: deque[master_pb2.Task] = deque()
        self._reports: list[master_pb2.TaskReport] = []
        self._report_since = 0.0
        self._changed = asyncio.Event()

    def _method(self, name: str, reply: Any) -> grpc.aio.UnaryUnaryMultiCallable:  # type: ignore[type-arg] # of any messages
        return self._channel.unary_unary(
            SERVICE + name,
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=reply.FromString,
        )

    async def join(self) -> None:
        """Come up as a worker does."""
        request = master_pb2.RegisterRequest(
            replica=self._replica, pid=1, version=__version__
        )
        await self._register(request, timeout=60.0)
        await self._model_ready(
            master_pb2.ModelReadyRequest(
                replica=self._replica, callbacks_json="[]", custom_reader=True
            ),
            timeout=60.0,
        )

    def begin(self, delay: float) -> None:
        """Live from now on; the first task is asked for after a delay."""
        self._tasks = [
            asyncio.create_task(self._beat()),
            asyncio.create_task(self._train(delay)),
            asyncio.create_task(self._talk(delay)),
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
                    lease_ids=sorted(self._held),
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

    async def _train(self, delay: float) -> None:
        """Train a task each second, as long as there are some."""
        await asyncio.sleep(delay)
        due = time.perf_counter()
        while True:
            asked = time.perf_counter()
            while not self._ready:
                self._changed.clear()
                await self._changed.wait()
            now = time.perf_counter()
            task = self._ready.popleft()
            self._ahead.took(waited_seconds=now - asked, now=now)
            self._changed.set()
            due = max(due + TASK_SECONDS, now)
            await asyncio.sleep(due - time.perf_counter())
            self._steps += 1
            if not self._reports:
                self._report_since = time.perf_counter()
            self._reports.append(
                master_pb2.TaskReport(
                    task_id=task.task_id,
                    lease_id=task.lease_id,
                    outcome=master_pb2.DONE,
                    records=1,
                    steps=1,
                    rows=1,
                )
            )
            self._changed.set()

    async def _talk(self, delay: float) -> None:
        """Lease and report, both in one call, when `worker.tasks.stream` would."""
        await asyncio.sleep(delay)
        while True:
            want = self._ahead.wanted(len(self._ready))
            wait = self._report_wait()
            if not want and (wait is None or wait > 0.0):
                self._changed.clear()
                # Not `wait_for`, which Python 3.11 lets swallow the end of the round.
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(wait):
                        await self._changed.wait()
                continue
            reports, self._reports = self._reports, []
            request = master_pb2.LeaseRequest(
                replica=self._replica,
                reports=reports,
                want=want,
                wait_seconds=_LEASE_WAIT_SECONDS if want else 0.0,
            )
            began = time.perf_counter()
            try:
                reply = await self._lease(request, timeout=_CALL_SECONDS)
            except grpc.RpcError as error:
                if self._failed(error):
                    return
                self._reports = reports + self._reports
                await asyncio.sleep(0.05)
                continue
            self.lease_seconds.append(time.perf_counter() - began)
            self._ahead.calls_every(reply.call_seconds)
            self.reported += len(reports)
            self._held.difference_update(report.lease_id for report in reports)
            self._held.update(task.lease_id for task in reply.tasks)
            self._ready.extend(reply.tasks)
            self._changed.set()

    def _report_wait(self) -> float | None:
        """Return for how long reports may wait; None: there are none."""
        if not self._reports:
            return None
        if not self._ready:
            return 0.0
        return self._ahead.report_due(
            oldest=self._report_since, now=time.perf_counter()
        )

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
    reported: int  # tasks
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
    # These are a thousand processes: none of them waits for the garbage of all.
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        return await _seen_of(workers, rig, warm=warm, seconds=seconds)
    finally:
        gc.enable()
        gc.unfreeze()


async def _seen_of(
    workers: list[Worker], rig: MasterRig, *, warm: float, seconds: float
) -> Seen:
    await asyncio.sleep(warm)
    for worker in workers:
        worker.lease_seconds.clear()
        worker.beats = worker.reported = 0
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
        reported=sum(worker.reported for worker in workers),
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
