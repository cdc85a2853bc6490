"""What holds of every plan, over random clusters.

    python -m tests.unit.planner.properties 0:10000    seeds, a line for each that fails

A seed makes a cluster in which jobs come and go, nodes are lost, serving grows
(`random_clusters`); plans are made as the controller makes them: after a change, and
when a plan says that time alone may change something.
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass

from elasticdl.planner.matching import admits
from elasticdl.planner.memory import Memory
from elasticdl.planner.outcome import Plan
from elasticdl.planner.plan import plan
from elasticdl.planner.situation import apart, supply
from elasticdl.planner.view import ClusterView, Job, Resources, Settings

from tests.unit.planner.random_clusters import cluster
from tests.unit.planner.world import World, fits

MOST_PLANS = 100  # from the last event until nothing moves
_MOST_STEPS = 5000
SETTINGS = Settings()


@dataclass
class Course:
    """What came of a seed."""

    plans: int = 0  # after the last event
    all_plans: int = 0
    moves: int = 0  # workers that were asked to leave


class BrokenError(AssertionError):
    """A property does not hold."""


def check(seed: int) -> Course:
    """Run a seed; raise if a property does not hold."""
    world, course = cluster(seed), Course()
    memory, again_at = Memory(), None
    made: Plan | None = None
    for _ in range(_MOST_STEPS):
        if made and _rests(world, made):
            break
        world.step()
        if world.changed or (again_at is not None and world.now >= again_at):
            world.changed = False
            made = plan(world.view(), memory, SETTINGS, world.now)
            course.all_plans += 1
            course.plans = 0 if world.events else course.plans + 1
            course.moves += sum(map(len, made.leave.values()))
            _every_plan(world, made)
            world.obey(made)
            memory, again_at = made.memory, made.again_at
            if course.plans > MOST_PLANS:
                raise BrokenError(f"still moves after {MOST_PLANS} plans")
    else:
        raise BrokenError(f"no rest within {_MOST_STEPS} s")
    assert made
    _at_rest(world, made)
    return course


def _rests(world: World, made: Plan) -> bool:
    fairness = made.memory.fairness
    if world.changed or world.moves() or fairness.frozen or fairness.open:
        return False
    if any(not p.node and world.now - p.waiting_since < 6 for p in world.pods.values()):
        return False
    elsewhere = [one for one in fairness.tried if one.situation != fairness.situation]
    if any(one.until > world.now for one in elsewhere):
        return False
    # What was in vain is tried again for good, with longer and longer pauses.
    vain, waits = made.memory.vain, SETTINGS.unseen_seconds
    gives_up = {one.pods for one in vain if one.until > world.now}
    if gives_up & {pods for pods, _ in made.memory.kept}:
        return False  # the next plan gives their room to others
    return made.again_at is None or made.again_at in {
        *(one.until for one in made.memory.pauses),
        *(one.until for one in vain),
        *(one.in_vain_at(waits) for one in vain),
    }


def _every_plan(world: World, made: Plan) -> None:
    view, now = world.view(), world.now
    for job in view.jobs:
        if job.takes_part:
            size = made.sizes[job.key]
            if not job.floor <= size <= max(job.floor, job.cap):
                raise BrokenError(f"{job.key} has {size}, not {job.floor}..{job.cap}")
    # The next plan comes before anybody has seen this one.
    again = plan(view, made.memory, SETTINGS, now + 0.2)
    for job in view.jobs:
        if job.takes_part and made.leave[job.key]:
            if again.memory.fairness.open != made.memory.fairness.open:
                continue  # an exchange that waited for this plan's growth
            if again.sizes[job.key] < made.sizes[job.key]:
                raise BrokenError(f"a shrink of {job.key} is asked for twice")


def _at_rest(world: World, made: Plan) -> None:
    view, now = world.view(), world.now
    again = plan(view, made.memory, SETTINGS, now)
    if (again.sizes, again.leave) != (made.sizes, made.leave):
        raise BrokenError("planning the state that was asked for changes something")
    paused = {one.key for one in made.memory.pauses}
    for job in view.jobs:
        if job.takes_part and job.key not in paused and not job.resting:
            _no_room_for(world, view, job, made)
    _fair(view, made, world)


def _no_room_for(world: World, view: ClusterView, job: Job, made: Plan) -> None:
    if made.sizes[job.key] >= job.cap or made.reasons[job.key].startswith("waits"):
        return
    if any(pod.name in world.in_vain for pod in world.pods.values()):
        return  # room may be kept for it just now
    nodes = supply(view.nodes, SETTINGS, world.now)
    aside = apart(view, nodes)
    summed = [node for node in nodes if node.name not in aside]
    names = {node.name for node in summed}
    newest = {one.key: one.more for one in made.memory.newest}
    request = job.worker.request.plus(newest.get(job.key, Resources()))
    for name, amount in request.items:
        total = sum(node.allocatable.get(name) for node in summed)
        used = sum(pod.request.get(name) for pod in view.pods if pod.node in names)
        if used + amount > int(SETTINGS.ceiling(name) * total + 1e-6):
            return
    free = world.free()
    for node in nodes:
        if admits(node, job.worker.placement) and fits(free[node.name], request):
            raise BrokenError(f"one more worker of {job.key} fits on {node.name}")


def _fair(view: ClusterView, made: Plan, world: World) -> None:
    counts = {node.name for node in supply(view.nodes, SETTINGS, world.now)}
    held = {one.key for one in made.memory.pauses}
    jobs = [
        job for job in view.jobs
        if job.takes_part and not job.resting and job.key not in held
        and not made.reasons[job.key].startswith("waits")
        and world.masters[job.key].quota > 1000
        and not world.masters[job.key].beside.items
        # Who runs on a node that does not count has nothing to give.
        and all(pod.node in counts for pod in view.pods if pod.of == job.key)
    ]  # fmt: skip
    for one in jobs:
        for other in jobs:
            alike = (one.worker, one.weight, one.floor, one.cap) == (
                *(other.worker, other.weight, other.floor, other.cap),
            )
            same = (one.master, one.ps, one.num_ps) == (
                *(other.master, other.ps, other.num_ps),
            )
            apart = abs(made.sizes[one.key] - made.sizes[other.key])
            if alike and same and apart > 1:
                raise BrokenError(
                    f"{one.key} and {other.key} are alike and have "
                    f"{made.sizes[one.key]} and {made.sizes[other.key]}"
                )


def main(argv: list[str]) -> int:
    """Check the seeds FIRST:END; return 1 if one fails."""
    first, _, end = argv[0].partition(":")
    failed, most, began = 0, 0, time.monotonic()
    for seed in range(int(first), int(end or int(first) + 1)):
        try:
            most = max(most, check(seed).plans)
        except BrokenError as error:
            failed += 1
            print(f"seed {seed}: {error}", flush=True)
        except Exception:
            print(f"seed {seed}:", flush=True)
            raise
    print(
        f"{failed} failed; at rest after {most} plans at most; "
        f"{time.monotonic() - began:.0f} s"
    )
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
