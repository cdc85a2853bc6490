"""Who decides: a free Lease is taken, a living holder's is not."""

import pytest
from elasticdl.controller.lease import LeaseTimes, Move, Seen, next_move


def seen(holder, *, since=0.0):
    return Seen(holder, "1", since, lasts=15.0)


@pytest.mark.parametrize(
    ("before", "now", "move"),
    [
        (None, 0.0, Move.MAKE),
        (seen("me"), 100.0, Move.RENEW),
        (seen(""), 0.1, Move.TAKE),
        (seen("other"), 14.9, Move.WAIT),
        (seen("other"), 15.1, Move.TAKE),
        (seen("other", since=10.0), 20.0, Move.WAIT),
    ],
)
def test_moves(before, now, move):
    assert next_move(before, "me", now=now) is move


def test_a_holder_stops_writing_before_anybody_may_take_its_lease():
    times = LeaseTimes()
    assert times.every < times.fence < times.lasts
