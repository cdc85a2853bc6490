"""A model of kube-scheduler: filter, scores, preemption, nominated nodes.

Owns where a pod goes and whom it pushes out. Called by `simulator.simulation` whenever
a pod waits and something has changed. Must not change pods' lives: it binds, nominates
and names victims.

As in kube-scheduler's default profile the best node has the most room left after the
pod (LeastAllocated) and its CPU and memory used alike (BalancedAllocation), in whole
points up to 100 each; ties are broken by chance. Not modelled: the sample of nodes that
it looks at in large clusters, affinity, spreading, its pauses after a refusal.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from elasticdl.simulator.cluster import CPU, MEMORY, Cluster, Node, Pod, fits, takes


@dataclass
class Round:
    """What came of one turn of the scheduler."""

    bound: list[Pod] = field(default_factory=list)
    refused: list[Pod] = field(default_factory=list)
    victims: list[Pod] = field(default_factory=list)


class Scheduler:
    """Finds nodes for the pods that wait."""

    def __init__(self, cluster: Cluster, chance: random.Random) -> None:
        """Begin without pods."""
        self._cluster = cluster
        self._chance = chance
        self.waiting: dict[int, Pod] = {}

    def turn(self) -> Round:
        """Try every pod that waits: the highest priority first, then the oldest."""
        result = Round()
        hopeless: set[tuple[object, ...]] = set()
        order = sorted(
            self.waiting.values(), key=lambda p: (-p.priority, p.created, p.number)
        )
        for pod in order:
            if pod.shape in hopeless:
                result.refused.append(pod)
                continue
            node = self._find(pod)
            if node is not None:
                self._cluster.bind(pod, node)
                del self.waiting[pod.number]
                result.bound.append(pod)
                continue
            result.refused.append(pod)
            if not (pod.preempts and self._push_out(pod, result)):
                hopeless.add(pod.shape)
        return result

    # -- a free place -----------------------------------------------------------------

    def _find(self, pod: Pod) -> Node | None:
        kept = pod.nominated
        if (
            kept is not None
            and takes(kept, pod)
            and fits(self._room(kept, pod), pod.request)
        ):
            return kept
        best: list[Node] = []
        most = -1
        for node in self._cluster.nodes.values():
            free = node.free
            if free[CPU] < pod.request[CPU] or not takes(node, pod):
                continue
            room = self._room(node, pod) if node.nominated else free
            if not fits(room, pod.request):
                continue
            points = _points(node, pod)
            if points > most:
                best, most = [node], points
            elif points == most:
                best.append(node)
        return self._chance.choice(best) if best else None

    @staticmethod
    def _room(node: Node, pod: Pod) -> Sequence[int]:
        """Return what is free beside pods that the node is kept for."""
        others = [
            one
            for one in node.nominated.values()
            if one is not pod and one.priority >= pod.priority
        ]
        if not others:
            return node.free
        return [
            free - sum(one.request[at] for one in others)
            for at, free in enumerate(node.free)
        ]

    # -- pushing out ------------------------------------------------------------------

    def _push_out(self, pod: Pod, result: Round) -> bool:
        """Nominate a node and name its victims; False if none would help."""
        kept = pod.nominated
        if kept is not None and any(
            one.leaving_since >= 0 and one.priority < pod.priority
            for one in kept.pods.values()
        ):
            return True  # those that it pushed out are still going
        best: tuple[tuple[float, ...], Node, list[Pod]] | None = None
        for node in self._cluster.nodes.values():
            if not takes(node, pod):
                continue
            victims = self._victims(node, pod)
            if victims is None:
                continue
            cost = (
                max((one.priority for one in victims), default=-1),
                sum(one.priority for one in victims),
                len(victims),
                -min((one.created for one in victims), default=0.0),
            )
            if best is None or cost < best[0]:
                best = (cost, node, victims)
        if best is None:
            self._cluster.nominate(pod, None)
            return False
        _, node, victims = best
        self._cluster.nominate(pod, node)
        result.victims += victims
        return True

    def _victims(self, node: Node, pod: Pod) -> list[Pod] | None:
        """Return who would have to go from a node; None if that is not enough."""
        lower = [one for one in node.pods.values() if one.priority < pod.priority]
        if not lower:
            return None
        room = list(self._room(node, pod))
        for one in lower:
            for at, amount in enumerate(one.request):
                room[at] += amount
        if not fits(room, pod.request):
            return None
        # Whoever can stay does, the highest and oldest first.
        victims = []
        for one in sorted(lower, key=lambda p: (-p.priority, p.created, p.number)):
            less = [
                have - amount for have, amount in zip(room, one.request, strict=True)
            ]
            if fits(less, pod.request):
                room = less
            else:
                victims.append(one)
        return victims


def _points(node: Node, pod: Pod) -> int:
    """Return a node's score for a pod."""
    has, free, asks = node.allocatable, node.free, pod.request
    cpu = (has[CPU] - free[CPU] + asks[CPU]) / (has[CPU] or 1)
    memory = (has[MEMORY] - free[MEMORY] + asks[MEMORY]) / (has[MEMORY] or 1)
    least = (int(100 * (1 - cpu)) + int(100 * (1 - memory))) // 2
    balanced = int(100 * (1 - abs(cpu - memory) / 2))
    return least + balanced
