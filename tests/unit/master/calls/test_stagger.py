"""Many workers that began together do not call together for ever."""

from collections import Counter

import pytest
from elasticdl.master.calls.stagger import until_place

CYCLE = 5.0


def next_call(worker, now, at_least=0.5):
    return now + until_place(worker, cycle_seconds=CYCLE, now=now, at_least=at_least)


def test_workers_that_called_at_once_call_in_groups_of_a_size_from_then_on():
    groups = Counter(round(next_call(worker, 100.3), 6) for worker in range(1000))
    assert len(groups) == 5
    assert max(groups.values()) <= 1.05 * min(groups.values())


@pytest.mark.parametrize("at_least", [1 / 8, 1 / 2])
@pytest.mark.parametrize("late", [0.0, 0.02, 0.3])
def test_a_worker_keeps_its_place_though_its_calls_are_answered_late(at_least, late):
    now = next_call(7, 12.0, at_least)
    places = []
    for _ in range(50):
        now = next_call(7, now + late, at_least)
        places.append(now % CYCLE)
    assert max(places) - min(places) == pytest.approx(0.0, abs=1e-6)


@pytest.mark.parametrize("at_least", [1 / 8, 1 / 2])
def test_a_call_is_neither_early_nor_more_than_a_cycle_late(at_least):
    for worker in range(200):
        for now in (0.0, 3.3, 1e6 + worker / 7):
            wait = next_call(worker, now, at_least) - now
            assert at_least * CYCLE - 1e-6 <= wait <= (1 + at_least) * CYCLE + 1e-6


def test_a_handful_of_workers_is_left_alone():
    assert until_place(3, cycle_seconds=0.015, now=77.7, at_least=0.5) == 0.015
