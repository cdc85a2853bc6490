"""Who is in the next round, and why."""

from __future__ import annotations

from dataclasses import replace

import pytest
from elasticdl.job.words import RoundCause
from elasticdl.master.model.group.rendezvous import (
    JOIN_SECONDS,
    WORDS_SECONDS,
    Formed,
    Present,
    Standing,
    decide,
    is_last,
    may_go,
    waits,
)

NOW = 1000.0
OLD, MIDDLE, YOUNG = Standing(4, 1.0), Standing(2, 2.0), Standing(7, 3.0)
ALL = [OLD, MIDDLE, YOUNG]


def first(standings=tuple(ALL)) -> Formed:
    formed = decide(None, standings, begins=True, now=NOW)
    assert formed is not None
    return formed


def broken(one: Standing, *, lost: int = -1, at: float = NOW + 10, number: int = 1):
    return replace(one, broken=number, broken_at=at, lost=lost)


def after(formed: Formed, standings, *, seconds: float = 10.0) -> Formed | None:
    return decide(formed, standings, begins=False, now=NOW + seconds)


def test_the_first_round_has_all_who_are_ready_the_oldest_first() -> None:
    formed = first()
    assert formed.round.members == (4, 2, 7)
    assert formed.round.since == (1, 1, 1)
    assert formed.round.begins
    assert formed.why == "worker-4, worker-2, worker-7 joined"


def test_without_anybody_ready_there_is_no_round() -> None:
    assert decide(None, [], begins=True, now=NOW) is None
    assert after(first(), []) is None


def test_a_round_stands_while_nothing_happens() -> None:
    assert after(first(), ALL) is None


def test_who_ended_is_out_at_once() -> None:
    formed = after(first(), [OLD, YOUNG], seconds=0.1)
    assert formed is not None
    assert formed.round.members == (4, 7)
    assert formed.round.number == 2
    assert formed.why == "worker-2 ended"


def test_when_the_oldest_ended_the_next_one_leads() -> None:
    formed = after(first(), [MIDDLE, YOUNG])
    assert formed is not None
    assert formed.round.leader == 2


def test_newcomers_are_let_in_together_and_not_too_often() -> None:
    alone = first([OLD])
    assert after(alone, ALL, seconds=JOIN_SECONDS / 2) is None
    formed = after(alone, ALL, seconds=JOIN_SECONDS)
    assert formed is not None
    assert formed.round.members == (4, 2, 7)
    assert formed.round.since == (1, 2, 2)


def test_a_newcomer_comes_in_with_a_round_that_is_due_anyway() -> None:
    two = first([OLD, MIDDLE])
    formed = after(two, [OLD, YOUNG], seconds=0.1)
    assert formed is not None
    assert formed.round.members == (4, 7)
    assert formed.why == "worker-2 ended; worker-7 joined"


def test_who_has_other_values_than_the_leader_gets_them_in_a_new_round() -> None:
    formed = first()
    before = {4: 1, 2: 1, 7: 1}
    following = after(formed, [OLD, replace(MIDDLE, differs=True), YOUNG])
    assert following is not None
    assert following.round.members == formed.round.members
    since = dict(zip(following.round.members, following.round.since, strict=True))
    assert since == {**before, 2: 2}
    assert following.cause is RoundCause.DIFFERED
    assert "worker-2 had other values than the leader" in following.why


def test_the_leader_cannot_differ_from_itself_nor_one_that_is_outside() -> None:
    formed = first((OLD, MIDDLE))
    differs = [replace(OLD, differs=True), MIDDLE, replace(YOUNG, differs=True)]
    following = after(formed, differs)
    assert following is not None
    assert following.cause is RoundCause.JOINED
    assert following.round.since == (1, 1, 2)


COPYING = replace(YOUNG, copied=False)


def test_a_newcomer_that_copies_the_state_is_let_in_when_it_is_nearly_level() -> None:
    formed = first((OLD, MIDDLE))
    assert after(formed, [OLD, MIDDLE, COPYING]) is None
    following = after(formed, [OLD, MIDDLE, YOUNG])
    assert following is not None
    assert following.round.members == (4, 2, 7)


def test_a_newcomer_without_a_copy_is_not_let_in_with_a_round_that_is_due() -> None:
    following = after(first((OLD, MIDDLE)), [OLD, COPYING])
    assert following is not None
    assert following.round.members == (4,)


@pytest.mark.parametrize("left", [(), (OLD,)], ids=["nobody", "fewer than worker.min"])
def test_a_newcomer_without_a_copy_is_let_in_where_too_few_are_left(
    left: tuple[Standing, ...],
) -> None:
    formed = first((OLD, MIDDLE))
    following = decide(formed, [*left, COPYING], begins=False, now=NOW + 10, least=2)
    assert following is not None
    assert following.round.members == (*(one.worker for one in left), 7)


def test_a_broken_round_waits_for_the_word_of_the_others() -> None:
    said = [broken(OLD), MIDDLE, YOUNG]
    assert after(first(), said, seconds=10 + WORDS_SECONDS / 2) is None


def test_who_says_nothing_of_a_broken_round_tries_again_with_the_others() -> None:
    said = [broken(OLD), broken(MIDDLE), YOUNG]
    formed = after(first(), said, seconds=10 + WORDS_SECONDS)
    assert formed is not None
    assert formed.round.members == (4, 2, 7)
    assert formed.round.since == (1, 1, 1)
    assert formed.why == "a connection broke"


def test_of_two_that_lose_each_other_the_younger_is_out() -> None:
    # The third one has noticed nothing.
    said = [broken(OLD, lost=2), broken(MIDDLE, lost=4), YOUNG]
    formed = after(first(), said, seconds=10 + WORDS_SECONDS)
    assert formed is not None
    assert formed.round.members == (4, 7)
    assert formed.why == "worker-4, worker-2 lost each other: worker-2 is out"


def test_who_is_cut_off_from_all_others_is_out_though_it_is_the_oldest() -> None:
    said = [broken(OLD, lost=2), broken(MIDDLE, lost=4), broken(YOUNG, lost=4)]
    formed = after(first(), said)
    assert formed is not None
    assert formed.round.members == (2, 7)
    assert formed.why == "worker-4, worker-2 lost each other: worker-4 is out"


def test_a_round_without_one_that_is_out_for_a_lost_connection_waits_for_it() -> None:
    formed = first([OLD, MIDDLE])
    assert not waits(formed, least=2)
    said = [broken(OLD, lost=2), broken(MIDDLE, lost=4)]
    alone = decide(formed, said, begins=False, now=NOW + 10, least=2)
    assert alone is not None
    assert alone.round.members == (4,)
    assert waits(alone, least=2)
    both = decide(alone, [OLD, MIDDLE], begins=False, now=NOW + 20, least=2)
    assert both is not None
    assert both.round.members == (4, 2)
    assert not waits(both, least=2)


def test_a_round_waits_as_soon_as_it_has_too_few_and_lets_in_who_has_no_copy() -> None:
    formed = first([OLD, MIDDLE])
    assert waits(formed, least=3)
    assert decide(formed, [OLD, MIDDLE], begins=False, now=NOW + 9, least=3) is None
    copying = [OLD, MIDDLE, replace(YOUNG, copied=False)]
    three = decide(formed, copying, begins=False, now=NOW + 10, least=3)
    assert three is not None
    assert not waits(three, least=3)


def test_who_is_not_reached_comes_back_after_a_time_that_doubles() -> None:
    formed, now = first([OLD, MIDDLE]), NOW
    times = []
    for _ in range(3):
        number = formed.round.number
        said = [
            broken(OLD, lost=2, at=now, number=number),
            broken(MIDDLE, lost=4, at=now, number=number),
        ]
        formed = decide(formed, said, begins=False, now=now)
        assert formed is not None
        assert formed.round.members == (4,)
        out, now = now, now + 1.0
        while (back := decide(formed, [OLD, MIDDLE], begins=False, now=now)) is None:
            now += 1.0
        assert back.round.members == (4, 2)
        times.append(now - out)
        formed = back
    assert times == [10, 20, 40]


def test_one_that_most_have_lost_twice_in_a_row_is_out() -> None:
    said = [broken(OLD, lost=7), broken(MIDDLE, lost=7), YOUNG]
    again = after(first(), said, seconds=10 + WORDS_SECONDS)
    assert again is not None
    assert again.round.members == (4, 2, 7)
    said = [replace(one, broken=2, broken_at=NOW + 20) for one in said[:2]]
    formed = after(again, [*said, YOUNG], seconds=20 + WORDS_SECONDS)
    assert formed is not None
    assert formed.round.members == (4, 2)
    assert formed.why == "worker-7 is not reached by others"


def test_a_round_that_breaks_long_after_another_one_is_tried_again() -> None:
    said = [broken(OLD, lost=7), broken(MIDDLE, lost=7), YOUNG]
    again = after(first(), said, seconds=10 + WORDS_SECONDS)
    assert again is not None
    said = [replace(one, broken=2, broken_at=NOW + 600) for one in said[:2]]
    formed = after(again, [*said, YOUNG], seconds=600 + WORDS_SECONDS)
    assert formed is not None
    assert formed.round.members == (4, 2, 7)


def test_where_nobody_knows_whom_it_lost_who_says_nothing_twice_is_out() -> None:
    said = [broken(OLD), MIDDLE, YOUNG]
    again = after(first(), said, seconds=10 + WORDS_SECONDS)
    assert again is not None
    said = [replace(OLD, broken=2, broken_at=NOW + 20), MIDDLE, YOUNG]
    formed = after(again, said, seconds=20 + WORDS_SECONDS)
    assert formed is not None
    assert formed.round.members == (4, 2)


def test_words_of_an_older_round_count_for_nothing() -> None:
    again = after(first(), [OLD, YOUNG])
    assert again is not None
    assert after(again, [broken(OLD), broken(YOUNG)], seconds=20) is None


def test_numbers_never_repeat() -> None:
    formed, numbers = first(), []
    for turn in range(5):
        standings = [OLD, MIDDLE] if turn % 2 == 0 else [OLD]
        formed = after(formed, standings, seconds=20.0 * (turn + 1)) or formed
        numbers.append(formed.round.number)
    assert numbers == sorted(set(numbers))


def test_of_members_that_leave_at_the_same_moment_each_goes_but_the_last() -> None:
    one = Present(1, has_state=True, leaves=True)
    two = Present(2, has_state=True, leaves=True)
    assert may_go(1, [one, two], saved=False)
    one = replace(one, let_go=True)
    assert is_last(2, [one, two])
    assert not is_last(1, [one, two])
    assert not may_go(2, [one, two], saved=False)
    assert may_go(2, [one, two], saved=True)


def test_the_last_member_stays_for_a_newcomer_though_its_state_is_saved() -> None:
    last = Present(1, has_state=True, leaves=True)
    newcomer = Present(2, has_state=False)
    assert not may_go(1, [last, newcomer], saved=True)
    assert may_go(1, [last, replace(newcomer, has_state=True)], saved=False)
    # One that leaves, too, is nobody's heir.
    assert may_go(1, [last, replace(newcomer, leaves=True)], saved=True)


def test_who_has_no_state_goes_at_any_time() -> None:
    last = Present(1, has_state=True)
    assert may_go(2, [last, Present(2, has_state=False, leaves=True)], saved=False)
    assert may_go(3, [last], saved=False)
