"""A real master process, with a platform that starts nothing and workers that pretend.

Owns the stand-in for the platform and the simulated workers' calls. The master is the
product's own process, with its journal, its loop and its RPC.
"""

from __future__ import annotations

import asyncio
import socket
import statistics
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import grpc
from elasticdl import __version__
from elasticdl.errors import RpcError
from elasticdl.job.heartbeats import ModelInfo, Registration
from elasticdl.job.tasks import (
    LeaseRequest,
    ReplicaId,
    ShardInfo,
    TaskOutcome,
    TaskReport,
)
from elasticdl.job.values.document import ValuesFile
from elasticdl.proto import (
    master_pb2,
    master_pb2_grpc,
    platform_pb2,
    platform_pb2_grpc,
)
from elasticdl.rpc.channel import connect_aio, server_options
from elasticdl.rpc.master_client import MasterClient
from elasticdl.rpc.task_messages import replica_to_wire
from roles import TOKEN, start_role, values_of

SILENT = Path(__file__).with_name("silent_master.py")  # the real one, less its journal


class EmptyPlatform(platform_pb2_grpc.LocalPlatformServicer):
    """Says of every replica that it runs."""

    def __init__(self) -> None:
        self.generations: dict[tuple[str, int], int] = {}
        self.stopped: list[tuple[str, int, str]] = []  # role, index, why

    def Start(  # noqa: N802 - the name is the RPC's
        self, request: platform_pb2.StartRequest, context: grpc.ServicerContext
    ) -> platform_pb2.StartReply:
        del context
        self.generations[request.role, request.index] = request.generation
        return platform_pb2.StartReply()

    def Stop(  # noqa: N802 - the name is the RPC's
        self, request: platform_pb2.StopProcessRequest, context: grpc.ServicerContext
    ) -> platform_pb2.StopProcessReply:
        del context
        self.stopped.append((request.role, request.index, request.reason))
        return platform_pb2.StopProcessReply(found=True)

    def Watch(  # noqa: N802 - the name is the RPC's
        self, request: platform_pb2.WatchRequest, context: grpc.ServicerContext
    ) -> Iterator[platform_pb2.WatchEvent]:
        del request
        shown = -1
        while context.is_active():
            if len(self.generations) != shown:
                states = self._states()
                yield platform_pb2.WatchEvent(
                    resync=shown < 0, states=states, capacity=-1
                )
                shown = len(states)
            time.sleep(0.02)

    def _states(self) -> list[platform_pb2.ProcessState]:
        return [
            platform_pb2.ProcessState(
                role=role, index=index, generation=generation, phase="running", pid=1
            )
            for (role, index), generation in list(self.generations.items())
        ]


def job_values(workers: int, *, patient: bool) -> ValuesFile:
    """Return a job with the default bounds, or one that gives up nobody for silence."""
    training = {"batchSize": 1, "batchesPerTask": 1}
    if not patient:
        return values_of(training=training, worker={"replicas": workers})
    patience = 36_000.0
    return values_of(
        training=training,
        tasks={"leaseSeconds": patience},
        worker={
            "replicas": workers,
            "deadSeconds": patience,
            "hangSeconds": patience,
            "startSeconds": patience,
        },
    )


class MasterRig:
    """The master's process and how to reach it."""

    def __init__(
        self,
        folder: Path,
        *,
        workers: int,
        program: Path | None,
        patient: bool,
        platform: int,
        served: EmptyPlatform,
    ) -> None:
        self.folder = folder
        self.workers = workers
        self._program = program
        self._patient = patient
        self._platform = platform
        self.served = served
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.address = f"127.0.0.1:{free.getsockname()[1]}"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Execute the master."""
        self.process = start_role(
            "master",
            self.folder / "job",
            job_values(self.workers, patient=self._patient),
            master=self.address,
            platform=f"127.0.0.1:{self._platform}",
            log=self.folder / "master.log",
            program=[str(self._program)] if self._program else None,
        )

    def kill(self) -> None:
        """Kill it."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def replica(self, index: int) -> ReplicaId:
        """Return a worker that the master has launched."""
        generations = self.served.generations
        until = time.monotonic() + 60
        while ("worker", index) not in generations:
            if time.monotonic() > until:
                raise RuntimeError((self.folder / "master.log").read_text())
            time.sleep(0.005)
        return ReplicaId(
            role="worker", index=index, generation=generations["worker", index]
        )

    def open_plan(self, records: int) -> MasterClient:
        """Bring the job, as its first worker, to where training tasks are leased."""
        self.replica(self.workers - 1)
        # No real worker speaks before the platform has told that it runs.
        time.sleep(0.5)
        client = MasterClient(self.address, self.replica(0), token=TOKEN)
        patiently(lambda: client.register(Registration(pid=1)))
        client.model_ready(ModelInfo(callbacks_json="[]", custom_reader=True))
        reply = client.lease(LeaseRequest(want=1, wait_seconds=5))
        shard = ShardInfo(source="simulated", start=0, end=records)
        (task,) = reply.tasks
        client.lease(
            LeaseRequest(
                reports=(
                    TaskReport(
                        task_id=task.task_id,
                        lease_id=task.lease_id,
                        outcome=TaskOutcome.DONE,
                        shards=(shard,),
                    ),
                )
            )
        )
        return client


@contextmanager
def master(
    folder: Path,
    *,
    workers: int = 1,
    program: Path | None = None,
    patient: bool = True,
) -> Iterator[MasterRig]:
    """Give a master that was executed just now.

    `program`: what is executed in place of the product's main. `patient`: it gives up
    nobody for silence, else the product's default bounds hold.
    """
    platform = EmptyPlatform()
    server = grpc.server(ThreadPoolExecutor(8), options=server_options())
    platform_pb2_grpc.add_LocalPlatformServicer_to_server(platform, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    rig = MasterRig(
        folder,
        workers=workers,
        program=program,
        patient=patient,
        platform=port,
        served=platform,
    )
    rig.start()
    try:
        yield rig
    finally:
        rig.kill()
        server.stop(0)


def patiently(call: object, pause: float = 0.002) -> object:
    """Call until the master answers."""
    until = time.monotonic() + 60
    while True:
        try:
            return call()  # type: ignore[operator] # a callable of any kind
        except RpcError:
            if time.monotonic() > until:
                raise
            time.sleep(pause)


async def lease_rate(
    rig: MasterRig, *, seconds: float, connections: int = 16, beats: bool = False
) -> tuple[float, list[float]]:
    """Return leases a second and each call's seconds, all workers asking at once.

    Each call reports the task before and leases the next, as a worker's does. With
    `beats` they say beside it that they live, as often as by default.
    """
    channels = [connect_aio(rig.address, TOKEN) for _ in range(connections)]
    stubs = [master_pb2_grpc.MasterStub(channel) for channel in channels]
    replicas = [replica_to_wire(rig.replica(index)) for index in range(rig.workers)]
    times: list[float] = []
    end = 0.0

    async def join(index: int) -> None:
        stub, replica = stubs[index % connections], replicas[index]
        await stub.Register(
            master_pb2.RegisterRequest(replica=replica, pid=1, version=__version__)
        )
        await stub.ModelReady(
            master_pb2.ModelReadyRequest(
                replica=replica, callbacks_json="[]", custom_reader=True
            )
        )

    async def work(index: int) -> None:
        stub, replica = stubs[index % connections], replicas[index]
        reports: list[master_pb2.TaskReport] = []
        while (began := time.perf_counter()) < end:
            reply = await stub.Lease(
                master_pb2.LeaseRequest(
                    replica=replica, reports=reports, want=1, wait_seconds=1.0
                )
            )
            times.append(time.perf_counter() - began)
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

    async def beat(index: int) -> None:
        stub, replica = stubs[index % connections], replicas[index]
        revision = 0
        while time.perf_counter() < end:
            reply = await stub.WorkerSync(
                master_pb2.WorkerSyncRequest(
                    replica=replica,
                    worker=master_pb2.Worker(phase="train"),
                    seen_revision=revision,
                    hold_seconds=1.0,
                )
            )
            revision = reply.revision

    async def live() -> None:
        beating = map(beat, everyone if beats else ())
        await asyncio.gather(*map(work, everyone), *beating)

    everyone = range(rig.workers)
    await asyncio.gather(*map(join, everyone))
    end = time.perf_counter() + seconds / 4  # warm
    await live()
    times.clear()
    began = time.perf_counter()
    end = began + seconds
    await live()
    rate = len(times) / (time.perf_counter() - began)
    for channel in channels:
        await channel.close()
    return rate, times


def percentile_99(times: list[float]) -> float:
    """Return the 99th percentile."""
    return statistics.quantiles(times, n=100)[98]
