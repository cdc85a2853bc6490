"""What goes wrong in a simulation: nodes, the API server, the controller, slow leaving.

Owns what a failure does and its end. Driven by `simulator.simulation`. Must not decide
what becomes of the jobs: their masters do.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from typing import Protocol

from elasticdl.job.words import ExitReason
from elasticdl.simulator.cluster import Cluster, Node, Pod, PodKind, PodState
from elasticdl.simulator.job import SimulatedJob
from elasticdl.simulator.trace import Failure

Action = Callable[[], None]
# A master counts a replica as dead after `worker.deadSeconds`; a node's other pods are
# given up by the node controller.
_SILENT_SECONDS = 6.0
_NODE_GIVEN_UP_SECONDS = 40.0


class Clock(Protocol):
    """What failures need of the simulation."""

    now: float
    cluster: Cluster
    jobs: dict[str, SimulatedJob]

    def call(self, time: float, action: Action) -> None:
        """Call later."""

    def woken(self) -> None:
        """Look at everything again: something came back, or is gone."""

    def gone(self, pod: Pod) -> None:
        """Note that a pod has ended."""

    def count(self, pod: Pod, sign: int) -> None:
        """Count what a worker holds."""


class Failures:
    """What is broken now."""

    def __init__(
        self, clock: Clock, chance: random.Random, *, leave_seconds: float
    ) -> None:
        """Begin with everything in order."""
        self._clock = clock
        self._chance = chance
        self._usual_leave_seconds = leave_seconds
        self.leave_seconds = leave_seconds
        self.api_away = False
        self.controller_dead = False
        self.node_back: dict[str, float] = {}
        self._later: list[Action] = []

    def ask(self, action: Action) -> None:
        """Do what needs the API server, once it is there."""
        if self.api_away:
            self._later.append(action)
        else:
            action()

    def begin(self, failure: Failure) -> None:
        """Break something, and have it mended later."""
        clock = self._clock
        back: Action
        match failure.kind:
            case "node":
                nodes = clock.cluster.nodes
                ready = sorted(name for name, node in nodes.items() if node.ready)
                if not failure.node and not ready:
                    return  # all are lost already
                node = nodes[failure.node or self._chance.choice(ready)]
                self._lose(node)
                back = partial(self._regain, node)
            case "api":
                self.api_away = True
                back = self._api_back
            case "controller":
                self.controller_dead = True
                back = self._controller_back
            case "slowLeaving":
                self.leave_seconds = failure.leave
                back = self._leave_as_ever
        if failure.seconds:
            clock.call(clock.now + failure.seconds, back)

    def _lose(self, node: Node) -> None:
        clock = self._clock
        for pod in node.pods.values():
            clock.count(pod, -1)
        clock.cluster.set_ready(node, False)
        self.node_back.pop(node.name, None)
        for pod in list(node.pods.values()):
            job = clock.jobs.get(pod.job)
            if pod.kind is PodKind.OTHER:
                continue
            if job is not None and pod is not job.master:
                job.lost(pod)
                clock.call(clock.now + _SILENT_SECONDS, partial(self._silent, pod))
            else:
                later = clock.now + _NODE_GIVEN_UP_SECONDS
                clock.call(later, partial(self._given_up, pod))
        clock.woken()

    def _silent(self, pod: Pod) -> None:
        """Have a master end a replica that it hears no more of."""
        if pod.state is not PodState.GONE:
            self._clock.jobs[pod.job].silent(pod)
            self._given_up(pod)

    def _given_up(self, pod: Pod) -> None:
        if pod.state is not PodState.GONE:
            pod.why_it_leaves = ExitReason.NODE_LOST
            self._clock.gone(pod)

    def _regain(self, node: Node) -> None:
        self._clock.cluster.set_ready(node, True)
        for pod in node.pods.values():
            self._clock.count(pod, 1)
        self.node_back[node.name] = self._clock.now
        self._clock.woken()

    def _api_back(self) -> None:
        self.api_away = False
        asked, self._later = self._later, []
        for action in asked:
            action()
        for job in self._clock.jobs.values():
            job.resync()
        self._clock.woken()

    def _controller_back(self) -> None:
        self.controller_dead = False
        self._clock.woken()

    def _leave_as_ever(self) -> None:
        self.leave_seconds = self._usual_leave_seconds
