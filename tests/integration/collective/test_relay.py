"""Connections that are late, or end within a greeting, a head or a gradient."""

from __future__ import annotations

import pytest

from tests.integration.collective.playing_master import PlayedMaster, settle

MEGABYTE = 250_000  # floats
GREETING = 54 + 32  # bytes, from the one that connects
ANSWER = 64  # bytes, to a greeting
HEAD = 34
SOAK = pytest.mark.soak


def full(master: PlayedMaster, members: int) -> None:
    master.run_until(
        lambda: master.formed and len(master.formed.round.members) == members
    )
    settle(master)


def test_twenty_milliseconds_make_a_group_slower_and_never_wrong() -> None:
    with PlayedMaster(MEGABYTE, delay=0.02) as master:
        for _ in range(3):
            master.start()
        full(master, 3)
        members = master.formed.round.members
        settle(master, more=20)
        master.check()
        assert master.formed.round.members == members


def copied(master: PlayedMaster, index: int) -> bool:
    standing = master.processes[index].standing
    return standing is not None and standing.copied


@pytest.mark.parametrize(
    ("after", "times"),
    [
        pytest.param(ANSWER - 1, 1, marks=SOAK),
        pytest.param(ANSWER + 5, 1, marks=SOAK),
        (ANSWER + 900_000, 1),
        (ANSWER + 900_000, 3),  # then the newcomer gives up copying
    ],
)
def test_a_copy_that_is_cut_at_any_byte_begins_again_and_then_comes_in_the_round(
    after: int, times: int
) -> None:
    with PlayedMaster(MEGABYTE, delay=0.0) as master:
        first = master.start()
        full(master, 1)
        relay = master.relays[first]
        master.admits = False
        new = master.start()
        for cut in range(1, times + 1):
            relay.cut_next(after, answers=True)
            master.run_until(lambda n=cut: relay.cuts == n)
        master.run_until(lambda: copied(master, new))
        if times == 1:
            master.run_until(lambda: master.followed[new])
        master.admits = True
        full(master, 2)
        master.check()


@pytest.mark.parametrize(
    "after",
    [
        pytest.param(GREETING - 1, marks=SOAK),
        # In the head of the first frame.
        pytest.param(GREETING + 1, marks=SOAK),
        pytest.param(GREETING + HEAD + 5, marks=SOAK),
        GREETING + 2000,  # in a gradient, or a state
        pytest.param(GREETING + 3_000_000, marks=SOAK),
    ],
)
def test_a_connection_that_is_cut_at_any_byte_leaves_all_members_equal(
    after: int,
) -> None:
    """The next round has the same members, unless one of them was cut off twice."""
    with PlayedMaster(MEGABYTE, delay=0.0) as master:
        members = [master.start() for _ in range(2)]
        full(master, 2)
        for victim in members:
            relay = master.relays[victim]
            master.admits = False
            new = master.start()
            master.run_until(lambda n=new: copied(master, n))
            relay.cut_next(after)
            before = relay.cuts
            master.admits = True  # a round in which all connect anew
            master.run_until(lambda r=relay, n=before: r.cuts > n)
            settle(master)
        full(master, 4)
        master.check()
        assert not master.stateless
