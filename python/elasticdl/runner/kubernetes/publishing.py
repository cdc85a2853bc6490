"""The job's status and history as ConfigMaps, a headline, and what happens as Events.

Owns how often they are written, and the Events. Used by the master as its
`runner.publisher.Publisher`; wired by `kubernetes.cluster`. Must never disturb the job:
what the API server does not take now is tried again later, or left out.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import logging
import time
from collections.abc import Callable, Mapping

from elasticdl.job import names
from elasticdl.job.names import Role
from elasticdl.kube import times
from elasticdl.kube.api import FIELD_MANAGER, ApiServer
from elasticdl.kube.errors import ApiError, Json
from elasticdl.runner.kubernetes.config_map import JobConfigMap
from elasticdl.runner.kubernetes.headline import Headline
from elasticdl.runner.kubernetes.kept_config_map import KeptConfigMap
from elasticdl.runner.publisher import Notice

log = logging.getLogger(__name__)

# `status --watch` looks as often; the API server is asked no more than that.
_PERIOD_SECONDS = 2.0
_HISTORY_PERIOD_SECONDS = 10.0  # A history is up to 768 KiB.
# What is large is written less often: etcd keeps each version for minutes.
_BYTES_PER_SECOND = 16 * 2**10
_CLOSE_SECONDS = 120.0
_LONGEST_MESSAGE = 1000
_QUEUED_EVENTS = 100
_BURST_EVENTS = 30
_SECONDS_PER_EVENT = 5.0


class Allowance:
    """A token bucket. Pure: `now` is an argument."""

    def __init__(self, burst: int, seconds_each: float) -> None:
        """Start with a full burst."""
        self._burst = burst
        self._each = seconds_each
        self._left = float(burst)
        self._at = 0.0

    def take(self, *, now: float) -> bool:
        """Whether one more is allowed now."""
        gained = (now - self._at) / self._each if self._at else 0.0
        self._left = min(self._burst, self._left + gained)
        self._at = now
        if self._left < 1.0:
            return False
        self._left -= 1.0
        return True


class StatusPublisher:
    """Publishes one job to its namespace; created in the running event loop."""

    def __init__(
        self,
        api: ApiServer,
        *,
        namespace: str,
        job: str,
        config: JobConfigMap,
        master_job: str,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Write objects beside the job's ConfigMap, which owns them.

        The headline goes to the master's batch Job, `master_job`.
        """
        self._api = api
        self._namespace = namespace
        self._path = f"/api/v1/namespaces/{namespace}"
        self._job = job
        self._config = config
        self._clock = clock
        self._status = KeptConfigMap(
            api, names.status_config_map_name(job), self._path, config, job
        )
        # Of an earlier run of the job; it goes with the first status of this one.
        self._stale: dict[str, str | None] = {names.KEY_REPORT: None}
        self._history = KeptConfigMap(
            api, names.history_config_map_name(job), self._path, config, job
        )
        self._headline = Headline(api, namespace=namespace, master_job=master_job)
        self._events: collections.deque[Json] = collections.deque(maxlen=_QUEUED_EVENTS)
        self._noticed = asyncio.Event()
        self._allowance = Allowance(_BURST_EVENTS, _SECONDS_PER_EVENT)
        self._object: Json | None = None  # that events are about
        self.period_seconds = _PERIOD_SECONDS
        self.history_period_seconds = _HISTORY_PERIOD_SECONDS
        self._tasks = [
            asyncio.create_task(self._status.keep(), name="status"),
            asyncio.create_task(self._history.keep(), name="history"),
            asyncio.create_task(self._send_events(), name="events"),
        ]

    def status(self, document: str) -> None:
        """Publish this status (JSON of JobStatus)."""
        self.period_seconds = max(_PERIOD_SECONDS, len(document) / _BYTES_PER_SECOND)
        self._show({names.KEY_STATUS: document})

    def history(self, document: bytes) -> None:
        """Publish this history."""
        self.history_period_seconds = max(
            _HISTORY_PERIOD_SECONDS, len(document) / _BYTES_PER_SECOND
        )
        self._history.show({}, {names.KEY_HISTORY: document})

    def headline(self, state: str, message: str) -> None:
        """Write state and message to the master's Job."""
        self._headline.show(state, message)

    def notice(self, notice: Notice) -> None:
        """Create an Event, unless there were too many lately."""
        if not self._allowance.take(now=self._clock()):
            log.debug("no event for %s: too many", notice.reason)
            return
        now = times.now()
        message = notice.message
        if len(message) > _LONGEST_MESSAGE:
            message = message[: _LONGEST_MESSAGE - 3] + "..."
        self._events.append(
            {
                "reason": notice.reason,
                "message": message,
                "type": "Warning" if notice.warning else "Normal",
                "firstTimestamp": now,
                "lastTimestamp": now,
                "count": 1,
            }
        )
        self._noticed.set()

    async def close(self, *, status: str, report: str) -> None:
        """Publish the last status and the report; wait for it, within a limit."""
        documents = {names.KEY_STATUS: status, names.KEY_REPORT: report}
        self._show({key: text for key, text in documents.items() if text})
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_CLOSE_SECONDS):
                await self._status.written.wait()
                await self._history.written.wait()
                await self._headline.written.wait()
                while self._events:
                    await asyncio.sleep(0.05)
        await self.stop()

    async def stop(self) -> None:
        """Stop writing; another master of the job continues."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._headline.stop()

    def _show(self, documents: Mapping[str, str]) -> None:
        stale, self._stale = self._stale, {}
        self._status.show({**stale, **documents})

    # -- events -------------------------------------------------------------------

    async def _send_events(self) -> None:
        while True:
            await self._noticed.wait()
            self._noticed.clear()
            while self._events:
                try:
                    await self._send(self._events[0])
                except ApiError as error:
                    log.warning("an event is left out: %s", error)
                with contextlib.suppress(IndexError):
                    self._events.popleft()

    async def _send(self, event: Json) -> None:
        about = self._object = self._object or await self._find_object()
        source = FIELD_MANAGER
        await self._api.insist(
            "POST",
            f"{self._path}/events",
            body={
                "apiVersion": "v1",
                "kind": "Event",
                "metadata": {"generateName": f"{about['name']}."},
                "involvedObject": about,
                "source": {"component": source},
                "reportingComponent": source,
                "reportingInstance": source,
                **event,
            },
        )

    async def _find_object(self) -> Json:
        """Return the object that Events refer to: the master's Job.

        Without such a pod (a master started by hand) it is the job's ConfigMap.
        """
        selector = f"{names.LABEL_JOB}={self._job},{names.LABEL_ROLE}={Role.MASTER}"
        listing = await self._api.insist(
            "GET", f"{self._path}/pods", query={"labelSelector": selector}
        )
        for pod in listing.get("items") or []:
            for owner in pod["metadata"].get("ownerReferences") or []:
                if owner["kind"] == "Job":
                    return self._reference(owner["apiVersion"], "Job", owner)
        return self._reference("v1", "ConfigMap", self._config.current.owner)

    def _reference(self, api_version: str, kind: str, named: Json) -> Json:
        return {
            "apiVersion": api_version,
            "kind": kind,
            "name": named["name"],
            "uid": named["uid"],
            "namespace": self._namespace,
        }
