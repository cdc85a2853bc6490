"""Who is in a group, what a loss costs, and what the next master knows of it.

A real journal and the real parts of a master; what workers say is written here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from elasticdl.job.names import JobDir, Role
from elasticdl.job.tasks import (
    LeaseRequest,
    ReplicaId,
    Task,
    TaskOutcome,
    TaskReport,
    TaskType,
)
from elasticdl.job.words import EndCause, ExitReason, ReplicaState
from elasticdl.master.calls.leasing import UNNAMED_SECONDS, Leasing
from elasticdl.master.calls.lost_leases import LostLeases, most_deaths
from elasticdl.master.course.watchdog import look_at
from elasticdl.master.tasks import facts, model_facts
from elasticdl.master.tasks.audit import audit
from elasticdl.master.tasks.data_plan import SearchStage
from elasticdl.master.telling.status import message
from elasticdl.metrics.master import MasterMetrics

from tests.unit.master.rig.group import PLAN, SPEC, Clock, Master, group_of, leader_of


@pytest.fixture
def master(tmp_path: Path) -> Iterator[Master]:
    made = Master(tmp_path, Clock(), launched=True)
    made.ledger.open_plan(PLAN)
    made.ledger.record(facts.StartFact(position=made.ledger.position()))
    yield made
    made.close()


def test_the_first_that_is_ready_begins_alone_and_others_join(master: Master) -> None:
    first, second = master.worker(), master.worker()
    assert master.holder.round_of(first) is None
    master.says(second)
    master.turn()
    assert master.round_of(second).begins
    assert master.round_of(second).step_records == PLAN.batch_size
    assert master.holder.round_of(first) is None
    master.says(first)
    master.turn()
    told = master.round_of(first)
    assert [m.number for m in told.members] == [second.generation, first.generation]
    assert [m.since for m in told.members] == [1, 2]
    assert leader_of(master) == second.name


def test_the_leader_alone_is_given_tasks_and_asked_for_checkpoints(
    master: Master,
) -> None:
    leader, other, _ = group_of(master, 3)
    admission = master.holder.admission
    assert [admission.may_begin(m.key.index) for m in (leader, other)] == [True, False]
    assert not admission.may_evaluate(other.key.index)
    assert master.holder.asks_worker(other) is None


def test_a_member_that_does_not_lead_never_gets_the_search_for_data(
    master: Master,
) -> None:
    """It hands back what it does not do, and would take it again in the same call."""
    leader, other = group_of(master, 2)
    newcomer = master.table.schedule(None, priority="", now=master.clock())
    newcomer.enter(ReplicaState.RUNNING, now=master.clock())
    leasing = Leasing(master.job, MasterMetrics())
    for _ in range(2):
        master.job.parts.side.add(Task(type=TaskType.SHARDS, target="training"))
    now = master.clock()
    assert leasing.give(other, 1, now=now) == []
    (lists,) = leasing.give(leader, 1, now=now)
    assert lists.type == TaskType.SHARDS
    # One without a model does it before it becomes a member.
    (lists,) = leasing.give(newcomer, 1, now=now)
    assert lists.type == TaskType.SHARDS


def test_the_model_is_known_when_the_leader_has_the_state_of_this_round(
    master: Master,
) -> None:
    leader, other = group_of(master, 2)
    assert master.holder.known
    master.ends(leader)
    master.turn()
    assert not master.holder.known
    master.level(other)
    assert master.holder.known


def test_tasks_of_a_lost_leader_go_to_the_next_oldest_and_are_no_replay(
    master: Master,
) -> None:
    leader, heir, third = group_of(master, 3)
    leases = [master.lease(leader), master.lease(leader)]
    master.level(leader, version=3)
    master.ends(leader)
    queue = master.ledger.queue
    assert queue is not None
    assert queue.leases_of(heir.key.index) == leases
    assert not queue.waiting
    master.turn()
    assert leader_of(master) == heir.name
    assert queue.leases_of(heir.key.index) == leases
    assert queue.leases_of(third.key.index) == []
    assert master.ledger.finish(leases[0], records=24, steps=2, now=master.clock())
    assert master.ledger.replayed_records == 0


def test_a_worker_in_the_place_of_a_lost_one_is_another_member(master: Master) -> None:
    first, second = group_of(master, 2)
    master.ends(first)
    again = master.worker()
    master.says(again)
    master.turn()
    told = master.round_of(again)
    assert [m.number for m in told.members] == [second.generation, again.generation]
    assert [m.since for m in told.members] == [1, told.number]


def test_one_that_is_told_to_leave_is_out_at_once(master: Master) -> None:
    leader, other = group_of(master, 2)
    leader.drain = True
    master.turn(0.1)
    assert master.holder.round_of(leader) is None
    assert leader_of(master) == other.name


def test_the_only_one_with_the_state_leaves_when_a_newcomer_has_it(
    master: Master,
) -> None:
    (leader,) = group_of(master, 1)
    newcomer = master.worker()
    master.says(newcomer, copied=False)
    leader.dismiss("its node is drained")
    master.turn()
    assert leader_of(master) == leader.name
    master.says(newcomer)
    master.turn()
    told = master.round_of(newcomer)
    assert [m.number for m in told.members] == [leader.generation, newcomer.generation]
    lease = master.lease(leader)
    master.turn()  # it is not level yet
    assert leader_of(master) == leader.name
    master.level(newcomer)
    master.turn()
    assert [m.number for m in master.round_of(newcomer).members] == [
        newcomer.generation
    ]
    assert master.ledger.queue is not None
    assert master.ledger.queue.leased[lease].worker == newcomer.key.index
    master.ends(leader)
    assert master.holder.rewind == 0


def test_a_job_that_ends_forms_no_round_of_those_that_leave(master: Master) -> None:
    (leader,) = group_of(master, 1)
    newcomer = master.worker()
    master.says(newcomer)
    leader.dismiss("the job is over")
    newcomer.dismiss("the job is over")
    master.turn()
    assert master.holder.group is not None
    assert master.holder.group.round == 1


def test_fewer_than_the_minimum_make_no_step(master: Master) -> None:
    least = SPEC.worker.model_copy(update={"min": 2})
    master.table.take_spec(SPEC.model_copy(update={"worker": least}))
    first = master.worker()
    master.says(first)
    master.turn()
    assert master.holder.round_of(first) is None
    second = master.worker()
    master.says(second)
    master.turn()
    assert len(master.round_of(first).members) == 2
    master.ends(second)
    master.turn()
    assert len(master.round_of(first).members) == 1
    assert master.round_of(first).waits
    master.level(first)
    assert master.holder.known  # a job that is stopped now has a checkpoint
    third = master.worker()
    master.says(third)
    master.turn()
    told = master.round_of(first)
    assert [m.number for m in told.members] == [first.generation, third.generation]


def test_a_round_makes_no_step_while_the_minimum_is_raised_above_its_members(
    master: Master,
) -> None:
    first, second = group_of(master, 2)
    assert not master.round_of(first).waits
    assert master.holder.num_waiting is None
    least = SPEC.worker.model_copy(update={"min": 3})
    master.table.take_spec(SPEC.model_copy(update={"worker": least}))
    assert all(master.round_of(member).waits for member in (first, second))
    assert master.holder.num_waiting == 2
    third = master.worker()
    master.says(third, copied=False)
    master.turn()
    assert len(master.round_of(first).members) == 3
    assert not master.round_of(first).waits


def test_who_runs_but_is_not_reached_is_missing_from_the_minimum_and_that_is_told(
    master: Master,
) -> None:
    least = SPEC.worker.model_copy(update={"min": 2})
    master.job.change_spec(SPEC.model_copy(update={"worker": least}))
    older, younger = group_of(master, 2)
    assert message(master.job) == ""
    number = master.round_of(older).number
    master.says(older, broken=number, lost=younger.generation)
    master.says(younger, broken=number, lost=older.generation)
    master.turn()
    told = master.round_of(older)
    assert [m.number for m in told.members] == [older.generation]
    assert told.waits
    assert message(master.job).startswith(
        "1 worker can make steps, fewer than worker.min (2): no step is made"
    )


def test_before_the_first_worker_is_started_none_is_missing(master: Master) -> None:
    least = SPEC.worker.model_copy(update={"min": 2})
    master.job.change_spec(SPEC.model_copy(update={"worker": least}))
    assert message(master.job) == ""


def test_a_group_that_waits_for_its_minimum_may_stand_still_for_long(
    master: Master,
) -> None:
    least = SPEC.worker.model_copy(update={"min": 2})
    master.table.take_spec(SPEC.model_copy(update={"worker": least}))
    members = group_of(master, 2)
    master.job.parts.data.stage = SearchStage.READY
    assert look_at(master.job).held == ""
    master.ends(members[1])
    master.turn()
    assert look_at(master.job).held == "fewer workers are ready than worker.min"


def test_a_job_that_is_launched_again_lost_nobody(
    master: Master, tmp_path: Path
) -> None:
    members = group_of(master, 2)
    master.holder.begins(now=master.clock())
    master.level(*members, version=7)
    asyncio.run(master.ledger.commit())
    master.clock.now += 100.0
    following = Master(tmp_path, master.clock, launched=True)

    def cause_with_a_new_worker() -> str:
        new = following.worker()
        following.says(new)
        following.turn()
        following.level(new, version=3)
        cause = following.ledger.newest_of(model_facts.RewindFact).cause
        following.ends(new)
        return cause

    assert cause_with_a_new_worker() == "the job was launched again"
    # Later in the same launch all are lost.
    assert cause_with_a_new_worker() == "no member with the model's state was left"
    following.close()


def test_the_loss_of_all_goes_back_and_a_new_round_begins(master: Master) -> None:
    members = group_of(master, 2)
    master.level(*members, version=7)
    lease = master.lease(members[0])
    for member in members:
        master.ends(member)
    master.turn()
    assert master.holder.rewind == 0  # nobody is there who could begin
    new = master.worker()
    master.says(new)
    master.turn()
    assert master.holder.rewind == 1
    # Also where somebody was there, who was copying the state.
    cause = master.ledger.newest_of(model_facts.RewindFact).cause
    assert cause == "no member with the model's state was left"
    told = master.round_of(new)
    assert told.begins
    assert told.members[0].since == told.number
    assert master.ledger.finish(lease, records=24, steps=2, now=1.0) is None
    # Lost again before anything was trained: nothing to go back from.
    master.ends(new)
    last = master.worker()
    master.says(last)
    master.turn()
    assert master.holder.rewind == 1
    assert master.round_of(last).begins


def test_members_without_a_state_go_back_together(master: Master) -> None:
    first, second = group_of(master, 2)
    master.level(first, second, version=4)
    master.ends(first)
    master.turn()
    number = master.round_of(second).number
    master.says(second, round=number, broken=number, stateless=True)
    master.turn()
    assert master.holder.rewind == 1
    told = master.round_of(second)
    assert (told.begins, told.members[0].since) == (True, told.number)


def test_the_next_master_goes_on_with_the_round_and_its_number(
    master: Master, tmp_path: Path
) -> None:
    leader, other = group_of(master, 2)
    master.level(leader, other, version=4)
    for member in (leader, other):
        member.registered = True
        master.table.note(member, now=master.clock())
    before = master.round_of(leader)
    asyncio.run(master.ledger.commit())
    following = Master(tmp_path, master.clock, launched=False)
    adopted = {m.generation: m for m in following.table.workers()}
    for member in adopted.values():
        following.runs(member)
    following.turn()
    # Nobody has said anything of the group to this master yet: the round stands.
    assert following.round_of(adopted[leader.generation]) == before
    following.level(*adopted.values(), version=5)
    following.ends(adopted[leader.generation])
    following.turn()
    told = following.round_of(adopted[other.generation])
    assert told.number == before.number + 1
    assert not told.begins
    assert told.members[0].address == f"127.0.0.1:{other.generation}"
    following.ledger.close()


def test_the_next_master_lets_nobody_go_who_says_that_it_has_the_state_alone(
    master: Master, tmp_path: Path
) -> None:
    """It has heard of no level member yet: the round was broken meanwhile."""
    (leader,) = group_of(master, 1)
    master.level(leader, version=4)
    leader.registered = True
    master.table.note(leader, now=master.clock())
    asyncio.run(master.ledger.commit())
    following = Master(tmp_path, master.clock, launched=False)
    (adopted,) = following.table.workers()
    following.runs(adopted)
    following.says(adopted, version=4, round=1, broken=1, leaves=True)
    assert following.round_of(adopted).stays
    following.ledger.close()


def test_who_leads_next_may_report_what_was_taken_of_a_lost_leader_but_not_answered(
    master: Master, tmp_path: Path
) -> None:
    """The master was lost with that leader, between its journal and its answer."""
    leader, second = group_of(master, 2)
    for member in (leader, second):
        member.registered = True
        master.table.note(member, now=master.clock())
    lease = master.lease(leader)
    report = replace(done(lease), records=24, steps=2)
    leasing = Leasing(master.job, MasterMetrics())
    assert leasing.report(leader, report, now=master.clock()).accepted
    asyncio.run(master.ledger.compact())
    asyncio.run(master.ledger.commit())
    following = Master(tmp_path, master.clock, launched=False)
    adopted = {m.generation: m for m in following.table.workers()}
    following.ends(adopted[leader.generation])
    heir = adopted[second.generation]
    leasing = Leasing(following.job, MasterMetrics())
    assert leasing.renew(heir, [lease, lease + 1], now=master.clock()) == [lease + 1]
    assert leasing.report(heir, report, now=master.clock()).accepted
    other = replace(report, records=23)
    assert not leasing.report(heir, other, now=master.clock()).accepted
    assert following.ledger.queue.done_tasks == 1
    asyncio.run(following.ledger.commit())
    following.ledger.close()
    found = audit(JobDir(tmp_path).journal_dir)
    assert (found.late_reports, found.late_records) == (1, 23)  # the other one


def done(lease_id: int) -> TaskReport:
    return TaskReport(task_id=0, lease_id=lease_id, outcome=TaskOutcome.DONE)


def test_a_hand_back_of_one_that_led_is_no_answer_to_the_report_of_who_leads(
    master: Master,
) -> None:
    """A worker that is told to leave hands back what the next leader goes on with."""
    leader, second = group_of(master, 2)
    leasing = Leasing(master.job, MasterMetrics())
    lease = master.lease(leader)
    leader.take_away()
    master.turn()
    back = replace(done(lease), outcome=TaskOutcome.RETURNED)
    now = master.clock()
    assert not leasing.report(leader, back, now=now).accepted
    assert leasing.report(second, done(lease), now=now).accepted
    assert leasing.report(second, done(lease), now=now).accepted  # sent once more
    assert not master.ledger.queue.leased


def test_what_a_leader_hands_back_before_it_has_the_state_keeps_its_place(
    master: Master,
) -> None:
    """It is given a task as its round begins, and tasks of before are void to it."""
    (leader,) = group_of(master, 1)
    leasing = Leasing(master.job, MasterMetrics())
    for _ in range(3):
        master.lease(leader)
    position = master.ledger.queue.position()
    master.ledger.rewind(position, applied={}, cause="lost", now=master.clock())
    lease = master.lease(leader)
    first = master.ledger.queue.leased[lease].task_id
    back = replace(
        done(lease), outcome=TaskOutcome.RETURNED, records=0, steps=0, rows=0
    )
    assert leasing.report(leader, back, now=master.clock()).accepted
    again = [master.ledger.queue.leased[master.lease(leader)].task_id for _ in "123"]
    assert again == [first, first + 1, first + 2]


def test_one_that_led_is_not_told_to_drop_what_the_next_leader_goes_on_with(
    master: Master,
) -> None:
    """It still leads until the others leave the round: its plans name these tasks."""
    leader, second = group_of(master, 2)
    leasing = Leasing(master.job, MasterMetrics())
    lease = master.lease(leader)
    leader.take_away()
    master.turn()
    assert master.ledger.queue.leased[lease].worker == second.key.index
    assert leasing.renew(leader, [lease], now=master.clock()) == []
    master.ledger.give_back(lease, cause="lease expired", now=master.clock())
    assert leasing.renew(leader, [lease], now=master.clock()) == [lease]


def test_a_task_that_was_handed_over_never_goes_back_to_be_begun_anew(
    master: Master,
) -> None:
    """Who leads next may be late to name it: the next lease call brings it."""
    leader, second = group_of(master, 2)
    leasing = Leasing(master.job, MasterMetrics())
    lease = master.lease(leader)
    master.ends(leader)
    for _ in range(4):
        master.clock.now += UNNAMED_SECONDS
        leasing.renew(second, [], now=master.clock())
    asks = LeaseRequest(
        replica=ReplicaId(Role.WORKER, second.key.index, second.generation),
        want=1,
        resumes=True,
    )
    (task,) = leasing.held_by(second, asks, now=master.clock())
    assert task.lease_id == lease
    assert not leasing.held_by(second, replace(asks, held=(lease,)), now=1e9)


def test_members_that_hang_at_a_task_fail_the_job_with_its_records_in_the_end(
    master: Master,
) -> None:
    """Others are left who go on with it, and hang in their turn."""
    membership, members = master.job.parts.membership, group_of(master, 3)
    lost_leases = LostLeases(master.job, MasterMetrics())
    master.lease(members[0])
    lost = 0
    while not master.job.ending:
        lost += 1
        newcomer = master.worker()
        master.says(newcomer)
        members.append(newcomer)
        # The leader and others, as it comes.
        hung = members.pop(lost % 2)
        membership.give_up_on(hung, EndCause.HUNG, now=master.clock())
        lost_leases.recover(hung, EndCause.HUNG, now=master.clock())
        master.holder.lost(hung, now=master.clock())
        master.turn()
        master.level(*members)
    assert lost == most_deaths(SPEC)
    assert "a.csv records 0 to 24" in master.job.ending.message
    assert master.ledger.replayed_records == 0


def test_a_member_that_is_killed_says_nothing_of_the_task(master: Master) -> None:
    leader, _ = group_of(master, 2)
    lease = master.lease(leader)
    leader.enter(ReplicaState.ENDED, now=master.clock())
    leader.ended = ExitReason.KILLED
    LostLeases(master.job, MasterMetrics()).recover(
        leader, "killed", now=master.clock()
    )
    queue = master.ledger.queue
    assert queue is not None
    assert queue.leased[lease].task.deaths == 0


def test_the_last_of_all_that_leave_at_once_is_asked_for_a_checkpoint(
    master: Master,
) -> None:
    one, two = group_of(master, 2)
    for member in (one, two):
        master.says(member, version=7, round=1, level=True, leaves=True)
    assert master.round_of(one).goes
    assert master.round_of(two).stays
    asyncio.run(asked_of(master, leader=two.name))
    assert not master.round_of(two).goes


async def asked_of(master: Master, *, leader: str) -> None:
    """Let the loop turn once; whoever leads then is asked for a checkpoint."""
    master.turn()
    assert leader_of(master) == leader
    request = master.job.parts.checkpoints.request
    assert request is not None
    assert request.why == "the last worker that has the model leaves"
    await asyncio.sleep(0)


def test_members_are_not_kept_by_a_job_that_is_over(master: Master) -> None:
    (last,) = group_of(master, 1)
    master.holder.job_is_over()
    master.says(last, version=7, round=1, level=True, leaves=True)
    assert master.round_of(last).goes


async def turned(master: Master) -> None:
    """Let the loop turn once, and begin what it begins."""
    master.turn()
    await asyncio.sleep(0)


def test_a_leader_that_leaves_gives_one_that_has_other_values_its_own_first(
    master: Master,
) -> None:
    leader, other = group_of(master, 2)
    differs = (other.generation,)
    master.says(leader, version=7, round=1, level=True, leaves=True, differing=differs)
    assert master.round_of(leader).stays
    asyncio.run(turned(master))  # asks for a checkpoint
    repaired = master.round_of(other)
    assert [m.number for m in repaired.members] == [leader.generation, *differs]
    assert [m.since for m in repaired.members] == [1, repaired.number]
    master.says(leader, version=7, round=repaired.number, level=True, leaves=True)
    assert master.round_of(leader).stays
    master.level(other)
    master.says(leader, version=7, round=repaired.number, level=True, leaves=True)
    assert master.round_of(leader).goes
