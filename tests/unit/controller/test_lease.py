"""Who decides: a free Lease is taken, a living holder's is not."""

import asyncio
import logging

import pytest
from elasticdl.controller.lease import (
    Leadership,
    LeaseTimes,
    Move,
    Seen,
    next_look,
    next_move,
)

from tests.unit.scripted_server import Server, until


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


def test_a_holder_whose_lease_is_another_one_looks_at_it_at_once():
    times = LeaseTimes()
    assert next_look(times, leads=True, wrong=True) == 0.0
    assert next_look(times, leads=True, wrong=False) == times.every
    assert next_look(times, leads=False, wrong=True) == times.every / 2


def test_a_server_that_does_not_answer_is_told_in_words(caplog):
    server, api = Server(), None
    server.scripts["/apis/coordination.k8s.io/v1/namespaces/ops/leases/one"] = [
        (200, [])  # an answer that has no end
    ]

    async def story() -> None:
        nonlocal api
        api = server.connection()
        times = LeaseTimes(lasts=0.2, every=0.05, fence=0.1)
        running = asyncio.create_task(Leadership(api, "ops", "one", "me", times).run())
        try:
            await asyncio.wait_for(until(lambda: bool(caplog.messages)), 8.0)
        finally:
            server.over.set()  # the call in its thread ends
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            await api.close()

    try:
        with caplog.at_level(logging.INFO, logger="elasticdl.controller.lease"):
            asyncio.run(story())
    finally:
        server.close()
    assert caplog.messages[0] == "the Lease one: no answer in time"
