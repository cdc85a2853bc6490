"""What a master keeps of a long life, and what the next one reads back of it."""

import asyncio
import json

import pytest
from elasticdl.job.names import Role
from elasticdl.job.spec.job import JobSpec
from elasticdl.job.words import ExitReason, ReplicaState
from elasticdl.master.happenings import Diary
from elasticdl.master.members.goodput import Goodput
from elasticdl.master.members.membership import Membership
from elasticdl.master.members.relaunches import Relaunches
from elasticdl.master.members.table import MemberTable
from elasticdl.master.tasks import facts, model_facts
from elasticdl.master.tasks.ledger import Ledger
from elasticdl.runner.base import ReplicaKey

from tests.unit.master.calls.test_many_workers import bytecodes

SPEC = JobSpec.model_validate(
    {
        "name": "long",
        "model": {"definition": "m.f"},
        "data": {"training": "t"},
        "worker": {"replicas": 2, "maxRestarts": 3},
    }
)


class Master:
    """What one master has of its members."""

    def __init__(self, directory, *, now=1.0, launched=False):
        self.ledger = Ledger.open(directory, now=now)
        if launched:
            self.ledger.record(facts.RunFact(time=now))
        self.table = MemberTable(SPEC, self.ledger, ps_seats=1)
        self.table.adopt(now=now)
        self.relaunches = Relaunches(self.ledger, Diary())
        goodput = Goodput(None, {})
        self.membership = Membership(
            self.table, self.ledger, self.relaunches, goodput, Diary()
        )

    def names(self):
        return {member.name for member in self.table.members.values()}

    def lose(self, index, reason=ExitReason.PREEMPTED, *, now=2.0, **how):
        member = self.table.members[ReplicaKey(Role.WORKER, index)]
        member.state = ReplicaState.RUNNING
        return self.membership.ended(member, reason, now=now, **how)

    def lose_many(self, count):
        for _ in range(count):
            oldest = min(m.key.index for m in self.table.workers())
            self.lose(oldest)
            newest = self.table.workers()[-1]
            self.membership.works(newest, now=3.0)

    def compact(self):
        asyncio.run(self.ledger._journal.compact(self.ledger._state))
        state = self.ledger._state()
        return len(json.dumps(state))

    def close(self):
        asyncio.run(self.ledger.commit())
        self.ledger.close()


def begun(directory):
    master = Master(directory, launched=True)
    master.membership.plan(workers=2, now=1.0)
    return master


def test_who_lives_is_adopted_after_any_number_of_others(tmp_path):
    first = begun(tmp_path)
    first.lose_many(11_000)
    alive = first.names()
    first.compact()
    first.close()
    second = Master(tmp_path)
    assert second.names() == alive == {"ps-0", "worker-11000", "worker-11001"}
    second.close()


def test_a_snapshot_does_not_grow_with_the_number_of_relaunches(tmp_path):
    master = begun(tmp_path)
    master.lose_many(1_200)
    before = master.compact()
    master.lose_many(2_400)
    after = master.compact()
    master.close()
    assert after < 1.05 * before


def test_a_relaunch_takes_no_more_after_a_thousand_others(tmp_path):
    master = begun(tmp_path)
    master.lose_many(5)
    few = bytecodes(lambda: master.lose_many(5))
    master.lose_many(1_200)
    many = bytecodes(lambda: master.lose_many(5))
    master.close()
    assert many < 1.5 * few


def test_counts_and_times_of_relaunches_outlive_what_is_listed(tmp_path):
    first = begun(tmp_path)
    first.lose_many(1_500)
    records = list(first.relaunches.records)
    first.compact()
    first.close()
    second = Master(tmp_path)
    assert second.relaunches.total == 1_500
    assert second.relaunches.counts_by_role() == {"worker": {"preempted": 1_500}}
    assert list(second.relaunches.records) == records
    assert all(record.seconds == 1.0 for record in records)
    second.lose_many(1)
    assert second.relaunches.records[-1].seconds == 1.0
    second.close()


def test_sums_do_not_shrink_when_a_master_is_restarted(tmp_path):
    ledger = Ledger.open(tmp_path, now=1.0)
    for _ in range(12_000):
        ledger.record(model_facts.LostUpdatesFact(ps="ps-0", count=2))
        ledger.record(facts.SkippedFact(worker="worker-0", batches=1))
        ledger.record(facts.RunFact(time=1.0))
    asyncio.run(ledger._journal.compact(ledger._state))
    ledger.close()
    again = Ledger.open(tmp_path, now=2.0)
    again.close()
    assert (
        sum(fact.count for fact in again.all_of(model_facts.LostUpdatesFact)) == 24_000
    )
    assert sum(fact.batches for fact in again.all_of(facts.SkippedFact)) == 12_000
    assert again.count_of(facts.RunFact) == 12_000


@pytest.mark.parametrize("compacted", [False, True])
def test_who_lives_is_adopted_though_the_clock_was_set_back(tmp_path, compacted):
    first = Master(tmp_path, now=10_000.0, launched=True)
    first.membership.plan(workers=2, now=10_000.0)
    first.close()
    second = Master(tmp_path, now=6_400.0)
    for member in second.table.members.values():
        second.table.note(member, now=6_400.0)
    if compacted:
        second.compact()
    second.close()
    third = Master(tmp_path, now=6_500.0)
    assert third.names() == {"ps-0", "worker-0", "worker-1"}
    third.close()


def test_nobody_of_an_earlier_run_is_adopted_though_the_clock_was_set_back(tmp_path):
    first = Master(tmp_path, now=10_000.0, launched=True)
    first.membership.plan(workers=2, now=10_000.0)
    first.close()
    second = Master(tmp_path, now=6_400.0, launched=True)
    assert second.names() == set()
    second.close()


def test_crashes_of_this_run_count_and_those_before_do_not_whatever_the_clock(tmp_path):
    def crash(master, now):
        oldest = master.table.workers()[0].key.index
        return master.lose(oldest, ExitReason.ERROR, exit_code=1, now=now).give_up

    first = Master(tmp_path, now=10_000.0, launched=True)
    first.membership.plan(workers=2, now=10_000.0)
    assert [crash(first, 10_001.0) for _ in range(2)] == [None, None]
    first.close()
    # The next master of the same run, an hour earlier: one is left of three.
    second = Master(tmp_path, now=6_400.0)
    assert crash(second, 6_401.0) is None
    second.close()
    third = Master(tmp_path, now=6_500.0)
    assert crash(third, 6_501.0) is not None
    third.close()
    # A new launch begins to count again.
    fourth = Master(tmp_path, now=100.0, launched=True)
    fourth.membership.plan(workers=2, now=100.0)
    assert crash(fourth, 101.0) is None
    fourth.close()


def test_a_replacement_that_never_worked_is_not_waited_for_for_ever(tmp_path):
    master = begun(tmp_path)
    for _ in range(50):  # each is lost before it does any work
        master.lose(max(m.key.index for m in master.table.workers()))
    assert len(master.relaunches._since) == 1
    master.close()


def test_the_table_read_back_is_the_one_that_was_noted(tmp_path):
    first = begun(tmp_path)
    worker = first.table.workers()[0]
    worker.address, worker.pid, worker.registered = "127.0.0.1:7", 77, True
    first.table.note(worker, now=5.0)
    first.compact()
    first.close()
    second = Master(tmp_path)
    again = second.table.members[worker.key]
    assert (again.address, again.pid, again.registered) == ("127.0.0.1:7", 77, True)
    assert again.generation == worker.generation
    second.close()
