"""A real master on loopback, with replicas that follow a script instead of training.

The servicer, the loop, the ledger on disk, the checkpoints' files and MasterClient are
the real ones; only processes and gradients are missing.
"""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from elasticdl.checkpoint import store
from elasticdl.checkpoint.layout import shard_file
from elasticdl.errors import ExitCode, FencedError, RpcError, SupersededError
from elasticdl.job.heartbeats import (
    ModelInfo,
    PsHeartbeat,
    PsReport,
    Registration,
    RegistrationReply,
    SnapshotDone,
    SnapshotRequest,
    WorkerHeartbeat,
    WorkerReport,
)
from elasticdl.job.names import JobDir, Role
from elasticdl.job.status import JobReport
from elasticdl.job.tasks import (
    LeaseReply,
    LeaseRequest,
    ReplicaId,
    ShardInfo,
    Task,
    TaskOutcome,
    TaskReport,
    TaskType,
    Ticket,
)
from elasticdl.job.values.document import ValuesFile
from elasticdl.job.values.file import write_values
from elasticdl.job.words import ExitReason
from elasticdl.master import live_edits
from elasticdl.master.assembly import assemble
from elasticdl.master.live_edits import Stamp
from elasticdl.master.master import Master
from elasticdl.master.tasks.ledger import Ledger
from elasticdl.master.telling import status
from elasticdl.rpc.master_client import MasterClient
from elasticdl.rpc.master_service import add_master
from elasticdl.rpc.server import aio_server, bind
from elasticdl.runner.base import Launch, ReplicaKey
from elasticdl.runner.publisher import Platform
from elasticdl.running import RunningClock
from elasticdl.tensor import codec
from elasticdl.testing.fakes import InMemoryPublisher, InMemoryRunner
from elasticdl.testing.scripted import TOKEN

from tests.unit.master.rig.world import World

BOUND_SECONDS = 10.0
DONE = TaskOutcome.DONE
RECORDS = 64


class Replica:
    """One scripted replica."""

    def __init__(self, rig: "Rig", launch: Launch) -> None:
        self.rig, self.world, self.key = rig, rig.world, launch.key
        self.name = f"{launch.key.role}-{launch.key.index}"
        self.client = MasterClient(
            rig.address,
            ReplicaId(
                role=launch.key.role,
                index=launch.key.index,
                generation=launch.generation,
            ),
            token=TOKEN,
        )
        self.held: set[int] = set()
        self.step = 0
        self.drain = False
        self.tasks = [asyncio.ensure_future(self.life())]

    async def call(self, method: Callable, request):
        """Call the master until it answers; a FencedError ends the replica."""
        while True:
            try:
                return await asyncio.get_running_loop().run_in_executor(
                    self.rig.pool, method, request
                )
            except FencedError:
                raise
            except RpcError:
                await asyncio.sleep(0.02)

    async def life(self) -> None:
        try:
            reply = await self.call(
                self.client.register,
                Registration(address=f"127.0.0.1:{1000 + self.key.index}", pid=1),
            )
            if self.key.role is Role.WORKER:
                reply = await self.loadable(reply)
            if self.key.role is Role.WORKER:
                self.world.loaded.add(reply.restore_dir)
            self.world.restored.append((self.name, reply.restore_dir, reply.handback))
            work = self.worker if self.key.role is Role.WORKER else self.ps
            await work(reply)
        except FencedError:
            self.world.fenced.add(self.name)
            return
        self.rig.runner.end(self.key, ExitReason.COMPLETED)

    def kill(self) -> None:
        for task in self.tasks:
            task.cancel()

    # -- a PS ---------------------------------------------------------------------

    async def ps(self, reply: RegistrationReply) -> None:
        status = PsReport(rewind=reply.ps.rewind, initialized=True)
        handback = reply.handback
        status = self.load(status, reply.restore_dir)
        seen, pinned = 0, {}
        while True:
            if handback:
                status = replace(
                    status,
                    initialized=self.world.handed is not None,
                    began_at=self.world.handed or 0,
                )
            if status.wants_optimizer and self.world.brought:
                status = replace(status, wants_optimizer=False, initialized=True)
            status = replace(
                status,
                version=self.world.version,
                bytes=self.world.bytes if status.initialized else 0,
                pushes=status.pushes + 1,  # somebody always trains in this world
                warning=self.world.warning,
                snapshots=tuple(pinned.values()),
            )
            if self.name in self.world.mute:
                await asyncio.sleep(0.05)
                continue
            answer = await self.call(
                self.client.ps_sync,
                PsHeartbeat(status=status, seen_revision=seen, hold_seconds=0.1),
            )
            seen = answer.revision
            status = replace(status, obeyed_revision=seen)
            self.world.quorums.append(answer.quorum)
            self.world.scales.append(answer.learning_rate_scale)
            if answer.stop:
                return
            if answer.rewind > status.rewind:
                status = replace(status, rewind=answer.rewind)
                self.world.rewinds.append(answer.rewind)
                handback = False
                status = self.load(status, answer.restore_dir)
            pinned = {
                wanted.id: self.write_on(pinned.get(wanted.id), wanted)
                for wanted in answer.snapshots
            }

    async def loadable(self, reply: RegistrationReply) -> RegistrationReply:
        """As a worker that loads one itself: say which checkpoint it cannot load."""
        if self.name == self.world.can_load:
            await self.world.go.wait()
            return reply
        while reply.restore_dir in self.world.damaged:
            reply = await self.call(
                self.client.register,
                Registration(unloadable=reply.restore_dir, unloadable_reason="damaged"),
            )
        return reply

    def load(self, status: PsReport, directory: str) -> PsReport:
        broken = directory in self.world.damaged
        began_at = status.began_at
        if directory and not broken:
            self.world.loaded.add(directory)
            self.world.version = store.read_manifest(Path(directory)).version
            began_at = self.world.version
        return replace(
            status,
            initialized=not broken and directory not in self.world.foreign,
            wants_optimizer=directory in self.world.foreign,
            unloadable=directory if broken else "",
            began_at=began_at,
        )

    def write_on(
        self, done: SnapshotDone | None, wanted: SnapshotRequest
    ) -> SnapshotDone:
        """Write a part, or a bit more of one that takes long."""
        if done is not None and not done.pinned_only:
            return done
        if not wanted.dir or (done and done.written_bytes >= self.world.beats_per_part):
            return self.pin(wanted)
        if not self.world.beats_per_part:
            return self.pin(wanted)
        done = done or self.pin_only(wanted)
        return replace(done, written_bytes=done.written_bytes + 1)

    def pin_only(self, wanted: SnapshotRequest) -> SnapshotDone:
        done = SnapshotDone(id=wanted.id, version=self.world.version, pinned_only=True)
        if self.key.index == 0:
            done = replace(done, ticket=Ticket(self.world.version))
        return done

    def pin(self, wanted: SnapshotRequest) -> SnapshotDone:
        done = SnapshotDone(id=wanted.id, version=self.world.version)
        if self.key.index == 0:
            done = replace(done, ticket=Ticket(self.world.version))
        if not (wanted.dir or self.world.pins_for_evaluation):
            done = replace(done, id="another")
        elif wanted.dir and self.world.disk_full:
            done = replace(done, error="No space left on device")
        elif wanted.dir:
            done = write_part(done, wanted.dir, self.key.index, self.rig.num_ps)
        return done

    # -- a worker -----------------------------------------------------------------

    async def worker(self, reply: RegistrationReply) -> None:
        beat = asyncio.ensure_future(self.beat())
        self.tasks.append(beat)
        try:
            await self.work()
        finally:
            beat.cancel()

    async def beat(self) -> None:
        seen, done, rewind, writes_since = 0, [], 0, 0.0
        while True:
            if self.name in self.world.mute:
                await asyncio.sleep(0.05)
                continue
            stuck = self.name in self.world.stuck and bool(self.held)
            writes = time.monotonic() - writes_since if writes_since else 0.0
            pulled = self.world.pulled
            versions = [] if pulled is None else [self.world.version] * self.rig.num_ps
            answer = await self.call(
                self.client.worker_sync,
                WorkerHeartbeat(
                    worker=WorkerReport(
                        phase="train" if stuck or writes else "idle",
                        step=max(1, self.step),
                        model_version=self.world.version,
                        phase_seconds=1000.0 if stuck else writes,
                        usual_seconds=0.01 if writes else 0.0,
                        seconds={"train": 2.0, "idle": 1.0},
                        lease_ids=tuple(self.held),
                        snapshots=tuple(done),
                        ps_versions=tuple(versions),
                        ps_rewind=rewind,
                    ),
                    seen_revision=seen,
                    hold_seconds=0.1,
                ),
            )
            seen = answer.revision
            self.world.views[self.name] = answer.ps
            rewind = answer.ps.rewind
            self.world.brought = self.world.brought or all(answer.ps.addresses)
            if any(answer.ps.wants_values) and pulled is not None:
                self.world.handed = pulled
            self.drain = self.drain or answer.drain
            self.held -= set(answer.lost_leases)
            if not answer.local_snapshot.id:
                done, writes_since = [], 0.0
            elif not done and writes < self.world.writes_seconds:
                writes_since = writes_since or time.monotonic()
            elif not done:
                part = SnapshotDone(
                    id=answer.local_snapshot.id, version=self.world.version
                )
                done = [write_part(part, answer.local_snapshot.dir, 0, 1)]

    async def work(self) -> None:
        answer = await self.lease([], want=1, wait=0.1)
        first = [await self.do(task) for task in answer.tasks]
        await self.lease(first, want=0, wait=0.0)
        await self.call(self.client.model_ready, ModelInfo(**self.world.ready))
        reports: list[TaskReport] = []
        while not self.drain:
            answer = await self.lease(reports, want=1, wait=0.1)
            if answer.finished:
                return
            reports = [await self.do(task) for task in answer.tasks]
        await self.lease(reports, want=0, wait=0.0)

    async def lease(
        self, reports: list[TaskReport], *, want: int, wait: float
    ) -> LeaseReply:
        request = LeaseRequest(reports=tuple(reports), want=want, wait_seconds=wait)
        answer = await self.call(self.client.lease, request)
        self.held -= {report.lease_id for report in reports}
        self.held |= {task.lease_id for task in answer.tasks}
        self.world.late += [not result.accepted for result in answer.results]
        return answer

    async def do(self, task: Task) -> TaskReport:
        self.world.types.append(task.type)
        self.world.at_work.add(self.name)
        if self.world.before:
            await self.world.before(task)
        report = TaskReport(
            task_id=task.task_id,
            lease_id=task.lease_id,
            outcome=DONE,
            records=task.end - task.start,
            model_version=self.world.version,
        )
        if task.type == TaskType.TRAINING:
            while self.world.pausing() or self.name in self.world.stuck:
                if self.drain:
                    return replace(report, outcome=TaskOutcome.RETURNED, records=0)
                await asyncio.sleep(0.005)
        error = self.world.fail(task)
        if error:
            return replace(
                report,
                outcome=TaskOutcome.FAILED,
                error=error,
                fatal=error.startswith("fatal"),
                exit_code=ExitCode.DATA if "data" in error else 0,
            )
        if task.type == TaskType.TRAINING:
            self.step += 2
            self.world.version += 2
            report = replace(
                report, steps=2, loss=0.5, model_version=self.world.version
            )
            self.world.trained.append((self.name, task.epoch, task.start, task.end))
        elif task.type == TaskType.EVALUATION:
            count = np.array(float(task.end - task.start))
            state = codec.join(codec.encode(b"", {"count": count}))
            report = replace(report, state=state)
        elif task.type == TaskType.SUMMARIZE:
            total = float(codec.decode(task.state).tensors["count"])
            self.world.summaries.append(total)
            results = self.world.results(len(self.world.summaries))
            report = replace(report, results_json=json.dumps(results))
        elif task.type == TaskType.EXPORT:
            paths = json.dumps({"paths": [f"/out/{task.target}"]})
            report = replace(report, results_json=paths)
        elif task.type == TaskType.SHARDS:
            shard = ShardInfo(source="table", start=0, end=RECORDS)
            report = replace(report, shards=(shard,))
        elif task.type == TaskType.PREPARE:
            write_data(self.rig.root)
        return report


def write_part(
    done: SnapshotDone, directory: str, index: int, total: int
) -> SnapshotDone:
    part = store.write_shard(
        Path(directory),
        index,
        total,
        {"value|w|0|1": np.ones(1, np.float32)},
        {"version": done.version},
    )
    assert part.file == shard_file(index, total)
    return replace(done, file=part.file, file_bytes=part.bytes, crc32=part.crc32)


def write_data(root: Path) -> None:
    for name in ("train", "test"):
        rows = "\n".join(f"{n},{n % 2}" for n in range(RECORDS))
        (root / f"{name}.csv").write_text(f"x,label\n{rows}\n")


class Rig:
    """A job whose master runs in this process."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.job_dir = JobDir(root / "job")
        self.job_dir.root.mkdir()
        write_data(root)
        self.pool = ThreadPoolExecutor(24)
        self.replicas: dict[ReplicaKey, Replica] = {}
        self.everyone: list[Replica] = []
        self.master: Master
        self.address = ""
        self.clock_ahead = 0.0  # seconds, of the next master

    @property
    def num_ps(self) -> int:
        return self.master.job.parts.table.ps_seats

    def configure(self, **changes: object) -> None:
        """Write the job's values file; `worker__replicas=2` sets worker.replicas."""
        tree = {
            "name": "rig",
            "model": {"definition": "m.f"},
            "data": {
                "root": str(self.root),
                "training": "train.csv",
                "shuffle": False,
            },
            "training": {"batch_size": 4, "batches_per_task": 2},
            **({} if changes.get("strategy") == "local" else {"ps": {"replicas": 2}}),
            "worker": {
                "replicas": 2,
                "grace_seconds": 2.0,
                "dead_seconds": 5.0,
                "start_seconds": 10.0,
            },
        }
        for path, value in changes.items():
            *parents, last = path.split("__")
            inner = tree
            for key in parents:
                inner = inner.setdefault(key, {})
            inner[last] = value
        self.values = ValuesFile.model_validate({"kind": "job", "job": tree})
        write_values(self.job_dir.spec_file, self.values)

    def start_replica(self, launch: Launch) -> None:
        replica = Replica(self, launch)
        self.replicas[launch.key] = replica
        self.everyone.append(replica)

    def kill(
        self,
        name: str,
        reason: ExitReason = ExitReason.KILLED,
        *,
        exit_code: int = 0,
        message: str = "",
    ) -> None:
        role, index = name.split("-")
        key = ReplicaKey(Role(role), int(index))
        self.replicas[key].kill()
        self.runner.end(key, reason, exit_code=exit_code, message=message)

    async def call_of(self, name: str, **told) -> None:
        """Have a worker call as one does that reports, or asks for a task."""
        role, index = name.split("-")
        replica = self.replicas[ReplicaKey(Role(role), int(index))]
        request = LeaseRequest(**told)
        await replica.call(replica.client.lease, request)

    @asynccontextmanager
    async def serving(
        self,
        *,
        launched: bool = False,
        spec_seen: Stamp | None = None,
    ):
        """Run a master until the block ends; the replicas outlive it."""
        ahead = self.clock_ahead
        clock = RunningClock(wall=lambda: time.time() + ahead)
        server = aio_server(TOKEN)
        port = int(self.address.split(":")[1]) if self.address else 0
        port = bind(server, "127.0.0.1", port)
        self.address = f"127.0.0.1:{port}"
        ledger = Ledger.open(
            self.job_dir.journal_dir, now=clock(), wait_seconds=self.journal_wait
        )
        self.master = assemble(
            self.values.job,
            self.job_dir,
            ledger,
            lambda: Platform(self.runner, self.publisher),
            clock=clock,
            launched=launched,
        )
        add_master(self.master.servicer, server)
        await server.start()
        edits = live_edits.watch(self.job_dir.spec_file, seen=spec_seen)
        self.running = asyncio.ensure_future(self.master.run(edits=edits))
        try:
            yield self.master
        finally:
            if not self.running.done():
                self.running.cancel()
            # One that another master has followed says so in `running`.
            with suppress(asyncio.CancelledError, SupersededError):
                await self.running
            await server.stop(grace=0)
            ledger.close()

    async def ended(self) -> JobReport:
        """Wait for the job's end; return its report."""
        try:
            async with asyncio.timeout(BOUND_SECONDS):
                await self.running
        except TimeoutError:
            pytest.fail(f"the job did not end: {self.picture()}")
        text = self.job_dir.report_file.read_text()
        return JobReport.model_validate_json(text)

    async def until(self, condition: Callable[[], bool]) -> None:
        try:
            async with asyncio.timeout(BOUND_SECONDS):
                while not condition():
                    if self.running.done():
                        self.running.result()
                        assert condition(), self.master.job.ending
                        return
                    await asyncio.sleep(0.005)
        except TimeoutError:
            pytest.fail(f"it did not come about: {self.picture()}")

    def picture(self) -> str:
        """What a test that failed shows."""
        parts = self.master.job.parts
        shown = status.build(self.master.job, now=self.master.job.clock())
        return "\n".join(
            [
                shown.model_dump_json(indent=1),
                f"data {parts.data.stage} {parts.data.error}",
                f"round {parts.rounds.current}",
                f"checkpoint {parts.checkpoints.request}",
                f"rewinding {parts.holder.rewinding} view {parts.holder.view()}",
                f"{parts.holder.admission} {self.world.quorums[-3:]}",
            ]
        )

    def run(
        self,
        story: Callable[["Rig"], Awaitable[None]],
        *,
        journal_wait: float = 5.0,
        **changes: object,
    ) -> None:
        """Run a story about a job with this specification."""
        self.journal_wait = journal_wait

        async def main() -> None:
            self.world = World()
            self.publisher = InMemoryPublisher()
            self.runner = InMemoryRunner(
                on_start=self.start_replica,
                on_stop=lambda key: (
                    self.replicas[key].kill() if key in self.replicas else None
                ),
            )
            self.configure(**changes)
            try:
                await story(self)
            finally:
                for replica in self.everyone:
                    replica.kill()
                    replica.client.close()
                tasks = [task for r in self.everyone for task in r.tasks]
                await asyncio.gather(*tasks, return_exceptions=True)

        asyncio.run(main())


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    made = Rig(tmp_path)
    yield made
    made.pool.shutdown(wait=True)
