"""Whose texts are read first."""

from elasticdl.controller.unread import FORGOTTEN_SECONDS, Unread
from elasticdl.planner.view import JobKey


def key(name: str) -> JobKey:
    return JobKey(*name.split("/"))


def order(unread: Unread, seconds: float, now: float = 0.0) -> list[str]:
    """Return the names in the order in which they are read, each for so long."""
    found = []
    while (item := unread.next(now)) is not None:
        found.append(item["name"])
        unread.took(key(item["name"]), seconds)
    return found


def of(*lengths: tuple[str, int]) -> Unread:
    unread = Unread()
    for name, length in lengths:
        unread.add(key(name), {"name": name}, length)
    return unread


def test_of_one_namespace_the_shortest_is_read_first() -> None:
    unread = of(("ml/long", 500_000), ("ml/short", 900), ("ml/middle", 9_000))
    assert order(unread, 1.0) == ["ml/short", "ml/middle", "ml/long"]


def test_nobody_waits_for_all_texts_of_another_namespace() -> None:
    unread = of(*((f"a/{i}", 900) for i in range(5)), ("b/long", 500_000))
    assert order(unread, 0.1)[:3] == ["a/0", "b/long", "a/1"]


def test_who_came_with_many_goes_first_again_after_a_while() -> None:
    unread = of(("a/0", 900))
    order(unread, 30.0)
    unread.add(key("a/1"), {"name": "a/1"}, 900)
    unread.add(key("b/0"), {"name": "b/0"}, 901)
    assert unread.next(1.0) == {"name": "b/0"}
    unread.add(key("b/0"), {"name": "b/0"}, 901)
    assert unread.next(FORGOTTEN_SECONDS) == {"name": "a/1"}


def test_a_job_that_was_edited_again_is_read_once() -> None:
    unread = of(("ml/one", 900))
    unread.add(key("ml/one"), {"name": "newer"}, 900)
    assert unread.next(0.0) == {"name": "newer"}
    assert unread.next(0.0) is None


def test_what_is_gone_is_not_read() -> None:
    unread = of(("ml/one", 900))
    unread.drop(key("ml/one"))
    assert unread.next(0.0) is None
