"""The sizes that PaddlePaddle's EDL of 2017 would choose: a policy to compare with.

Owns its rules, as its controller had them, faults included: every five seconds, jobs
whose trainers all run (all jobs, while one has only waiting trainers) grow by one each
in turn, those that have least of what they may have first, then shrink by one each from
the other end, until nothing changes. What it counts are the sums of requests, waiting
pods included; on a node that it chooses it adds what it takes instead of subtracting.
Called by `simulator.simulation`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from elasticdl.job.names import Role
from elasticdl.simulator.cluster import CPU, MEMORY, PodState, Vector
from elasticdl.simulator.job import SimulatedJob
from elasticdl.simulator.policy import Decision, World
from elasticdl.simulator.trace import Jobs

_MOST_ROUNDS = 10_000


@dataclass
class _Resources:
    total: list[int]
    requested: list[int]
    idle: dict[str, list[int]]  # by node


class Edl:
    """EDL's autoscaler."""

    name = "edl"
    every_seconds = 5.0

    def replicas(self, job: Jobs) -> int:
        """Begin with the minimum."""
        return max(1, job.workers.min)

    def admits(self, world: World) -> Sequence[str]:
        """Let every job begin."""
        return list(world.jobs)

    def decide(self, world: World, *, now: float) -> Decision:
        """Return the new sizes."""
        del now
        jobs = [job for job in world.jobs.values() if job.up]
        pending = any(_all_wait(job) for job in jobs)
        chosen = [job for job in jobs if pending or _all_run(job)]
        chosen.sort(key=lambda job: _fulfilment(job, world))
        resources = _resources(world)
        change = dict.fromkeys((job.name for job in chosen), 0)
        for _ in range(_MOST_ROUNDS):
            quiet = True
            for down, order in ((False, chosen), (True, list(reversed(chosen)))):
                for job in order:
                    request = world.cluster.vector(job.inputs.workers)
                    size = job.wanted + change[job.name]
                    more = _one(resources, world, job, size, request, down=down)
                    change[job.name] += more
                    quiet = quiet and more == 0
            if quiet:
                break
        return Decision(
            replicas={
                job.name: job.wanted + change[job.name]
                for job in chosen
                if change[job.name]
            }
        )


def _one(
    resources: _Resources,
    world: World,
    job: SimulatedJob,
    size: int,
    request: Vector,
    *,
    down: bool,
) -> int:
    bounds = job.inputs.workers
    node, more = "", 0
    total, used = resources.total, resources.requested
    gpus = [at for at in range(3, len(total)) if request[at]]
    if down:
        over = used[CPU] > world.trace.ceiling * total[CPU]
        over = over or any(used[at] > world.trace.ceiling * total[at] for at in gpus)
        if size > bounds.max or (over and size > max(1, bounds.min)):
            more = -1
    elif size >= bounds.max:
        more = bounds.max - size
    elif total[MEMORY] - used[MEMORY] > request[MEMORY]:
        node = _node(resources.idle, request)
        room = world.trace.ceiling * total[CPU] - used[CPU] >= request[CPU]
        room = room and all(total[at] - used[at] >= request[at] for at in gpus)
        more = int(bool(node) and room)
    for at, amount in enumerate(request):
        used[at] += amount * more
    if node:
        for at, amount in enumerate(request):
            resources.idle[node][at] += amount * more  # the wrong sign is EDL's
    return more


def _node(idle: Mapping[str, list[int]], request: Vector) -> str:
    for name, free in idle.items():
        if free[CPU] >= request[CPU] and free[MEMORY] >= request[MEMORY]:
            return name
    return ""


def _resources(world: World) -> _Resources:
    width = 3 + len(world.cluster.extras)
    total, used = [0] * width, [0] * width
    idle = {}
    for node in world.cluster.nodes.values():
        if node.ready:
            idle[node.name] = list(node.free)
            for at, amount in enumerate(node.allocatable):
                total[at] += amount
    for pod in world.cluster.pods.values():
        for at, amount in enumerate(pod.request):
            used[at] += amount
    return _Resources(total, used, idle)


def _all_wait(job: SimulatedJob) -> bool:
    there = [pod for pod in job.pods.values() if pod.role == Role.WORKER]
    return all(pod.state in (PodState.WAITING, PodState.STARTING) for pod in there)


def _all_run(job: SimulatedJob) -> bool:
    there = [pod for pod in job.pods.values() if pod.role == Role.WORKER]
    return all(pod.state is PodState.RUNNING for pod in there)


def _fulfilment(job: SimulatedJob, world: World) -> tuple[float, ...]:
    bounds = job.inputs.workers
    width = bounds.max - bounds.min
    share = (job.wanted - bounds.min) / width if width else 1.0
    request = world.cluster.vector(bounds)
    return (share, sum(request[3:]), request[CPU], request[MEMORY], job.inputs.at)
