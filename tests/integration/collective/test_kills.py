"""Members killed and frozen at random moments, in real processes without TensorFlow."""

from __future__ import annotations

import random
import time

import pytest

from tests.integration.collective.playing_master import (
    PlayedMaster,
    kill_at_random,
    settle,
)

MEGABYTE = 250_000  # floats


@pytest.mark.parametrize("lends", [False, True])
@pytest.mark.parametrize(
    ("size", "kills"),
    [
        pytest.param(MEGABYTE, 12, id="1 MB", marks=pytest.mark.soak),
        pytest.param(10 * MEGABYTE, 5, id="10 MB"),
    ],
)
def test_members_killed_at_random_moments_leave_the_others_equal(
    size: int, kills: int, lends: bool
) -> None:
    assert len(kill_at_random(size, kills, seed=size, lends=lends)) == kills


def test_a_member_killed_while_it_joins_leaves_the_others_equal() -> None:
    rng = random.Random(7)
    with PlayedMaster(10 * MEGABYTE) as master:
        for _ in range(2):
            master.start()
        master.run_until(
            lambda: master.formed and len(master.formed.round.members) == 2
        )
        settle(master)
        for _ in range(4):
            new = master.start()
            master.run_until(lambda n=new: n in master.formed.round.members)
            moment = time.monotonic() + rng.random() * 0.05
            master.run_until(lambda at=moment: time.monotonic() >= at)
            master.kill(rng.choice((new, master.formed.round.members[0])))
            master.start()
            settle(master)
        master.check()


def test_a_newcomer_follows_the_steps_before_it_is_a_member() -> None:
    with PlayedMaster(10 * MEGABYTE) as master:
        first = master.start()
        master.run_until(lambda: master.formed is not None)
        settle(master)
        new = master.start()
        master.run_until(lambda: master.followed[new])
        assert master.formed.round.members == (first,)
        master.run_until(lambda: new in master.formed.round.members)
        settle(master)
        third = master.start()
        master.run_until(lambda: third in master.formed.round.members)
        settle(master)
        master.check()


@pytest.mark.parametrize(
    "victim",
    ["newcomer", "sponsor", pytest.param("other", marks=pytest.mark.soak)],
)
def test_members_killed_while_one_copies_the_state_leave_the_others_equal(
    victim: str,
) -> None:
    rng = random.Random(11)
    with PlayedMaster(10 * MEGABYTE) as master:
        for _ in range(3):
            master.start()
        master.run_until(
            lambda: master.formed and len(master.formed.round.members) == 3
        )
        settle(master)
        for _ in range(3):
            new = master.start()
            master.run_until(lambda n=new: n in master.following)
            moment = time.monotonic() + rng.random() * 0.1
            master.run_until(lambda at=moment: time.monotonic() >= at)
            sponsor, other, *_ = master.formed.round.members
            victims = {"newcomer": new, "sponsor": sponsor, "other": other}
            master.kill(victims[victim])
            settle(master)
            master.start()
            full = lambda: len(master.formed.round.members) >= 3  # noqa: E731
            master.run_until(full)
            settle(master)
        master.check()


@pytest.mark.parametrize("lends", [False, True])
def test_the_others_go_on_without_a_frozen_member_which_comes_back_as_a_newcomer(
    lends: bool,
) -> None:
    with PlayedMaster(MEGABYTE, lends=lends) as master:
        indexes = [master.start() for _ in range(3)]
        master.run_until(
            lambda: master.formed and len(master.formed.round.members) == 3
        )
        settle(master)
        frozen = indexes[0]
        master.freeze(frozen)
        master.silence(frozen)  # as missing heartbeats do
        settle(master)
        assert frozen not in master.formed.round.members
        master.thaw(frozen)
        master.run_until(lambda: frozen in master.formed.round.members)
        settle(master)
        master.check()


def test_one_member_is_left_and_others_join_it() -> None:
    with PlayedMaster(MEGABYTE) as master:
        indexes = [master.start() for _ in range(4)]
        master.run_until(
            lambda: master.formed and len(master.formed.round.members) == 4
        )
        settle(master)
        for index in indexes[1:]:
            master.kill(index)
        master.run_until(lambda: master.formed.round.members == (indexes[0],))
        settle(master)
        for _ in range(3):
            master.start()
        master.run_until(lambda: len(master.formed.round.members) == 4)
        settle(master)
        master.check()
