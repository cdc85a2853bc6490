"""The grant in force: user's bounds, then the grant, then `worker.replicas`."""

import json
from collections.abc import Iterator

import pytest
from elasticdl.job.grant import Grant, format_grant
from elasticdl.job.heartbeats import WorkerReport
from elasticdl.job.spec.job import JobSpec
from elasticdl.job.words import EndCause, ExitReason, ReplicaState, WorkerPhase
from elasticdl.master.happenings import Diary, GrantEnded, GrantRefused, SizeGranted
from elasticdl.master.members.goodput import Goodput
from elasticdl.master.members.granted import Granted
from elasticdl.master.members.membership import Membership
from elasticdl.master.members.relaunches import Relaunches
from elasticdl.master.members.table import MemberTable
from elasticdl.master.tasks.ledger import Ledger

NOW = 1_795_400_000.0


def job(**worker):
    bounds = {"replicas": 3, "min": 2, "max": 10, **worker}
    return JobSpec.model_validate(
        {
            "name": "digits",
            "model": {"definition": "net.custom_model"},
            "data": {"training": "train.csv"},
            "worker": bounds,
        }
    )


class Rig:
    """Members of a job, its grant, and a clock."""

    def __init__(self, tmp_path, **worker) -> None:
        self.now = NOW
        self.ledger = Ledger.open(tmp_path, now=self.now)
        self.diary = Diary()
        self.table = MemberTable(job(**worker), self.ledger, ps_seats=0)
        relaunches = Relaunches(self.ledger, self.diary)
        self.membership = Membership(
            self.table, self.ledger, relaunches, Goodput(), self.diary
        )
        self.granted = Granted(self.table, self.diary)
        self.plan()
        self.all_run()
        self.diary.take()

    def take(self, grant: Grant | str) -> None:
        text = grant if isinstance(grant, str) else format_grant(grant)
        self.granted.take(text, now=self.now)

    def plan(self):
        self.granted.look(now=self.now)
        self.membership.plan(workers=self.table.wanted, now=self.now)

    def all_run(self) -> None:
        for member in self.table.workers():
            self.membership.runs(member, now=self.now)

    def staying(self) -> list[int]:
        return [m.key.index for m in self.table.workers() if not m.drain]

    def said(self, kind):
        return [one for one in self.diary.take() if isinstance(one, kind)]


def until(seconds: float = 600.0) -> float:
    return NOW + seconds


@pytest.fixture
def rig(tmp_path) -> Iterator[Rig]:
    made = Rig(tmp_path)
    yield made
    made.ledger.close()


def test_a_grant_goes_before_replicas_and_says_why(rig):
    assert rig.staying() == [0, 1, 2]
    rig.take(Grant(5, until=until(), why="room is free"))
    rig.plan()
    assert rig.staying() == [0, 1, 2, 3, 4]
    [said] = rig.said(SizeGranted)
    assert (said.before, said.workers, said.why) == (3, 5, "room is free")


def test_who_is_named_leaves_whoever_is_newer(rig):
    rig.take(Grant(2, leave=(0,), until=until(), why="make room"))
    rig.plan()
    assert rig.staying() == [1, 2]
    assert rig.table.workers()[0].why_it_goes == "scaled down: make room"


def test_the_users_bounds_go_before_a_grant(rig):
    rig.take(Grant(40, until=until()))
    assert rig.table.wanted == 10
    rig.take(Grant(1, until=until()))
    assert rig.table.wanted == 2
    refused = rig.said(GrantRefused)
    assert len(refused) == rig.granted.refusals == 2


def test_what_is_refused_is_said_once(rig):
    for _ in range(3):
        rig.take("rubbish")
        rig.plan()
    assert rig.granted.refusals == 1
    assert len(rig.said(GrantRefused)) == 1
    assert rig.table.wanted == 3


def test_an_expired_grant_gives_way_to_replicas(rig):
    rig.take(Grant(7, until=until(10)))
    rig.plan()
    rig.diary.take()
    rig.now += 11
    rig.plan()
    assert rig.staying() == [0, 1, 2]
    assert [(one.before, one.workers) for one in rig.said(GrantEnded)] == [(7, 3)]
    assert rig.granted.refusals == 0


def test_that_a_grant_ended_is_said_once_however_long_ago_it_was(rig):
    rig.take(Grant(7, until=until(10)))
    for _ in range(60):
        rig.now += 1
        rig.plan()
    assert len(rig.said(GrantEnded)) == 1
    assert rig.granted.refusals == 0


def test_a_grant_that_had_ended_before_anybody_read_it_is_refused_once(rig):
    rig.take(Grant(7, until=until(-10)))
    for _ in range(60):
        rig.now += 1
        rig.plan()
    assert len(rig.said(GrantRefused)) == rig.granted.refusals == 1


def test_a_grant_of_a_time_to_come_is_refused_once(rig):
    rig.take(Grant(7, until=until(1e6)))
    for _ in range(60):
        rig.now += 600
        rig.plan()
    assert rig.granted.refusals == 1


def test_an_annotation_that_is_taken_away_gives_way_to_replicas(rig):
    rig.take(Grant(7, until=until()))
    rig.take("")
    assert rig.table.wanted == 3
    assert rig.table.grant is None


def test_an_edit_of_the_bounds_counts_at_once(rig):
    rig.take(Grant(8, until=until()))
    rig.table.take_spec(job(max=4))
    rig.plan()
    assert rig.table.wanted == 4
    rig.table.take_spec(job(max=4, elastic=False))
    rig.plan()
    assert rig.table.wanted == 3


def test_a_renewal_changes_nothing_and_says_nothing(rig):
    rig.take(Grant(5, until=until()))
    rig.plan()
    rig.diary.take()
    rig.take(Grant(5, until=until(1200)))
    rig.plan()
    assert rig.diary.take() == []
    assert rig.granted.grant.until == until(1200)


def test_a_preempted_worker_above_a_smaller_grant_does_not_come_back(rig):
    rig.take(Grant(2, until=until()))
    lost = rig.table.workers()[1]
    rig.membership.ended(lost, ExitReason.PREEMPTED, now=rig.now)
    rig.plan()
    assert rig.staying() == [0, 2]
    assert all(m.state is ReplicaState.RUNNING for m in rig.table.workers())


def test_a_preempted_worker_below_a_larger_grant_does(rig):
    rig.take(Grant(4, until=until()))
    rig.plan()
    rig.all_run()
    rig.membership.ended(rig.table.workers()[0], ExitReason.PREEMPTED, now=rig.now)
    assert rig.staying() == [1, 2, 3, 4]


def test_a_silent_worker_is_replaced_up_to_the_grant(rig):
    rig.take(Grant(3, until=until()))
    rig.membership.give_up_on(rig.table.workers()[2], EndCause.SILENT, now=rig.now)
    assert len(rig.staying()) == 3


def test_no_more_workers_than_tasks_are_left_and_never_below_min(rig):
    rig.take(Grant(8, until=until()))
    rig.table.tasks_left = 5
    assert rig.table.wanted == 5
    rig.table.tasks_left = 0
    assert rig.table.wanted == 2


def test_without_a_grant_the_number_of_tasks_changes_nothing(rig):
    rig.table.tasks_left = 1
    assert rig.table.wanted == 3


def waits_for_a_task(rig, index: int) -> None:
    [member] = [m for m in rig.table.workers() if m.key.index == index]
    member.heard_worker(WorkerReport(phase=WorkerPhase.IDLE), now=rig.now)


def test_a_worker_without_a_task_at_the_moment_leaves_no_earlier_than_others(rig):
    waits_for_a_task(rig, 0)
    rig.take(Grant(2, until=until()))
    rig.plan()
    assert rig.staying() == [0, 1]


def test_who_has_no_task_leaves_first_where_tasks_run_out(rig):
    waits_for_a_task(rig, 0)
    rig.table.no_more_than(2)
    rig.take(Grant(3, until=until()))
    rig.plan()
    assert rig.staying() == [1, 2]


def test_strangers_are_ignored_and_said(rig):
    rig.take(Grant(2, leave=(99, 1), until=until()))
    rig.plan()
    assert rig.staying() == [0, 2]
    [refused] = rig.said(GrantRefused)
    assert "99 never were workers" in refused.text


def test_the_next_master_reads_the_same_annotation(rig, tmp_path):
    text = format_grant(Grant(5, until=until(), why="room is free"))
    rig.take(text)
    rig.plan()
    ledger = Ledger.open(tmp_path, now=NOW + 5)
    table = MemberTable(job(), ledger, ps_seats=0)
    table.adopt(now=NOW + 5)
    Granted(table, Diary()).take(text, now=NOW + 5)
    ledger.close()
    assert table.wanted == 5
    assert json.loads(text)["workers"] == 5
