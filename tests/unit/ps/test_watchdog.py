"""A PS that hangs is found, one that works for long is not."""

import pytest
from elasticdl.ps.restore import PsPlace, ShardStore
from elasticdl.ps.server import ParameterServer
from elasticdl.ps.watchdog import HangError, check
from elasticdl.running import RunningClock


class Clock:
    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def server(clock):
    return made(clock)


def made(clock):
    place = PsPlace(0, 1)
    return ParameterServer(
        place,
        new_updater=lambda *_: None,
        store=ShardStore(place, common_version=False),
        clock=clock,
    )


def test_a_ps_whose_lock_is_never_given_back_ends_with_a_sentence(server, clock):
    with server._locked():
        clock.now = 59.0
        check(server)
        clock.now = 61.0
        with pytest.raises(HangError, match="has been held for 61 s"):
            check(server)
    check(server)


def test_a_ps_that_was_frozen_while_its_lock_was_held_is_no_hung_one():
    now = Clock()
    clock = RunningClock(now)
    frozen = made(clock)

    def after(seconds):
        for _ in range(seconds):
            now.now += 1.0
            clock()
        check(frozen)

    with frozen._locked():
        now.now += 900.0
        after(57)
        with pytest.raises(HangError, match="has been held for 61 s"):
            after(2)


class Large:
    """A shard of 100 GB that is copied on a machine that swaps."""

    held_seconds = 5000.0
    nbytes = 100 * 10**9


def test_a_long_copy_of_a_large_shard_is_not_a_hang():
    check(Large())
    small = Large()
    small.nbytes = 10**9
    with pytest.raises(HangError):
        check(small)
