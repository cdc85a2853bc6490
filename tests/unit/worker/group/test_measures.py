"""What steps with others cost a member."""

from __future__ import annotations

import pytest
from elasticdl.worker.group.measures import Measures


class World:
    """A clock and a counter of bytes that a test moves."""

    def __init__(self) -> None:
        self.now = 100.0
        self.sent = 0
        self.measures = Measures(lambda: self.now, lambda: self.sent)

    def step(
        self, number: int, *, seconds: float = 1.0, waited: float = 0.0, sent: int = 0
    ) -> None:
        self.now += seconds
        self.sent += sent
        if waited:
            self.measures.waited(waited)
        self.measures.made(number)


def test_a_change_lasts_from_one_rounds_last_step_to_the_nexts_first() -> None:
    world = World()
    world.step(3)
    world.step(3)
    assert world.measures.figures().change_seconds == 0.0
    world.step(4, seconds=7.5)
    world.step(4)
    said = world.measures.figures()
    assert (said.round, said.change_seconds) == (4, 7.5)


def test_a_newcomers_first_round_was_no_change_for_it() -> None:
    world = World()
    world.step(9, seconds=50.0)
    assert world.measures.figures().change_seconds == 0.0


def test_waits_are_those_of_steps_and_not_of_the_change() -> None:
    world = World()
    world.step(1)
    world.step(2, waited=6.0)
    assert world.measures.figures().wait_seconds == 0.0
    world.step(2, waited=0.5)
    assert world.measures.figures().wait_seconds == 0.5
    world.step(2, waited=1.5)
    assert world.measures.figures().wait_seconds == pytest.approx(0.6)


def test_waiting_for_a_task_is_no_wait_for_others() -> None:
    world = World()
    world.step(1)
    world.measures.waited(5.0)
    world.measures.idled()
    world.step(1, waited=0.25)
    assert world.measures.figures().wait_seconds == 0.25


def test_bytes_are_told_of_the_last_step_and_of_all() -> None:
    world = World()
    world.step(1, sent=400)
    world.step(1, sent=700)
    said = world.measures.figures()
    assert (said.step_bytes, said.sent_bytes) == (700, 1100)
