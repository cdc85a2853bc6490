"""Workers that wait in vain: they are taken back, with a growing pause."""

from dataclasses import replace

from elasticdl.planner.memory import Memory
from elasticdl.planner.view import ClusterView

from tests.unit.planner.build import (
    NOW,
    cluster,
    job,
    leave,
    made,
    node,
    sizes,
    why,
    worker,
    workers,
)

WORDS = "0/1 nodes are available: 1 node didn't match pod affinity rules"


def stuck(since: float, **fields: object) -> ClusterView:
    """Return a job of two workers, of which one finds no node though there is room."""
    one = job("a", 1, 9, 2)
    waits = worker(one, 1, waiting_since=since, waiting_why=WORDS, **fields)
    return cluster(node("n", 8), one, workers(one, n=1), [waits])


def test_a_worker_that_waits_in_vain_is_taken_back_with_the_schedulers_words() -> None:
    first = made(stuck(NOW))
    assert sizes(first) == {"a": 2}
    assert first.again_at == NOW + 5
    found = made(stuck(NOW), first.memory, now=NOW + 5)
    assert sizes(found) == {"a": 1}
    assert leave(found, "a") == (1,)
    assert why(found, "a") == f"a worker waited in vain: {WORDS}"


def test_the_job_does_not_grow_for_a_minute_and_then_by_one() -> None:
    first = made(stuck(NOW))
    found = made(stuck(NOW), first.memory, now=NOW + 5)
    one = job("a", 1, 9, 1)
    calm = cluster(node("n", 8), one, workers(one, n=1))
    during = made(calm, found.memory, now=NOW + 64)
    assert sizes(during) == {"a": 1}
    assert why(during, "a").startswith("waits 60 s before it grows again")
    assert sizes(made(calm, during.memory, now=NOW + 66)) == {"a": 2}


def test_the_pause_doubles_up_to_ten_minutes() -> None:
    memory, now, lengths = Memory(), NOW, []
    for _ in range(6):
        view = stuck(now)
        memory = made(view, memory, now=now).memory
        found = made(view, memory, now=now + 5)
        (pause,) = found.memory.pauses
        lengths.append(pause.seconds)
        memory, now = found.memory, pause.until + 1
    assert lengths == [60, 120, 240, 480, 600, 600]


def test_another_situation_ends_a_long_pause_early() -> None:
    memory, now = Memory(), NOW
    for _ in range(3):
        memory = made(stuck(now), memory, now=now).memory
        memory = made(stuck(now), memory, now=now + 5).memory
        last, now = now + 5, memory.pauses[0].until + 1
    one = job("a", 1, 9, 1)
    same = cluster(node("n", 8), one, workers(one, n=1))
    other = replace(same, nodes=(*same.nodes, node("m", 1)))
    assert sizes(made(same, memory, now=last + 70)) == {"a": 1}
    assert sizes(made(other, memory, now=last + 30)) == {"a": 1}
    assert sizes(made(other, memory, now=last + 70)) == {"a": 2}


def test_a_worker_whose_room_is_not_free_yet_does_not_wait_in_vain() -> None:
    one, two = job("a", 1, 9, 2), job("b", 1, 1, 1)
    going = worker(two, 7, "n", leaving=True)
    waits = worker(one, 1, waiting_since=NOW - 60)
    view = cluster(
        *(node("n", 3), one, two, workers(one, n=1), workers(two, n=1)),
        *([waits], [going]),
    )
    found = made(view, made(view).memory, now=NOW + 60)
    assert sizes(found) == {"a": 2}


def test_room_that_became_free_is_given_time_to_be_found() -> None:
    view = stuck(NOW - 60)  # it waited for others until now
    found = made(view)
    assert sizes(found) == {"a": 2}
    assert sizes(made(view, found.memory, now=NOW + 4)) == {"a": 2}


def test_a_worker_without_room_goes_at_once_if_it_is_above_the_floor() -> None:
    one = job("a", 1, 9, 3)
    view = cluster(
        node("n", 2), one, workers(one, n=2), [worker(one, 2, waiting_since=NOW)]
    )
    found = made(view)
    assert sizes(found) == {"a": 2}
    assert leave(found, "a") == (2,)


def test_a_worker_behind_a_gate_is_no_room() -> None:
    view = stuck(NOW, gated=True)
    assert sizes(made(view)) == {"a": 2}
    assert sizes(made(view, made(view).memory, now=NOW + 5)) == {"a": 1}


def test_a_floor_that_waits_in_vain_is_asked_for_and_gets_no_room() -> None:
    one, two = job("a", 2, 9, 2), job("b", 1, 9, 6)
    waits = worker(one, 1, waiting_since=NOW, waiting_why=WORDS)
    view = cluster(
        *(node("n", 8), one, two, workers(one, n=1), [waits], workers(two, n=6))
    )
    first = made(view)
    assert sizes(first) == {"a": 2, "b": 6}
    found = made(view, first.memory, now=NOW + 5)
    assert sizes(found) == {"a": 2, "b": 7}
    later = made(view, found.memory, now=NOW + 6)
    assert why(later, "a") == f"waits for its floor: {WORDS}"


def test_workers_that_a_master_does_not_make_are_taken_back() -> None:
    one = job("a", 1, 9, 4)
    view = cluster(node("n", 4), one, workers(one, n=1))
    first = made(view)
    assert sizes(first) == {"a": 4}
    found = made(view, first.memory, now=NOW + 61)
    assert sizes(found) == {"a": 1}
    assert why(found, "a") == "a worker waited in vain: its master does not make it"
