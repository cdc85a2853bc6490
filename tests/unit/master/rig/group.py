"""The real parts of a group's master over a real journal; a test says what workers say.

Made by the tests of `master.model.group.holder`.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from elasticdl.data.reader import Shard
from elasticdl.job.heartbeats import GroupReport, GroupRound, WorkerReport
from elasticdl.job.names import JobDir
from elasticdl.job.spec.job import JobSpec
from elasticdl.job.words import ReplicaState
from elasticdl.master.assembly import assemble
from elasticdl.master.job_state import Job
from elasticdl.master.members.member import Member
from elasticdl.master.model.group.holder import GroupHolder
from elasticdl.master.tasks.ledger import Ledger
from elasticdl.master.tasks.queue_plan import QueuePlan
from elasticdl.runner.publisher import Platform
from elasticdl.testing.fakes import InMemoryPublisher, InMemoryRunner

SPEC = JobSpec.model_validate(
    {
        "name": "group",
        "strategy": "allReduce",
        "model": {"definition": "m.f"},
        "data": {"training": "t"},
        "worker": {"replicas": 3},
    }
)
PLAN = QueuePlan((Shard("a.csv", 0, 96),), batch_size=12, batches_per_task=2)


class Clock:
    """Seconds that a test moves."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Master:
    """A job's parts; workers are told of as heartbeats would tell."""

    def __init__(self, root: Path, clock: Clock, *, launched: bool) -> None:
        self.clock = clock
        self.ledger = Ledger.open(JobDir(root).journal_dir, now=clock())
        made = assemble(
            SPEC,
            JobDir(root),
            self.ledger,
            lambda: Platform(InMemoryRunner(), InMemoryPublisher()),
            clock=clock,
            launched=launched,
        )
        self.job: Job = made.job
        assert isinstance(self.job.parts.holder, GroupHolder)
        self.holder = self.job.parts.holder
        self.table = self.job.parts.table

    def worker(self) -> Member:
        member = self.table.schedule(None, priority="", now=self.clock())
        self.runs(member)
        return member

    def runs(self, member: Member) -> None:
        member.enter(ReplicaState.RUNNING, now=self.clock())
        member.model_built()

    def says(self, member: Member, *, version: int = 0, **said: object) -> None:
        address = f"127.0.0.1:{member.generation}"
        said.setdefault("copied", True)
        if said.get("leaves"):
            said["version"] = version
        report = GroupReport(address=address, **said)  # type: ignore[arg-type]
        member.heard_worker(
            WorkerReport(phase="train", model_version=version, group=report),
            now=self.clock(),
        )
        self.holder.heard_worker(member, now=self.clock())

    def level(self, *members: Member, version: int = 0) -> None:
        """Let members say that they are in the newest round with its state."""
        for member in members:
            told = self.holder.round_of(member)
            assert told is not None
            self.says(member, version=version, round=told.number, level=True)

    def ends(self, member: Member) -> None:
        """End a member as the loop does."""
        member.enter(ReplicaState.ENDED, now=self.clock())
        heir = self.holder.heir(member)
        if heir is not None:
            self.ledger.hand_over(heir, now=self.clock())
        self.ledger.recover(member.key.index, cause="killed", now=self.clock())
        self.table.remove(member)
        self.holder.lost(member, now=self.clock())

    def turn(self, seconds: float = 5.0) -> None:
        self.clock.now += seconds
        self.holder.tick(now=self.clock())

    def round_of(self, member: Member) -> GroupRound:
        told = self.holder.round_of(member)
        assert told is not None
        return told

    def lease(self, member: Member) -> int:
        leased = self.ledger.lease(
            member.key.index, now=self.clock(), lease_seconds=60.0
        )
        assert leased is not None
        return leased.lease_id

    def close(self) -> None:
        asyncio.run(self.ledger.commit())
        self.ledger.close()


def group_of(master: Master, number: int) -> list[Member]:
    members = [master.worker() for _ in range(number)]
    for member in members:
        master.clock.now += 1.0
        master.says(member)
    master.turn()
    master.level(*members)
    return members


def leader_of(master: Master) -> str:
    assert master.holder.group is not None
    return master.holder.group.members[0]
