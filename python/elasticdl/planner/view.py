"""What the planner is told of a cluster: nodes, pods, jobs, settings.

Owns the frozen types of a view and what follows from one of them alone (does a job take
part, where are its bounds). The controller and the simulator make views. Pure. Must not
know how a plan is made.

Amounts are exact integers, by Kubernetes' own names of resources: `cpu` in thousandths
of a core, `memory` in bytes, everything else (`nvidia.com/gpu`, `ephemeral-storage`) in
its unit. A node's `pods` is how many pods it takes; each pod uses one of them without
having to say so. Times are Unix seconds; 0 is "not known" or "does not apply".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from elasticdl.job.names import Role

CPU, MEMORY, PODS = "cpu", "memory", "pods"
Pairs = tuple[tuple[str, str], ...]


class JobKey(NamedTuple):
    """A job of the cluster."""

    namespace: str
    name: str

    def __str__(self) -> str:
        """Return `namespace/name`."""
        return f"{self.namespace}/{self.name}"


class Holder(StrEnum):
    """Who a pod works for."""

    SERVING = "serving"
    TRAINING = "training"  # all roles of all jobs, also of those that do not take part
    OTHER = "other"


@dataclass(frozen=True)
class Resources:
    """Amounts by name, sorted by name, without zeros.

    But a node that says `pods: 0` takes none, and one that says nothing takes any.
    """

    items: tuple[tuple[str, int], ...] = ()

    @classmethod
    def of(cls, amounts: Mapping[str, int]) -> Resources:
        """Return the amounts of a mapping."""
        return cls(tuple(sorted((k, v) for k, v in amounts.items() if v or k == PODS)))

    def get(self, name: str) -> int:
        """Return how much of a resource; 0 if none."""
        return next((amount for key, amount in self.items if key == name), 0)

    def plus(self, other: Resources) -> Resources:
        """Return both together."""
        names = {name for name, _ in (*self.items, *other.items)}
        return Resources.of({n: self.get(n) + other.get(n) for n in names})

    def beyond(self, other: Resources) -> Resources:
        """Return what is more than in another."""
        return Resources.of({n: max(0, v - other.get(n)) for n, v in self.items})


@dataclass(frozen=True)
class Taint:
    """A node's taint."""

    key: str
    value: str = ""
    effect: str = "NoSchedule"  # NoSchedule, PreferNoSchedule, NoExecute


@dataclass(frozen=True)
class Toleration:
    """A pod's toleration; an empty key with `Exists` tolerates everything."""

    key: str = ""
    operator: str = "Equal"  # Equal, Exists
    value: str = ""
    effect: str = ""  # "" is every effect


@dataclass(frozen=True)
class Expression:
    """One condition of a node affinity."""

    key: str
    operator: str  # In, Exists, Gt, Lt, or what Kubernetes calls their opposites
    values: tuple[str, ...] = ()


@dataclass(frozen=True)
class Placement:
    """On which nodes a pod may be.

    What else a scheduler looks at (affinity to pods, spreading, volumes) is not
    modelled: a worker that waits in vain because of it is taken back.
    """

    selector: Pairs = ()  # nodeSelector
    tolerations: tuple[Toleration, ...] = ()
    # Required node affinity: one of the terms, and in it all conditions; () is none.
    affinity: tuple[tuple[Expression, ...], ...] = ()


@dataclass(frozen=True)
class Node:
    """A node."""

    name: str
    allocatable: Resources
    labels: Pairs = ()
    taints: tuple[Taint, ...] = ()
    ready: bool = True
    cordoned: bool = False
    ready_since: float = 0.0


@dataclass(frozen=True)
class Pod:
    """A pod that has not ended."""

    namespace: str
    name: str
    request: Resources  # effective, without `pods`
    node: str = ""  # "" while it has none
    nominated: str = ""  # where the scheduler makes room for it
    priority: int = 0
    holder: Holder = Holder.OTHER
    job: str = ""  # of this namespace; "" if it is none's
    role: Role | None = None
    index: int = -1  # of the replica; -1 if it is none
    leaving: bool = False  # deleted, or told to go
    running: bool = False  # its container runs
    waiting_since: float = 0.0  # since when it has been there without a node
    waiting_why: str = ""  # the scheduler's words
    gated: bool = False  # a scheduling gate holds it
    placement: Placement = Placement()

    @property
    def of(self) -> JobKey | None:
        """Return the job that it belongs to."""
        return JobKey(self.namespace, self.job) if self.job else None


@dataclass(frozen=True)
class Template:
    """What the pods of a role ask for."""

    request: Resources
    placement: Placement = Placement()
    priority: int = 0  # the value of the PriorityClass; of a share, the lower one
    queued: bool = False  # a queue lets its pods in, and may say on which nodes


@dataclass(frozen=True)
class Job:
    """A job that has not ended."""

    namespace: str
    name: str
    worker: Template
    min: int = 0
    max: int = 0  # 0 is no maximum: a job of fixed size
    replicas: int = 1
    elastic: bool = True  # `worker.elastic`
    weight: float = 1.0
    arrived: float = 0.0
    paused: bool = False
    stopped: bool = False
    keeps_workers: bool = False  # while it is paused: they hold the model
    tasks_left: int | None = None  # None is not known
    master: Template | None = None
    ps: Template | None = None
    num_ps: int = 0
    granted: int | None = None  # by the grant in force; None without one
    leave: tuple[int, ...] = ()  # named by it
    until: float = 0.0  # its end
    # Grants for it are refused again and again: its master hears of none.
    refused: bool = False

    @property
    def key(self) -> JobKey:
        """Return its name in the cluster."""
        return JobKey(self.namespace, self.name)

    @property
    def takes_part(self) -> bool:
        """Return whether the planner decides its size."""
        return self.elastic and self.max > self.floor

    @property
    def resting(self) -> bool:
        """Return whether it is to have no workers now."""
        return self.stopped or (self.paused and not self.keeps_workers)

    @property
    def floor(self) -> int:
        """Return the size below which it is never asked to go."""
        return max(1, self.min)

    @property
    def cap(self) -> int:
        """Return the size above which more workers would have nothing to do."""
        if self.paused:
            return self.floor
        if self.tasks_left is None:
            return self.max
        return min(self.max, max(self.floor, self.tasks_left))


@dataclass(frozen=True)
class ClusterView:
    """A cluster at one moment."""

    nodes: tuple[Node, ...] = ()
    pods: tuple[Pod, ...] = ()
    jobs: tuple[Job, ...] = ()


@dataclass(frozen=True)
class Settings:
    """What the administrator decides."""

    # Of a resource's supply, the part up to which workers are added; 1 where not named.
    ceilings: tuple[tuple[str, float], ...] = ((CPU, 0.97), (MEMORY, 0.97))
    freeze_seconds: float = (
        30.0  # fairness leaves a job that it moved alone for so long
    )
    ready_seconds: float = 30.0  # a node counts after it has been ready for so long
    wait_seconds: float = 5.0  # a worker that waits for so long is taken back
    unseen_seconds: float = 60.0  # and one that its master does not make
    leave_seconds: float = 60.0  # and room of who is to leave is waited for so long
    pause_seconds: float = 60.0  # afterwards its job does not grow for so long,
    max_pause_seconds: float = 600.0  # doubled each time up to this
    grant_seconds: float = 1800.0  # a grant is good for so long

    def ceiling(self, resource: str) -> float:
        """Return the part of a resource's supply that may be used."""
        return dict(self.ceilings).get(resource, 1.0)
