"""What a sponsor keeps for newcomers, and for how long."""

from __future__ import annotations

from elasticdl.collective.feed import Feed
from elasticdl.collective.messages import HandOver, Snapshot


def step(number: int) -> HandOver:
    return HandOver(number, b"plan", ("sum",))


def listened(*steps: int, most: int = 8) -> Feed:
    """Return a feed in which newcomer 9 listens, by key 1, since version 5."""
    feed = Feed(most)
    assert feed.needs_copy
    feed.open(1, 9, Snapshot(5, "all"))
    for number in steps:
        feed.made(step(number), now=0.0)
    return feed


def test_a_newcomer_gets_the_copy_and_then_each_step() -> None:
    feed = listened(5, 6)
    assert feed.next(1) == Snapshot(5, "all")
    feed.has(1, 5)
    assert feed.next(1) == step(5)
    feed.has(1, 6)
    assert feed.next(1) == step(6)
    assert feed.lag(6) == 1
    feed.has(1, 7)
    assert feed.next(1) is None


def test_nothing_is_kept_while_nobody_listens() -> None:
    feed = Feed(8)
    feed.made(step(0), now=0.0)
    assert not feed.active
    assert feed.since(0) is None


def test_what_a_newcomer_has_not_is_kept_until_it_is_a_member() -> None:
    feed = listened(5, 6)
    feed.has(1, 6)
    feed.ended(1, now=0.0)  # its first round begins
    feed.made(step(7), now=1.0)
    assert feed.since(6) == [step(6), step(7)]
    assert feed.since(5) is None  # step 5 went when the newcomer had it
    feed.joined((0, 9))
    assert not feed.active
    assert feed.since(6) is None


def test_it_is_over_for_who_has_all_and_is_in_the_round_that_was_entered() -> None:
    feed = listened(5)
    feed.has(1, 5)
    feed.entered((0, 9))
    assert not feed.over(1)
    feed.has(1, 6)
    assert feed.over(1)
    feed.open(2, 4, None)
    assert not feed.over(2)


def test_it_is_over_for_who_begins_to_listen_in_the_round_that_it_is_in() -> None:
    feed = Feed(8)
    feed.entered((0, 9))
    feed.open(1, 9, Snapshot(5, "all"))
    feed.has(1, 5)
    assert feed.over(1)


def test_one_that_went_away_is_forgotten_after_a_while() -> None:
    feed = listened(5)
    feed.has(1, 5)
    feed.ended(1, now=0.0)
    feed.made(step(6), now=9.0)
    assert feed.active
    feed.made(step(7), now=11.0)
    assert not feed.active


def test_one_that_is_too_far_behind_is_let_go() -> None:
    feed = listened(5, 6, most=2)
    assert feed.made(step(7), now=0.0) == [9]
    assert not feed.listens(1)
    assert feed.needs_copy


def test_a_second_newcomer_shares_the_copy_while_it_is_there() -> None:
    feed = listened(5)
    assert not feed.needs_copy
    feed.open(2, 10, None)
    feed.has(1, 6)
    assert feed.next(2) == Snapshot(5, "all")
    feed.has(2, 5)
    assert feed.next(2) == step(5)
    assert feed.needs_copy  # both have it: the next one gets a newer one


def test_a_copy_for_a_later_newcomer_keeps_what_the_first_one_lacks() -> None:
    feed = listened(5, 6)
    feed.has(1, 5)
    feed.open(2, 10, Snapshot(7, "newer"))
    feed.made(step(7), now=0.0)
    assert feed.next(1) == step(5)
    feed.has(2, 7)
    assert feed.next(2) == step(7)
    assert feed.since(5) == [step(5), step(6), step(7)]


def test_a_newcomer_that_connects_again_begins_anew() -> None:
    feed = listened(5)
    feed.has(1, 6)
    assert feed.needs_copy
    feed.open(2, 9, Snapshot(6, "newer"))
    assert not feed.listens(1)
    feed.ended(1, now=0.0)
    assert feed.next(2) == Snapshot(6, "newer")
