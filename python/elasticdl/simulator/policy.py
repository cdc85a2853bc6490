"""Who decides the sizes of jobs: the protocol, and the two that need no controller.

Owns `Policy` and what a policy may look at. Chosen by name in `simulator.policies`,
asked by `simulator.simulation`. Must not change anything: it returns what is to do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from elasticdl.job.grant import Grant
from elasticdl.simulator.cluster import Cluster, Node, Vector, fits
from elasticdl.simulator.job import SimulatedJob
from elasticdl.simulator.trace import Asked, Jobs, Trace


@dataclass(frozen=True)
class World:
    """What a policy sees."""

    trace: Trace
    cluster: Cluster
    jobs: Mapping[str, SimulatedJob]  # submitted and not done, oldest first
    node_back: Mapping[str, float] = field(default_factory=dict)  # since when ready


@dataclass(frozen=True)
class Decision:
    """What is to become of the jobs' sizes."""

    grants: Mapping[str, Grant] = field(default_factory=dict)
    replicas: Mapping[str, int] = field(default_factory=dict)  # edits of the job's file
    next_time: float | None = None  # ask again then, if nothing happens before


class Policy(Protocol):
    """Decides when jobs begin and how large they are."""

    name: str
    every_seconds: float  # asked so often; 0: after each change, and when it says

    def replicas(self, job: Jobs) -> int:
        """Return `worker.replicas` of a job as it is submitted."""

    def admits(self, world: World) -> Sequence[str]:
        """Return the jobs whose pods may be made now."""

    def decide(self, world: World, *, now: float) -> Decision:
        """Return what is to change."""


class Fixed:
    """What there is without a controller: every job wants what its file says."""

    name = "fixed"
    every_seconds = 0.0

    def replicas(self, job: Jobs) -> int:
        """Return the number in its file."""
        return job.workers.replicas or job.workers.max

    def admits(self, world: World) -> Sequence[str]:
        """Let every job begin."""
        return list(world.jobs)

    def decide(self, world: World, *, now: float) -> Decision:
        """Change nothing."""
        del world, now
        return Decision()


class Gang(Fixed):
    """All of a job's pods or none: it waits until there is room for all of them.

    In the order in which they came; one that fits may overtake one that does not.
    """

    name = "gang"

    def admits(self, world: World) -> Sequence[str]:
        """Let jobs begin that fit as a whole into what is free."""
        found = []
        free = {
            node.name: list(node.free)
            for node in world.cluster.nodes.values()
            if node.ready
        }
        for job in world.jobs.values():
            if job.admitted:
                found.append(job.name)
                _take(free, world.cluster, _missing(job))
        held = [job for job in world.jobs.values() if not job.admitted]
        return found + [
            job.name for job in held if _take(free, world.cluster, _missing(job))
        ]


def _missing(job: SimulatedJob) -> list[Asked]:
    """Return what the pods ask for that have no node yet, the largest first."""
    inputs = job.inputs
    placed = [pod.role for pod in job.pods.values() if pod.node is not None]
    has_master = job.master is not None and job.master.node is not None
    asked: list[Asked] = [] if has_master else [inputs.master]
    asked += [inputs.ps] * (inputs.ps.replicas - placed.count("ps"))
    asked += [inputs.workers] * (job.wanted - placed.count("worker"))
    return sorted(asked, key=lambda one: one.cpu, reverse=True)


def _take(free: dict[str, list[int]], cluster: Cluster, asked: Sequence[Asked]) -> bool:
    """Take the room for all of these, or nothing; return whether there was enough."""
    before = {name: list(room) for name, room in free.items()}
    for one in asked:
        request = cluster.vector(one)
        place = _place(free, request, cluster.nodes)
        if place is None:
            free.update(before)
            return False
        for at, amount in enumerate(request):
            free[place][at] -= amount
    return True


def _place(
    free: Mapping[str, list[int]], request: Vector, nodes: Mapping[str, Node]
) -> str | None:
    """Return the node with the most room, as the scheduler would."""
    there = [name for name, room in free.items() if fits(room, request)]
    return max(
        there, key=lambda name: free[name][0] / nodes[name].allocatable[0], default=None
    )
