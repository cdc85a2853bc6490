"""Time in which a master does not hear its own calls, or stands still, is left out."""

import math
from collections.abc import Iterator
from pathlib import Path

import pytest
from elasticdl.job.heartbeats import WorkerReport
from elasticdl.job.spec.job import WorkerSpec
from elasticdl.job.values.document import ValuesFile
from elasticdl.job.words import ReplicaState
from elasticdl.master.attention import Attention
from elasticdl.master.members.member import Member
from elasticdl.master.members.table import MemberTable
from elasticdl.master.tasks.ledger import Ledger
from elasticdl.running import RunningClock

SPEC = WorkerSpec(dead_seconds=6.0)


def test_a_call_that_comes_through_soon_excuses_nobody() -> None:
    attention = Attention(now=100.0)
    assert not attention.behind(now=100.9)
    assert attention.heard(now=100.9) == 0.0
    assert not attention.behind(now=101.8)


def test_while_a_call_does_not_come_through_nobody_is_judged() -> None:
    attention = Attention(now=100.0)
    assert attention.behind(now=104.0)
    assert attention.heard(now=104.0) == 3.0
    assert not attention.behind(now=104.5)


def test_an_overloaded_master_still_finds_who_is_silent() -> None:
    attention, now, counted = Attention(now=0.0), 0.0, 0.0
    while counted < SPEC.dead_seconds:
        now += 3.0  # each call takes as long
        counted += 3.0 - attention.heard(now=now)
    assert math.isclose(now, 3.0 * SPEC.dead_seconds)


def test_time_in_which_the_whole_master_stood_still_is_nobodys_silence() -> None:
    steady = [100.0]
    clock = RunningClock(lambda: steady[0], wall=lambda: 100.0)
    attention = Attention(now=clock())
    steady[0] += 900.0  # of which the clock counts three seconds
    assert attention.heard(now=clock(), stopped=clock.stopped) == 899.0
    steady[0] += 0.5
    assert attention.heard(now=clock(), stopped=clock.stopped) == 0.0


@pytest.fixture
def table(tmp_path: Path) -> Iterator[MemberTable]:
    """A table with one worker."""
    tree = {
        "name": "one",
        "model": {"definition": "m.f"},
        "data": {"training": "none"},
        "worker": {"dead_seconds": SPEC.dead_seconds},
    }
    spec = ValuesFile.model_validate({"kind": "job", "job": tree}).job
    ledger = Ledger.open(tmp_path, now=0.0)
    made = MemberTable(spec, ledger, ps_seats=0)
    made.schedule(None, priority="low", now=0.0)
    yield made
    ledger.close()


def heard_at(table: MemberTable, now: float) -> Member:
    (member,) = table.workers()
    member.state = ReplicaState.RUNNING
    member.heard_worker(WorkerReport(phase="train"), now=now)
    return member


def test_silence_goes_on_where_it_was_after_a_delay(table: MemberTable) -> None:
    member = heard_at(table, 100.0)
    table.excuse(3.0, now=105.0)
    assert member.silent_at(SPEC) == 109.0
    assert not table.dead(now=108.9)
    assert table.dead(now=109.0) == [member]


def test_no_delay_makes_anybody_heard_of_in_the_future(table: MemberTable) -> None:
    member = heard_at(table, 104.0)
    table.excuse(3.0, now=105.0)
    assert member.silent_at(SPEC) == 111.0


def test_all_begin_anew_after_a_delay_in_which_their_calls_failed(
    table: MemberTable,
) -> None:
    member = heard_at(table, 100.0)
    table.excuse(6.0, now=130.0)
    assert member.silent_at(SPEC) == 136.0


def test_a_clock_that_is_read_goes_as_the_steady_one_does() -> None:
    steady = [50.0]
    clock = RunningClock(lambda: steady[0], wall=lambda: 1000.0)
    assert clock() == 1000.0
    for _ in range(100):
        steady[0] += 2.5
        clock()
    assert clock() == pytest.approx(1250.0)


def test_of_a_quarter_of_an_hour_in_which_nothing_ran_three_seconds_count() -> None:
    steady = [50.0]
    clock = RunningClock(lambda: steady[0], wall=lambda: 1000.0)
    steady[0] += 1.0
    assert clock() == 1001.0
    steady[0] += 900.0
    assert clock() == 1004.0
    steady[0] += 2.0
    assert clock() == 1006.0
    assert clock.unix() == 1903.0  # by which others date what they say
