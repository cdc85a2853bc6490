"""A ConfigMap in which the master shows something of its job: status, history.

Owns how it is made and written. Used by `kubernetes.publishing`. Must not know what is
in it, nor ever disturb the job: what the API server does not take now is tried again.
"""

from __future__ import annotations

import asyncio
import base64
import logging
from collections.abc import Mapping

from elasticdl.job import names
from elasticdl.kube.api import FIELD_MANAGER, MERGE_PATCH, ApiServer
from elasticdl.kube.errors import ApiError, Backoff, Json
from elasticdl.runner.kubernetes.config_map import JobConfigMap

log = logging.getLogger(__name__)

_LONGEST_PAUSE_SECONDS = 60.0  # An API server that is away is tried once a minute.


class KeptConfigMap:
    """A ConfigMap owned by the job's own ConfigMap."""

    def __init__(
        self, api: ApiServer, name: str, path: str, config: JobConfigMap, job: str
    ) -> None:
        """`path`: of the namespace, as `/api/v1/namespaces/ml`.

        The last part of the name is its component, by which lists leave it out.
        """
        self._api = api
        self._name = name
        self._path = f"{path}/configmaps"
        self._config = config
        self._job = job
        self._documents: Json = {}  # to be written: data and binaryData, by key
        self._changed = asyncio.Event()
        self.written = asyncio.Event()
        self.written.set()

    def show(
        self,
        texts: Mapping[str, str | None],
        binaries: Mapping[str, bytes] | None = None,
    ) -> None:
        """Set the documents to write, by key.

        None removes one.
        """
        for key, text in texts.items():
            self._documents[key] = ("data", text)
        for key, binary in (binaries or {}).items():
            encoded = base64.b64encode(binary).decode()
            self._documents[key] = ("binaryData", encoded)
        self.written.clear()
        self._changed.set()

    async def keep(self) -> None:
        """Write the newest documents, for ever."""
        backoff = Backoff(_LONGEST_PAUSE_SECONDS)
        while True:
            await self._changed.wait()
            self._changed.clear()
            documents, self._documents = self._documents, {}
            try:
                await self._write(documents)
            except ApiError as error:
                log.warning("%s cannot be written now: %s", self._name, error)
                self._documents = documents | self._documents  # the newer ones win
                self._changed.set()
                await asyncio.sleep(backoff.next_seconds(error.retry_after_seconds))
            else:
                backoff.reset()
                if not self._documents:
                    self.written.set()

    async def _write(self, documents: Json) -> None:
        query = {"fieldManager": FIELD_MANAGER}
        body: Json = {}
        for key, (place, text) in documents.items():
            body.setdefault(place, {})[key] = text
        try:
            await self._api.request(
                "PATCH",
                f"{self._path}/{self._name}",
                query=query,
                body=body,
                content_type=MERGE_PATCH,
            )
        except ApiError as error:
            if error.status != 404:
                raise
            there = {
                place: {key: text for key, text in texts.items() if text is not None}
                for place, texts in body.items()
            }
            await self._api.request(
                "POST", self._path, query=query, body=there | self._head()
            )

    def _head(self) -> Json:
        owner = self._config.current.owner
        return {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {
                "name": self._name,
                "labels": {
                    names.LABEL_JOB: self._job,
                    names.LABEL_MANAGED_BY: names.MANAGED_BY_MASTER,
                    names.LABEL_COMPONENT: self._name.rpartition("-")[2],
                },
                "ownerReferences": [
                    {"apiVersion": "v1", "kind": "ConfigMap", "controller": True}
                    | owner
                ],
            },
        }
