"""What is shown of a group: what changes cost, who is last, who is out and why."""

from __future__ import annotations

import asyncio

from elasticdl.job.heartbeats import GroupFigures, WorkerReport
from elasticdl.job.status import GroupOut
from elasticdl.job.words import HappeningKind, OutCause
from elasticdl.master.happenings import RoundWorks
from elasticdl.master.members.member import Member
from elasticdl.master.model.group.status import Changes, last_of
from elasticdl.master.telling.gauges import Gauges
from elasticdl.master.telling.sentences import decisions_of
from elasticdl.metrics.registry import MasterMetrics
from prometheus_client import generate_latest

from tests.unit.master.model.test_group_holder import Master, group_of, master

__all__ = ["master"]  # the fixture


def tells(master: Master, member, *, wait: float = 0.0, change: float = 0.0) -> None:
    """Let a member say what its newest round cost it."""
    number = master.round_of(member).number
    said = member.worker.group
    figures = GroupFigures(number, change, wait, step_bytes=800, sent_bytes=9000)
    report = WorkerReport(
        phase="train", step=5, step_seconds=1.0, group=said, group_figures=figures
    )
    member.heard_worker(report, now=master.clock())
    master.holder.heard_worker(member, now=master.clock())


def test_changes_add_up_and_each_counts_once() -> None:
    changes = Changes(4, 2.0)
    assert not changes.heard(GroupFigures(round=3, change_seconds=9.0))
    assert changes.heard(GroupFigures(round=4, change_seconds=1.5))
    assert not changes.heard(GroupFigures(round=4, change_seconds=1.5))
    assert (changes.seconds, changes.all_seconds) == (1.5, 3.5)
    changes.began(5)
    assert (changes.seconds, changes.all_seconds) == (None, 3.5)


def test_the_leader_says_what_a_change_cost_and_it_is_told_once(
    master: Master,
) -> None:
    first, second, _ = group_of(master, 3)
    master.ends(second)
    master.turn()
    master.level(first)
    master.job.parts.signals.diary.take()
    tells(master, first, change=2.5)
    tells(master, first, change=2.5)
    group = master.holder.group
    assert group is not None
    assert (group.cause, group.change_seconds) == ("ended", 2.5)
    said = list(master.job.parts.signals.diary.take())
    assert said == [RoundWorks(time=master.clock(), number=group.round, seconds=2.5)]
    (told,) = decisions_of(said[0], job="group")
    assert (told.kind, told.cost_seconds) == (HappeningKind.ROUND, 2.5)


def test_the_next_master_knows_what_changes_cost_so_far(
    master: Master, tmp_path
) -> None:
    first, second, third = group_of(master, 3)
    for gone in (third, second):
        master.ends(gone)
        master.turn()
        master.level(first)
        tells(master, first, change=2.0)
    asyncio.run(master.ledger.commit())
    after = Master(tmp_path, master.clock, launched=False)
    group = after.holder.group
    assert group is not None
    assert group.cause == "ended"
    assert group.changes_seconds == 2.0  # of rounds before; this one is told again
    after.ledger.close()


def test_the_others_wait_for_whoever_waits_least(master: Master) -> None:
    members = group_of(master, 3)
    for member, wait in zip(members, (0.6, 0.1, 0.5), strict=True):
        tells(master, member, wait=wait)
    assert last_of(members) == members[1].name
    assert master.holder.group.last == members[1].name
    tells(master, members[1], wait=0.45)
    assert last_of(members) == ""


def is_in(master: Master, member: Member) -> bool:
    told = master.round_of(member)
    return member.generation in {one.number for one in told.members}


def test_who_runs_and_is_out_is_told_with_the_reason(master: Master) -> None:
    members = group_of(master, 3)
    new = master.worker()
    ready = master.worker()
    master.says(ready)
    out = {one.name: one.cause for one in master.holder.group.out}
    assert out == {new.name: OutCause.PREPARING, ready.name: OutCause.JOINING}
    master.says(ready, copied=False)
    out = {one.name: one.cause for one in master.holder.group.out}
    assert out[ready.name] == OutCause.COPYING
    one, other = members[1], members[2]
    number = master.round_of(one).number
    master.says(one, round=number, broken=number, lost=other.generation)
    master.says(other, round=number, broken=number, lost=one.generation)
    master.turn()
    assert not is_in(master, other)
    assert master.holder.group.cause == "leftOut"
    told = {one.name: one for one in master.holder.group.out}[other.name]
    assert told == GroupOut(name=other.name, cause=OutCause.LEFT_OUT, seconds=10.0)


def test_a_scrape_shows_the_group(master: Master) -> None:
    members = group_of(master, 2)
    master.worker()
    for member in members:
        tells(master, member, wait=0.25, change=1.5)
    metrics = MasterMetrics()
    Gauges(master.job, metrics).update(now=master.clock())
    text = generate_latest(metrics.registry).decode()
    for line in (
        'elasticdl_group_round{cause="joined"} 1.0',
        'elasticdl_group_member_rank{worker="1"} 1.0',
        'elasticdl_group_out{cause="preparing"} 1.0',
        "elasticdl_group_change_seconds 1.5",
        'elasticdl_group_wait_seconds{worker="0"} 0.25',
        'elasticdl_group_step_bytes{worker="1"} 800.0',
    ):
        assert line in text
