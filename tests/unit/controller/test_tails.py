"""Jobs at their end: whose status is looked at, and when."""

from elasticdl.controller.tails import LAST_SECONDS, Tails
from elasticdl.planner.view import JobKey

KEY = JobKey("ml", "digits")
SHORT = {KEY: "uid"}


def test_a_job_that_lacks_workers_for_a_while_is_looked_at_and_no_other() -> None:
    tails = Tails(5.0)
    assert not tails.due(SHORT, 0.0)
    assert not tails.due({}, 4.0)  # its master has made them
    assert not tails.due(SHORT, 5.0)
    assert tails.due(SHORT, 10.0) == [KEY]
    assert tails.told(KEY, 3, 10.0)
    assert tails.left(KEY, "uid") == 3
    assert tails.left(KEY, "another uid") is None


def test_what_is_known_lasts_until_the_status_says_otherwise() -> None:
    tails = Tails(5.0)
    tails.due(SHORT, 0.0)
    tails.told(KEY, 3, 5.0)
    assert tails.due({}, 10.0) == [KEY]  # though it has all that it was granted
    assert not tails.told(KEY, 3, 10.0)
    assert tails.due({}, 15.0) == [KEY]
    assert tails.told(KEY, None, 15.0)
    assert tails.left(KEY, "uid") is None
    assert not tails.due({}, 999.0)


def test_a_job_that_is_stuck_is_looked_at_less_and_less_often() -> None:
    tails, looks = Tails(5.0), 0
    for now in map(float, range(3600)):
        for key in tails.due(SHORT, now):
            looks += 1
            tails.told(key, None, now)
    assert looks <= 3600 / LAST_SECONDS + 10


def test_another_job_of_the_name_begins_anew() -> None:
    tails = Tails(5.0)
    tails.due(SHORT, 0.0)
    tails.told(KEY, 3, 5.0)
    assert not tails.due({KEY: "another uid"}, 6.0)
    tails.forget(KEY)
    assert not tails.due({}, 99.0)
