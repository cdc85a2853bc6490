"""How many more masters a job may get: the back-off limit of its batch Job.

Owns that limit. Called by `master.pod` through `Cluster`: once as a master has the job,
and once as the job has failed for good. Must not know why a master ends.

The batch Job has no `podFailurePolicy`: with one, Kubernetes starts the next master
only after the pod before has ended, which the pod on a node that is cut off never does.
So the master itself says when another one would be of no use. The chart leaves the
limit out, so that neither Helm nor Argo CD finds its own value changed.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from elasticdl.kube.api import FIELD_MANAGER, MERGE_PATCH, ApiServer
from elasticdl.kube.errors import ApiError

log = logging.getLogger(__name__)

# Masters that may be lost after one that came to work; the pauses between them grow.
_STARTS = 50
_END_SECONDS = 60.0


class BatchJob:
    """The batch Job of one master."""

    def __init__(self, api: ApiServer, *, namespace: str, master_job: str) -> None:
        """Patch the batch Job `master_job`."""
        self._api = api
        self._path = f"/apis/batch/v1/namespaces/{namespace}/jobs/{master_job}"

    async def allow_more(self) -> None:
        """Raise the limit of failed masters, since this one works.

        A master that cannot say so goes on: Kubernetes allows six losses by itself.
        """
        try:
            await self._limit(more=_STARTS)
        except ApiError as error:
            log.warning("the limit of its batch Job stays as it is: %s", error)

    async def allow_no_more(self) -> None:
        """Let no master follow this one: its exit code then fails the batch Job.

        Where the API server does not take it in a minute, masters follow which end with
        the same words, until one can say it or Kubernetes gives up.
        """
        try:
            async with asyncio.timeout(_END_SECONDS):
                await self._limit(more=0)
        except (ApiError, TimeoutError) as error:
            log.warning("the batch Job may start this master again: %s", error)

    async def _limit(self, *, more: int) -> None:
        # An empty patch shows the Job to an account that may only patch it.
        failed = (await self._patch({})).get("status", {}).get("failed", 0)
        await self._patch({"spec": {"backoffLimit": failed + more}})

    async def _patch(self, change: dict[str, Any]) -> dict[str, Any]:
        return await self._api.insist(
            "PATCH",
            self._path,
            query={"fieldManager": FIELD_MANAGER},
            body=change,
            content_type=MERGE_PATCH,
        )
