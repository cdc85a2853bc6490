"""Pods of others that no node takes: for a volume, or because of other pods."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from elasticdl.planner.memory import Memory
from elasticdl.planner.view import JobKey

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
