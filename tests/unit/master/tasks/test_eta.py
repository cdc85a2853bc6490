"""The estimate behind every ETA, on traces of jobs: pauses, rescaling, long tasks."""

from __future__ import annotations

import random

import pytest
from elasticdl.data.reader import Shard
from elasticdl.master.tasks.eta import Pace
from elasticdl.master.tasks.queue import TaskQueue
from elasticdl.master.tasks.queue_plan import QueuePlan
from elasticdl.master.telling import status

PER_WORKER = 64.0  # records a second


class Trace:
    """A job whose workers do tasks one after the other."""

    def __init__(self, *, records_per_task: int = 128, in_step: bool = False) -> None:
        self.pace = Pace()
        self.now = 1000.0
        self.done = 0
        self._task = records_per_task
        self._random = None if in_step else random.Random(7)
        self._begun: dict[int, float] = {}  # records of its task, by worker

    def go(
        self, seconds: float, workers: int, *, each: float = PER_WORKER
    ) -> list[float | None]:
        """Let so many work; the estimates meanwhile, one every half a second."""
        seen = []
        for _ in range(round(2 * seconds)):
            self.now += 0.5
            self._begun = {w: r for w, r in self._begun.items() if w < workers}
            for worker in range(workers):
                begun = self._random.random() * self._task if self._random else 0.0
                records = self._begun.setdefault(worker, begun) + each / 2
                while records >= self._task:
                    records -= self._task
                    self.done += self._task
                self._begun[worker] = records
            self.take(workers)
            seen.append(self.pace.per_second())
        return seen

    def take(self, workers: int) -> None:
        leased = workers * self._task
        self.pace.take(self.done, leased=leased, workers=workers, now=self.now)


def test_nothing_is_known_before_the_first_records_are_done() -> None:
    trace = Trace(in_step=True)
    assert trace.go(1.5, 3) == [None] * 3
    assert trace.go(10, 3)[-1] == pytest.approx(3 * PER_WORKER, rel=0.1)


def test_fewer_workers_are_slower_from_the_moment_on_that_the_others_left() -> None:
    trace = Trace()
    trace.go(60, 4)
    assert trace.go(40, 2) == [pytest.approx(2 * PER_WORKER, rel=0.1)] * 80
    assert trace.go(40, 6) == [pytest.approx(6 * PER_WORKER, rel=0.1)] * 80


def test_workers_that_share_a_machine_are_found_out_in_a_while() -> None:
    trace = Trace()
    trace.go(60, 2)
    assert trace.go(30, 4, each=PER_WORKER / 2)[-1] == pytest.approx(
        2 * PER_WORKER, rel=0.1
    )


def test_what_so_many_did_before_is_remembered() -> None:
    trace = Trace()
    trace.go(60, 2)
    trace.go(60, 3, each=PER_WORKER * 2 / 3)
    assert trace.go(5, 2) == [pytest.approx(2 * PER_WORKER, rel=0.1)] * 10
    assert (
        trace.go(5, 3, each=PER_WORKER * 2 / 3)
        == [pytest.approx(2 * PER_WORKER, rel=0.1)] * 10
    )


def test_workers_that_come_and_go_all_the_time_have_a_mean() -> None:
    trace = Trace()
    trace.go(60, 4, each=PER_WORKER * 3)  # what was known once does not hold on
    for _ in range(40):
        trace.go(2, 3)
        last = trace.go(2, 4)[-1]
    assert last == pytest.approx(4 * PER_WORKER, rel=0.2)


def test_what_was_done_while_the_master_was_away_is_no_speed() -> None:
    trace = Trace()
    trace.take(4)
    trace.done += 6000  # told at once when it is back
    known = [rate for rate in trace.go(60, 4) if rate is not None]
    assert len(known) > 80
    assert known == [pytest.approx(4 * PER_WORKER, rel=0.3)] * len(known)


def test_reports_in_a_pause_are_no_speed() -> None:
    trace = Trace()
    trace.go(60, 3)
    trace.go(1, 0)
    trace.done += 128
    assert trace.go(1, 0) == [None, None]
    assert trace.go(20, 3) == [pytest.approx(3 * PER_WORKER, rel=0.1)] * 40


def test_a_pause_changes_nothing_of_the_estimate_after_it() -> None:
    trace = Trace()
    trace.go(60, 3)
    assert trace.go(600, 0) == [None] * 1200
    assert trace.go(20, 3) == [pytest.approx(3 * PER_WORKER, rel=0.1)] * 40


@pytest.mark.parametrize("in_step", [False, True])
def test_tasks_of_a_minute_do_not_shake_it(in_step: bool) -> None:
    trace = Trace(records_per_task=round(60 * PER_WORKER), in_step=in_step)
    trace.go(330, 4)
    assert trace.go(600, 4) == [pytest.approx(4 * PER_WORKER, rel=0.1)] * 1200


def test_a_rewind_keeps_the_speed_that_was_known() -> None:
    trace = Trace()
    trace.go(60, 3)
    trace.done = 2000
    assert trace.go(20, 3) == [pytest.approx(3 * PER_WORKER, rel=0.1)] * 40


def test_what_is_stuck_gets_slower_and_slower() -> None:
    trace = Trace()
    trace.go(60, 3)
    assert trace.go(25, 3, each=0.0) == [pytest.approx(3 * PER_WORKER, rel=0.1)] * 50
    stuck = [rate or 0.0 for rate in trace.go(95, 3, each=0.0)]
    assert stuck == sorted(stuck, reverse=True)
    assert stuck[-1] < 0.35 * 3 * PER_WORKER


def test_a_long_job_remembers_few_points() -> None:
    trace = Trace()
    trace.go(3600, 4)
    assert len(trace.pace._points) <= 2 * 60 + 3


@pytest.mark.parametrize(
    ("epochs", "max_steps", "expected"),
    [
        (3, 0, (600, 2600)),
        (1, 0, (600, 600)),
        (0, 0, (600, None)),  # endless
        (0, 50, (600, 1200)),
        (3, 15, (80, 80)),  # the steps are done before the epoch is
    ],
)
def test_what_is_left_ends_with_the_epochs_or_the_steps(
    epochs: int, max_steps: int, expected: tuple[int, int | None]
) -> None:
    shards = (Shard("a", 0, 1000),)
    queue = TaskQueue(QueuePlan(shards, 40, 1, epochs=epochs, max_steps=max_steps))
    queue.done_records, queue.done_steps = 400, 13 if max_steps == 15 else 20
    assert status._left(queue) == expected
