"""Jobs in a cluster as functions: submit, find, watch, change and stop them.

Reached through the objects that the chart and the master keep there, with the user's
own kube context. Called by the CLI and by notebooks:

    cluster = connect(Where(namespace="ml"))
    ClusterJob(cluster, "digits").scale(Scaling(workers=4))

Must not print, nor read the environment.
"""

from elasticdl.client.cluster.api import ClusterClient, Where, connect
from elasticdl.client.cluster.job import ClusterJob, find_in_cluster
from elasticdl.client.cluster.listing import cluster_views
from elasticdl.client.cluster.submit import Submission, render, submit
from elasticdl.client.cluster.usage import cluster_usage

__all__ = [
    "ClusterClient",
    "ClusterJob",
    "Submission",
    "Where",
    "cluster_usage",
    "cluster_views",
    "connect",
    "find_in_cluster",
    "render",
    "submit",
]
