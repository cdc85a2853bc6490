"""From nodes, pods and usage to the figures that are shown.

Owns the sums. Called by `exporter.watching` when somebody asks. Pure: `now` is an
argument.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from elasticdl.kube.amounts import Amounts
from elasticdl.kube.inventory import (
    ACTIVE,
    NOT_READY,
    TRAINING,
    WAITING,
    Holder,
    MasterJob,
    Node,
    Pod,
)
from elasticdl.metrics.registry import ClusterMetrics

Job = tuple[str, str]  # namespace, name
Usage = Mapping[tuple[str, str], Amounts]  # by namespace and name of a pod


@dataclass(frozen=True)
class ClusterFigures:
    """The figures of a cluster at one time."""

    nodes: Mapping[str, int]  # by state
    allocatable: Amounts  # of nodes that are ready, cordoned or not
    requested: Mapping[Holder, Amounts]  # by pods on those nodes
    used: Mapping[Holder, Amounts] | None  # by the same; None: nobody measures it
    pending: Mapping[tuple[str, str, str], int]  # namespace, job, reason
    jobs: Mapping[tuple[str, str, str], int]  # namespace, job, state
    masters: Mapping[Job, int]  # that run, of jobs that are active or waiting


def figures(
    nodes: Iterable[Node],
    pods: Iterable[Pod],
    usage: Usage | None,
    jobs: Iterable[MasterJob] = (),
) -> ClusterFigures:
    """Return the figures. `usage` is None if the cluster does not measure it."""
    ready: dict[str, Node] = {}
    states: Counter[str] = Counter()
    for node in nodes:
        states[node.state] += 1
        if node.state != NOT_READY:
            ready[node.name] = node
    requested: dict[Holder, Amounts] = {}
    used: dict[Holder, Amounts] = {}
    pending: Counter[tuple[str, str, str]] = Counter()
    jobs = list(jobs)
    meant_to_run = [one for one in jobs if one.state in (ACTIVE, WAITING)]
    masters = {(one.namespace, one.job): 0 for one in meant_to_run}
    for pod in pods:
        own = (pod.namespace, pod.holder.job)
        if pod.is_running_master and own in masters:
            masters[own] += 1
        if pod.node in ready:
            requested[pod.holder] = requested.get(pod.holder, Amounts()) + pod.request
            measured = (usage or {}).get((pod.namespace, pod.name))
            if measured is not None:
                used[pod.holder] = used.get(pod.holder, Amounts()) + measured
        if pod.waiting and pod.holder.kind == TRAINING:
            pending[pod.holder.namespace, pod.holder.job, pod.waiting] += 1
    return ClusterFigures(
        nodes=states,
        allocatable=sum((n.allocatable for n in ready.values()), Amounts()),
        requested=requested,
        used=None if usage is None else used,
        pending=pending,
        jobs=Counter((one.namespace, one.job, one.state) for one in jobs),
        masters=masters,
    )


@dataclass
class Waits:
    """Seconds that the pods of each job waited for their start, ended pods included."""

    _gone: dict[Job, float] = field(default_factory=dict)
    _shown: dict[Job, float] = field(default_factory=dict)

    def left(self, pod: Pod, *, now: float) -> None:
        """Add the waiting time of a pod that no longer exists."""
        if pod.holder.kind == TRAINING:
            job = (pod.holder.namespace, pod.holder.job)
            self._gone[job] = self._gone.get(job, 0.0) + _waited(pod, now)

    def seconds(self, pods: Iterable[Pod], *, now: float) -> dict[Job, float]:
        """Return the sums of jobs that have a pod; forget those of other jobs."""
        found: dict[Job, float] = {}
        for pod in pods:
            if pod.holder.kind == TRAINING:
                job = (pod.holder.namespace, pod.holder.job)
                found[job] = found.get(job, 0.0) + _waited(pod, now)
        # The second in which a kubelet says that a pod started may lie before what was
        # shown meanwhile; a counter must not go back.
        self._shown = {
            job: max(seconds + self._gone.get(job, 0.0), self._shown.get(job, 0.0))
            for job, seconds in found.items()
        }
        self._gone = {job: s for job, s in self._gone.items() if job in found}
        return self._shown


def _waited(pod: Pod, now: float) -> float:
    """Return how long a pod has waited so far; 0 if unknown."""
    until = now if pod.waiting else pod.started
    return max(0.0, until - pod.created) if until and pod.created else 0.0


def show(
    metrics: ClusterMetrics,
    made: ClusterFigures,
    waited: Mapping[Job, float],
    *,
    up: bool,
) -> None:
    """Set the metrics to these figures; series without a figure disappear."""
    metrics.nodes.set_by(made.nodes)
    metrics.allocatable_cpu.set_one(made.allocatable.cpu)
    metrics.allocatable_memory.set_one(made.allocatable.memory)
    metrics.allocatable_gpus.set_one(made.allocatable.gpus)
    held, used = made.requested, made.used or {}
    metrics.requested_cpu.set({_labels(h): a.cpu for h, a in held.items()})
    metrics.requested_memory.set({_labels(h): a.memory for h, a in held.items()})
    metrics.requested_gpus.set({_labels(h): a.gpus for h, a in held.items()})
    metrics.used_cpu.set({_labels(h): a.cpu for h, a in used.items()})
    metrics.used_memory.set({_labels(h): a.memory for h, a in used.items()})
    metrics.pending_pods.set(made.pending)
    metrics.pending_seconds.set(waited)
    metrics.jobs.set(made.jobs)
    metrics.masters_running.set(made.masters)
    metrics.up.set(up)


def _labels(holder: Holder) -> tuple[str, str, str]:
    return holder.kind, holder.namespace, holder.job
