"""How full a cluster is, and with what: serving, training jobs, other pods.

Owns the calls. Called by `elasticdl top`. What pods are and what they hold is as the
platform exporter counts it. Nodes and pods of all namespaces have to be readable; where
they are not, the answer says so.
"""

from __future__ import annotations

from collections.abc import Iterable

from elasticdl.client.cluster.api import CORE, ClusterClient, ClusterError, Object
from elasticdl.client.usage import ClusterUsage
from elasticdl.exporter.figures import figures
from elasticdl.job.chart.monitoring import ExporterValues
from elasticdl.kube.amounts import Amounts
from elasticdl.kube.inventory import NOT_READY, Serving, node_of, pod_of

# A platform may have another value: the exporter is told it, here nobody is.
_SERVING = Serving(ExporterValues().serving_priority)


def cluster_usage(cluster: ClusterClient) -> ClusterUsage:
    """Return the use of all nodes (two calls). Raises ClusterError."""
    try:
        nodes = cluster.items(f"{CORE}/nodes")
        # From the API server's cache: much cheaper, and a moment old at most.
        pods = cluster.items(f"{CORE}/pods", resourceVersion="0")
    except ClusterError as error:
        if not error.forbidden:
            raise
        return ClusterUsage(
            unknown="not known: it takes the right to list nodes and all pods"
        )
    return usage_of(nodes, pods)


def usage_of(nodes: Iterable[Object], pods: Iterable[Object]) -> ClusterUsage:
    """Return the capacity of ready nodes, and the requests of their pods by class."""
    known = [pod_of(pod, _SERVING) for pod in pods]
    found = figures(
        map(node_of, nodes), (pod for pod in known if pod is not None), None
    )
    held: dict[str, Amounts] = {}
    for holder, asked in found.requested.items():
        held[holder.kind] = held.get(holder.kind, Amounts()) + asked
    ready = sum(n for state, n in found.nodes.items() if state != NOT_READY)
    return ClusterUsage(ready, found.allocatable, held)
