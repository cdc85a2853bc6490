"""Runs replicas as pods: the Runner of a job in a cluster.

Owns what was asked for and is not there yet, one task for each such replica, and the
merge of that with what the API server shows. Used by the master's loop as its
`runner.base.Runner`; wired by `kubernetes.cluster`. Must not decide what is relaunched.

`start` and `stop` only note what is wanted and return: a task per replica calls until
the server has done it, through outages and refusals, so that the loop never waits. A
replica whose pod cannot be made yet is shown as pending, with the server's words.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, replace

from elasticdl.errors import PlatformError
from elasticdl.job import names
from elasticdl.job.names import Role
from elasticdl.runner.base import (
    ExitReason,
    Launch,
    Observation,
    Phase,
    ReplicaKey,
    ReplicaState,
)
from elasticdl.runner.kubernetes import pods
from elasticdl.runner.kubernetes.api import (
    FIELD_MANAGER,
    ApiError,
    ApiServer,
    Backoff,
    Json,
)
from elasticdl.runner.kubernetes.config_map import JobConfigMap
from elasticdl.runner.kubernetes.pod_state import generation_of, state_of
from elasticdl.runner.kubernetes.reflecting import Change, Listing, reflect

log = logging.getLogger(__name__)

# Refused for now, by a quota as a rule: others may free what is missing at any time.
_REFUSED_PAUSE_SECONDS = 15.0
_PATIENCE_SECONDS = 300.0
_GOING_SECONDS = 0.1
_KEPT_PODS = 50


@dataclass
class _Wish:
    """What the master wants of a replica, until the API server has done it."""

    launch: Launch | None  # None: it has to go
    generation: int  # of the launch, or of the one that has to go; 0: not known
    grace_seconds: float = 0.0
    created_at: float | None = None  # the loop's time when the pod was there
    task: asyncio.Task[None] | None = None
    trouble: str = ""


class KubernetesRunner:
    """The Runner of one job's pods; belongs to one event loop."""

    def __init__(
        self,
        api: ApiServer,
        *,
        namespace: str,
        job: str,
        config: JobConfigMap,
        priority_classes: Mapping[str, str] | None = None,
    ) -> None:
        """Stamp pods from the templates in `config`, as it is then."""
        self._api = api
        self._path = f"/api/v1/namespaces/{namespace}/pods"
        self._job = job
        self._config = config
        self._priority_classes = priority_classes or {}
        self._wishes: dict[ReplicaKey, _Wish] = {}
        # Workers that ended, oldest first; their pods are kept for their logs.
        self._ended: dict[ReplicaKey, None] = {}
        self._observations: asyncio.Queue[Observation | BaseException] = asyncio.Queue()

    # -- what the master asks for -------------------------------------------------

    async def check(self, launches: Sequence[Launch]) -> None:
        """Create the pods for a try (server-side dry run).

        Quotas, admission, priority classes and service accounts are looked at as for
        the real thing. Raises PlatformError with the server's words.
        """
        for launch in launches:
            name = pods.name_of(self._job, launch.key)
            try:
                await self._api.insist(
                    "POST",
                    self._path,
                    query={"fieldManager": FIELD_MANAGER, "dryRun": "All"},
                    body=self._stamp(launch),
                )
            except ApiError as error:
                if error.reason == "AlreadyExists":
                    continue  # the last one of an earlier life; it is replaced
                raise PlatformError(
                    f"Kubernetes refuses pod {name}: {error}"
                ) from error

    async def start(self, launch: Launch) -> None:
        """Have a pod made; returns at once. Idempotent for a generation."""
        known = self._wishes.get(launch.key)
        if known and known.launch and known.generation == launch.generation:
            return
        self._wish(launch.key, _Wish(launch, launch.generation))

    async def stop(self, key: ReplicaKey, *, grace_seconds: float, reason: str) -> None:
        """Have a pod deleted; returns at once. Not an error if there is none."""
        known = self._wishes.get(key)
        log.info("deleting pod %s: %s", pods.name_of(self._job, key), reason)
        generation = known.generation if known else 0
        self._wish(key, _Wish(None, generation, grace_seconds=grace_seconds))

    def _wish(self, key: ReplicaKey, wish: _Wish) -> None:
        """Replace what was wanted before; a call on its way is waited for first."""
        before = self._wishes.get(key)
        self._wishes[key] = wish
        wish.task = asyncio.create_task(
            self._fulfil(key, wish, before.task if before else None),
            name=pods.name_of(self._job, key),
        )
        wish.task.add_done_callback(self._ended_badly)

    def _ended_badly(self, task: asyncio.Task[None]) -> None:
        """Let whoever watches know of a mistake in this module."""
        if not task.cancelled() and (error := task.exception()):
            self._observations.put_nowait(error)

    async def _fulfil(
        self, key: ReplicaKey, wish: _Wish, before: asyncio.Task[None] | None
    ) -> None:
        if before is not None:
            # It sees that it is no longer wanted before its next call.
            await asyncio.wait([before])
        backoff = Backoff(_REFUSED_PAUSE_SECONDS)
        while self._wishes.get(key) is wish:
            try:
                if wish.launch is not None:
                    done = await self._create(wish.launch)
                else:
                    done = await self._delete(key, wish)
            except PlatformError as error:
                self._note_trouble(key, wish, str(error))
                wait = error.retry_after_seconds if isinstance(error, ApiError) else 0.0
                await self._pause(key, wish, backoff.next_seconds(wait))
                continue
            if done:
                self._done(key, wish)
                return
            await asyncio.sleep(_GOING_SECONDS)  # until the older pod is gone

    async def _pause(self, key: ReplicaKey, wish: _Wish, seconds: float) -> None:
        """Wait, but no longer than this is wanted."""
        until = asyncio.get_running_loop().time() + seconds
        while self._wishes.get(key) is wish:
            left = until - asyncio.get_running_loop().time()
            if left <= 0:
                return
            await asyncio.sleep(min(left, 0.2))

    def _done(self, key: ReplicaKey, wish: _Wish) -> None:
        if wish.launch is not None:
            wish.created_at = asyncio.get_running_loop().time()
        elif self._wishes.get(key) is wish:
            del self._wishes[key]

    # -- calls --------------------------------------------------------------------

    async def _create(self, launch: Launch) -> bool:
        """Create the pod; whether it is there. Raises PlatformError."""
        try:
            await self._api.request(
                "POST",
                self._path,
                query={"fieldManager": FIELD_MANAGER},
                body=self._stamp(launch),
            )
        except ApiError as error:
            if error.reason != "AlreadyExists":
                raise
            return await self._is_there(launch)
        return True

    async def _is_there(self, launch: Launch) -> bool:
        """Look at the pod that has the name; make room if it is an older one."""
        path = f"{self._path}/{pods.name_of(self._job, launch.key)}"
        try:
            pod = await self._api.request("GET", path)
        except ApiError as error:
            if error.status == 404:
                return False  # it has just gone: the name is free
            raise
        ours = self._is_ours(pod)
        generation = generation_of(pod)
        if ours and generation == launch.generation:
            return True
        if ours and generation > launch.generation:
            raise PlatformError(
                f"generation {generation} of {pod['metadata']['name']} runs, and this "
                f"is {launch.generation}: another master has taken over"
            )
        if (pod["metadata"].get("labels") or {}).get(names.LABEL_JOB) != self._job:
            raise PlatformError(
                f"pod {pod['metadata']['name']} is not of this job; delete it or give "
                "the job another name"
            )
        # Nobody waits for it any more: the master has counted it as ended.
        await self._remove(pod["metadata"]["name"], 0.0, uid=pod["metadata"]["uid"])
        return False

    async def _delete(self, key: ReplicaKey, wish: _Wish) -> bool:
        found = await self._remove(pods.name_of(self._job, key), wish.grace_seconds)
        if not found and wish.generation:
            # It never came to be, or went unseen: nothing else will tell.
            self._tell(
                ReplicaState(
                    key, wish.generation, Phase.FAILED, reason=ExitReason.DELETED
                )
            )
        return True

    async def _remove(self, name: str, grace_seconds: float, *, uid: str = "") -> bool:
        """Delete a pod; whether there was one."""
        body: Json = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "gracePeriodSeconds": round(grace_seconds),
        }
        if uid:
            body["preconditions"] = {"uid": uid}
        try:
            await self._api.request("DELETE", f"{self._path}/{name}", body=body)
        except ApiError as error:
            if error.status == 404 or (uid and error.status == 409):
                return False
            raise
        return True

    def _stamp(self, launch: Launch) -> Json:
        config = self._config.current
        priority = self._priority_classes.get(launch.priority, launch.priority)
        return pods.stamp(
            config.templates[launch.key.role],
            replace(launch, priority=priority),
            job=self._job,
            owner=config.owner,
        )

    def _is_ours(self, pod: Json) -> bool:
        """Whether it is of this job, not of an earlier one of the same name."""
        owners = pod["metadata"].get("ownerReferences") or []
        return any(owner.get("uid") == self._config.current.uid for owner in owners)

    # -- watching -----------------------------------------------------------------

    async def watch(self) -> AsyncIterator[Observation]:
        """Yield the whole list first, then changes; the list again after a break."""
        watching = asyncio.create_task(self._watch(), name="pods")
        watching.add_done_callback(self._ended_badly)
        try:
            while True:
                seen = await self._observations.get()
                if isinstance(seen, BaseException):
                    raise seen
                yield seen
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)

    async def _watch(self) -> None:
        selector = {"labelSelector": f"{names.LABEL_JOB}={self._job}"}
        async with contextlib.aclosing(
            reflect(self._api, self._path, selector)
        ) as shown:
            async for one in shown:
                if isinstance(one, Listing):
                    self._observations.put_nowait(self._whole(one))
                elif state := self._take(one):
                    self._tell(state)

    def _whole(self, listing: Listing) -> Observation:
        """Return all there is: the pods listed, and those still to be created."""
        seen = (self._take(Change(item, deleted=False)) for item in listing.items)
        states = {state.key: state for state in seen if state}
        for key, wish in list(self._wishes.items()):
            if wish.launch is None or key in states:
                continue
            if wish.created_at is not None and wish.created_at < listing.began:
                del self._wishes[key]  # it was there before, and is gone
                continue
            states[key] = _waiting(key, wish)
        return Observation(tuple(states.values()), resync=True)

    def _take(self, change: Change) -> ReplicaState | None:
        """Return what a pod shows; None if it is not one of the job's replicas."""
        pod = change.item
        state = state_of(pod, deleted=change.deleted) if self._is_ours(pod) else None
        if state is None:
            return None
        wish = self._wishes.get(state.key)
        if wish and wish.launch and wish.generation == state.generation:
            if wish.created_at is None:
                return state  # its task has still to hear that it was created
            del self._wishes[state.key]
        elif wish and wish.generation < state.generation:
            wish.generation = state.generation
        if state.reason is ExitReason.CANNOT_START and not change.deleted:
            # Counted as ended, so it has to end: it would wait for ever.
            self._wish(state.key, _Wish(None, state.generation))
        elif state.key.role is Role.WORKER:
            going = "deletionTimestamp" in pod["metadata"]
            self._keep_few(state, gone=change.deleted or going)
        return state

    def _keep_few(self, state: ReplicaState, *, gone: bool) -> None:
        """Delete the oldest of many pods that ended: a job may run for months."""
        if gone:
            self._ended.pop(state.key, None)
        elif state.phase in (Phase.SUCCEEDED, Phase.FAILED):
            self._ended[state.key] = None
            if len(self._ended) > _KEPT_PODS:
                oldest = next(iter(self._ended))
                del self._ended[oldest]
                self._wish(oldest, _Wish(None, 0))

    def _note_trouble(self, key: ReplicaKey, wish: _Wish, trouble: str) -> None:
        if trouble == wish.trouble or self._wishes.get(key) is not wish:
            return
        wish.trouble = trouble
        name = pods.name_of(self._job, key)
        verb = "created" if wish.launch else "deleted"
        log.warning("pod %s cannot be %s yet: %s", name, verb, trouble)
        if wish.launch is not None:
            self._tell(_waiting(key, wish))

    def _tell(self, state: ReplicaState) -> None:
        self._observations.put_nowait(Observation((state,)))

    # -- the end ------------------------------------------------------------------

    async def finish(self, *, patience_seconds: float = _PATIENCE_SECONDS) -> None:
        """Delete all pods of a job that has ended, those that ended before it too.

        Pods still to be created are not. Waits for an API server that is away.
        """
        for key, wish in list(self._wishes.items()):
            if wish.launch is not None and wish.created_at is None:
                self._wish(key, _Wish(None, wish.generation))
        try:
            async with asyncio.timeout(patience_seconds):
                await asyncio.gather(*(w.task for w in self._wishes.values() if w.task))
                await self._clear()
        except (TimeoutError, ApiError) as error:
            log.error(
                "pods of the job are left (%s); delete them with `kubectl delete pod "
                "-l %s=%s,%s!=%s`",
                error or f"no answer in {patience_seconds:.0f} s",
                names.LABEL_JOB,
                self._job,
                names.LABEL_ROLE,
                Role.MASTER,
            )
        await self.close()

    async def _clear(self) -> None:
        selector = {"labelSelector": f"{names.LABEL_JOB}={self._job}"}
        listing = await self._api.insist("GET", self._path, query=selector)
        pods_left = [
            pod["metadata"]
            for pod in listing["items"]
            if self._is_ours(pod) and state_of(pod) is not None
        ]
        await asyncio.gather(*(self._clear_one(metadata) for metadata in pods_left))

    async def _clear_one(self, metadata: Json) -> None:
        if metadata.get("deletionTimestamp"):
            return
        try:
            await self._api.insist("DELETE", f"{self._path}/{metadata['name']}")
        except ApiError as error:
            if error.status != 404:
                raise

    async def close(self) -> None:
        """Forget what is left; another master of the job goes on."""
        tasks = [wish.task for wish in self._wishes.values() if wish.task]
        self._wishes.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _waiting(key: ReplicaKey, wish: _Wish) -> ReplicaState:
    return ReplicaState(
        key, wish.generation, Phase.PENDING, pending_reason=wish.trouble
    )
