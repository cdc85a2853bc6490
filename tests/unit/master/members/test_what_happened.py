"""What the members say of what happens to them: each thing once, when it is known."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from elasticdl.job.decision import Decision
from elasticdl.job.names import Role
from elasticdl.job.spec.job import JobSpec
from elasticdl.job.words import ExitReason
from elasticdl.master.happenings import Diary
from elasticdl.master.members.changes import Changes
from elasticdl.master.members.goodput import Goodput
from elasticdl.master.members.member import Member
from elasticdl.master.members.membership import Membership
from elasticdl.master.members.relaunches import Relaunches
from elasticdl.master.members.table import MemberTable
from elasticdl.master.tasks.ledger import Ledger
from elasticdl.master.telling.sentences import decisions_of
from elasticdl.runner.base import Observation, ObservedReplica, Phase, ReplicaKey

FULL = "Unschedulable: 0/1 nodes are available: 1 Insufficient cpu."


class Job:
    """The members of a job with two workers and one PS, and what they say."""

    def __init__(self, directory: Path) -> None:
        self.spec = JobSpec.model_validate(
            {
                "name": "digits",
                "model": {"definition": "m.f"},
                "data": {"training": "t"},
                "worker": {"replicas": 2, "maxRestarts": 3},
            }
        )
        self.directory = directory
        self.ledger = Ledger.open(directory, now=1.0)
        self.later: list[Job] = []
        self.diary, self.changes = Diary(), Changes()
        self.table = MemberTable(self.spec, self.ledger, ps_seats=1)
        self.relaunches = Relaunches(self.ledger, self.diary)
        self.members = Membership(
            self.table, self.ledger, self.relaunches, Goodput(None, {}), self.diary
        )

    @staticmethod
    def after(job: "Job") -> "Job":
        """The same job under a master that takes it over."""
        asyncio.run(job.ledger.commit())
        later = Job(job.directory)
        job.later.append(later)
        later.table.adopt(now=9.0)
        return later

    def close(self) -> None:
        for one in (self, *self.later):
            one.ledger.close()

    def plan(self, workers: int, *, now: float) -> None:
        self.members.plan(workers=workers, now=now)
        for member in self.table.members.values():
            if not member.seen:
                self.members.launched(member, now=now)

    def shows(
        self, name: str, phase: Phase, *, now: float = 5.0, **more: object
    ) -> None:
        member = self.named(name)
        seen = ObservedReplica(member.key, member.generation, phase, **more)
        self.members.observe(Observation((seen,)), now=now)

    def named(self, name: str) -> Member:
        role, _, index = name.partition("-")
        return self.table.members[ReplicaKey(Role(role), int(index))]

    def told(self) -> list[Decision]:
        said = self.diary.take()
        self.changes.take(said)
        return [one for happened in said for one in decisions_of(happened, job="j")]

    def kinds(self) -> list[tuple[str, str]]:
        return [(one.kind, one.replica) for one in self.told()]


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Job]:
    made = Job(tmp_path)
    made.plan(2, now=1.0)
    yield made
    made.close()


@pytest.fixture
def running(job: Job) -> Job:
    for name in ("ps-0", "worker-0", "worker-1"):
        job.shows(name, Phase.RUNNING)
    assert job.kinds() == [
        ("joined", "ps-0"),
        ("joined", "worker-0"),
        ("joined", "worker-1"),
    ]
    return job


def test_a_replica_that_runs_tells_how_long_it_waited(job: Job) -> None:
    job.shows("worker-0", Phase.PENDING, pending_reason=FULL, now=2.0)
    assert job.told() == []
    job.shows("worker-0", Phase.RUNNING, now=13.5)
    (joined,) = job.told()
    assert (joined.kind, joined.time, joined.cost_seconds) == ("joined", 13.5, 12.5)
    assert joined.text == "worker-0 runs after 12.5 s of waiting"
    job.shows("worker-0", Phase.RUNNING, now=14.0)
    assert job.told() == []


def test_why_replicas_wait_is_told_once_for_each_kind_of_reason(job: Job) -> None:
    def waits(reason: str) -> list[Decision]:
        job.shows("worker-0", Phase.PENDING, pending_reason=reason)
        job.members.say_who_waits(now=6.0)
        return job.told()

    assert waits("ContainerCreating") == []  # what every pod goes through
    (told,) = waits(FULL)
    assert (told.kind, told.cause, told.detail) == ("pending", "Unschedulable", FULL)
    assert waits(FULL.replace("1 Insufficient", "2 Insufficient")) == []
    (told,) = waits("ImagePullBackOff: Back-off pulling image")
    assert told.cause == "ImagePullBackOff"
    assert waits(FULL) == []
    job.shows("worker-0", Phase.RUNNING)
    job.members.say_who_waits(now=7.0)
    assert [one.kind for one in job.told()] == ["joined"]


def test_a_lost_replica_is_told_at_once_and_its_replacement_when_it_works(
    running: Job,
) -> None:
    running.shows(
        "worker-0",
        Phase.FAILED,
        reason=ExitReason.PREEMPTED,
        message="node n1 is drained",
        now=10.0,
    )
    (ended,) = running.told()
    assert (ended.kind, ended.cause, ended.replacement, ended.time) == (
        "ended",
        "preempted",
        "worker-2",
        10.0,
    )
    assert ended.detail == "node n1 is drained"
    running.shows("worker-2", Phase.RUNNING, now=12.0)
    running.members.works(running.named("worker-2"), now=17.5)
    running.members.works(running.named("worker-2"), now=18.5)
    told = running.told()
    assert [(one.kind, one.cost_seconds, one.time) for one in told] == [
        ("joined", 2.0, 12.0),
        ("relaunched", 7.5, 17.5),
    ]


def test_a_replica_that_is_not_replaced_says_why(running: Job) -> None:
    spec = running.table.spec
    worker = spec.worker.model_copy(update={"replicas": 1})
    running.table.spec = spec.model_copy(update={"worker": worker})
    running.shows("worker-0", Phase.FAILED, reason=ExitReason.PREEMPTED)
    ended, why_not = running.told()
    assert (ended.kind, why_not.kind) == ("ended", "notReplaced")
    assert "as many workers as are wanted" in why_not.text


def test_a_worker_that_was_told_to_go_has_left_and_was_not_lost(running: Job) -> None:
    running.plan(1, now=6.0)
    assert running.told() == []
    running.shows("worker-1", Phase.SUCCEEDED, reason=ExitReason.COMPLETED, now=7.0)
    (left,) = running.told()
    assert (left.kind, left.replica, left.cause) == ("left", "worker-1", "scaled down")


def test_one_that_leaves_after_its_loss_is_told_once(running: Job) -> None:
    """A preempted worker has its grace period left: its loss is booked at once."""
    running.shows("worker-0", Phase.RUNNING, reason=ExitReason.PREEMPTED)
    assert running.kinds() == [("ended", "worker-0")]
    running.shows("worker-0", Phase.SUCCEEDED, reason=ExitReason.COMPLETED)
    assert running.told() == []


def test_a_ps_that_comes_back_under_its_name_joins_again(running: Job) -> None:
    running.shows("ps-0", Phase.FAILED, reason=ExitReason.KILLED)
    running.shows("ps-0", Phase.RUNNING)
    assert running.kinds() == [("ended", "ps-0"), ("joined", "ps-0")]


def test_a_replica_that_never_ran_leaves_without_a_word(job: Job) -> None:
    job.plan(1, now=2.0)
    job.shows("worker-1", Phase.FAILED, reason=ExitReason.DELETED)
    assert job.told() == []


def test_a_restarted_master_tells_only_what_the_one_before_did_not(
    running: Job,
) -> None:
    def lose(name: str, *, at: float) -> None:
        running.shows(name, Phase.FAILED, reason=ExitReason.PREEMPTED, now=at)

    lose("worker-0", at=50.0)  # and its replacement is known to work
    running.members.works(running.named("worker-2"), now=53.0)
    lose("worker-1", at=50.0)  # its replacement works since
    running.members.works(running.named("worker-3"), now=70.0)
    lose("worker-2", at=75.0)
    later = Diary()
    Relaunches(running.ledger, later).say_since(60.0)
    told = [one for said in later.take() for one in decisions_of(said, job="j")]
    assert [(one.kind, one.replica, one.time) for one in told] == [
        ("relaunched", "worker-1", 70.0),
        ("ended", "worker-2", 75.0),
    ]


def test_who_came_and_who_was_sent_away_is_counted_by_cause(running: Job) -> None:
    running.plan(3, now=10.0)
    running.members.works(running.named("worker-2"), now=14.0)
    running.plan(0, now=20.0)
    running.plan(1, now=30.0)
    running.told()
    assert running.changes.counts == {
        ("worker", "started"): 2,
        ("ps", "joined"): 1,
        ("worker", "joined"): 2,
        ("worker", "grown"): 1,
        ("worker", "paused"): 3,
        ("worker", "resumed"): 1,
    }
    assert running.changes.times["resumed"] == 30.0
    assert running.changes.costs == {"grown": 4.0, "paused": 0.0}


@pytest.mark.parametrize("waits", [False, True])
def test_who_ran_under_the_master_before_does_not_join_again(
    running: Job, waits: bool
) -> None:
    later = Job.after(running)
    if waits:
        later.shows("worker-0", Phase.PENDING, pending_reason=FULL)
    for name in ("ps-0", "worker-0", "worker-1"):
        later.shows(name, Phase.RUNNING)
    assert later.kinds() == []


def test_who_was_asked_for_by_a_lost_master_joins_under_the_next_one(job: Job) -> None:
    """The lost one did not live to see that it runs."""
    job.shows("worker-0", Phase.RUNNING)
    later = Job.after(job)
    for name in ("worker-0", "worker-1"):
        later.shows(name, Phase.RUNNING)
    assert later.kinds() == [("joined", "worker-1")]


def test_who_joined_when_a_master_told_nothing_any_more_is_told_by_the_next_one(
    job: Job,
) -> None:
    job.shows("worker-0", Phase.RUNNING, now=50.0)
    job.shows("worker-1", Phase.RUNNING, now=70.0)
    later = Job.after(job)
    later.members.say_since(60.0)
    (joined,) = later.told()
    assert (joined.kind, joined.replica, joined.time) == ("joined", "worker-1", 70.0)
