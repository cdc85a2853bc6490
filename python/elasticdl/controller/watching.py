"""What the controller sees of a cluster: nodes, pods, and the ConfigMaps of jobs.

Owns the copy of them, kept by lists and watches, and how old it is. Made by
`controller.main` and lives in one event loop. Only reads. Must not know plans.

Jobs are looked for where their pods are, and where it is told to look. A namespace
whose ConfigMaps may not be read, or no longer, has a platform that does not name this
controller: its jobs are left alone, and it is asked again a minute later.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Container, Iterable, Mapping
from contextlib import aclosing, suppress
from dataclasses import dataclass, field, replace

from elasticdl.controller.jobs import (
    Classes,
    Granted,
    JobReader,
    KnownJob,
    is_job,
    key_of,
    only_renewed,
    parse,
)
from elasticdl.controller.keeping import KeptJobs, length_of
from elasticdl.controller.pods import Pods
from elasticdl.controller.reading import node_of, pod_of
from elasticdl.controller.tails import Tails
from elasticdl.controller.unread import Unread
from elasticdl.job import names
from elasticdl.job.status import JobStatus
from elasticdl.kube.api import ApiServer
from elasticdl.kube.errors import ApiError, Json
from elasticdl.kube.inventory import Serving
from elasticdl.kube.list_and_watch import Listing, Patience, reflect
from elasticdl.planner.view import ClusterView, Job, JobKey, Node, Pod

log = logging.getLogger(__name__)

_NOT_ENDED = {"fieldSelector": "status.phase!=Succeeded,status.phase!=Failed"}
# Not those that masters write: a status changes every few seconds, and is large.
_OF_JOBS = {
    "labelSelector": f"{names.LABEL_JOB},{names.LABEL_MANAGED_BY}"
    f"!={names.MANAGED_BY_MASTER}"
}
_REFUSED_SECONDS = 60.0
# How soon the status of a job without a master is looked at again; doubled each time.
_FIRST_LOOK_SECONDS, _LAST_LOOK_SECONDS = 2.0, 60.0


@dataclass(frozen=True)
class Watches:
    """What is to be watched, and how pods are told apart."""

    serving: Serving
    namespaces: tuple[str, ...]  # looked at in any case
    by: str  # what this controller signs grants with
    classes: Classes = field(default_factory=Classes)
    stale_seconds: float = 15.0  # within which a watch that is dead is noticed
    tail_seconds: float = 5.0  # after which a job that lacks workers is looked at


@dataclass
class _End:
    """What is known of the end of a job that has no master's pod."""

    of: tuple[str, int]  # uid and run
    ended: bool | None = None  # None: not looked at yet
    pause: float = _FIRST_LOOK_SECONDS
    at: float = 0.0  # when to look again


class WatchedCluster:
    """The observed state of a cluster."""

    def __init__(
        self,
        api: ApiServer,
        watches: Watches,
        *,
        clock: Callable[[], float] = time.time,
        steady: Callable[[], float] = time.monotonic,
    ) -> None:
        """Start with no observation."""
        self._api = api
        self._watches = watches
        self._clock, self._steady = clock, steady
        self._patience = Patience.within(watches.stale_seconds)
        self._nodes: dict[str, Node] = {}
        self._pods = Pods()
        self._classes = watches.classes
        self._granted = Granted(watches.by)
        self._items = KeptJobs()
        self._reader = JobReader()
        self._unread = Unread()
        self._to_read = asyncio.Event()
        # Until then no plan is made without jobs that are there and not read yet.
        self._complete_by = steady() + watches.stale_seconds
        self._ends: dict[JobKey, _End] = {}
        self._tails = Tails(watches.tail_seconds)
        self._following: dict[str, float | None] = {}  # None: since when it does not
        self._looked: dict[str, asyncio.Task[None]] = {}
        self._group: asyncio.TaskGroup | None = None
        self._fewer = False  # a pod or a ConfigMap of a job is gone
        self.changed = asyncio.Event()

    # -- asking -------------------------------------------------------------------

    @property
    def age(self) -> float | None:
        """Seconds since when something may have been missed; None: never complete."""
        broken = [at for at in self._following.values() if at is not None]
        if not {"nodes", "pods"} <= self._following.keys():
            return None
        if any(at < 0 for at in broken):
            return None
        if self._to_read.is_set() and self._steady() < self._complete_by:
            return None
        return self._steady() - min(broken) if broken else 0.0

    def view(self, jobs: Mapping[JobKey, KnownJob]) -> ClusterView:
        """Return what a plan for these jobs is made for."""
        return ClusterView(
            nodes=tuple(self._nodes.values()),
            pods=tuple(self._pods),
            jobs=tuple(self._job(known) for known in jobs.values()),
        )

    def _job(self, known: KnownJob) -> Job:
        left = self._tails.left(known.job.key, known.uid)
        return self._granted.job(known, left, self._clock())

    def jobs(self) -> dict[JobKey, KnownJob]:
        """Return the jobs that have not ended."""
        with_master = self._pods.with_master
        found = {}
        for key, item in self._items.items():
            known = self._reader.job_of(item, self._classes)
            if known is not None and self._lives(key, known, key in with_master):
                found[key] = known
        return found

    def _lives(self, key: JobKey, known: KnownJob, has_master: bool) -> bool:
        end = self._ends.get(key)
        of = (known.uid, known.run)
        if has_master:
            self._ends.pop(key, None)
            return True
        if end is None or end.of != of:
            self._ends[key] = _End(of)
            return False  # before anybody knows: it may have ended long ago
        return end.ended is False

    # -- watching -----------------------------------------------------------------

    async def watch(self) -> None:
        """Follow the cluster for ever, through outages.

        Raises ApiError (in a group) when the first list of nodes or pods is refused.
        """
        async with asyncio.TaskGroup() as group:
            self._group = group
            group.create_task(self._watch_nodes(), name="nodes")
            group.create_task(self._watch_pods(), name="pods")
            group.create_task(self._read_texts(), name="texts")
            group.create_task(self._look_at_ends(), name="ends")
            group.create_task(self._look_at_tails(), name="tails")
            self._look_in(self._watches.namespaces)

    def _gap(self, what: str, silent: float) -> None:
        if self._following.get(what) is None:
            self._following[what] = max(0.0, self._steady() - silent)

    def _whole(self, what: str) -> None:
        self._following[what] = None
        self.changed.set()

    async def _watch_nodes(self) -> None:
        seen_all = reflect(
            self._api,
            "/api/v1/nodes",
            {},
            on_gap=lambda silent: self._gap("nodes", silent),
            patience=self._patience,
        )
        async for seen in seen_all:
            if isinstance(seen, Listing):
                self._nodes = {n.name: n for n in map(node_of, seen.items)}
                self._whole("nodes")
                continue
            node = node_of(seen.item)
            # Kubelets say each few seconds that nothing is new.
            if seen.deleted:
                self._nodes.pop(node.name, None)
            elif self._nodes.get(node.name) == node:
                continue
            else:
                self._nodes[node.name] = node
            self.changed.set()

    async def _watch_pods(self) -> None:
        seen_all = reflect(
            self._api,
            "/api/v1/pods",
            _NOT_ENDED,
            on_gap=lambda silent: self._gap("pods", silent),
            patience=self._patience,
            keep=lambda: self._read_pod,
        )
        async for seen in seen_all:
            if isinstance(seen, Listing):
                self._pods.clear()
                self._fewer = True
                for read in seen.items:
                    self._take_pod(*read)
                self._whole("pods")
            elif seen.deleted:
                self._drop_pod(seen.item["metadata"]["uid"])
            else:
                self._take_pod(*self._read_pod(seen.item))

    def _read_pod(self, item: Json) -> tuple[str, str, Pod | None]:
        """Return a pod's uid, the name of its class, and what is kept of it."""
        name = (item.get("spec") or {}).get("priorityClassName") or ""
        return item["metadata"]["uid"], name, pod_of(item, self._watches.serving)

    def _take_pod(self, uid: str, class_name: str, pod: Pod | None) -> None:
        if pod is None:
            self._drop_pod(uid)
            return
        values = self._classes.values
        if class_name and values.get(class_name) != pod.priority:
            values = {**values, class_name: pod.priority}
            self._classes = replace(self._classes, values=values)
        if not self._pods.put(uid, pod):
            return
        self.changed.set()
        if pod.job:
            self._look_in([pod.namespace])

    def _drop_pod(self, uid: str) -> None:
        if (pod := self._pods.drop(uid)) is not None:
            self._fewer = self._fewer or bool(pod.job)
            self.changed.set()

    def _look_away(self) -> None:
        """Watch no namespace any more that has nothing of a job left."""
        self._fewer = False
        used = {*self._watches.namespaces, *(key.namespace for key in self._items)}
        used |= {pod.namespace for pod in self._pods if pod.job}
        for namespace in [one for one in self._looked if one not in used]:
            self._looked.pop(namespace).cancel()
            self._following.pop(namespace, None)

    def _look_in(self, namespaces: Iterable[str]) -> None:
        for namespace in namespaces:
            if namespace not in self._looked and self._group is not None:
                # What is there is part of a whole view.
                self._following[namespace] = -1.0
                self._looked[namespace] = self._group.create_task(
                    self._watch_jobs(namespace), name=f"jobs of {namespace}"
                )

    async def _watch_jobs(self, namespace: str) -> None:
        path = f"/api/v1/namespaces/{namespace}/configmaps"
        told = False
        while True:
            try:
                async with aclosing(
                    reflect(
                        self._api,
                        path,
                        _OF_JOBS,
                        on_gap=lambda silent: self._gap(namespace, silent),
                        patience=self._patience,
                        until_refused=True,
                        keep=lambda: self._items.keeping(namespace).lean,
                    )
                ) as seen_all:
                    async for seen in seen_all:
                        told = False
                        self._take_jobs(namespace, seen)
                        if self._items.has_room(namespace):
                            break
                continue  # what there was no room for is asked for once more
            except ApiError as error:
                if not told:
                    log.info(
                        "jobs of namespace %s are left alone: %s", namespace, error
                    )
                told = True
                self._keep(namespace, ())
                self._whole(namespace)  # nothing of it is seen, nor to be
            await asyncio.sleep(_REFUSED_SECONDS)

    def _take_jobs(self, namespace: str, seen: object) -> None:
        if isinstance(seen, Listing):
            listed = {key_of(item): item for item in filter(is_job, seen.items)}
            self._keep(namespace, listed)
            for key, one in listed.items():
                self._items.put(key, one)
                self._read_later(one)
            self._whole(namespace)
            return
        item, deleted = seen.item, seen.deleted  # type: ignore[attr-defined]
        item = self._items.keeping(namespace).lean(item)
        if deleted or not is_job(item):
            # By its name: one that is no job any more may have lost its label too.
            name = item["metadata"]["name"]
            key = JobKey(namespace, name.removeprefix(names.config_map_name("")))
            if key not in self._items or names.config_map_name(key.name) != name:
                return
            self._forget(key)
        else:
            before = self._items.get(key_of(item))
            self._items.put(key_of(item), item)
            if before is not None and only_renewed(before, item):
                return
            self._read_later(item)
        self.changed.set()

    def _keep(self, namespace: str, listed: Container[JobKey]) -> None:
        """Forget the other jobs of a namespace."""
        for key in list(self._items):
            if key.namespace == namespace and key not in listed:
                self._forget(key)

    def _forget(self, key: JobKey) -> None:
        self._fewer = True
        self._items.drop(key)
        self._unread.drop(key)
        self._ends.pop(key, None)
        self._tails.forget(key)
        self._reader.forget(key)
        self._granted.forget(key)

    # -- texts --------------------------------------------------------------------

    def _read_later(self, item: Json) -> None:
        if self._reader.has_read(item):
            self._unread.drop(key_of(item))
            return
        self._unread.add(key_of(item), item, length_of(item))
        self._to_read.set()

    async def _read_texts(self) -> None:
        """Read what jobs say, one after the other, beside this loop.

        Until then a job that was edited is as it was before, and a new one is none.
        """
        loop = asyncio.get_running_loop()
        while True:
            await self._to_read.wait()
            while (item := self._unread.next(self._steady())) is not None:
                began = self._steady()
                parsed = await loop.run_in_executor(None, parse, item)
                self._unread.took(parsed.key, self._steady() - began)
                now = self._items.get(parsed.key)
                if now is not None and now["metadata"]["uid"] == parsed.uid:
                    self._reader.take(parsed)
                    self.changed.set()
            self._to_read.clear()
            self.changed.set()

    # -- ends ---------------------------------------------------------------------

    async def _look_at_ends(self) -> None:
        """Find out which of the jobs without a master's pod have ended."""
        while True:
            if self._fewer:
                self._look_away()
            now = self._steady()
            for key, end in list(self._ends.items()):
                if not end.ended and end.at <= now:
                    await self._look_at_end(key, end)
            await asyncio.sleep(0.25)

    async def _status_of(self, key: JobKey, owner: str) -> JobStatus | None:
        """Return what the master of a job said last. Raises ApiError."""
        name = names.status_config_map_name(key.name)
        path = f"/api/v1/namespaces/{key.namespace}/configmaps/{name}"
        return _status_in(await self._api.request("GET", path), owner)

    async def _look_at_tails(self) -> None:
        """Find out which of the jobs that lack workers have few tasks left."""
        while True:
            now = self._steady()
            for key in self._tails.due(self._short(), now):
                left = None
                with suppress(ApiError):
                    told = await self._status_of(key, self._uid(key))
                    left = told.tasks_left if told is not None else None
                if self._tails.told(key, left, now):
                    self.changed.set()
            await asyncio.sleep(self._watches.tail_seconds)

    def _short(self) -> dict[JobKey, str]:
        """Return the jobs whose masters make fewer workers than they were granted."""
        made = self._pods.workers
        known, with_master = self.jobs(), self._pods.with_master
        for key in known.keys() - with_master:
            self._tails.forget(key)
        found = {}
        for key, one in known.items():
            if one.grant is None or made.get(key, 0) >= one.grant.workers:
                continue  # so it is with most
            job = self._job(one)
            lacks = job.takes_part and made.get(key, 0) < min(job.granted or 0, job.max)
            if lacks and key in with_master:
                found[key] = one.uid
        return found

    def _uid(self, key: JobKey) -> str:
        item = self._items.get(key)
        return str(item["metadata"]["uid"]) if item is not None else ""

    async def _look_at_end(self, key: JobKey, end: _End) -> None:
        before = end.ended
        try:
            status = await self._status_of(key, end.of[0])
            end.ended = status is not None and status.state.ended
        except ApiError as error:
            if error.status != 404:
                end.at = self._steady() + end.pause
                return
            end.ended = False
        end.at = self._steady() + end.pause
        end.pause = min(2 * end.pause, _LAST_LOOK_SECONDS)
        if end.ended != before:
            self.changed.set()


def _status_in(item: Json, owner: str) -> JobStatus | None:
    """Return the status of the job whose ConfigMap has this uid."""
    owners = item["metadata"].get("ownerReferences") or []
    if owner not in {one.get("uid") for one in owners}:
        return None
    try:
        return JobStatus.model_validate_json(
            (item.get("data") or {}).get(names.KEY_STATUS, "")
        )
    except ValueError:
        return None
