"""All jobs of a namespace or of a cluster, seen with a handful of calls.

Owns the grouping of objects by job. Called by `elasticdl list`. What a job's objects
mean is in `client.cluster.objects`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from elasticdl.client.cluster.api import (
    BATCH,
    CORE,
    ClusterClient,
    ClusterError,
    Object,
)
from elasticdl.client.cluster.objects import JobObjects, newest, view_of
from elasticdl.client.handle import JobView
from elasticdl.job.names import KEY_JOB, LABEL_JOB, status_config_map_name

Key = tuple[str, str]  # namespace and job


def cluster_views(cluster: ClusterClient, *, everywhere: bool = False) -> list[JobView]:
    """Return a view of each job, sorted by namespace and name.

    Four calls, however many jobs there are. Raises ClusterError.
    """

    def listed(resource: str, group: str = CORE, **query: str) -> list[Object]:
        there = cluster.path(resource, group=group)
        return cluster.items(f"{group}/{resource}" if everywhere else there, **query)

    maps = listed("configmaps", labelSelector=LABEL_JOB)
    if not maps:
        return []
    jobs = listed("jobs", BATCH, labelSelector=LABEL_JOB)
    pods = listed("pods", labelSelector=LABEL_JOB)
    try:
        events = listed("events", fieldSelector="type=Warning")
    except ClusterError as error:
        if not error.forbidden:
            raise
        events = []
    return [
        view_of(name, observed, place=f"namespace {namespace}")
        for (namespace, name), observed in group(maps, jobs, pods, events)
    ]


def group(
    maps: Sequence[Object],
    jobs: Iterable[Object],
    pods: Iterable[Object],
    events: Iterable[Object],
) -> list[tuple[Key, JobObjects]]:
    """Return the objects of each job; all but events carry its label."""
    named = {_name(one): one for one in maps}
    masters_of: dict[Key, list[Object]] = defaultdict(list)
    for job in jobs:
        masters_of[_label(job)].append(job)
    pods_of: dict[Key, list[Object]] = defaultdict(list)
    for pod in pods:
        pods_of[_label(pod)].append(pod)
    events_in: dict[str, list[Object]] = defaultdict(list)
    for event in events:
        events_in[event["metadata"]["namespace"]].append(event)
    found = {_label(one): one for one in maps if KEY_JOB in (one.get("data") or {})}
    return [
        (
            key,
            JobObjects(
                config_map,
                named.get((key[0], status_config_map_name(key[1]))),
                newest(masters_of[key]),
                pods_of[key],
                events_in[key[0]],
            ),
        )
        for key, config_map in sorted(found.items())
    ]


def _label(thing: Object) -> Key:
    metadata = thing["metadata"]
    return str(metadata["namespace"]), str(metadata["labels"][LABEL_JOB])


def _name(thing: Object) -> Key:
    return str(thing["metadata"]["namespace"]), str(thing["metadata"]["name"])
