"""How far a worker is ahead: short tasks in bundles, long ones one by one."""

import pytest
from elasticdl.worker.tasks.ahead import Ahead


def paced(seconds, *, far=True, tasks=20):
    ahead = Ahead(far=far)
    for number in range(tasks):
        ahead.took(waited_seconds=0.0, now=number * seconds)
    return ahead


@pytest.mark.parametrize(
    ("seconds", "most"),
    [
        (10.0, 1),
        (1.0, 1),
        (0.25, 4),
        (0.0625, 16),
        (0.03125, 32),
        (0.001, 64),
        (0.0, 64),
    ],
)
def test_ready_tasks_are_worth_a_moment_of_training(seconds, most):
    assert paced(seconds).most_ready == most


def test_before_the_pace_is_known_one_task_is_ready():
    ahead = Ahead(far=True)
    assert ahead.most_ready == 1
    ahead.took(waited_seconds=5.0, now=5.0)
    assert ahead.wanted(0) == 1
    assert ahead.wanted(1) == 0


def test_a_pause_without_work_does_not_count_as_a_long_task():
    ahead = paced(0.03125)
    before = ahead.most_ready
    ahead.took(waited_seconds=1000.0, now=19 * 0.03125 + 0.03125 + 1000.0)
    assert ahead.most_ready == before == 32


def test_the_next_bundle_is_leased_when_half_of_one_is_used_up():
    ahead = paced(0.0)
    assert [ahead.wanted(ready) for ready in (64, 33, 32, 0)] == [0, 0, 32, 64]


def test_sync_training_has_one_task_ready_and_reports_at_once():
    ahead = paced(0.001, far=False)
    assert ahead.most_ready == 1
    assert ahead.report_due(oldest=0.0, now=0.0) <= 0


def test_reports_of_short_tasks_wait_for_the_next_lease_and_a_second_at_most():
    ahead = paced(0.01)
    from_one_lease_to_the_next = (ahead.most_ready - ahead._left) * 0.01
    due = ahead.report_due(oldest=10.0, now=10.0)
    assert from_one_lease_to_the_next < due == pytest.approx(1.0)
    assert ahead.report_due(oldest=10.0, now=11.1) < 0


def test_the_master_of_many_workers_has_them_call_more_rarely():
    ahead = paced(1.0)
    assert (ahead.most_ready, ahead.wanted(0)) == (1, 1)
    ahead.calls_every(4.0)
    assert [ahead.wanted(ready) for ready in (4, 2, 1, 0)] == [0, 0, 0, 4]
    assert ahead.report_due(oldest=10.0, now=11.0) == pytest.approx(3.0)


def test_short_tasks_are_asked_for_before_the_last_one_is_begun():
    ahead = paced(0.125)
    assert [ahead.wanted(ready) for ready in (8, 3, 2, 0)] == [0, 0, 6, 8]


def test_sync_training_calls_for_each_task_however_many_workers_there_are():
    ahead = paced(1.0, far=False)
    ahead.calls_every(4.0)
    assert ahead.most_ready == 1
    assert ahead.report_due(oldest=0.0, now=0.0) <= 0
