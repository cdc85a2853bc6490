"""The records of a group's steps: each once, in the same steps for any members."""

from __future__ import annotations

from itertools import pairwise

import pytest
from elasticdl.worker.group.plan import Segment, StepPlan, Work, divide, shares
from hypothesis import given
from hypothesis import strategies as st


def task(number: int, start: int, end: int) -> Segment:
    return Segment(100 + number, number, 0, "train.csv", start, end, last=True)


def tasks(sizes: list[int]) -> list[Segment]:
    starts = [sum(sizes[:i]) for i in range(len(sizes))]
    return [
        task(i, a, a + size)
        for i, (a, size) in enumerate(zip(starts, sizes, strict=True))
    ]


def listed(segments) -> list[tuple[int, int]]:
    return [(s.task_id, record) for s in segments for record in range(s.start, s.end)]


SIZES = st.lists(st.integers(1, 40), min_size=1, max_size=6)


@given(SIZES, st.integers(1, 50))
def test_every_record_is_in_one_step_in_the_order_of_the_tasks(sizes, batch) -> None:
    work, seen, finished = Work(), [], []
    work.add(tasks(sizes))
    while (plan := work.plan(batch)).records:
        assert plan.records == min(batch, work.records)
        seen += listed(plan.segments)
        finished += work.made(plan)
    assert seen == listed(tasks(sizes))
    assert finished == [100 + i for i in range(len(sizes))]


@given(SIZES, st.integers(1, 50), st.integers(0, 10))
def test_a_new_leader_goes_on_where_the_steps_are(sizes, batch, before) -> None:
    led, following = Work(), Work()
    led.add(tasks(sizes))
    done = []
    for _ in range(before):
        plan = led.plan(batch)
        done += listed(plan.segments)
        # Finished tasks are reported: the master does not name them again.
        assert led.made(plan) == following.made(plan)
    reported = {task_id for task_id, _ in done} - {
        task_id for task_id, _ in listed(led.plan(10_000).segments)
    }
    following.add([one for one in tasks(sizes) if one.task_id not in reported])
    assert following.plan(batch) == led.plan(batch)


def test_a_plan_that_no_step_was_made_of_is_made_again() -> None:
    work = Work()
    work.add(tasks([10, 10]))
    assert work.plan(7) == work.plan(7)


def test_a_lease_that_is_added_again_keeps_what_is_made_of_it() -> None:
    work = Work()
    work.add(tasks([10]))
    work.made(work.plan(4))
    work.add(tasks([10]))
    assert listed(work.plan(100).segments) == [(0, record) for record in range(4, 10)]


def test_without_tasks_a_plan_is_empty() -> None:
    assert Work().plan(8) == StepPlan()


@given(SIZES, st.lists(st.floats(0.01, 10), min_size=1, max_size=7))
def test_shares_are_neighbouring_records_and_together_the_plan(sizes, weights) -> None:
    plan = StepPlan(tuple(tasks(sizes)))
    counts = divide(plan.records, weights)
    found = shares(plan, counts)
    assert [len(listed(share)) for share in found] == counts
    assert [r for share in found for r in listed(share)] == listed(plan.segments)
    assert sum(s.last for share in found for s in share) == len(sizes)


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


@given(SIZES)
def test_a_plan_is_read_as_it_was_written(sizes) -> None:
    plan = StepPlan(tuple(tasks(sizes)))
    assert StepPlan.decoded(plan.encoded()) == plan


@pytest.mark.parametrize("raw", [b"", b"{", b"[[1]]", b"7"])
def test_bytes_that_are_no_plan_are_refused(raw) -> None:
    with pytest.raises(ValueError, match=r"no plan|JSON|Expecting"):
        StepPlan.decoded(raw)
