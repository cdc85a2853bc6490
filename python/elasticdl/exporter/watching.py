"""What the exporter sees of a cluster: nodes, pods and masters' Jobs, and pods' use.

Owns the copy of them, kept by lists and watches, and the times at which usage is asked
for. Made by `exporter.main`; lives in one event loop. Only reads: it knows no call that
writes. Must not know how metrics are served.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

from elasticdl.exporter.figures import ClusterFigures, Usage, Waits, figures, show
from elasticdl.job.names import LABEL_JOB
from elasticdl.kube.amounts import Amounts, amounts
from elasticdl.kube.api import ApiServer
from elasticdl.kube.errors import ApiError, Json
from elasticdl.kube.inventory import (
    MasterJob,
    Node,
    Pod,
    Serving,
    master_job_of,
    node_of,
    pod_of,
)
from elasticdl.kube.list_and_watch import Listing, WatchEvent, reflect
from elasticdl.metrics.registry import ClusterMetrics

log = logging.getLogger(__name__)

_NODES = "/api/v1/nodes"
_PODS = "/api/v1/pods"
# What has ended holds nothing; the server need not send it.
_NOT_ENDED = {"fieldSelector": "status.phase!=Succeeded,status.phase!=Failed"}
_JOBS = "/apis/batch/v1/jobs"
_OF_MASTERS = {"labelSelector": f"{LABEL_JOB},app.kubernetes.io/component=master"}
_USAGE = "/apis/metrics.k8s.io/v1beta1/pods"
_USAGE_SECONDS = 15.0  # as often as metrics-server measures


class WatchedCluster:
    """The observed state of a cluster."""

    def __init__(
        self,
        api: ApiServer,
        serving: Serving,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Start with no observation."""
        self._api = api
        self._serving = serving
        self._clock = clock
        self._nodes: dict[str, Node] | None = None
        self._pods: dict[str, Pod] | None = None
        self._jobs: dict[str, MasterJob] | None = None
        self._usage: Usage | None = None
        self._waits = Waits()

    @property
    def known(self) -> bool:
        """Whether nodes, pods and Jobs were listed once."""
        return None not in (self._nodes, self._pods, self._jobs)

    async def watch(self) -> None:
        """Follow the cluster for ever, through outages.

        Raises ApiError when the first list of nodes, pods or Jobs is refused.
        """
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._watch_nodes(), name="nodes")
            tasks.create_task(self._watch_pods(), name="pods")
            tasks.create_task(self._watch_jobs(), name="jobs")
            tasks.create_task(self._measure(), name="usage")

    def update(self, metrics: ClusterMetrics) -> None:
        """Set the metrics to what was observed; nothing before the first listing."""
        if self._nodes is None or self._pods is None or self._jobs is None:
            return
        now, pods = self._clock(), self._pods.values()
        made: ClusterFigures = figures(
            self._nodes.values(), pods, self._usage, self._jobs.values()
        )
        waited = self._waits.seconds(pods, now=now)
        show(metrics, made, waited, up=not self._api.away)

    async def _watch_nodes(self) -> None:
        async for seen in reflect(self._api, _NODES, {}):
            if isinstance(seen, Listing):
                self._nodes = {n.name: n for n in map(node_of, seen.items)}
            elif self._nodes is not None:
                self._change_node(self._nodes, seen)

    @staticmethod
    def _change_node(nodes: dict[str, Node], seen: WatchEvent) -> None:
        node = node_of(seen.item)
        if seen.deleted:
            nodes.pop(node.name, None)
        else:
            nodes[node.name] = node

    async def _watch_pods(self) -> None:
        async for seen in reflect(self._api, _PODS, _NOT_ENDED):
            if isinstance(seen, Listing):
                read = (pod_of(item, self._serving) for item in seen.items)
                listed = {pod.uid: pod for pod in read if pod}
                for uid, pod in (self._pods or {}).items():
                    if uid not in listed:
                        self._waits.left(pod, now=self._clock())
                self._pods = listed
            elif self._pods is not None:
                self._change_pod(self._pods, seen)

    def _change_pod(self, pods: dict[str, Pod], seen: WatchEvent) -> None:
        pod = None if seen.deleted else pod_of(seen.item, self._serving)
        if pod is not None:
            pods[pod.uid] = pod
        elif gone := pods.pop(seen.item["metadata"]["uid"], None):
            self._waits.left(gone, now=self._clock())

    async def _watch_jobs(self) -> None:
        async for seen in reflect(self._api, _JOBS, _OF_MASTERS):
            if isinstance(seen, Listing):
                self._jobs = {j.uid: j for j in map(master_job_of, seen.items)}
            elif self._jobs is not None:
                job = master_job_of(seen.item)
                if seen.deleted:
                    self._jobs.pop(job.uid, None)
                else:
                    self._jobs[job.uid] = job

    async def _measure(self) -> None:
        """Poll the resource use of pods, if the cluster measures it."""
        told = ""
        while True:
            try:
                answer = await self._api.request("GET", _USAGE)
            except ApiError as error:
                self._usage = None  # old figures would look like new ones
                words = "not measured" if error.status == 404 else str(error)
                if words != told and error.status:
                    log.info("the use of pods is not shown: %s", words)
                told = words
            else:
                self._usage, told = usage_of(answer), ""
            await asyncio.sleep(_USAGE_SECONDS)


def usage_of(listing: Json) -> Usage:
    """Return the resource use of pods from a list of metrics.k8s.io."""
    found = {}
    for item in listing.get("items") or []:
        used = (amounts(c.get("usage")) for c in item.get("containers") or [])
        key = (item["metadata"]["namespace"], item["metadata"]["name"])
        found[key] = sum(used, Amounts())
    return found
