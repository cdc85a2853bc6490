"""Reads a pod's log through the API server: its end, and what is added to it.

Owns following a log over broken connections. Called by `client.cluster.job`. Must not
know what a line means.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping

from elasticdl.client.cluster.api import ClusterClient, ClusterError, Object
from elasticdl.job.names import MAIN_CONTAINER
from elasticdl.kube.pods import is_over

_LOOK_SECONDS = 1.0  # How often an ended stream is looked at again.


def read_pod_log(
    cluster: ClusterClient,
    pod: Object,
    *,
    tail: int | None = None,
    follow: bool = False,
) -> Iterator[str]:
    """Yield lines without their ends; with `follow` until the pod has ended.

    Lines are asked for with their times, so that after a broken connection reading goes
    on behind the last one. A pod that has no log yet is waited for with `follow`.
    """
    name = str(pod["metadata"]["name"])
    query = {"container": _container(pod), "timestamps": "true"}
    if tail is not None:
        query["tailLines"] = str(tail)
    if follow:
        yield from _followed(cluster, name, query)
    else:
        yield from (line for _, line in _stamped(cluster, name, query, after=""))


def _followed(
    cluster: ClusterClient, name: str, query: dict[str, str]
) -> Iterator[str]:
    query["follow"] = "true"
    last = ""
    while True:
        try:
            for stamp, line in _stamped(cluster, name, query, after=last):
                last = stamp
                yield line
        except ClusterError as error:
            if error.absent or error.forbidden:
                raise
        if _has_ended(cluster, name):
            return
        if last:
            query.pop("tailLines", None)
            query["sinceTime"] = last
        time.sleep(_LOOK_SECONDS)


def _stamped(
    cluster: ClusterClient, name: str, query: Mapping[str, str], *, after: str
) -> Iterator[tuple[str, str]]:
    """Yield (time, line); none that is not later than `after`."""
    path = cluster.path("pods", f"{name}/log")
    for raw in cluster.lines(path, wait="follow" in query, **query):
        stamp, _, line = raw.decode("utf-8", errors="replace").partition(" ")
        if stamp > after:  # sinceTime is read to the second
            yield stamp, line


def _has_ended(cluster: ClusterClient, name: str) -> bool:
    found = cluster.find(cluster.path("pods", name))
    return found is None or is_over(found)


def _container(pod: Object) -> str:
    """Return our container of a pod, `main`, among injected ones."""
    names = [str(one["name"]) for one in pod["spec"]["containers"]]
    return MAIN_CONTAINER if MAIN_CONTAINER in names else names[0]
