"""The job's state and last message as annotations of its master's batch Job.

Owns when and how they are written. Used by `kubernetes.publishing`. They are there for
who sees nothing but that one object, as a health check of Argo CD does. Must never
disturb the job: what the API server does not take now is tried again later.
"""

from __future__ import annotations

import asyncio
import logging

from elasticdl.job import names
from elasticdl.kube.api import FIELD_MANAGER, MERGE_PATCH, ApiServer
from elasticdl.kube.errors import ApiError, Backoff

log = logging.getLogger(__name__)

_LONGEST_PAUSE_SECONDS = 60.0  # An API server that is away is tried once a minute.
# An annotation is for people; the status has the whole message.
_LONGEST_MESSAGE = 1000
# It is not there (a master started by hand), or the platform is older than the job.
_HOPELESS = (403, 404)


class Headline:
    """Annotates a job's master with its state; created in the running event loop."""

    def __init__(self, api: ApiServer, *, namespace: str, master_job: str) -> None:
        """Annotate the batch Job `master_job`."""
        self._api = api
        self._path = f"/apis/batch/v1/namespaces/{namespace}/jobs/{master_job}"
        self._wanted = ("", "")
        self._changed = asyncio.Event()
        self._task = asyncio.create_task(self._keep(), name="headline")
        self.written = asyncio.Event()
        self.written.set()

    def show(self, state: str, message: str) -> None:
        """Write state and message in place of the former ones; nothing if equal."""
        wanted = (state, message[:_LONGEST_MESSAGE])
        if wanted != self._wanted:
            self._wanted = wanted
            self.written.clear()
            self._changed.set()

    async def stop(self) -> None:
        """Stop writing."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _keep(self) -> None:
        backoff = Backoff(_LONGEST_PAUSE_SECONDS)
        while True:
            await self._changed.wait()
            self._changed.clear()
            wanted = self._wanted
            try:
                await self._write(*wanted)
            except ApiError as error:
                log.warning("the job's state is not shown on its Job: %s", error)
                if error.status not in _HOPELESS:
                    self._changed.set()
                    await asyncio.sleep(backoff.next_seconds(error.retry_after_seconds))
                    continue
            backoff.reset()
            if wanted == self._wanted:
                self.written.set()

    async def _write(self, state: str, message: str) -> None:
        marks = {
            names.ANNOTATION_STATE: state,
            names.ANNOTATION_MESSAGE: message or None,
        }
        await self._api.request(
            "PATCH",
            self._path,
            query={"fieldManager": FIELD_MANAGER},
            body={"metadata": {"annotations": marks}},
            content_type=MERGE_PATCH,
        )
