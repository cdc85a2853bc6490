"""Exchange for fairness: when it is made, when it is not, and what follows."""

from dataclasses import replace

from elasticdl.planner.memory import Memory
from elasticdl.planner.view import ClusterView, Job, Node, Template

from tests.unit.planner.build import (
    NOW,
    cluster,
    cpus,
    job,
    leave,
    made,
    node,
    serving,
    sizes,
    why,
    worker,
    workers,
)


def unfair() -> tuple[ClusterView, Job, Job]:
    one, two = job("a", 1, 9, 6), job("b", 1, 9, 2)
    return cluster(
        node("n", 8), one, two, workers(one, n=6), workers(two, n=2)
    ), one, two  # fmt: skip


def test_a_larger_share_gives_until_nothing_gets_better() -> None:
    view, _, _ = unfair()
    found = made(view)
    assert sizes(found) == {"a": 4, "b": 2}
    assert leave(found, "a") == (5, 4)
    assert why(found, "a") == "its share was larger than that of ml/b"


def test_the_room_is_given_when_it_is_free_and_not_before() -> None:
    view, one, two = unfair()
    found = made(view)
    smaller = replace(one, granted=4, leave=(5, 4))
    leaving = [worker(one, index, "n", leaving=True) for index in (4, 5)]
    during = cluster(
        *(node("n", 8), smaller, two),
        *(workers(smaller, n=4), leaving, workers(two, n=2)),
    )
    found = made(during, found.memory, now=NOW + 1)
    assert sizes(found) == {"a": 4, "b": 2}
    after = cluster(
        node("n", 8), smaller, two, workers(smaller, n=4), workers(two, n=2)
    )
    found = made(after, found.memory, now=NOW + 2)
    assert sizes(found) == {"a": 4, "b": 4}
    assert why(found, "b") == "was given room for its fair share"


def test_the_room_that_was_made_is_kept_for_whom_it_was_made() -> None:
    # A worker of two CPUs needs both; jobs of small workers would take the first.
    big = Template(cpus(2), priority=1000)
    one, two = job("a", 1, 9, 7), job("b", 1, 9, 1, worker=big)
    small = job("c", 1, 9, 1)
    view = cluster(
        *(node("n", 10), one, two, small),
        *(workers(one, n=7), workers(two, n=1), workers(small, n=1)),
    )
    found = made(view)
    gone = leave(found, "a")
    assert gone
    given = replace(one, granted=sizes(found)["a"], leave=gone)
    rest = [pod for pod in workers(one, n=7) if pod.index not in gone[1:]]
    half = cluster(
        *(node("n", 10), given, two, small),
        *(rest, workers(two, n=1), workers(small, n=1)),
    )
    later = made(half, found.memory, now=NOW + 1)
    # `c` may grow only where that takes nothing from what is kept.
    assert later.sizes[one.key] == found.sizes[one.key]
    assert sizes(later)["b"] <= 2


def test_room_that_several_small_workers_wait_for_is_not_taken_by_a_large_one() -> None:
    # A worker of `a` leaves one node for the first ones of `b` and `c`. If `a` grew
    # into the other node, a scheduler might put its worker where both are to go.
    large, small = Template(cpus(2)), Template(cpus(1, gpu=1))
    one = job("a", 1, 2, 2, worker=large)
    others = [job(name, 1, 2, 1, worker=small) for name in "bc"]
    waiting = [worker(other, 0) for other in others]
    places = (Node("n", cpus(4, gpu=2)), node("m", 6))
    first = made(cluster(*places, one, *others, workers(one, n=2), waiting))
    (gone,) = leave(first, "a")
    one = replace(one, granted=1, leave=(gone,))
    pods = [worker(one, i, "n", leaving=i == gone) for i in range(2)]
    view = cluster(*places, one, *others, pods, waiting)
    then = made(view, first.memory, now=NOW + 1)
    assert sizes(then) == {"a": 1, "b": 1, "c": 1}
    there = [worker(other, 0, "n") for other in others]
    stays = [pod for pod in pods if not pod.leaving]
    view = cluster(*places, one, *others, stays, there)
    last = made(view, then.memory, now=NOW + 2)
    assert sizes(last) == {"a": 2, "b": 1, "c": 1}


def test_jobs_that_were_moved_are_left_alone_for_a_while() -> None:
    view, one, two = unfair()
    found = made(view)
    frozen = dict(found.memory.fairness.frozen)
    assert frozen == {one.key: NOW + 30, two.key: NOW + 30}
    assert found.again_at is not None
    assert found.again_at <= NOW + 30


def test_pressure_does_not_wait_for_a_frozen_job() -> None:
    view, _, _ = unfair()
    found = made(view)
    crowded = replace(view, pods=(*view.pods, serving("s", 4)))
    # Two of the four are leaving for `b`, which has to wait.
    assert sizes(made(crowded, found.memory, now=NOW + 1)) == {"a": 2, "b": 2}


def test_an_exchange_that_helps_nobody_is_not_made() -> None:
    # A worker of `b` needs four CPUs together; one of them is serving's everywhere.
    big = Template(cpus(4), priority=1000)
    one, two = job("a", 1, 9, 3), job("b", 1, 9, 1, worker=big)
    view = cluster(
        *(node("n", 4), node("m", 3), one, two),
        *([worker(two, 0, "n")], workers(one, m=3)),
    )
    assert sizes(made(view)) == {"a": 3, "b": 1}


def test_what_brought_nothing_is_not_repeated_until_the_situation_changes() -> None:
    view, one, two = unfair()
    found = made(view)
    # Both workers go, and somehow the same job gets them back.
    failed = made(view, forget_grants(found.memory), now=NOW + 100)
    assert sizes(failed) == {"a": 6, "b": 2}
    assert sizes(made(view, failed.memory, now=NOW + 200)) == {"a": 6, "b": 2}
    wider = replace(view, jobs=(one, replace(two, max=10)))
    assert sizes(made(wider, failed.memory, now=NOW + 300)) == {"a": 4, "b": 2}


def test_what_brought_nothing_is_tried_a_few_times_an_hour_whoever_comes_and_goes() -> (
    None
):
    view, _, _ = unfair()
    memory, tries = Memory(), 0
    for number in range(180):
        others = [serving("s", 0, "n")] if number % 2 else []
        found = made(
            replace(view, pods=(*view.pods, *others)), memory, now=NOW + 20 * number
        )
        tries += sizes(found) == {"a": 4, "b": 2}
        # Both workers go, and somehow the same job gets them back.
        memory = forget_grants(found.memory)
    assert 3 <= tries <= 8


def tries_while(views: list[ClusterView]) -> int:
    """Return how often an exchange is tried that somehow brings nothing."""
    memory, tries = Memory(), 0
    for number, view in enumerate(views):
        found = made(view, memory, now=NOW + 20 * number)
        tries += sizes(found) == {"a": 4, "b": 2}
        memory = forget_grants(found.memory)
    return tries


def test_a_node_that_comes_and_goes_makes_nobody_try_in_vain_all_the_time() -> None:
    view, _, _ = unfair()
    flaps = replace(view, nodes=(*view.nodes, node("small", 0.5)))
    assert 1 <= tries_while([flaps, view] * 90) <= 16


def test_nodes_that_are_replaced_by_others_as_large_are_the_same_cluster() -> None:
    view, _, _ = unfair()
    views = [
        replace(view, nodes=(*view.nodes, node(f"spot-{number}", 0.5)))
        for number in range(180)
    ]
    assert 1 <= tries_while(views) <= 8


def test_an_exchange_that_others_may_have_spoilt_is_tried_again_in_a_minute() -> None:
    view, _, _ = unfair()
    found = made(view)
    other = replace(view, pods=(*view.pods, serving("s", 0, "n")))
    spoilt = made(other, forget_grants(found.memory), now=NOW + 100)
    assert sizes(spoilt) == {"a": 6, "b": 2}
    assert spoilt.again_at == NOW + 160
    assert sizes(made(other, spoilt.memory, now=NOW + 159)) == {"a": 6, "b": 2}
    assert sizes(made(other, spoilt.memory, now=NOW + 160)) == {"a": 4, "b": 2}
    back = made(other, spoilt.memory, now=NOW - 600)
    assert back.again_at == NOW - 540


def forget_grants(memory: Memory) -> Memory:
    fairness = replace(memory.fairness, open=())
    return replace(memory, asked=(), fairness=fairness)


def test_a_job_of_fixed_size_gets_room_up_to_its_fair_share() -> None:
    one, fixed = job("a", 1, 9, 7), job("f", 1, 0, None, replicas=9)
    waiting = [worker(fixed, index, waiting_since=NOW - 1) for index in range(1, 9)]
    view = cluster(
        *(node("n", 8), one, fixed),
        *(workers(one, n=7), [worker(fixed, 0, "n")], waiting),
    )
    assert sizes(made(view)) == {"a": 4}


def test_at_rest_nothing_changes() -> None:
    one, two = job("a", 1, 9, 4), job("b", 1, 9, 4)
    view = cluster(node("n", 8), one, two, workers(one, n=4), workers(two, n=4))
    memory, now = Memory(), NOW
    for _ in range(5):
        found = made(view, memory, now=now)
        assert sizes(found) == {"a": 4, "b": 4}
        assert leave(found, "a") == leave(found, "b") == ()
        memory, now = found.memory, now + 40
    assert found.again_at is None


def test_a_clock_that_is_set_back_keeps_no_room_until_it_is_where_it_was() -> None:
    view, one, two = unfair()
    found = made(view)
    smaller = replace(one, granted=4, leave=(5, 4))
    slow = cluster(  # they do not go
        *(node("n", 8), smaller, two, workers(one, n=6), workers(two, n=2)),
    )
    back = NOW - 600
    first = made(slow, found.memory, now=back)
    assert first.memory.fairness.open
    assert not made(slow, first.memory, now=back + 61).memory.fairness.open
    assert made(slow, first.memory, now=back).memory.fairness.since == back
    frozen = made(slow, first.memory, now=back + 31).memory.fairness.frozen
    assert all(until <= back + 61 for _, until in frozen)
