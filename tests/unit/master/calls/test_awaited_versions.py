"""A heartbeat that tells of a version that the master waits for is acted on at once."""

import asyncio
from pathlib import Path

from elasticdl.data.reader import Shard
from elasticdl.job.heartbeats import WorkerHeartbeat, WorkerReport
from elasticdl.job.names import JobDir
from elasticdl.job.tasks import ReplicaId
from elasticdl.job.values.document import ValuesFile
from elasticdl.master.assembly import assemble
from elasticdl.master.calls.heartbeats import Heartbeats
from elasticdl.master.calls.leasing import Leasing
from elasticdl.master.tasks.ledger import Ledger
from elasticdl.master.tasks.queue_plan import QueuePlan
from elasticdl.metrics.registry import MasterMetrics
from elasticdl.runner.publisher import Platform
from elasticdl.testing.fakes import InMemoryPublisher, InMemoryRunner

NOW = 1000.0


def test_the_loop_turns_when_a_worker_within_a_task_tells_of_an_awaited_version(
    tmp_path: Path,
) -> None:
    """Else a checkpoint waits for its next turn, two seconds of short steps later."""

    async def told(version: int) -> tuple[bool, int]:
        tree = {
            "name": "one",
            "strategy": "local",
            "model": {"definition": "m.f"},
            "data": {"training": str(tmp_path / "none.csv")},
            "checkpoint": {"everySteps": 100},
        }
        job_dir = JobDir(tmp_path / f"{version}")
        job_dir.root.mkdir()
        ledger = Ledger.open(job_dir.journal_dir, now=NOW)
        ledger.open_plan(QueuePlan((Shard("s", 0, 10_000),), 1, 10_000, epochs=1))
        job = assemble(
            ValuesFile.model_validate({"kind": "job", "job": tree}).job,
            job_dir,
            ledger,
            lambda: Platform(InMemoryRunner(), InMemoryPublisher()),
            clock=lambda: NOW,
        ).job
        heartbeats = Heartbeats(job, Leasing(job, MasterMetrics()))
        job.parts.membership.plan(workers=1, now=NOW)
        member = job.parts.table.workers()[0]
        job.parts.membership.runs(member, now=NOW)
        member.ready = member.registered = True
        replica = ReplicaId(role="worker", index=0, generation=member.generation)

        def beat(at: int) -> int:
            worker = WorkerReport(phase="train", step=at, model_version=at)
            request = WorkerHeartbeat(replica=replica, worker=worker)
            lost = heartbeats.worker(request, now=NOW)
            return heartbeats.worker_reply(request, lost).awaited_version

        assert beat(1) == 100
        await job.parts.signals.wait_for_loop(0.0)
        awaited = beat(version)
        woken = job.parts.signals._loop.is_set()
        ledger.close()
        return woken, awaited

    assert asyncio.run(told(99)) == (False, 100)
    assert asyncio.run(told(103)) == (True, 200)
