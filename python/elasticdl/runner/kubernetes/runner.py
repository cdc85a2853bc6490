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
from dataclasses import dataclass

from elasticdl.errors import PlatformError
from elasticdl.job import names
from elasticdl.job.names import Role
from elasticdl.job.words import ExitReason
from elasticdl.kube.api import ApiServer
from elasticdl.kube.errors import ApiError, Backoff
from elasticdl.kube.list_and_watch import Listing, WatchEvent, reflect
from elasticdl.runner.base import (
    Launch,
    Observation,
    ObservedReplica,
    Phase,
    ReplicaKey,
)
from elasticdl.runner.kubernetes import pods
from elasticdl.runner.kubernetes.config_map import JobConfigMap
from elasticdl.runner.kubernetes.pod_calls import Enrol, PodCalls
from elasticdl.runner.kubernetes.pod_state import state_of

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
        enrol: Enrol = lambda _: {},
    ) -> None:
        """Create pods from the present templates in `config`."""
        self._api = api
        self._job = job
        self._calls = PodCalls(
            api,
            namespace=namespace,
            job=job,
            config=config,
            priority_classes=priority_classes or {},
            enrol=enrol,
        )
        self._wishes: dict[ReplicaKey, _Wish] = {}
        # Workers that ended, oldest first; their pods are kept for their logs.
        self._ended: dict[ReplicaKey, None] = {}
        self._observations: asyncio.Queue[Observation | BaseException] = asyncio.Queue()

    # -- what the master asks for -------------------------------------------------

    async def check(self, launches: Sequence[Launch]) -> None:
        """Create the pods as a server-side dry run.

        Quotas, admission, priority classes and service accounts are looked at as for
        the real thing. Raises PlatformError with the server's words.
        """
        for launch in launches:
            await self._calls.try_out(launch)

    async def start(self, launch: Launch) -> None:
        """Request a pod; returns at once. Idempotent for a generation."""
        known = self._wishes.get(launch.key)
        if known and known.launch and known.generation == launch.generation:
            return
        self._wish(launch.key, _Wish(launch, launch.generation))

    async def stop(self, key: ReplicaKey, *, grace_seconds: float, reason: str) -> None:
        """Request a pod's deletion; returns at once. Not an error if there is none."""
        known = self._wishes.get(key)
        log.info("deleting pod %s: %s", self._name(key), reason)
        generation = known.generation if known else 0
        self._wish(key, _Wish(None, generation, grace_seconds=grace_seconds))

    def _wish(self, key: ReplicaKey, wish: _Wish) -> None:
        """Replace the earlier wish; a call in progress is awaited first."""
        before = self._wishes.get(key)
        self._wishes[key] = wish
        wish.task = asyncio.create_task(
            self._fulfil(key, wish, before.task if before else None),
            name=self._name(key),
        )
        wish.task.add_done_callback(self._ended_badly)

    def _ended_badly(self, task: asyncio.Task[None]) -> None:
        """Pass an unexpected error of a task to the watcher."""
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
                    done = await self._calls.create(wish.launch)
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
        """Wait, but not longer than the wish lasts."""
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

    async def _delete(self, key: ReplicaKey, wish: _Wish) -> bool:
        found = await self._calls.remove(self._name(key), wish.grace_seconds)
        if not found and wish.generation:
            # It never came to be, or went unseen: nothing else will tell.
            self._tell(
                ObservedReplica(
                    key, wish.generation, Phase.FAILED, reason=ExitReason.DELETED
                )
            )
        return True

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
            reflect(self._api, self._calls.path, selector)
        ) as shown:
            async for one in shown:
                if isinstance(one, Listing):
                    self._observations.put_nowait(self._whole(one))
                elif state := self._take(one):
                    self._tell(state)

    def _whole(self, listing: Listing) -> Observation:
        """Return all replicas: listed pods, and pods still to be created."""
        seen = (self._take(WatchEvent(item, deleted=False)) for item in listing.items)
        states = [state for state in seen if state]
        waiting = []
        for key, wish in list(self._wishes.items()):
            if wish.launch is None or _is_among(states, key, wish.generation):
                continue
            if wish.created_at is not None and wish.created_at < listing.began:
                del self._wishes[key]  # it was there before, and is gone
                continue
            waiting.append(_waiting(key, wish))
        return Observation((*states, *waiting), resync=True)

    def _take(self, change: WatchEvent) -> ObservedReplica | None:
        """Return a pod's state; None if it is not a replica of the job."""
        pod = change.item
        state = (
            state_of(pod, deleted=change.deleted) if self._calls.is_ours(pod) else None
        )
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

    def _keep_few(self, state: ObservedReplica, *, gone: bool) -> None:
        """Delete the oldest of many ended pods: a job may run for months."""
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
        name = self._name(key)
        verb = "created" if wish.launch else "deleted"
        log.warning("pod %s cannot be %s yet: %s", name, verb, trouble)
        if wish.launch is not None:
            self._tell(_waiting(key, wish))

    def _name(self, key: ReplicaKey) -> str:
        return pods.name_of(self._job, key)

    def _tell(self, state: ObservedReplica) -> None:
        self._observations.put_nowait(Observation((state,)))

    # -- the end ------------------------------------------------------------------

    async def finish(self, *, patience_seconds: float = _PATIENCE_SECONDS) -> None:
        """Delete all pods of an ended job, including ended ones.

        Pods still to be created are not. Waits for an API server that is away.
        """
        for key, wish in list(self._wishes.items()):
            if wish.launch is not None and wish.created_at is None:
                self._wish(key, _Wish(None, wish.generation))
        try:
            async with asyncio.timeout(patience_seconds):
                await asyncio.gather(*(w.task for w in self._wishes.values() if w.task))
                await self._calls.clear()
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

    async def close(self) -> None:
        """Drop all wishes; another master of the job continues."""
        tasks = [wish.task for wish in self._wishes.values() if wish.task]
        self._wishes.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _is_among(
    states: Sequence[ObservedReplica], key: ReplicaKey, generation: int
) -> bool:
    """Whether this pod is listed; an older one of its name may still be ending."""
    return any(s.key == key and s.generation >= generation for s in states)


def _waiting(key: ReplicaKey, wish: _Wish) -> ObservedReplica:
    return ObservedReplica(
        key, wish.generation, Phase.PENDING, pending_reason=wish.trouble
    )
