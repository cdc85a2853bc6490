"""The records of a group's steps: each once, in the same steps for any members."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from elasticdl.job.spec.kinds import RateRule
from elasticdl.job.tasks import REMEMBERED_TASKS
from elasticdl.worker.group.plan import (
    GroupTask,
    Outcome,
    StepPlan,
    StepSize,
    Work,
    divide,
    share,
    shares,
)
from hypothesis import given
from hypothesis import strategies as st


def tasks(sizes: list[int]) -> list[GroupTask]:
    starts = [sum(sizes[:i]) for i in range(len(sizes))]
    return [
        GroupTask(100 + i, i, 0, "train.csv", start, start + size, seed=i)
        for i, (start, size) in enumerate(zip(starts, sizes, strict=True))
    ]


def test_a_step_has_the_records_that_were_told_whoever_makes_it() -> None:
    assert [StepSize().records(96, members) for members in (1, 2, 5)] == [96] * 3
    assert [StepSize().scale(96, members) for members in (1, 2, 5)] == [1.0] * 3


def test_an_elastic_step_and_its_rate_follow_the_members() -> None:
    """The job began with three workers."""
    of = {rule: StepSize(each=32, rule=rule) for rule in RateRule}
    assert [of["none"].records(96, members) for members in (1, 3, 6)] == [32, 96, 192]
    assert [of["none"].scale(96, members) for members in (1, 3, 6)] == [1.0] * 3
    assert [of["linear"].scale(96, members) for members in (1, 3, 6)] == [1 / 3, 1, 2]
    assert of["sqrt"].scale(96, 12) == 2.0


def test_nothing_is_planned_before_the_master_says_how_much() -> None:
    assert StepSize(each=32, rule=RateRule.LINEAR).records(0, 4) == 0
    assert StepSize(each=32, rule=RateRule.LINEAR).scale(0, 4) == 1.0


def made(work: Work, plan: StepPlan, *, skipped: bool = False) -> None:
    rows = plan.records
    work.made(plan, Outcome(records=rows, rows=rows, loss=0.5, skipped=skipped))


def listed(plan: StepPlan) -> list[int]:
    return list(range(plan.start, plan.end))


def records_of(some: list[GroupTask]) -> list[int]:
    return [record for task in some for record in range(task.start, task.end)]


SIZES = st.lists(st.integers(1, 40), min_size=1, max_size=6)


@given(SIZES, st.integers(1, 50))
def test_every_record_is_in_one_step_and_no_step_is_of_two_tasks(sizes, batch) -> None:
    work, seen = Work(), []
    work.add(tasks(sizes))
    while (plan := work.plan(batch)).records:
        task = work.tasks[plan.lease_id]
        assert plan.records == min(batch, task.end - plan.start)
        seen += listed(plan)
        made(work, plan)
    assert seen == records_of(tasks(sizes))
    assert work.finished() == tasks(sizes)


@given(SIZES, st.integers(1, 50), st.integers(0, 10), st.integers(0, 5))
def test_a_new_leader_goes_on_where_the_steps_are(sizes, batch, before, joins) -> None:
    led, following = Work(), Work()
    led.add(tasks(sizes))
    for step in range(before):
        if step == joins:
            following = Work.decoded(led.encoded())
        plan = led.plan(batch)
        made(led, plan)
        if step >= joins:
            following.follow(plan)
            made(following, plan)
    if joins >= before:
        following = Work.decoded(led.encoded())
    assert following == led
    assert following.plan(batch) == led.plan(batch)


def test_what_one_member_has_reported_another_one_reports_again() -> None:
    """The first may be lost before its report arrives."""
    led = Work()
    led.add(tasks([4]))
    made(led, led.plan(4))
    led.totals[100].reported = True
    assert not Work.decoded(led.encoded()).totals[100].reported


@given(SIZES, st.integers(1, 50))
def test_what_is_read_ahead_is_what_comes_next(sizes, batch) -> None:
    work = Work()
    work.add(tasks(sizes))
    plan = work.plan(batch)
    for following in list(work.following(plan, batch)):
        made(work, plan)
        plan = work.plan(batch)
        assert replace(plan, held=()) == following
    made(work, plan)
    assert not work.plan(batch).records
    assert not list(work.following(plan, 0))


def test_a_plan_that_no_step_was_made_of_is_made_again() -> None:
    work = Work()
    work.add(tasks([10, 10]))
    assert work.plan(7) == work.plan(7)


def test_records_that_the_feed_leaves_out_altogether_are_no_step() -> None:
    work = Work()
    (task,) = tasks([10])
    work.add([task])
    made(work, work.plan(4))
    work.made(work.plan(4), Outcome(records=4, rows=0, loss=0.0))
    made(work, work.plan(4))
    totals = work.totals[task.lease_id]
    assert (totals.records, totals.rows, totals.steps) == (10, 6, 2)
    assert totals.loss_sum / totals.steps == 0.5
    assert work.version == 2
    assert work.finished() == [task]


def test_a_lease_that_is_added_again_keeps_what_is_made_of_it() -> None:
    work = Work()
    work.add(tasks([10]))
    made(work, work.plan(4))
    work.add(tasks([10]))
    assert listed(work.plan(100)) == list(range(4, 10))


def test_tasks_that_the_leader_names_no_more_are_forgotten() -> None:
    work = Work()
    work.add(tasks([10, 10]))
    work.follow(StepPlan(held=tuple(tasks([10, 10])[1:])))
    assert list(work.tasks) == list(work.totals) == [101]


def test_a_task_that_one_leader_put_aside_and_the_next_names_is_not_made_again() -> (
    None
):
    # The first one reported it, said so to this member, and was lost.
    first, second = tasks([10, 10])
    leads_next, work = Work(), Work()
    for one in (leads_next, work):
        one.add([first])
        for _ in range(2):
            made(one, one.plan(5))
    work.follow(StepPlan(held=(second,)))
    copied = Work.decoded(work.encoded())  # by a newcomer
    leads_next.add([second])
    for one in (work, copied):
        one.follow(leads_next.plan(5))
        assert one.plan(5) == leads_next.plan(5)
        assert one.finished() == [first]
        assert one.totals[first.lease_id].records == 10


def test_a_leader_keeps_what_it_was_leased_after_it_made_a_plan() -> None:
    first, second = tasks([32, 32])
    work = Work()
    work.add([first])
    plan = work.plan(16)
    work.add([second])  # a new round begins, and the plan is followed after this
    work.follow(plan, leads=True)
    assert list(work.tasks.values()) == [first, second]
    work.follow(StepPlan(), leads=True)  # made while there was no task at all
    assert list(work.tasks.values()) == [first, second]


def test_a_new_leader_takes_what_the_earlier_one_had_named() -> None:
    before = Work()
    before.add(tasks([32, 32]))
    work = Work()
    work.follow(before.plan(16), leads=True)
    assert work.tasks == before.tasks


def test_a_step_that_was_left_out_is_no_version_and_its_rows_are_counted_apart() -> (
    None
):
    work = Work(version=7)
    work.add(tasks([10]))
    made(work, work.plan(4), skipped=True)
    made(work, work.plan(4))
    assert work.version == 8
    totals = work.totals[100]
    assert (totals.rows, totals.skipped_rows) == (4, 4)
    assert (totals.steps, totals.skipped_steps) == (1, 1)
    assert work.applied == {0: 8}


def test_a_checkpoint_names_the_newest_tasks_alone() -> None:
    """But of many short ones, as a slow disk takes its time to make a folder."""
    work = Work()
    work.add(tasks([1] * (REMEMBERED_TASKS + 36)))
    while (plan := work.plan(1)).records:
        made(work, plan)
    assert list(work.applied) == list(range(36, REMEMBERED_TASKS + 36))


def test_without_tasks_a_plan_is_empty() -> None:
    assert Work().plan(8) == StepPlan()


@given(st.integers(1, 200), st.integers(1, 7))
def test_shares_are_neighbours_and_together_the_plan(records, members) -> None:
    plan = StepPlan(1, 30, 30 + records)
    found = [share(plan, rank, members) for rank in range(members)]
    assert [r for start, end in found for r in range(start, end)] == listed(plan)


@given(st.integers(0, 10_000), st.integers(1, 20))
def test_equal_members_differ_by_one_record_at_most(records, members) -> None:
    counts = divide(records, [1.0] * members)
    assert sum(counts) == records
    assert max(counts) - min(counts) <= 1
    assert all(a >= b for a, b in pairwise(counts))


def test_a_slower_member_gets_fewer() -> None:
    assert divide(96, [1.0, 0.5]) == [64, 32]


@pytest.mark.parametrize("weights", [[], [0.0, 0.0], [1.0, -1.0]])
def test_what_is_no_share_is_refused(weights) -> None:
    with pytest.raises(ValueError, match="expected shares above 0"):
        divide(10, weights)


@given(st.integers(1, 500), st.integers(1, 64), st.integers(1, 9))
def test_shares_are_whole_batches_where_a_model_takes_one_size(
    records: int, unit: int, members: int
) -> None:
    """But for the last records of a task, which fill no batch."""
    plan = StepPlan(7, 100, 100 + records, unit=unit)
    found = [share(plan, rank, members) for rank in range(members)]
    assert [r for start, end in found for r in range(start, end)] == listed(plan)
    uneven = [end - start for start, end in found if (end - start) % unit]
    assert uneven in ([], [uneven[0] if uneven else 0])
    assert sum(uneven) % unit == records % unit
    batches = [-(-(end - start) // unit) for start, end in found]
    assert max(batches) - min(batches) <= 1


def test_a_slower_member_takes_fewer_records_and_no_record_is_left() -> None:
    plan = StepPlan(7, 100, 196, weights=(1.0, 0.5, 0.5))
    found = [share(plan, rank, 3) for rank in range(3)]
    assert found == [(100, 148), (148, 172), (172, 196)]
    assert shares(plan, (4, 7, 9)) == ((4, 48), (7, 24), (9, 24))
    # Of another round: nobody knows yet how fast who is.
    assert [share(plan, rank, 2) for rank in range(2)] == [(100, 148), (148, 196)]


@given(SIZES)
def test_a_plan_is_read_as_it_was_written(sizes) -> None:
    plan = StepPlan(
        1, 2, 3, 0.5, tuple(tasks(sizes)), unit=8, weights=(1.0, 0.25), compares=True
    )
    assert StepPlan.decoded(plan.encoded()) == plan


@pytest.mark.parametrize("raw", [b"", b"{", b"[[1]]", b"7"])
def test_bytes_that_are_no_plan_are_refused(raw) -> None:
    with pytest.raises(ValueError, match="no plan of a step"):
        StepPlan.decoded(raw)
    with pytest.raises(ValueError, match="no state of a group's work"):
        Work.decoded(raw)


@given(SIZES, st.integers(1, 50), st.integers(1, 5))
def test_who_took_which_number_of_records_goes_along_with_the_state(
    sizes, batch, members
) -> None:
    work, numbers = Work(), [70 + i for i in range(members)]
    work.add(tasks(sizes))
    while (plan := work.plan(batch)).records:
        took = shares(plan, numbers)
        assert dict(took) == {
            number: end - start
            for rank, number in enumerate(numbers)
            for start, end in [share(plan, rank, members)]
            if end > start
        }
        rows = plan.records
        work.made(plan, Outcome(records=rows, rows=rows, loss=0.5, shares=took))
        work = Work.decoded(work.encoded())
    for task in tasks(sizes):
        taken = work.totals[task.lease_id].shares
        assert sum(taken.values()) == task.end - task.start
        assert set(taken) <= set(numbers)
