"""How full the place is that jobs run in, and with what.

Owns what is told of it, and the look at this machine. `client.cluster.usage` looks at a
cluster. Called by the CLI. Must not print.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import psutil

from elasticdl.kube.amounts import Amounts

_LOOK_SECONDS = 0.1  # Shortest time over which the use of CPUs is meaningful.


@dataclass(frozen=True)
class Capacity:
    """CPUs of one local job's workers: in use, and the limit if there is one."""

    held: float
    limit: float | None


@dataclass(frozen=True)
class Machine:
    """The CPUs and memory of this machine, shared by all that runs on it."""

    cpus: int
    busy: float  # share of the CPUs in the last moment, 0 to 1
    memory_bytes: int
    used_bytes: int
    capacity: Capacity | None = None  # of the job that is looked at


@dataclass(frozen=True)
class ClusterUsage:
    """A cluster: the capacity of its nodes, and what their pods request.

    `unknown` says why nothing is known of it; then the rest is empty.
    """

    nodes: int = 0  # that are ready
    there: Amounts = field(default_factory=Amounts)
    held: Mapping[str, Amounts] = field(default_factory=dict)  # by class of pods
    unknown: str = ""


Usage = Machine | ClusterUsage


def machine(capacity: Capacity | None = None) -> Machine:
    """Measure this machine; takes a tenth of a second."""
    memory = psutil.virtual_memory()
    return Machine(
        cpus=psutil.cpu_count() or 1,
        busy=psutil.cpu_percent(_LOOK_SECONDS) / 100.0,
        memory_bytes=memory.total,
        used_bytes=memory.total - memory.available,
        capacity=capacity,
    )
