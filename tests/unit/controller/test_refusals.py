"""Grants that were refused: tried less and less often, and told of once."""

from elasticdl.controller.refusals import LONGEST_SECONDS, Refusals
from elasticdl.controller.writing import Write
from elasticdl.job.grant import Grant
from elasticdl.planner.view import JobKey

KEY = JobKey("ml", "digits")


def told_in_an_hour(refusals: Refusals) -> list[bool]:
    """Return what each refusal of an hour is, of a plan each five seconds."""
    return [
        refusals.refused(KEY, "uid", "forbidden", now)
        for now in map(float, range(0, 3600, 5))
        if refusals.may_try(KEY, "uid", now)
    ]


def test_what_is_refused_for_good_is_told_once_and_tried_less_and_less_often() -> None:
    told = told_in_an_hour(Refusals(5.0))
    assert sum(told) == 1
    assert len(told) < 20


def test_another_refusal_is_told_and_one_that_was_taken_begins_anew() -> None:
    refusals = Refusals(5.0)
    assert refusals.refused(KEY, "uid", "forbidden", 0.0)
    assert refusals.refused(KEY, "uid", "denied by a webhook", 5.0)
    refusals.taken(KEY)
    assert refusals.may_try(KEY, "uid", 6.0)
    assert refusals.refused(KEY, "uid", "denied by a webhook", 6.0)
    assert refusals.may_try(KEY, "uid", 11.0)


def test_a_job_that_was_made_anew_is_tried_at_once() -> None:
    refusals = Refusals(5.0)
    refusals.refused(KEY, "uid", "conflict", 0.0)
    assert not refusals.may_try(KEY, "uid", 1.0)
    assert refusals.may_try(KEY, "another uid", 1.0)
    refusals.keep(())
    assert refusals.may_try(KEY, "uid", 1.0)


def test_a_grant_is_tried_again_within_minutes_however_often_it_was_refused() -> None:
    refusals = Refusals(5.0)
    told_in_an_hour(refusals)
    assert refusals.may_try(KEY, "uid", 3600 + LONGEST_SECONDS)


def test_what_was_refused_before_is_tried_after_the_others() -> None:
    refusals, other = Refusals(5.0), JobKey("ml", "other")
    due = [Write(key, "uid", Grant(1), "changed") for key in (KEY, other)]
    assert [one.key for one in refusals.in_order(due, 0.0)] == [KEY, other]
    refusals.refused(KEY, "uid", "no answer", 0.0)
    assert [one.key for one in refusals.in_order(due, 1.0)] == [other]
    assert [one.key for one in refusals.in_order(due, 5.0)] == [other, KEY]


def test_a_job_refuses_its_grants_after_three_of_them_until_the_next_try() -> None:
    refusals = Refusals(5.0)
    for now in (0.0, 5.0):
        refusals.refused(KEY, "uid", "forbidden", now)
        assert not refusals.stands(KEY, "uid", now)
    refusals.refused(KEY, "uid", "forbidden", 15.0)
    assert refusals.stands(KEY, "uid", 34.0)
    assert not refusals.stands(KEY, "another uid", 34.0)
    assert not refusals.stands(KEY, "uid", 35.0)
    refusals.taken(KEY)
    assert not refusals.stands(KEY, "uid", 16.0)
