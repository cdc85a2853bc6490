"""A task at which so many workers in a row are killed is told from bad luck."""

from __future__ import annotations

from elasticdl.master.tasks.kills import Kills


def test_kills_at_a_task_are_counted_until_somebody_gets_further() -> None:
    kills = Kills()
    for reached in (7, 8, 8, 8):  # the first one was heard of at step 7
        kills.at([1, 2], reached=reached)
    assert (kills.of(1), kills.of(2), kills.of(3)) == (3, 3, 0)
    kills.at([2], reached=9)
    assert (kills.of(1), kills.of(2)) == (3, 1)


def test_a_task_that_is_begun_again_by_each_worker_has_no_other_measure() -> None:
    kills = Kills()
    for _ in range(12):
        kills.at([-5], reached=0)
    assert kills.of(-5) == 12
