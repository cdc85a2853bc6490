"""Plans of large clusters: as good as of small ones, and not much longer."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from elasticdl.planner.carry import scene_of
from elasticdl.planner.exchange import exchange
from elasticdl.planner.memory import Memory
from elasticdl.planner.room import NOWHERE
from elasticdl.planner.scene import MOST_LOOKS, Scene
from elasticdl.planner.victims import RoomMaker
from elasticdl.planner.view import ClusterView, Job, Node, Placement, Pod, Template

from tests.unit.planner.build import (
    FULL,
    LOW,
    NOW,
    cluster,
    cpus,
    job,
    made,
    node,
    serving,
    worker,
    workers,
)

OWN = Placement(selector=(("own", "yes"),))


def full(num_nodes: int, jobs: list[Job], each: int) -> list[Node | Pod]:
    """Return nodes of 16 CPUs that are full of the jobs' workers."""
    found: list[Node | Pod] = []
    for number in range(num_nodes):
        found.append(node(f"n{number}", 16))
        for place in range(each):
            of = jobs[(number * each + place) % len(jobs)]
            found.append(worker(of, number * each + place, f"n{number}"))
    return found


def scene(view: ClusterView) -> Scene:
    return scene_of(view, Memory(), FULL, NOW)


def some_cluster(random: Random) -> ClusterView:
    jobs = [
        job(
            *(f"j{n}", random.randint(1, 4), 99, 40),
            worker=Template(cpus(random.choice([1, 2, 4])), priority=LOW),
        )
        for n in range(4)
    ]
    parts: list[Node | Pod | Job] = [*jobs]
    for number in range(8):
        parts.append(node(f"n{number}", 12))
        for place in range(random.randint(2, 4)):
            index = 10 * number + place
            parts.append(worker(random.choice(jobs), index, f"n{number}"))
    return cluster(*parts)


@pytest.mark.parametrize("seed", range(20))
def test_room_for_many_pods_costs_no_more_than_that_for_one_after_the_other(seed):
    sizes = [Random(seed).choice([3, 5, 7]) for _ in range(12)]
    view = some_cluster(Random(f"{seed} cluster"))
    results = []
    for anew in (False, True):
        there = scene(view)
        maker, found = RoomMaker(there, "test"), []
        for size in sizes:
            shape = there.room.shape(cpus(size), view.jobs[0].worker.placement)
            maker = RoomMaker(there, "test") if anew else maker
            found.append(maker.make(shape, None, "test", "test"))
            if found[-1] != NOWHERE:
                there.room.take(shape, found[-1])
        leavers = sum(len(crew.leave) for crew in there.crews.values())
        results.append((found.count(NOWHERE), leavers))
    assert results[0] == results[1]


def test_for_many_equal_pods_not_each_node_is_looked_at_each_time():
    jobs = [job(f"j{n}", 1, 200, 160) for n in range(10)]
    there = scene(cluster(*jobs, *full(100, jobs, 16)))
    maker = RoomMaker(there, "test")
    shape = there.room.shape(cpus(3), jobs[0].worker.placement)
    for _ in range(100):
        chosen = maker.make(shape, None, "test", "test")
        assert chosen != NOWHERE
        there.room.take(shape, chosen)
    assert there.looks_left > MOST_LOOKS - 50 * 100


def test_of_ways_that_are_as_fair_as_any_not_all_are_looked_at():
    jobs = [job(f"j{n}", 1, 300, 160) for n in range(10)]
    newcomer = job("new", 1, 300, 1)
    there = scene(cluster(*jobs, newcomer, *full(100, jobs, 16)))
    there.crews[newcomer.key].unplaced.clear()
    assert len(exchange(there, frozenset())) > 50
    assert there.looks_left > MOST_LOOKS - 50 * 100


def test_what_a_plan_has_no_time_for_the_next_one_does():
    large = Template(cpus(4), priority=LOW)
    jobs = [job(f"j{n}", 1, 200, 120, worker=large) for n in range(10)]
    waiting = [
        serving(f"s{n}", 4, request=cpus(4, memory=n))
        for n in range(700)  # no two are alike: each looks at each node
    ]
    nodes = [Node(f"n{number}", cpus(16, memory=1 << 20)) for number in range(300)]
    pods = [one for one in full(300, jobs, 4) if isinstance(one, Pod)]
    view = cluster(*jobs, *nodes, pods, waiting)
    first = made(view)
    then = made(view, first.memory, now=NOW + 5)
    kept = [sum(len(nodes) for _, nodes in one.memory.kept) for one in (first, then)]
    assert kept[0] < 700
    assert kept[1] == 700


def oversized(count: int, amount: float, **fields: object) -> list[Job]:
    """Return jobs, each of a worker of its own size, that no node has room for."""
    return [
        job(
            *(f"large{n:03}", 0, 1, 0),
            worker=Template(cpus(amount + n / 1000), priority=LOW),
            **fields,
        )
        for n in range(count)
    ]


def test_jobs_that_fit_nowhere_keep_no_newcomer_from_its_first_workers():
    # As many sizes as there is no time for in one plan, and all of them came earlier.
    old = [job(f"j{n}", 1, 9000, 800) for n in range(4)]
    nodes = full(800, old, 4)
    beside = [serving(f"s{n}", 12, f"n{n}") for n in range(800)]
    large = [replace(one, min=1, max=2) for one in oversized(100, 8)]
    assert len(large) * 800 > MOST_LOOKS
    new = job("new", 1, 9, None, arrived=NOW)
    view = cluster(*nodes, *beside, *old, *large, new)
    plans = [made(view)]
    while plans[-1].leave[old[0].key] == () and len(plans) < 4:
        assert plans[-1].again_at is not None
        plans.append(made(view, plans[-1].memory, now=NOW + len(plans)))
    assert any(plans[-1].leave.values())


def test_jobs_that_cannot_grow_keep_no_other_job_from_its_fair_share():
    nodes = [node(f"n{n}", 4) for n in range(4)]
    own = Node("own", cpus(16), labels=(("own", "yes"),))
    old, new = job("old", 1, 99, 15), job("new", 1, 99, 1)
    there = workers(old, n0=4, n1=4, n2=4, n3=3)
    # Each has its one worker on a node of their own, where no more fits.
    stuck = [
        replace(one, min=1, max=2, granted=1, worker=replace(one.worker, placement=OWN))
        for one in oversized(120, 0.001)
    ]
    rest = 16 - sum(dict(one.worker.request.items)["cpu"] for one in stuck) / 1000
    view = cluster(
        *(*nodes, own, old, new, there, workers(new, n3=1), *stuck),
        *(workers(one, own=1) for one in stuck),
        serving("dummy", rest, "own"),
    )
    first = made(view)
    second = made(view, first.memory, now=NOW + 1)
    assert first.again_at == NOW + 1
    assert first.leave[old.key] or second.leave[old.key]
