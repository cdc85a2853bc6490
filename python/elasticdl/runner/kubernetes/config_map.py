"""The job's ConfigMap: specification, pod templates, and what it asks of the master.

Owns the reading and the watch of it. `master.main` follows it; `kubernetes.runner`
takes templates and owner from it. Must not know what an edit means: a changed
specification is written to the job's folder, where the master looks for edits.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from http import HTTPStatus
from pathlib import Path
from typing import Any

from elasticdl.beneath import read_text
from elasticdl.errors import PlatformError
from elasticdl.files import write_whole
from elasticdl.job import names
from elasticdl.job.names import Role
from elasticdl.kube.api import MERGE_PATCH, ApiServer
from elasticdl.kube.errors import ApiError
from elasticdl.kube.list_and_watch import Listing, reflect

log = logging.getLogger(__name__)

Json = dict[str, Any]

_WRITE_RETRY_SECONDS = 5.0  # The folder's disk may be away for a while.


@dataclass(frozen=True)
class JobConfig:
    """The present content of the ConfigMap."""

    name: str
    uid: str
    job: str  # text of job.yaml
    templates: dict[Role, str]  # text of ps.yaml, worker.yaml
    stop: str  # why the job has to stop; empty if it has not
    grant: str = ""  # text of the annotation that gives it its size (job/grant.py)

    @property
    def owner(self) -> Json:
        """Name and uid, for owner references."""
        return {"name": self.name, "uid": self.uid}

    @staticmethod
    def from_object(item: Json) -> JobConfig:
        """Return the content of the object. Raises PlatformError if it lacks a key."""
        metadata, data = item["metadata"], item.get("data") or {}
        keys = {role: names.template_key(role) for role in (Role.PS, Role.WORKER)}
        missing = [key for key in (names.KEY_JOB, *keys.values()) if key not in data]
        if missing:
            raise PlatformError(
                f"ConfigMap {metadata['name']}: has no key {', '.join(missing)}; "
                "expected what the chart renders: upgrade the job's release"
            )
        annotations = metadata.get("annotations") or {}
        return JobConfig(
            name=metadata["name"],
            uid=metadata["uid"],
            job=data[names.KEY_JOB],
            templates={role: data[key] for role, key in keys.items()},
            stop=annotations.get(names.ANNOTATION_STOP, ""),
            grant=annotations.get(names.ANNOTATION_WORKERS, ""),
        )


class JobConfigMap:
    """The job's ConfigMap; `follow` keeps it current."""

    def __init__(self, api: ApiServer, namespace: str, config: JobConfig) -> None:
        """Start with what `load` read."""
        self._api = api
        self._namespace = namespace
        self.current = config

    @staticmethod
    async def load(api: ApiServer, namespace: str, name: str) -> JobConfigMap:
        """Read it; wait while the API server is away. Raises PlatformError."""
        path = f"/api/v1/namespaces/{namespace}/configmaps/{name}"
        try:
            item = await api.insist("GET", path)
        except ApiError as error:
            if error.status != HTTPStatus.FORBIDDEN:
                raise
            raise PlatformError(
                f"{error}; the master's rights come with the platform: install the "
                f"platform's release in namespace {namespace} (helm install elasticdl "
                f"charts/elasticdl -n {namespace})"
            ) from error
        return JobConfigMap(api, namespace, JobConfig.from_object(item))

    async def forget_stop(self) -> None:
        """Remove the request to stop. Raises PlatformError if that is refused."""
        if not self.current.stop:
            return
        await self._api.insist(
            "PATCH",
            f"/api/v1/namespaces/{self._namespace}/configmaps/{self.current.name}",
            body={
                "metadata": {
                    "uid": self.current.uid,
                    "annotations": {names.ANNOTATION_STOP: None},
                }
            },
            content_type=MERGE_PATCH,
        )
        self.current = replace(self.current, stop="")

    async def follow(
        self,
        spec_file: Path,
        *,
        known: str,
        on_edit: Callable[[str], Awaitable[None]],
        on_stop: Callable[[str], None],
        on_deleted: Callable[[], None],
        on_grant: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Keep the job's folder and the templates current, for ever.

        Writes a changed specification to `spec_file`, for those who look there, and
        then gives its text to `on_edit`; `known` is the one that the master began
        with. `on_stop` gets the reason of the stop
        annotation; `on_deleted` is called when the ConfigMap is gone, with which all
        pods of the job go. `on_grant` gets the text of the annotation that gives the
        job its size, "" for none, whenever the ConfigMap changes. Raises PlatformError
        if watching is refused.
        """
        path = f"/api/v1/namespaces/{self._namespace}/configmaps"
        selector = {"fieldSelector": f"metadata.name={self.current.name}"}
        async with contextlib.aclosing(reflect(self._api, path, selector)) as seen:
            async for one in seen:
                item: Json | None
                if isinstance(one, Listing):
                    item = one.items[0] if one.items else None
                else:
                    item = None if one.deleted else one.item
                if item is None or item["metadata"]["uid"] != self.current.uid:
                    on_deleted()
                    return
                await self._take(item, spec_file, on_stop)
                on_grant(self.current.grant)
                if self.current.job != known:
                    known = self.current.job
                    await on_edit(known)

    async def _take(
        self, item: Json, spec_file: Path, on_stop: Callable[[str], None]
    ) -> None:
        try:
            config = JobConfig.from_object(item)
        except PlatformError as error:
            log.error("the edit is refused, nothing changes: %s", error)
            return
        self.current = config
        if config.stop:
            on_stop(config.stop)
        loop = asyncio.get_running_loop()
        while True:
            try:
                await loop.run_in_executor(None, _write, spec_file, config.job)
            except OSError as error:
                log.error("%s: cannot be written: %s", spec_file, error.strerror)
                await asyncio.sleep(_WRITE_RETRY_SECONDS)
            else:
                return


def _write(path: Path, text: str) -> None:
    """Replace the file atomically if its content differs."""
    with contextlib.suppress(OSError, UnicodeDecodeError):
        if read_text(path, root=path.parent) == text:
            return
    write_whole(path, text, durable=False)
