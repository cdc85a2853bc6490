"""Pauses grow, never beyond their bound, however often a thing has failed."""

import pytest
from elasticdl.job.spec.job import CheckpointSpec
from elasticdl.master.model.checkpoint_requests import CheckpointSchedule
from elasticdl.pauses import growing


def test_pauses_double_up_to_the_most():
    waits = [growing(n, first=0.05, most=1.0) for n in range(7)]
    assert waits == [0.05, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0]


@pytest.mark.parametrize("tries", [64, 1_000, 100_000])
def test_a_thing_may_fail_any_number_of_times(tries):
    assert growing(tries, first=0.05, most=1.0) == 1.0


def test_callers_do_not_come_back_in_the_same_instant():
    assert growing(0, first=1.0, most=1.0, share=0.5) == 0.75


def test_a_disk_that_is_full_for_a_day_stops_no_checkpoint_for_good():
    schedule = CheckpointSchedule(CheckpointSpec(), version=None, time=0.0)
    pauses = [schedule.failed(now=0.0) for _ in range(3_000)]
    assert pauses[0] == 5.0
    assert set(pauses[10:]) == {30.0}
