"""The seconds that alerts go by grow with trouble alone, not in a job's normal life."""

from dataclasses import replace

import pytest
from elasticdl.job.words import JobState
from elasticdl.master.telling.alarms import Alarms, ScrapedJob

TRAINS = ScrapedJob(
    state=JobState.RUNNING, to_train=True, workers=2, last_step=100.0, version=10,
    saved_version=10, trains=True,
)  # fmt: skip
PAUSED = replace(TRAINS, state=JobState.PAUSED, to_train=False)
EVALUATES = replace(TRAINS, to_train=False)
PREEMPTED = replace(TRAINS, workers=0)


def stalled(*looks):
    """Return what is shown at each look; `looks` are times with what is seen."""
    alarms, shown = Alarms(), []
    for now, seen in looks:
        alarms.update(seen, now=now)
        shown.append(alarms.stalled_seconds)
    return shown


def test_workers_that_make_no_step_are_stalled_from_their_last_one_on() -> None:
    assert stalled((100, TRAINS), (400, TRAINS), (700, TRAINS)) == [0, 300, 600]


def test_a_job_that_never_makes_its_first_step_is_stalled_too() -> None:
    never = replace(TRAINS, last_step=None)
    assert stalled((100, never), (400, never), (700, never)) == [0, 300, 600]


def test_a_step_ends_it() -> None:
    again = replace(TRAINS, last_step=690.0)
    looks = [(100, TRAINS), (350, TRAINS), (600, TRAINS), (700, again)]
    assert stalled(*looks) == [0, 250, 500, 10]


@pytest.mark.parametrize("rests", [PAUSED, EVALUATES], ids=["pause", "evaluation"])
def test_what_follows_a_long_pause_or_evaluation_is_no_stall(rests) -> None:
    looks = [(100, TRAINS), (150, rests), (2000, rests), (2015, TRAINS)]
    assert stalled(*looks) == [0, 0, 0, 0]


@pytest.mark.parametrize("last_step", [100.0, 110.0])
def test_what_a_job_did_while_nobody_looked_is_no_stall(last_step) -> None:
    """A Prometheus that was away for an hour: it may have evaluated, or given way."""
    back = replace(TRAINS, last_step=last_step)
    assert max(stalled((100, TRAINS), (3700, back), (3715, back))) < 600


def test_the_time_without_workers_that_gave_way_does_not_count() -> None:
    looks = [(100, TRAINS), (110, PREEMPTED), (90_000, PREEMPTED), (90_010, TRAINS)]
    assert stalled(*looks) == [0, 0, 0, 10]


def test_workers_that_come_and_crash_do_not_end_it() -> None:
    looks = []
    for round_ in range(10):
        looks += [(100 + 120 * round_, TRAINS), (160 + 120 * round_, PREEMPTED)]
    assert stalled(*looks)[-1] == 9 * 60


def unsaved(*looks):
    alarms, shown = Alarms(), []
    for now, seen in looks:
        alarms.update(seen, now=now)
        shown.append(alarms.unsaved_seconds)
    return shown


def test_nothing_is_unsaved_while_nothing_is_trained() -> None:
    assert unsaved((100, TRAINS), (100_000, TRAINS)) == [0, 0]


def test_work_since_the_last_checkpoint_is_unsaved_until_the_next_one() -> None:
    on = replace(TRAINS, version=20)
    saved = replace(TRAINS, version=30, saved_version=25)
    looks = [(100, TRAINS), (110, on), (410, on), (420, saved), (450, saved)]
    assert unsaved(*looks) == [0, 0, 300, 0, 30]


def test_a_state_is_counted_from_its_beginning() -> None:
    alarms = Alarms()
    for now, seen, expected in ((5, TRAINS, 0), (65, TRAINS, 60), (70, PAUSED, 0)):
        alarms.update(seen, now=now)
        assert alarms.state_seconds == expected
