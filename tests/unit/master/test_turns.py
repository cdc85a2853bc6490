"""Turns: workers that begin together do not call together ever after."""

from collections import Counter

import pytest
from elasticdl.master.turns import differ, fair_seconds, seconds_to_turn

NOW = 1_700_000_000.0
MANY = 1000


@pytest.mark.parametrize("first", [0, 7, 123_456])
@pytest.mark.parametrize("least", [0.0, 1.0])
def test_the_turns_of_workers_with_any_numbers_in_a_row_lie_evenly(
    first: int, least: float
) -> None:
    period = fair_seconds(MANY)
    workers = range(first, first + MANY)
    lefts = [
        seconds_to_turn(worker, period=period, now=NOW, least=least)
        for worker in workers
    ]
    assert min(lefts) > least
    assert max(lefts) <= least + period
    tenths = Counter(int((left - least) / period * 10) for left in lefts)
    assert all(95 <= tenths[number] <= 105 for number in range(10))


def test_a_worker_has_the_same_moment_whenever_it_asks() -> None:
    moments = {
        round((NOW + step + seconds_to_turn(5, period=4.0, now=NOW + step)) % 4.0, 3)
        for step in (0.0, 0.7, 3.0, 400.1)
    }
    assert len(moments) == 1


def test_a_period_of_a_few_workers_more_is_no_other() -> None:
    assert differ(fair_seconds(300), 0.0)
    assert differ(fair_seconds(300), fair_seconds(250))
    assert not differ(fair_seconds(300), fair_seconds(299))


def test_a_job_without_workers_has_a_share_too() -> None:
    assert fair_seconds(0) > 0.0
