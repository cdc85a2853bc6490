"""How full a cluster is, and with what: serving, training jobs, other pods.

Owns which pods are what and what a pod holds. Called by `elasticdl top`. Nodes and pods
of all namespaces have to be readable; where they are not, the answer says so.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from elasticdl.client.cluster.api import CORE, Cluster, ClusterError, Object
from elasticdl.client.usage import (
    OTHER,
    SERVING,
    TRAINING,
    Amount,
    ClusterUsage,
    Holder,
)
from elasticdl.job.names import LABEL_JOB
from elasticdl.job.quantity import bytes_or_zero

_SYSTEM_PRIORITY = 1_000_000_000  # higher is Kubernetes' own
_GPU = "nvidia.com/gpu"
_ENDED = ("Succeeded", "Failed")


def cluster_usage(cluster: Cluster) -> ClusterUsage:
    """Look at all nodes and pods: two calls. Raises ClusterError for no answer."""
    try:
        nodes = cluster.items(f"{CORE}/nodes")
        # From the API server's cache: much cheaper, and a moment old at most.
        pods = cluster.items(f"{CORE}/pods", resourceVersion="0")
    except ClusterError as error:
        if not error.forbidden:
            raise
        return ClusterUsage(
            unknown="not known: it takes the right to list nodes and pods of all "
            "namespaces (ClusterRole view, and nodes)"
        )
    return usage_of(nodes, pods)


def usage_of(nodes: Iterable[Object], pods: Iterable[Object]) -> ClusterUsage:
    """Return what ready nodes have, and what pods on nodes have asked for, by holder.

    A training job's pods carry its name. Of the others those with a priority, which may
    push training out, are serving.
    """
    ready = [node for node in nodes if _takes_pods(node)]
    there = sum((_amount(n["status"].get("allocatable")) for n in ready), Amount())
    held: defaultdict[tuple[str, str, str], Amount] = defaultdict(Amount)
    for pod in pods:
        bound = pod.get("spec", {}).get("nodeName")
        if bound and pod.get("status", {}).get("phase") not in _ENDED:
            held[_holder(pod)] += _requested(pod)
    holders = [
        Holder(name, amount, job, namespace)
        for (name, job, namespace), amount in sorted(held.items())
    ]
    return ClusterUsage(len(ready), there, holders)


def _takes_pods(node: Object) -> bool:
    ready = any(
        condition.get("type") == "Ready" and condition.get("status") == "True"
        for condition in node.get("status", {}).get("conditions") or []
    )
    return ready and not node.get("spec", {}).get("unschedulable")


def _holder(pod: Object) -> tuple[str, str, str]:
    metadata = pod["metadata"]
    job = (metadata.get("labels") or {}).get(LABEL_JOB)
    if job:
        return TRAINING, str(job), str(metadata["namespace"])
    priority = int(pod["spec"].get("priority") or 0)
    return SERVING if 0 < priority < _SYSTEM_PRIORITY else OTHER, "", ""


def _requested(pod: Object) -> Amount:
    """Return what its containers ask for together, or one before them if it is more."""
    spec = pod["spec"]
    first = spec.get("initContainers") or []
    beside = [one for one in first if one.get("restartPolicy") == "Always"]
    together = sum(map(_of_container, [*spec["containers"], *beside]), Amount())
    before = [_of_container(one) for one in first if one not in beside]
    overhead = _amount(spec.get("overhead"))
    return overhead + Amount(
        max([together.cpus, *(one.cpus for one in before)]),
        max([together.memory_bytes, *(one.memory_bytes for one in before)]),
        max([together.gpus, *(one.gpus for one in before)]),
    )


def _of_container(container: Mapping[str, Any]) -> Amount:
    return _amount((container.get("resources") or {}).get("requests"))


def _amount(resources: Mapping[str, Any] | None) -> Amount:
    known = resources or {}
    return Amount(
        cpus=_cpus(str(known.get("cpu") or 0)),
        memory_bytes=bytes_or_zero(known.get("memory")),
        gpus=int(known.get(_GPU) or 0),
    )


def _cpus(quantity: str) -> float:
    """`500m` -> 0.5."""
    if quantity.endswith("m"):
        return float(quantity[:-1]) / 1000
    return float(quantity)
