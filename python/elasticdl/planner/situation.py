"""What of a cluster counts, and what it is while only workers of elastic jobs move.

Called by `planner.carry`. Pure.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable

from elasticdl.job.names import Role
from elasticdl.planner.matching import tolerates
from elasticdl.planner.view import ClusterView, Holder, Node, Settings, Taint


def supply(nodes: Iterable[Node], settings: Settings, now: float) -> list[Node]:
    """Return the nodes that count."""
    return [
        node
        for node in nodes
        if node.ready
        and not node.cordoned
        # By another clock: one that is far ahead says nothing about this node.
        and (
            not node.ready_since
            or abs(now - node.ready_since) >= settings.ready_seconds
        )
    ]


def held(view: ClusterView) -> dict[str, dict[str, int]]:
    """Return what pods hold on each node."""
    found: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for pod in view.pods:
        if pod.node:
            for name, amount in pod.request.items:
                found[pod.node][name] += amount
    return found


def away(view: ClusterView, counting: Iterable[Node]) -> list[Node]:
    """Return the nodes that do not count, and on which training or serving still is."""
    used = {
        pod.node
        for pod in view.pods
        if pod.holder is not Holder.OTHER and not pod.leaving
    }
    used -= {node.name for node in counting}
    return [node for node in view.nodes if node.name in used]


def apart(view: ClusterView, nodes: Iterable[Node]) -> frozenset[str]:
    """Return the nodes whose taints no worker tolerates, and that have none.

    Serving and others may be there; they are no part of what workers may fill.
    """
    tolerated = {job.worker.placement.tolerations for job in view.jobs}
    used = {pod.node for pod in view.pods if pod.of and pod.role == Role.WORKER}
    kept_out: dict[tuple[Taint, ...], bool] = {}
    for node in nodes:
        if node.taints and node.taints not in kept_out:
            kept_out[node.taints] = not any(
                tolerates(node, one) for one in tolerated or {()}
            )
    return frozenset(
        node.name
        for node in nodes
        if kept_out.get(node.taints) and node.name not in used
    )


def situation(view: ClusterView, frame: str, nodes: Iterable[Node]) -> str:
    """Return what is the same while only workers of elastic jobs move."""
    elastic = {job.key for job in view.jobs if job.takes_part}
    pods = sorted(
        (pod.node, pod.namespace, pod.request.items, pod.leaving)
        for pod in view.pods
        if pod.role != Role.WORKER or pod.of not in elastic
    )
    return _digest(frame, [node.name for node in nodes], pods)


def frame(view: ClusterView, nodes: Iterable[Node], aside: frozenset[str]) -> str:
    """Return what is the same while only pods come and go: nodes, jobs and bounds.

    A node that another one replaces, as large as it was, is the same one here.
    """
    bounds = sorted(
        (
            *(job.key, job.floor, job.cap, job.takes_part),
            0 if job.takes_part else job.replicas,
            *(job.weight, job.resting, job.worker.request.items),
        )
        for job in view.jobs
    )
    return _digest(
        sorted(node.allocatable.items for node in nodes if node.name not in aside),
        bounds,
    )


def _digest(*things: object) -> str:
    return hashlib.sha1(repr(things).encode(), usedforsecurity=False).hexdigest()
