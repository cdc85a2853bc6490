"""Members of a group whose network is slow, loses packets or parts them.

Members are real processes in network namespaces of their own; the master reaches all.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from tests.integration.collective.network import Network, impossible
from tests.integration.collective.playing_master import PlayedMaster, settle

MEGABYTE = 250_000  # floats


@pytest.fixture(scope="module")
def possible() -> None:
    """Skip where there can be no namespaces."""
    if why := impossible():
        pytest.skip(why)


@pytest.fixture
def network(possible) -> Iterator[Network]:
    with Network() as made:
        yield made


def three(master: PlayedMaster) -> list[int]:
    """Start three members; return them, the oldest first, when they make steps."""
    for _ in range(3):
        master.start()
    master.run_until(lambda: master.formed and len(master.formed.round.members) == 3)
    settle(master)
    return list(master.formed.round.members)


def seconds_until_without(master: PlayedMaster, gone: int) -> float:
    """Return how long it takes until the others make steps without this member."""
    began = time.monotonic()
    master.run_until(lambda: gone not in master.formed.round.members)
    settle(master)
    return time.monotonic() - began


def test_lost_packets_make_a_group_slower_and_never_wrong(network) -> None:
    with PlayedMaster(MEGABYTE, network=network) as master:
        members = three(master)
        for member in members:
            network.lossy(member, percent=2)
        settle(master, more=20)
        master.check()
        assert master.formed.round.members == tuple(members)


def test_a_slow_line_makes_a_group_slower_and_never_wrong(network) -> None:
    with PlayedMaster(MEGABYTE, network=network) as master:
        members = three(master)
        network.slow(members[1], megabits=50)
        settle(master, more=10)
        master.check()
        assert master.formed.round.members == tuple(members)


def test_two_that_do_not_reach_each_other_part_and_the_younger_comes_back(
    network,
) -> None:
    with PlayedMaster(MEGABYTE, network=network) as master:
        oldest, _, youngest = three(master)
        network.part(oldest, youngest)
        print(f"parted: {seconds_until_without(master, youngest):.1f} s")
        network.heal()
        master.run_until(lambda: len(master.formed.round.members) == 3, seconds=150.0)
        settle(master)
        master.check()


def test_a_member_whose_line_is_down_is_left_out_and_comes_back(network) -> None:
    with PlayedMaster(MEGABYTE, network=network) as master:
        oldest = three(master)[0]
        network.down(oldest)
        print(f"down: {seconds_until_without(master, oldest):.1f} s")
        network.up(oldest)
        master.run_until(lambda: len(master.formed.round.members) == 3, seconds=150.0)
        settle(master)
        master.check()
