"""What the planner is to reach in known clusters, simulated with fixed seeds.

`python -m tests.soak.cases` has more seeds, slow leaving and the day.
"""

from __future__ import annotations

import pytest

from tests.unit.simulator import cases

FLUID_24 = 429.0  # both jobs always have all that they can use
FLUID_21 = 506.0
FLUID_GPUS = 654.0


@pytest.mark.parametrize(
    ("name", "most"),
    [
        ("two-jobs", 1.05 * FLUID_24),
        ("two-jobs-21", 1.08 * FLUID_21),
        ("gpus", 1.08 * FLUID_GPUS),
    ],
)
def test_two_jobs_are_done_nearly_as_soon_as_can_be(name: str, most: float) -> None:
    _, made = cases.run(cases.trace(name), "elastic")
    assert made.makespan is not None
    assert made.makespan <= most


def test_two_jobs_fill_the_cluster() -> None:
    _, made = cases.run(cases.trace("two-jobs-18"), "elastic")
    assert made.use >= 0.95


@pytest.mark.parametrize("leave", [1.5, cases.SLOW])
def test_serving_gets_its_room_and_the_job_grows_again(leave: float) -> None:
    course, made = cases.run(cases.trace("co-location", leave=leave), "elastic")
    assert made.use >= 0.95
    assert cases.slowest_rise(course) <= 20
    for fell, workers in ((365.0, 10), (465.0, 15)):
        back = next(
            sample.time
            for sample in course.samples
            if sample.time >= fell and sample.running[0] >= workers
        )
        # Until then a serving pod leaves, in 1.5 s.
        assert back - fell <= cases.POD_START + 3 + (leave - 1.5)


def test_twenty_jobs_share_a_cluster() -> None:
    course, made = cases.run(cases.trace("20-jobs"), "elastic")
    assert cases.check_20_jobs(course, made, slow=False) == []


def test_serving_comes_and_goes_beside_six_jobs() -> None:
    course, made = cases.run(cases.trace("serving-wave"), "elastic")
    assert cases.check_wave(course, made, slow=False) == []


def test_an_hour_of_sixty_jobs_is_shorter_than_in_gangs() -> None:
    hour = cases.trace("day")
    took = {p: cases.run(hour, p)[1] for p in ("gang", "edl", "elastic")}
    gang, edl, ours = (took[policy].completion or 0.0 for policy in took)
    assert ours <= 0.65 * gang
    assert ours <= edl
    assert (took["elastic"].first_mean or 0.0) <= 10
    assert (took["elastic"].first_most or 0.0) <= 60


# -- what was measured on real clusters ------------------------------------------------


def test_two_jobs_of_fixed_size_take_as_long_as_they_did() -> None:
    _, made = cases.run(cases.trace("two-jobs-21"), "fixed")
    assert made.makespan == pytest.approx(580, rel=0.03)


def test_two_gangs_run_one_after_the_other() -> None:
    course, _ = cases.run(cases.trace("two-jobs-21"), "gang")
    first, second = course.done
    assert first.ended is not None
    assert second.first_worker is not None
    assert second.first_worker > first.ended


def test_fourteen_of_twenty_jobs_without_priorities_never_start() -> None:
    alone = cases.without_priorities(cases.trace("20-jobs"))
    _, made = cases.run(alone, "fixed")
    assert made.never == 14
    assert made.use == pytest.approx(0.887, abs=0.01)


def test_small_jobs_of_fixed_size_leave_half_of_the_night_unused() -> None:
    small = cases.of_fixed_size(cases.trace("serving-wave"), 15)
    course, _ = cases.run(small, "fixed")
    low = course.mean(lambda sample: sample.use, 300, 390)
    assert low == pytest.approx(0.449, abs=0.01)
