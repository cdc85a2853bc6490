"""Workers that wait in vain: they are taken back, with a growing pause."""

from collections.abc import Callable
from dataclasses import replace
from random import Random

from elasticdl.planner.memory import Memory
from elasticdl.planner.view import ClusterView, JobKey, Pod, Template

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
from tests.unit.planner.world import World

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


def waited_in_vain(times: int, *others: Pod) -> tuple[Memory, float]:
    """Return what is remembered of a job that waited so often, and since when."""
    memory, now, last = Memory(), NOW, NOW
    for _ in range(times):
        view = stuck(now)
        view = replace(view, pods=(*view.pods, *others))
        memory = made(view, memory, now=now).memory
        memory = made(view, memory, now=now + 5).memory
        last, now = now + 5, memory.pauses[0].until + 1
    return memory, last


def test_another_situation_ends_a_long_pause_early() -> None:
    memory, last = waited_in_vain(3)
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
    found = made(view, made(view).memory, now=NOW + 50)
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


def test_a_job_that_wants_far_too_many_holds_up_nobody() -> None:
    many, other = job("a", 100_000, 100_001, None), job("b", 1, 9, 1)
    view = cluster(node("n", 8), many, other, workers(other, n=1))
    first = made(view)
    later = made(view, first.memory, now=NOW + 70)  # they were not made
    assert [sizes(one)["a"] for one in (first, later)] == [100_000, 100_000]
    assert sizes(later)["b"] == 8


def test_workers_that_a_master_does_not_make_are_taken_back() -> None:
    one = job("a", 1, 9, 4)
    view = cluster(node("n", 4), one, workers(one, n=1))
    first = made(view)
    assert sizes(first) == {"a": 4}
    found = made(view, first.memory, now=NOW + 61)
    assert sizes(found) == {"a": 1}
    assert why(found, "a") == "a worker waited in vain: its master does not make it"


def test_room_of_workers_that_end_one_after_another_is_not_kept_all_the_time() -> None:
    one, two = job("a", 1, 9, 4), job("b", 1, 9, 4)
    memory, found = Memory(), None
    for gone in range(4):  # for the last tasks it takes fewer and fewer
        view = cluster(
            *(node("n", 8), one, two, workers(one, n=4 - gone), workers(two, n=4))
        )
        found = made(view, memory, now=NOW + 30 * gone)
        memory = found.memory
    assert found
    assert sizes(found) == {"a": 1, "b": 7}


def tries_in_an_hour(act: Callable[[World, int], None]) -> int:
    """Return how often a job that may not grow is let grow, while things go on."""
    world = World(Random(1), nodes={one: node(one, 8) for one in ("n", "m")})
    world.add_job(job("a", 1, 9, None), quota=1)
    memory, again_at, pauses = Memory(), 0.0, set[float]()
    for second in range(3600):
        act(world, second)
        world.step()
        if world.changed or (again_at and world.now >= again_at):
            world.changed = False
            found = made(world.view(), memory, now=world.now)
            world.obey(found)
            memory, again_at = found.memory, found.again_at or 0.0
            pauses |= {one.since for one in memory.pauses}
    return len(pauses)


def comes_and_goes(world: World, second: int) -> None:
    if second % 40 == 0:
        world.add_pod("x", cpus(3), 0)
    if second % 40 == 20:
        world.delete("web/x")


def more_room_each_minute(world: World, second: int) -> None:
    if second % 60 == 0:
        name = f"new-{second}"
        world.nodes[name] = node(name, 8)
        world.changed = True


def autoscaler(world: World, second: int) -> None:
    if second % 15 == 0:
        world.edit(JobKey("ml", "a"), replicas=1 + second // 15 % 3)
        world.changed = True


def test_a_size_that_nobody_goes_by_ends_no_pause() -> None:
    assert tries_in_an_hour(autoscaler) == 9


def test_a_pod_that_comes_and_goes_ends_no_long_pause() -> None:
    assert tries_in_an_hour(lambda *_: None) == 9
    assert tries_in_an_hour(comes_and_goes) <= 10


def test_room_that_is_new_again_and_again_is_tried_less_and_less() -> None:
    assert tries_in_an_hour(more_room_each_minute) <= 12


def test_more_room_on_a_node_that_waits_in_vain_ends_a_long_pause_early() -> None:
    memory, last = waited_in_vain(3, serving("s", 3, "n"))
    one = job("a", 1, 9, 1)
    same = cluster(node("n", 8), one, workers(one, n=1), serving("s", 3, "n"))
    less = cluster(node("n", 8), one, workers(one, n=1), serving("s", 2.5, "n"))
    more = cluster(node("n", 8), one, workers(one, n=1), serving("s", 2, "n"))
    for view, size in ((same, 1), (less, 1), (more, 2)):
        assert sizes(made(view, memory, now=last + 70)) == {"a": size}


def test_an_edit_of_the_job_ends_a_long_pause_early() -> None:
    memory, last = waited_in_vain(3)
    one = job("a", 1, 9, 1)
    for edited in (replace(one, max=10), replace(one, worker=Template(cpus(0.5)))):
        view = cluster(node("n", 8), edited, workers(one, n=1))
        assert sizes(made(view, memory, now=last + 70)) == {"a": 2}


def test_a_floor_that_waits_no_more_ends_a_long_pause_early() -> None:
    one = job("a", 2, 9, 2)
    memory, now, last = Memory(), NOW, NOW
    for _ in range(3):
        waits = worker(one, 1, waiting_since=now)
        view = cluster(node("n", 8), one, workers(one, n=1), [waits])
        memory = made(view, memory, now=now).memory
        memory = made(view, memory, now=now + 5).memory
        last, now = now + 5, memory.pauses[0].until + 1
    waits = worker(one, 1, waiting_since=last)
    still = cluster(node("n", 8), one, workers(one, n=1), [waits])
    assert sizes(made(still, memory, now=last + 70)) == {"a": 2}
    bound = cluster(node("n", 8), one, workers(one, n=2))
    assert sizes(made(bound, memory, now=last + 30)) == {"a": 2}
    assert sizes(made(bound, memory, now=last + 70)) == {"a": 3}


def test_a_plan_is_due_when_a_pause_may_end_early() -> None:
    memory, last = waited_in_vain(3)
    one = job("a", 1, 9, 1)
    calm = cluster(node("n", 8), one, workers(one, n=1))
    assert made(calm, memory, now=last + 30).again_at == last + 60


def test_a_clock_that_is_set_back_makes_no_pause_longer() -> None:
    memory, last = waited_in_vain(2)
    one = job("a", 1, 9, 1)
    calm = cluster(node("n", 8), one, workers(one, n=1))
    back = last - 600
    first = made(calm, memory, now=back)
    assert sizes(first) == {"a": 1}
    assert sizes(made(calm, first.memory, now=back + 121)) == {"a": 2}


def test_another_job_of_the_same_name_inherits_no_pause() -> None:
    memory, last = waited_in_vain(3)
    other = job("a", 1, 9, 1, arrived=last)
    view = cluster(node("n", 8), other, workers(other, n=1))
    assert sizes(made(view, memory, now=last + 1)) == {"a": 8}


def test_a_worker_waits_in_vain_though_the_clock_was_set_back() -> None:
    first = made(stuck(NOW))
    again = made(stuck(NOW), first.memory, now=NOW - 600)
    assert sizes(made(stuck(NOW), again.memory, now=NOW - 594)) == {"a": 1}


def test_room_that_is_made_for_another_job_is_no_news() -> None:
    memory, last = waited_in_vain(3, serving("s", 6, "n"))
    one, two = job("a", 1, 9, 1), job("b", 1, 9, 5, leave=(5,))
    there, going = workers(two, n=5), worker(two, 5, "n")
    parts = (node("n", 8), one, two, workers(one, n=1), there)
    view = cluster(*parts, going)
    assert sizes(made(view, memory, now=last + 70))["a"] == 1
    gone = cluster(*parts)
    assert sizes(made(gone, memory, now=last + 70))["a"] == 2
