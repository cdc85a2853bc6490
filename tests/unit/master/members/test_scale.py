"""Priorities and who comes or goes."""

import pytest
from elasticdl.master.members.scale import Resize, Seat, resize, split_priorities


@pytest.mark.parametrize(
    ("share", "count", "expected"),
    [
        ("0.5", 4, ["high", "low", "low", "high"]),
        ("0.5", 3, ["high", "low", "high"]),
        ("0.25", 4, ["high", "low", "low", "low"]),
        ("0", 2, ["low", "low"]),
        ("1", 2, ["high", "high"]),
        ("0.1", 1, ["high"]),
        ("0.5", 0, []),
        ("batch", 2, ["batch", "batch"]),
        ("low", 1, ["low"]),
        ("infinity", 1, ["infinity"]),  # names of classes, though numbers elsewhere
        ("nan", 2, ["nan", "nan"]),
        ("1e5", 1, ["1e5"]),
    ],
)
def test_a_share_is_spread_over_both_ends(
    share: str, count: int, expected: list[str]
) -> None:
    assert split_priorities(share, count) == expected


def seats(*priorities: str) -> list[Seat]:
    return [Seat(i, p, running=True) for i, p in enumerate(priorities)]


def test_missing_workers_take_the_priorities_that_lack() -> None:
    change = resize(seats("high", "low"), wanted=4, priority="0.5")
    assert change == Resize(start=("low", "high"))


def test_too_many_workers_leave_low_and_newest_first() -> None:
    change = resize(seats("high", "low", "low", "high"), wanted=2, priority="0.5")
    assert change == Resize(drain=(2, 1))


def test_workers_that_only_wait_leave_first() -> None:
    waiting = [*seats("low", "low"), Seat(2, "high", running=False)]
    assert resize(waiting, wanted=2, priority="0.5") == Resize(drain=(2,))


def test_nothing_changes_when_the_number_is_right() -> None:
    assert resize(seats("low"), wanted=1, priority="low") == Resize()


def test_seats_of_an_unknown_priority_count_too() -> None:
    change = resize(seats("batch"), wanted=2, priority="1")
    assert change == Resize(start=("high",))


def test_who_has_yet_to_get_the_model_from_others_leaves_before_who_has_it() -> None:
    newcomer = Seat(0, "high", running=True)
    oldest = Seat(1, "low", running=True, has_state=True)
    change = resize([newcomer, oldest], wanted=1, priority="0.5")
    assert change == Resize(drain=(0,))


def test_who_leaves_by_itself_is_one_of_those_that_are_too_many() -> None:
    leaving = Seat(0, "high", running=True, has_state=True, leaves=True)
    heir = Seat(1, "low", running=True)
    change = resize([leaving, heir], wanted=1, priority="0.5", leave=(1,))
    assert change == Resize(drain=(0,))
