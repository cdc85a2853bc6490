"""Nodes and pods of a simulated cluster: who holds what, and who is where.

Owns the sums of what is free. Changed by `simulator.simulation`, read by the scheduler
and by policies. Must not decide where a pod goes.
"""

from __future__ import annotations

import enum
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from elasticdl.job.spec.quantity import parse_bytes
from elasticdl.job.words import ExitReason
from elasticdl.simulator.trace import Asked, Nodes, Trace

Vector = tuple[int, ...]  # milli-CPUs, bytes, pods, then each other resource
CPU, MEMORY, PODS = 0, 1, 2
_HIGHEST = 2_000_001_000  # of what runs the cluster itself


class PodState(enum.Enum):
    """Where a pod is in its life."""

    WAITING = "waiting"  # for a node
    STARTING = "starting"
    RUNNING = "running"
    LEAVING = "leaving"  # it still holds its room
    GONE = "gone"


class PodKind(enum.Enum):
    """Whose pod it is."""

    TRAINING = "training"
    SERVING = "serving"
    OTHER = "other"


@dataclass(eq=False)
class Node:
    """A node, and what is free on it."""

    name: str
    allocatable: Vector
    labels: Mapping[str, str]
    taints: frozenset[str]
    free: list[int]
    taint_values: Mapping[str, str] = field(default_factory=dict)
    ready: bool = True
    pods: dict[int, Pod] = field(default_factory=dict)
    nominated: dict[int, Pod] = field(default_factory=dict)


@dataclass(eq=False)
class Pod:
    """A pod that was asked for."""

    name: str
    kind: PodKind
    request: Vector
    priority: int = 0
    preempts: bool = True
    created: float = 0.0
    number: int = 0  # by the cluster
    job: str = ""
    role: str = ""
    index: int = -1
    generation: int = 0
    selector: tuple[tuple[str, str], ...] = ()
    tolerations: frozenset[str] = frozenset()
    state: PodState = PodState.WAITING
    node: Node | None = None
    nominated: Node | None = None
    running_since: float = -1.0
    leaving_since: float = -1.0
    why_it_leaves: ExitReason = ExitReason.NONE
    refused: bool = False  # the scheduler found no room at least once

    @property
    def shape(self) -> tuple[object, ...]:
        """What decides where it fits."""
        return (self.request, self.priority, self.selector, self.tolerations)


class Cluster:
    """The nodes and pods of one simulation."""

    def __init__(self, trace: Trace) -> None:
        """Begin with the nodes, and with what others hold on them."""
        names = {name for nodes in trace.nodes for name in nodes.extra}
        self.extras = tuple(sorted(names))
        self.nodes: dict[str, Node] = {}
        self.pods: dict[int, Pod] = {}
        self._next = 0
        self.measured = CPU
        if trace.measured in self.extras:
            self.measured = 3 + self.extras.index(trace.measured)
        self.held = 0  # of the measured resource, on ready nodes
        self.total = 0
        for name, nodes in trace.each_node():
            self._add_node(name, nodes)

    def _add_node(self, name: str, nodes: Nodes) -> None:
        has: Vector = (
            round(1000 * nodes.cpu),
            parse_bytes(nodes.memory),
            nodes.pods,
            *(nodes.extra.get(extra, 0) for extra in self.extras),
        )
        taints = {taint.key: taint.value for taint in nodes.taints}
        node = Node(name, has, nodes.labels, frozenset(taints), list(has), taints)
        self.nodes[name] = node
        self.total += has[self.measured]
        if nodes.taken:
            request = self.vector(Asked(cpu=nodes.taken, memory="0"))
            pod = Pod(f"others-{name}", PodKind.OTHER, request, priority=_HIGHEST)
            self.add(pod)
            self.bind(pod, node)
            pod.state, pod.running_since = PodState.RUNNING, 0.0

    def vector(self, asked: Asked) -> Vector:
        """Return what one pod asks for."""
        return (
            round(1000 * asked.cpu),
            parse_bytes(asked.memory),
            1,
            *(asked.extra.get(extra, 0) for extra in self.extras),
        )

    def add(self, pod: Pod) -> None:
        """Add a pod that waits for a node."""
        self._next += 1
        pod.number = self._next
        self.pods[pod.number] = pod

    def bind(self, pod: Pod, node: Node) -> None:
        """Put a pod on a node."""
        self.nominate(pod, None)
        pod.node = node
        node.pods[pod.number] = pod
        for at, amount in enumerate(pod.request):
            node.free[at] -= amount
        if node.ready:
            self.held += pod.request[self.measured]

    def nominate(self, pod: Pod, node: Node | None) -> None:
        """Keep a node for a pod until those that it pushes out are gone."""
        if pod.nominated is not None:
            pod.nominated.nominated.pop(pod.number, None)
        pod.nominated = node
        if node is not None:
            node.nominated[pod.number] = pod

    def remove(self, pod: Pod) -> None:
        """Forget a pod; its room is free."""
        self.pods.pop(pod.number, None)
        self.nominate(pod, None)
        pod.state = PodState.GONE
        node = pod.node
        if node is not None and node.pods.pop(pod.number, None) is not None:
            for at, amount in enumerate(pod.request):
                node.free[at] += amount
            if node.ready:
                self.held -= pod.request[self.measured]

    def set_ready(self, node: Node, ready: bool) -> None:
        """Take a node out of the cluster, or back into it."""
        if node.ready == ready:
            return
        node.ready = ready
        sign = 1 if ready else -1
        held = sum(pod.request[self.measured] for pod in node.pods.values())
        self.held += sign * held
        self.total += sign * node.allocatable[self.measured]

    @property
    def use(self) -> float:
        """The share of the measured resource that pods hold."""
        return self.held / self.total if self.total else 0.0

    def of_job(self, job: str, role: str = "") -> list[Pod]:
        """Return a job's pods, all or those of one role."""
        return [
            pod
            for pod in self.pods.values()
            if pod.job == job and role in ("", pod.role)
        ]


def fits(free: Sequence[int], request: Vector) -> bool:
    """Whether there is room for a request."""
    return all(map(operator.le, request, free))


def takes(node: Node, pod: Pod) -> bool:
    """Whether a node takes such a pod at all: ready, labels, taints."""
    if not node.ready or not node.taints <= pod.tolerations:
        return False
    return all(node.labels.get(key) == value for key, value in pod.selector)
