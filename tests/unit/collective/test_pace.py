"""How long members wait for a newcomer, and what is kept for it."""

import socket
import threading

import pytest
from elasticdl.collective.sponsoring import Sponsoring, Standpoint, pace_seconds


@pytest.mark.parametrize(
    ("usual", "step", "wait"),
    [
        (0.0, 0.0, 0.0),
        (0.01, 0.01, 0.01),
        (0.1, 0.2, 0.1),
        (0.6, 0.7, 0.6),
        (0.6, 1.1, 0.25),  # the line is shared with the newcomer
        (0.6, 2.0, 0.0),
        (2.0, 2.0, 0.6),
        (10.0, 10.0, 1.5),
    ],
)
def test_a_step_beside_a_newcomer_takes_about_two_at_most(
    usual: float, step: float, wait: float
) -> None:
    assert pace_seconds(usual, step) == pytest.approx(wait)


def test_nothing_is_kept_for_a_newcomer_that_went_before_there_was_a_state() -> None:
    soon = []  # a leader that evaluates listens to nothing else meanwhile
    sponsoring = Sponsoring(
        threading.Condition(),
        tell=soon.append,
        state=lambda: [b"state"],
        stands=lambda: Standpoint(version=7, round=1),
        step_bytes=4,
    )
    here, there = socket.socketpair()
    there.close()
    with here:
        sponsoring.serve(here, 9)
    for call in soon:
        call()
    assert soon
    assert not sponsoring.active
