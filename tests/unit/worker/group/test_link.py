"""A member knows the newest rounds that it was told; what is older is over."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from elasticdl.collective.encoding import GradientForm
from elasticdl.collective.group import Group
from elasticdl.collective.links import Door
from elasticdl.collective.messages import Begin
from elasticdl.job.heartbeats import GroupMember, GroupRound
from elasticdl.worker.group.link import GroupLink
from elasticdl.worker.group.measures import Measures

ME = 3


class Nothing:
    """A member without a plan and a state."""

    def plan(self, step: int) -> bytes:
        del step
        return b""

    def state(self) -> list[memoryview]:
        return [memoryview(b"")]


@pytest.fixture
def group() -> Iterator[Group]:
    made = Group(
        ME,
        Nothing(),
        form=GradientForm((4,)),
        door=Door("token"),
        most_state_bytes=1 << 10,
    )
    yield made
    made.close()


def alone(number: int) -> GroupRound:
    return GroupRound(number, (GroupMember(ME, "127.0.0.1:1", number),), begins=True)


def test_a_round_that_stands_may_begin_to_wait_for_members_and_cease_to(group) -> None:
    link = GroupLink(group, ME, "127.0.0.1:1", Measures(lambda: 0.0, lambda: 0))
    said = []
    for number, waits in ((1, False), (1, True), (1, False), (2, True), (1, False)):
        link.told(replace(alone(number), waits=waits))
        said.append(link.waits)
    assert said == [False, True, False, True, True]  # the last one is an old word


def test_a_begin_that_comes_after_many_newer_rounds_is_of_none_that_is_known(
    group,
) -> None:
    """Its round named a checkpoint; without it there is nothing to begin with."""
    link = GroupLink(group, ME, "127.0.0.1:1", Measures(lambda: 0.0, lambda: 0))
    link.told(alone(1))
    order = group.next(60)
    assert order == Begin(1)
    for number in range(2, 20):
        link.told(alone(number))
    assert link.round(1) is None
    assert link.round(19) == alone(19)
    assert not link.is_newest(1)
    # What the loop does with it: the round is given up, and the newest one begins.
    group.not_begun()
    newest = group.next(60)
    while newest != Begin(19):
        assert isinstance(newest, Begin)
        group.not_begun()
        newest = group.next(60)


def test_a_worker_that_leaves_hears_that_it_may_go_and_copies_nothing(group) -> None:
    """A round without it is no reason to begin as a newcomer."""
    link = GroupLink(group, ME, "127.0.0.1:1", Measures(lambda: 0.0, lambda: 0))
    link.told(alone(1))
    assert group.next(60) == Begin(1)
    group.began()
    assert not link.report().leaves
    link.leave(lambda: 7)
    link.told(replace(alone(1), stays=True))
    assert link.stays
    assert not link.goes
    other = GroupMember(ME + 1, "127.0.0.1:2", 2)
    link.told(replace(alone(2), members=(other,), goes=True))
    assert link.goes
    said = link.report()
    assert (said.leaves, said.version, said.round) == (True, 7, 1)
    assert group.version is not None  # a newcomer's state would be void


def test_a_worker_without_the_groups_state_leaves_with_none(group) -> None:
    """Else others would be let go, for what it has copied only in part."""
    link = GroupLink(group, ME, "127.0.0.1:1", Measures(lambda: 0.0, lambda: 0))
    link.told(alone(1))
    assert group.next(60) == Begin(1)  # it has not begun yet
    link.leave(lambda: 7)
    said = link.report()
    assert (said.leaves, said.version) == (True, 0)


def test_a_round_before_that_breaks_later_does_not_hide_that_the_newest_cannot_begin(
    group,
) -> None:
    """The master forms the next round by a word about the newest one alone."""
    link = GroupLink(group, ME, "127.0.0.1:1", Measures(lambda: 0.0, lambda: 0))
    link.broke(3, 8)
    link.broke(2, 9)
    said = link.report()
    assert (said.broken, said.lost, said.stateless) == (3, 8, False)
    link.stateless(2)
    assert link.report() == said
    link.stateless(3)
    assert link.report().stateless
