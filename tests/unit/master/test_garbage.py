"""How often Python's collector looks at all objects."""

import gc
from collections.abc import Callable

from elasticdl.master.garbage import rare_collections

OFTEN = 30_000


def full_looks(act: Callable[[], object]) -> int:
    """Return how often everything was looked at meanwhile."""
    looks = 0

    def note(phase: str, info: dict[str, int]) -> None:
        nonlocal looks
        looks += phase == "start" and info["generation"] == 2

    gc.callbacks.append(note)
    try:
        act()
    finally:
        gc.callbacks.remove(note)
    return looks


def hold_calls() -> list[list[int]]:
    """Keep objects for about as long as a master keeps those of held calls."""
    held: list[list[int]] = []
    for number in range(30 * OFTEN):
        held.append([number])
        if len(held) > OFTEN:
            held.clear()
    return held


def test_calls_that_are_held_do_not_make_the_collector_look_at_everything() -> None:
    assert full_looks(hold_calls) > 0  # as Python comes
    with rare_collections():
        assert full_looks(hold_calls) == 0


def test_afterwards_the_collector_is_as_it_was() -> None:
    before, frozen = gc.get_threshold(), gc.get_freeze_count()
    with rare_collections():
        assert gc.get_threshold() != before
    assert (gc.get_threshold(), gc.get_freeze_count()) == (before, frozen)


def test_cycles_that_a_long_run_leaves_are_still_found() -> None:
    class Knot:
        alive = 0

        def __init__(self) -> None:
            Knot.alive += 1
            self.me = self

        def __del__(self) -> None:
            Knot.alive -= 1

    with rare_collections():
        most = 0
        for _ in range(100_000):
            Knot()
            most = max(most, Knot.alive)
    assert most < 20_000
