"""Random clusters for the planner: shapes, priorities, weights, selectors, events.

Owns what a seed means. Used by `properties`.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random

from elasticdl.planner.view import (
    Job,
    JobKey,
    Node,
    Placement,
    Resources,
    Taint,
    Template,
    Toleration,
)

from tests.unit.planner.world import World

GIB = 1 << 30
HIGH, MIDDLE, LOW = 1_000_000, 2000, 1000
_LAST_EVENT_SECONDS = 120.0


def cluster(seed: int) -> World:
    """Return a cluster with all that will happen in it."""
    random = Random(seed)
    world = World(
        random,
        lag_seconds=random.choice([0.0, 0.0, 1.0, 2.0]),
        leave_seconds=random.choice([1.0, 1.0, 2.0, 8.0]),
        spreads=random.random() < 0.7,
    )
    for number in range(random.randint(1, 10)):
        node = _node(random, f"n{number}")
        world.nodes[node.name] = node
    keys = []
    # Few kinds, so that there are jobs that are alike.
    kinds = [_job(random, _template(random)) for _ in range(random.randint(1, 3))]
    for number in range(random.randint(1, 7)):
        job = replace(random.choice(kinds), name=f"j{number}")
        quota = random.randint(0, 5) if random.random() < 0.04 else 1_000_000
        at = world.now + random.choice([0.0, random.uniform(0, 90)])
        world.events.append((at, lambda w, j=job, q=quota: w.add_job(j, q)))  # type: ignore[misc]
        keys.append(job.key)
    _others(random, world)
    for _ in range(random.choice([0, 0, 1, 2, 4])):
        _event(random, world, keys)
    more = Random(f"{seed} more")
    _beside(more, world, keys)
    _devices(more, world)
    _in_vain(more, world)
    return world


def _in_vain(random: Random, world: World) -> None:
    """Let pods of others wait in some clusters that no node takes: for a volume."""
    if random.random() < 0.8:
        return
    for number in range(random.choice([1, 1, 2, 4])):
        request = Resources.of({"cpu": random.choice([250, 1000, 3000]), "memory": GIB})
        priority = random.choice([HIGH, HIGH, MIDDLE - 500, 0])
        at = world.now + random.uniform(0, _LAST_EVENT_SECONDS)
        name = f"v{number}"
        world.in_vain.add(name)
        world.events.append(
            (at, lambda w, n=name, r=request, p=priority: w.add_pod(n, r, p))  # type: ignore[misc]
        )


def _devices(random: Random, world: World) -> None:
    """Let device plugins of some clusters restart."""
    if random.random() < 0.8:
        return
    at = world.now + random.uniform(20, _LAST_EVENT_SECONDS)
    for name, node in world.nodes.items():
        if node.allocatable.get("nvidia.com/gpu"):
            later = at + random.uniform(1, 30)
            world.events.append((at, lambda w, n=name: w.lose_devices(n)))  # type: ignore[misc]
            world.events.append(
                (later, lambda w, n=name, a=node.allocatable: w.find_devices(n, a))  # type: ignore[misc]
            )


def _beside(random: Random, world: World, keys: list[JobKey]) -> None:
    """Let workers of some clusters ask for more than templates say, from then on."""
    if random.random() < 0.8:
        return
    beside = Resources.of({"cpu": random.choice([100, 1000]), "memory": GIB})
    at = world.now + random.choice([0.0, random.uniform(0, _LAST_EVENT_SECONDS)])
    for key in random.sample(keys, random.randint(1, len(keys))):
        world.events.append((at, lambda w, k=key: w.put_beside(k, beside)))  # type: ignore[misc]


def _node(random: Random, name: str) -> Node:
    amounts = {
        "cpu": random.choice([4000, 8000, 8000, 16000, 17624]),
        "memory": random.choice([16, 32, 98]) * GIB,
        "pods": random.choice([110, 110, 110, 4]),
    }
    taints: tuple[Taint, ...] = ()
    if random.random() < 0.25:
        amounts["nvidia.com/gpu"] = random.choice([2, 4, 8])
        if random.random() < 0.5:
            taints = (Taint("gpu", "yes"),)
    labels = (("zone", random.choice("ab")),)
    return Node(name, Resources.of(amounts), labels, taints)


def _template(random: Random) -> Template:
    amounts = {
        "cpu": random.choice([500, 1000, 1000, 2000, 4000, 5000]),
        "memory": random.choice([1, 2, 8]) * GIB,
    }
    tolerations: tuple[Toleration, ...] = ()
    if random.random() < 0.2:
        amounts["nvidia.com/gpu"] = random.choice([1, 1, 2])
    if random.random() < 0.4:
        tolerations = (Toleration("gpu", "Exists"),)
    selector = (("zone", random.choice("ab")),) if random.random() < 0.2 else ()
    return Template(
        Resources.of(amounts),
        Placement(selector, tolerations),
        random.choice([LOW, LOW, LOW, MIDDLE]),
    )


def _job(random: Random, worker: Template) -> Job:
    least = random.choice([0, 1, 1, 2, 3])
    most = random.choice([0, *[max(1, least) + random.randint(0, 20)] * 8])
    small = Template(Resources.of({"cpu": 500, "memory": GIB}), priority=HIGH)
    ps = Template(
        Resources.of({"cpu": random.choice([500, 1000]), "memory": GIB}), priority=HIGH
    )
    return Job(
        "ml",
        "",
        worker,
        min=least,
        max=most,
        replicas=max(1, least, min(most or 5, random.randint(1, 8))),
        weight=random.choice([1.0, 1.0, 1.0, 2.0]),
        tasks_left=random.choice([None, None, None, random.randint(0, 12)]),
        master=random.choice([None, small]),
        ps=ps,
        num_ps=random.choice([0, 0, 1, 3]),
    )


def _others(random: Random, world: World) -> None:
    for number in range(random.choice([0, 0, 3, 12])):
        request = Resources.of({"cpu": random.choice([250, 1000, 3000]), "memory": GIB})
        priority = random.choice([HIGH, HIGH, 0])
        at = world.now + random.uniform(0, _LAST_EVENT_SECONDS)
        name = f"p{number}"
        world.events.append(
            (at, lambda w, n=name, r=request, p=priority: w.add_pod(n, r, p))  # type: ignore[misc]
        )
        if random.random() < 0.5:
            end = random.uniform(at, world.now + _LAST_EVENT_SECONDS)
            world.events.append((end, lambda w, n=name: w.delete(f"web/{n}")))  # type: ignore[misc]


def _event(random: Random, world: World, keys: list[JobKey]) -> None:
    at = world.now + random.uniform(20, _LAST_EVENT_SECONDS)
    later = at + random.uniform(1, 30)
    node = random.choice(sorted(world.nodes))
    key = random.choice(keys)
    match random.randint(0, 5):
        case 0:
            world.events.append((at, lambda w: w.end_job(key)))
        case 1:
            world.events.append((at, lambda w: w.lose_node(node)))
            world.events.append((later, lambda w: w.find_node(node)))
        case 2:
            world.events.append((at, lambda w: w.lose_node(node)))
        case 3:
            world.events.append((at, lambda w: w.cordon(node)))
        case 4:
            world.events.append((at, lambda w: w.edit(key, paused=True)))
            world.events.append((later, lambda w: w.edit(key, paused=False)))
        case 5:
            most = random.randint(0, 10)
            world.events.append((at, lambda w: w.edit(key, tasks_left=most)))
