"""How many workers would fit where everything else is: the bound that packing sets.

Owns that count. Called at the end of a simulation. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence

from elasticdl.job.names import Role
from elasticdl.simulator.cluster import CPU, MEMORY, Cluster
from elasticdl.simulator.trace import Jobs


def workers_that_fit(
    cluster: Cluster, jobs: Sequence[Jobs], *, ceiling: float
) -> tuple[int, int]:
    """Return how many workers there are, and how many would fit instead of them.

    Of jobs whose workers ask for the same; (0, 0) where they differ. Node by node,
    below the ceiling of the whole, and no more than the jobs may have.
    """
    requests = {cluster.vector(job.workers) for job in jobs}
    if len(requests) != 1:
        return 0, 0
    (request,) = requests
    there = slots = 0
    ready = [node for node in cluster.nodes.values() if node.ready]
    held = [0] * len(request)
    for node in ready:
        free = list(node.free)
        for pod in node.pods.values():
            is_worker = pod.role == Role.WORKER
            there += is_worker
            for at, amount in enumerate(pod.request):
                if is_worker:
                    free[at] += amount
                else:
                    held[at] += amount
        slots += min(
            have // need for have, need in zip(free, request, strict=True) if need
        )
    for at in (CPU, MEMORY):
        if request[at]:
            supply = sum(node.allocatable[at] for node in ready)
            slots = min(slots, int((ceiling * supply - held[at]) // request[at]))
    return there, min(slots, sum(job.workers.max for job in jobs))
