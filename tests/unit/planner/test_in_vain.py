"""Pods of others that no node takes: for a volume, or because of other pods."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from random import Random

import pytest
from elasticdl.planner.memory import Memory
from elasticdl.planner.view import JobKey, Pod

from tests.unit.planner.build import (
    FULL,
    HIGH,
    NOW,
    cluster,
    cpus,
    job,
    made,
    node,
    serving,
    workers,
)
from tests.unit.planner.world import World


def test_workers_do_not_come_and_go_for_a_pod_that_no_node_takes():
    # The scheduler puts a worker that grows for `b` on `a`, where the pod has its room.
    world = World(Random(1), {"a": node("a", 9), "b": node("b", 5)}, in_vain={"vain"})
    key = JobKey("ml", "j")
    world.add_job(job("j", 1, 12, 1))
    world.add_pod("busy", cpus(4), HIGH)
    world.add_pod("vain", cpus(2), HIGH)
    memory, moves = Memory(), 0
    for _ in range(300):
        world.step()
        if world.changed:
            world.changed = False
            found = made(world.view(), memory, now=world.now)
            memory = found.memory
            moves += len(set(found.leave[key]) - set(world.masters[key].job.leave))
            world.obey(found)
    assert moves < 30


def test_room_that_a_pod_waits_for_in_vain_is_used_though_nothing_else_happens():
    one = job("j", 1, 9, 2)
    view = cluster(
        *(node("a", 4), one, workers(one, a=2)),
        replace(serving("vain", 2), waiting_since=NOW - 100),
    )
    first = made(view)
    assert first.sizes[one.key] == 2
    assert first.again_at == NOW + FULL.unseen_seconds
    then = made(view, first.memory, now=first.again_at)
    assert then.again_at is not None
    at_last = made(view, then.memory, now=then.again_at)
    assert at_last.sizes[one.key] == 4


def course_of(made_anew: Callable[[int], Pod | None]) -> list[int]:
    """Return the sizes of a job of 1..8 on 8 CPUs in an hour, beside such a pod."""
    memory, other, found = Memory(), job("j", 1, 8, 8), []
    for now in range(int(NOW), int(NOW) + 3600, 5):
        pods = [pod for pod in [made_anew(now - int(NOW))] if pod is not None]
        mine = workers(other, a=other.granted or 0)
        plan = made(cluster(node("a", 8), other, mine, pods), memory, now=now)
        memory, other = plan.memory, replace(other, granted=plan.sizes[other.key])
        found.append(plan.sizes[other.key])
    return found


def anew(every: int, lives: int) -> Callable[[int], Pod | None]:
    def there(second: int) -> Pod | None:
        number, age = divmod(second, every)
        since = NOW + number * every
        return serving(f"c-{number}", 3, waiting_since=since) if age < lives else None

    return there


@pytest.mark.parametrize(
    ("every", "lives", "tries"), [(300, 300, 12), (120, 110, 16), (60, 30, 30)]
)
def test_a_pod_that_waits_in_vain_under_a_new_name_each_time_waits_on(
    every: int, lives: int, tries: int
):
    found = course_of(anew(every, lives))
    assert found[1] == 5
    assert found.count(8) > 0.75 * len(found)
    assert sum(after < one for one, after in pairwise(found)) <= tries


def test_a_pod_that_found_its_node_leaves_nothing_to_the_next_one():
    first, other = serving("c-0", 3, waiting_since=NOW), job("j", 1, 8, 8)
    memory, view = Memory(), cluster(node("a", 8), other, workers(other, a=5), first)
    for now in (NOW, NOW + 60, NOW + 70):
        memory = made(view, memory, now=now).memory
    assert [one.seconds for one in memory.vain] == [60]
    there = replace(first, node="a", waiting_since=0.0)
    second = serving("c-1", 3, waiting_since=NOW + 75)
    five = replace(other, granted=5)
    view = cluster(node("a", 8), five, workers(five, a=5), there, second)
    found = made(view, memory, now=NOW + 75)
    assert found.sizes[other.key] == 2
