"""Who is in the next round, and why."""

from __future__ import annotations

from dataclasses import replace

from elasticdl.master.model.rendezvous import (
    JOIN_SECONDS,
    WORDS_SECONDS,
    Formed,
    Standing,
    decide,
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


def test_a_broken_round_waits_for_the_word_of_the_others() -> None:
    said = [broken(OLD), MIDDLE, YOUNG]
    assert after(first(), said, seconds=10 + WORDS_SECONDS / 2) is None


def test_who_says_nothing_of_a_broken_round_is_out_and_comes_back_as_a_newcomer() -> (
    None
):
    said = [broken(OLD), broken(MIDDLE), YOUNG]
    formed = after(first(), said, seconds=10 + WORDS_SECONDS)
    assert formed is not None
    assert formed.round.members == (4, 2)
    assert formed.why == "worker-7 did not answer the others"
    back = after(
        formed, [OLD, MIDDLE, YOUNG], seconds=10 + WORDS_SECONDS + JOIN_SECONDS
    )
    assert back is not None
    assert back.round.members == (4, 2, 7)
    assert back.round.since == (1, 1, 3)


def test_where_all_lost_a_connection_and_nobody_is_out_all_try_again() -> None:
    said = [broken(OLD, lost=2), broken(MIDDLE, lost=4), broken(YOUNG)]
    formed = after(first(), said)
    assert formed is not None
    assert formed.round.members == (4, 2, 7)
    assert formed.round.since == (1, 1, 1)
    assert formed.why == "a connection broke"


def test_of_two_that_lose_each_other_twice_the_younger_is_out() -> None:
    said = [broken(OLD, lost=2), broken(MIDDLE, lost=4), broken(YOUNG)]
    again = after(first(), said)
    assert again is not None
    said = [replace(one, broken=2, broken_at=NOW + 11) for one in said]
    formed = after(again, said, seconds=11)
    assert formed is not None
    assert formed.round.members == (4, 7)
    assert "worker-2, worker-4 lost each other twice" in formed.why


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
