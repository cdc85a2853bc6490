"""How full the place is that jobs run in, and with what.

Owns what is told of it, and the look at this machine. `client.cluster.usage` looks at a
cluster. Called by the CLI. Must not print.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import psutil

_LOOK_SECONDS = 0.1


@dataclass(frozen=True)
class Capacity:
    """CPUs of one local job's workers: held by those that run, and the limit if any."""

    held: float
    limit: float | None


@dataclass(frozen=True)
class Machine:
    """This machine, which its jobs share with all else that runs here."""

    cpus: int
    busy: float  # share of the CPUs in the last moment, 0 to 1
    memory_bytes: int
    used_bytes: int
    capacity: Capacity | None = None  # of the job that is looked at


@dataclass(frozen=True)
class Amount:
    """CPUs, memory and GPUs, asked for or there."""

    cpus: float = 0.0
    memory_bytes: int = 0
    gpus: int = 0

    def __add__(self, other: Amount) -> Amount:
        """Return both together."""
        return Amount(
            self.cpus + other.cpus,
            self.memory_bytes + other.memory_bytes,
            self.gpus + other.gpus,
        )


SERVING, TRAINING, OTHER = CLASSES = ("serving", "training", "other")


@dataclass(frozen=True)
class Holder:
    """Who has asked for a part of a cluster: a class of pods, of training each job."""

    name: str  # one of CLASSES
    amount: Amount
    job: str = ""
    namespace: str = ""  # of the job


@dataclass(frozen=True)
class ClusterUsage:
    """A cluster: what its nodes have for pods, and what pods on them asked for.

    `unknown` says why nothing is known of it; then the rest is empty.
    """

    nodes: int = 0
    there: Amount = Amount()
    holders: Sequence[Holder] = ()
    unknown: str = ""

    def held(self, name: str) -> Amount:
        """Return what a class has asked for."""
        return sum((one.amount for one in self.holders if one.name == name), Amount())


Usage = Machine | ClusterUsage


def machine(capacity: Capacity | None = None) -> Machine:
    """Look at this machine; takes a tenth of a second."""
    memory = psutil.virtual_memory()
    return Machine(
        cpus=psutil.cpu_count() or 1,
        busy=psutil.cpu_percent(_LOOK_SECONDS) / 100.0,
        memory_bytes=memory.total,
        used_bytes=memory.total - memory.available,
        capacity=capacity,
    )
