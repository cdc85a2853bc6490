"""The goodput ledger."""

import pytest
from elasticdl.metrics.goodput import CAUSES, GoodputLedger
from hypothesis import given
from hypothesis import strategies as st


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_seconds_go_to_the_cause_that_was_in_force():
    clock = Clock()
    ledger = GoodputLedger(clock)
    clock.now += 2
    assert ledger.switch("train") == "start"
    clock.now += 5
    with ledger.cause("waitPs"):
        assert ledger.current == "waitPs"
        clock.now += 1
    clock.now += 3
    seconds = ledger.seconds()
    assert seconds["start"] == 2
    assert seconds["train"] == 8
    assert seconds["waitPs"] == 1
    assert set(seconds) == set(CAUSES)


def test_a_block_that_raises_gives_the_time_back():
    clock = Clock()
    ledger = GoodputLedger(clock, cause="train")
    with pytest.raises(KeyError), ledger.cause("evaluate"):
        raise KeyError
    assert ledger.current == "train"


@given(st.lists(st.tuples(st.sampled_from(CAUSES), st.floats(0, 1e6))))
def test_the_parts_sum_to_the_life(switches):
    clock = Clock()
    ledger = GoodputLedger(clock)
    for cause, seconds in switches:
        ledger.switch(cause)
        clock.now += seconds
    assert sum(ledger.seconds().values()) == pytest.approx(clock.now - 100.0)


def test_an_unknown_cause_is_refused():
    with pytest.raises(ValueError, match="coffee"):
        GoodputLedger(Clock()).switch("coffee")
