"""What a call costs the master does not depend on how many workers there are.

Counted in bytecodes, not in time: a look at all of something shows in them at once.
"""

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path
from statistics import fmean

import pytest
from elasticdl.data.reader import Shard
from elasticdl.job.heartbeats import PsReport, WorkerHeartbeat, WorkerReport
from elasticdl.job.names import JobDir
from elasticdl.job.tasks import (
    LeaseReply,
    LeaseRequest,
    ReplicaId,
    TaskOutcome,
    TaskReport,
)
from elasticdl.job.values.document import ValuesFile
from elasticdl.master.assembly import assemble
from elasticdl.master.calls.heartbeats import Heartbeats
from elasticdl.master.calls.leasing import Leasing
from elasticdl.master.calls.lost_leases import LostLeases
from elasticdl.master.course.watchdog import Watchdog
from elasticdl.master.tasks.ledger import Ledger
from elasticdl.master.tasks.queue_plan import QueuePlan
from elasticdl.metrics.registry import MasterMetrics
from elasticdl.runner.publisher import Platform
from elasticdl.testing.fakes import InMemoryPublisher, InMemoryRunner

NOW = 1000.0
FEW, MANY = 20, 300
ENDLESS = QueuePlan((Shard("s", 0, 1_000_000),), 1, 1, epochs=0)


def bytecodes(act: Callable[[], object]) -> int:
    """Return how many bytecodes it takes."""
    count = 0

    def trace(frame, event, _arg):
        nonlocal count
        frame.f_trace_opcodes = True
        count += event == "opcode"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        act()
    finally:
        sys.settrace(before)
    return count


class Crowd:
    """A master's parts with so many workers, each of which holds two tasks."""

    def __init__(
        self, root: Path, workers: int, mode: str, plan: QueuePlan = ENDLESS
    ) -> None:
        root.mkdir()
        tree = {
            "name": "crowd",
            "model": {"definition": "m.f"},
            "data": {"training": str(root / "none.csv")},
            "ps": {"mode": mode},
            "worker": {"replicas": workers},
        }
        values = ValuesFile.model_validate({"kind": "job", "job": tree})
        job_dir = JobDir(root)
        self.ledger = Ledger.open(job_dir.journal_dir, now=NOW)
        self.ledger.open_plan(plan)
        master = assemble(
            values.job,
            job_dir,
            self.ledger,
            lambda: Platform(InMemoryRunner(), InMemoryPublisher()),
            clock=lambda: NOW,
        )
        self.job = master.job
        self.servicer = master.servicer
        self.leasing = Leasing(self.job, MasterMetrics())
        self.lost_leases = LostLeases(self.job, MasterMetrics())
        self.heartbeats = Heartbeats(self.job, self.leasing)
        self.membership = self.job.parts.membership
        self.table = self.job.parts.table
        self.membership.plan(workers=workers, now=NOW)
        for ps in self.table.ps():
            assert ps is not None
            ps.ps = PsReport(obeyed_revision=1 << 62)
        for member in self.table.workers():
            self.membership.runs(member, now=NOW)
            member.ready = member.registered = True
            self.leasing.give(member, 2, now=NOW)
        for index in range(workers):
            self.beat(index)

    def replica(self, index: int) -> ReplicaId:
        member = self.table.workers()[index]
        return ReplicaId(
            role="worker", index=member.key.index, generation=member.generation
        )

    def beat(self, index: int) -> None:
        queue = self.ledger.queue
        assert queue is not None
        request = WorkerHeartbeat(
            replica=self.replica(index),
            worker=WorkerReport(
                phase="train", step=3, lease_ids=queue.leases_of(index)
            ),
        )
        self.answer(request)

    def answer(self, request: WorkerHeartbeat) -> None:
        lost = self.heartbeats.worker(request, now=NOW)
        self.heartbeats.worker_reply(request, lost)

    def cost_of_a_beat(self) -> int:
        request = WorkerHeartbeat(
            replica=self.replica(3),
            worker=WorkerReport(phase="train", step=4, lease_ids=self.leases_of(3)),
        )
        return bytecodes(lambda: self.answer(request))

    def leases_of(self, index: int) -> list[int]:
        queue = self.ledger.queue
        assert queue is not None
        return queue.leases_of(index)

    def cost_of_a_lease(self) -> int:
        member = self.table.workers()[5]
        report = TaskReport(
            lease_id=self.leases_of(5)[0], outcome=TaskOutcome.DONE, records=1, steps=1
        )

        def call() -> None:
            self.leasing.report(member, report, now=NOW)
            self.leasing.give(member, 1, now=NOW)

        return bytecodes(call)

    def cost_of_a_late_report(self) -> int:
        member = self.table.workers()[7]
        report = TaskReport(
            lease_id=self.leases_of(7)[0], outcome=TaskOutcome.DONE, records=1, steps=1
        )
        for one in reversed(self.table.workers()):
            self.ledger.recover(one.key.index, cause="lost", now=NOW)
        return bytecodes(lambda: self.leasing.report(member, report, now=NOW))

    def cost_of_a_look(self) -> int:
        table = self.table

        def look() -> None:
            table.dead(now=NOW)
            table.take_suspects()
            self.membership.plan(workers=self.job.spec.worker.replicas, now=NOW)
            self.membership.overdue(now=NOW)
            table.never_seen(now=NOW)
            table.due(now=NOW)
            self.lost_leases.expire(now=NOW)
            table.next_time()

        look()  # the first one after changes looks at all
        return bytecodes(look)

    def cost_of_a_watch(self) -> int:
        watchdog = Watchdog(self.job)
        self.job.reports += 1
        return bytecodes(lambda: watchdog.ask(now=NOW))

    async def lease(self, want: int, worker: int = 0) -> LeaseReply:
        request = LeaseRequest(replica=self.replica(worker), want=want)
        return await self.servicer.Lease(request, None)


@pytest.mark.parametrize("mode", ["async", "sync"])
@pytest.mark.parametrize(
    "what",
    [
        "cost_of_a_beat",
        "cost_of_a_lease",
        "cost_of_a_late_report",
        "cost_of_a_look",
        "cost_of_a_watch",
    ],
)
def test_no_call_costs_more_because_there_are_more_workers(
    tmp_path: Path, mode: str, what: str
) -> None:
    async def measured(workers: int) -> int:
        crowd = Crowd(tmp_path / f"{workers}", workers, mode)
        cost: int = getattr(crowd, what)()
        crowd.ledger.close()
        return cost

    few, many = asyncio.run(measured(FEW)), asyncio.run(measured(MANY))
    # A heap of fifteen times as many is four levels deeper; a look at all would cost
    # several times as much.
    assert many <= 1.5 * few


@pytest.mark.parametrize("workers", [FEW, MANY])
def test_all_workers_together_are_asked_to_call_no_more_often_than_200_times_a_second(
    tmp_path: Path, workers: int
) -> None:
    async def told() -> list[float]:
        crowd = Crowd(tmp_path / "job", workers, "async")
        replies = [await crowd.lease(1, worker) for worker in range(FEW)]
        crowd.ledger.close()
        return [reply.call_seconds for reply in replies]

    # They are spread over a cycle, around its length: in five places.
    assert workers / fmean(asyncio.run(told())) == pytest.approx(200.0, rel=0.15)


def test_at_the_end_no_worker_takes_tasks_that_another_could_begin(
    tmp_path: Path,
) -> None:
    # Each of 20 workers takes two; then 50 tasks are left.
    plan = QueuePlan((Shard("s", 0, 2 * FEW + 50),), 1, 1)

    async def taken() -> list[int]:
        crowd = Crowd(tmp_path / "job", FEW, "async", plan)
        counts = [len((await crowd.lease(16)).tasks) for _ in range(20)]
        crowd.ledger.close()
        return counts

    counts = asyncio.run(taken())
    assert counts[0] == 3  # 50 for 20 workers
    assert sum(counts[:15]) < 50  # asked so often by one worker alone
    assert sum(counts) == sum(counts[:19]) + 1  # in the end one by one
