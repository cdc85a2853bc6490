"""A Deployment of a simulation: as many pods as were asked for.

Owns which pods come and go. Driven by `simulator.simulation`. Must not know nodes.
"""

from __future__ import annotations

from collections.abc import Callable

from elasticdl.simulator.cluster import Pod, PodState
from elasticdl.simulator.trace import Serving


class Deployment:
    """The pods of one Deployment."""

    def __init__(
        self, inputs: Serving, make: Callable[[], Pod], end: Callable[[Pod], None]
    ) -> None:
        """Begin with nothing; `make` and `end` ask the cluster."""
        self.inputs = inputs
        self._make = make
        self._end = end
        self.wanted = 0
        self.pods: dict[int, Pod] = {}

    @property
    def running(self) -> int:
        """How many serve."""
        return sum(pod.state is PodState.RUNNING for pod in self.pods.values())

    def scale(self, replicas: int) -> None:
        """Want so many from now on."""
        self.wanted = replicas
        self.keep()

    def keep(self) -> None:
        """Make or end pods until as many as wanted stay."""
        stay = [pod for pod in self.pods.values() if pod.leaving_since < 0]
        for _ in range(self.wanted - len(stay)):
            pod = self._make()
            self.pods[pod.number] = pod
        # As a ReplicaSet: those that wait first, then the newest.
        order = sorted(
            stay, key=lambda p: (p.state is PodState.RUNNING, -p.created, -p.number)
        )
        for pod in order[: max(0, len(stay) - self.wanted)]:
            self._end(pod)

    def gone(self, pod: Pod) -> None:
        """Forget a pod, and replace it if it is needed."""
        self.pods.pop(pod.number, None)
        self.keep()
