"""Time in which the whole master stood still counts for no limit of a job."""

import pytest
from elasticdl.master.clock import RunningClock


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
