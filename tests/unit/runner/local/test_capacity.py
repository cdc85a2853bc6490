"""Who gets the CPUs."""

from __future__ import annotations

from dataclasses import replace

from elasticdl.runner.local.capacity import (
    CapacityPlan,
    Claim,
    ClaimState,
    plan,
    rank_of,
)
from hypothesis import given
from hypothesis import strategies as st


def claim(
    key: int,
    holding: ClaimState = ClaimState.WAITING,
    *,
    cpu: float = 1.0,
    rank: int = 0,
) -> Claim:
    return Claim(key=key, cpu=cpu, rank=rank, age=key, holding=holding)


def running(key: int, *, cpu: float = 1.0, rank: int = 0) -> Claim:
    return claim(key, ClaimState.RUNNING, cpu=cpu, rank=rank)


def test_without_a_limit_everything_starts() -> None:
    assert plan([claim(1), claim(2)], None) == CapacityPlan((1, 2), (), {})


def test_what_does_not_fit_waits_and_says_why() -> None:
    result = plan([claim(1), claim(2), claim(3)], 2.0)
    assert result.start == (1, 2)
    assert result.waiting == {3: "waiting for CPU: 2 of 2 in use"}


def test_less_capacity_preempts_the_newest() -> None:
    result = plan([running(1), running(2), running(3)], 1.0)
    assert set(result.preempt) == {2, 3}
    assert not result.start


def test_low_priority_goes_before_newer_high_priority() -> None:
    result = plan([running(1), running(2, rank=1)], 1.0)
    assert result.preempt == (1,)


def test_high_priority_takes_the_cpu_of_the_newest_low_one() -> None:
    result = plan([running(1), running(2), claim(3, rank=1)], 2.0)
    assert result.preempt == (2,)
    assert result.start == ()  # only when the CPU is free
    assert 3 in result.waiting


def test_an_older_waiting_one_does_not_preempt_its_equal() -> None:
    assert plan([claim(1), running(2)], 1.0).preempt == ()


def test_a_leaving_one_holds_its_cpu_until_it_has_ended() -> None:
    leaving = claim(1, ClaimState.LEAVING)
    assert plan([leaving, claim(2)], 1.0).start == ()
    assert plan([claim(2)], 1.0).start == (2,)


def test_tenths_of_a_cpu_add_up() -> None:
    tenths = [claim(key, cpu=0.1) for key in range(10)]
    assert len(plan(tenths, 1.0).start) == 10


def test_no_capacity_keeps_all_waiting() -> None:
    assert plan([claim(1)], 0.0).waiting == {1: "waiting for CPU: 0 of 0 in use"}


def test_a_share_of_a_priority_class_name_counts_as_low() -> None:
    assert rank_of("high") > rank_of("low") == rank_of("batch")


claims = st.lists(
    st.builds(
        Claim,
        key=st.integers(0, 10**6),
        cpu=st.sampled_from([0.25, 0.5, 1.0, 2.0]),
        rank=st.integers(0, 1),
        age=st.integers(0, 10**6),
        holding=st.sampled_from(ClaimState),
    ),
    unique_by=lambda c: c.key,
    max_size=12,
)
capacities = st.one_of(st.none(), st.sampled_from([0.0, 0.5, 1.0, 2.0, 3.0, 7.0]))


def carry_out(given_claims: list[Claim], result: CapacityPlan) -> list[Claim]:
    """Start and preempt; what was leaving has ended."""
    after = []
    for each in given_claims:
        if each.holding is ClaimState.LEAVING or each.key in result.preempt:
            continue
        holding = ClaimState.RUNNING if each.key in result.start else each.holding
        after.append(replace(each, holding=holding))
    return after


@given(claims, capacities)
def test_never_starts_more_than_there_is(
    given_claims: list[Claim], capacity: float | None
) -> None:
    result = plan(given_claims, capacity)
    held = sum(
        c.cpu
        for c in given_claims
        if c.holding is not ClaimState.WAITING or c.key in result.start
    )
    if capacity is not None and result.start:
        assert held <= capacity + 1e-6


@given(claims, capacities)
def test_what_stays_running_fits(
    given_claims: list[Claim], capacity: float | None
) -> None:
    after = carry_out(given_claims, plan(given_claims, capacity))
    used = sum(c.cpu for c in after if c.holding is ClaimState.RUNNING)
    assert capacity is None or used <= capacity + 1e-6


@given(claims, capacities)
def test_it_settles(given_claims: list[Claim], capacity: float | None) -> None:
    settled = carry_out(given_claims, plan(given_claims, capacity))
    settled = carry_out(settled, plan(settled, capacity))
    again = plan(settled, capacity)
    assert not again.start
    assert not again.preempt


@given(claims)
def test_unlimited_preempts_nobody(given_claims: list[Claim]) -> None:
    result = plan(given_claims, None)
    assert not result.preempt
    assert not result.waiting


@given(claims, capacities)
def test_every_waiting_one_is_started_or_told_why(
    given_claims: list[Claim], capacity: float | None
) -> None:
    result = plan(given_claims, capacity)
    waiting = {c.key for c in given_claims if c.holding is ClaimState.WAITING}
    assert waiting == set(result.start) | set(result.waiting)
    assert not set(result.start) & set(result.waiting)


@given(st.lists(st.integers(0, 1), max_size=8), st.integers(0, 8))
def test_equal_workers_keep_the_best_and_oldest(ranks: list[int], keep: int) -> None:
    workers = [running(key, rank=rank) for key, rank in enumerate(ranks)]
    result = plan(workers, float(keep))
    kept = [c for c in workers if c.key not in result.preempt]
    assert len(kept) == min(keep, len(workers))
    for stays in kept:
        for goes in (c for c in workers if c.key in result.preempt):
            assert (stays.rank, -stays.age) > (goes.rank, -goes.age)
