"""Calls of the API about single pods: try, create, delete, whose is it.

Owns what an answer of the server means for the name of a pod. Called by
`kubernetes.runner`, which says when, and how often `create` and `remove` are tried.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace

from elasticdl.errors import PlatformError
from elasticdl.job import names
from elasticdl.kube.api import FIELD_MANAGER, ApiServer
from elasticdl.kube.errors import ApiError, Json
from elasticdl.runner.base import Launch
from elasticdl.runner.kubernetes import pods
from elasticdl.runner.kubernetes.config_map import JobConfigMap
from elasticdl.runner.kubernetes.pod_state import generation_of, state_of

# Variables by which a replica to be launched gets its certificate.
Enrol = Callable[[Launch], Mapping[str, str]]


class PodCalls:
    """API calls about the pods of one job."""

    def __init__(
        self,
        api: ApiServer,
        *,
        namespace: str,
        job: str,
        config: JobConfigMap,
        priority_classes: Mapping[str, str],
        enrol: Enrol = lambda _: {},
    ) -> None:
        """Create pods from the present templates in `config`.

        `enrol`: where calls are encrypted, what a pod is given for its certificate.
        """
        self._enrol = enrol
        self._api = api
        self.path = f"/api/v1/namespaces/{namespace}/pods"
        self._job = job
        self._config = config
        self._priority_classes = priority_classes

    async def try_out(self, launch: Launch) -> None:
        """Create a pod as a dry run; wait while the server is away.

        Raises PlatformError with the server's words if it would be refused.
        """
        name = pods.name_of(self._job, launch.key)
        try:
            await self._api.insist(
                "POST",
                self.path,
                # Strict: a misspelt key is refused, not dropped. Of a toleration
                # without its key every taint would be left.
                query={
                    "fieldManager": FIELD_MANAGER,
                    "dryRun": "All",
                    "fieldValidation": "Strict",
                },
                body=self._stamp(launch),
            )
        except ApiError as error:
            # The last one of an earlier life has the name; it is replaced.
            if error.reason != "AlreadyExists":
                raise PlatformError(
                    f"Kubernetes refuses pod {name}: {error}"
                ) from error

    async def create(self, launch: Launch) -> bool:
        """Create the pod; return whether it exists. Raises PlatformError."""
        try:
            await self._api.request(
                "POST",
                self.path,
                query={"fieldManager": FIELD_MANAGER},
                body=self._stamp(launch),
            )
        except ApiError as error:
            if error.reason != "AlreadyExists":
                raise
            return await self._is_there(launch)
        return True

    async def _is_there(self, launch: Launch) -> bool:
        """Return whether the pod of that name is this one; delete an older one."""
        path = f"{self.path}/{pods.name_of(self._job, launch.key)}"
        try:
            pod = await self._api.request("GET", path)
        except ApiError as error:
            if error.status == 404:
                return False  # it has just gone: the name is free
            raise
        ours = self.is_ours(pod)
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
        await self.remove(pod["metadata"]["name"], 0.0, uid=pod["metadata"]["uid"])
        return False

    async def remove(self, name: str, grace_seconds: float, *, uid: str = "") -> bool:
        """Delete a pod; return whether there was one."""
        body: Json = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "gracePeriodSeconds": round(grace_seconds),
        }
        if uid:
            body["preconditions"] = {"uid": uid}
        try:
            await self._api.request("DELETE", f"{self.path}/{name}", body=body)
        except ApiError as error:
            if error.status == 404 or (uid and error.status == 409):
                return False
            raise
        return True

    async def clear(self) -> None:
        """Delete all replicas' pods of the job; wait while the server is away."""
        selector = {"labelSelector": f"{names.LABEL_JOB}={self._job}"}
        listing = await self._api.insist("GET", self.path, query=selector)
        pods_left = [
            pod["metadata"]
            for pod in listing["items"]
            if self.is_ours(pod) and state_of(pod) is not None
        ]
        await asyncio.gather(*(self._clear_one(metadata) for metadata in pods_left))

    async def _clear_one(self, metadata: Json) -> None:
        if metadata.get("deletionTimestamp"):
            return
        try:
            await self._api.insist("DELETE", f"{self.path}/{metadata['name']}")
        except ApiError as error:
            if error.status != 404:
                raise

    def _stamp(self, launch: Launch) -> Json:
        config = self._config.current
        template, role = config.templates[launch.key.role], launch.key.role
        # The master says who is `high` and who `low`, no more: workers can write its
        # journal, and not the template, which names any other class.
        classes = self._priority_classes
        ours = pods.class_of(template, role) in ("", *classes.values())
        priority = classes.get(launch.priority, "") if ours else ""
        return pods.stamp(
            template,
            replace(launch, priority=priority),
            job=self._job,
            owner=config.owner,
            enrolment=self._enrol(launch),
        )

    def is_ours(self, pod: Json) -> bool:
        """Whether the pod is of this job, not of an earlier one of the same name."""
        owners = pod["metadata"].get("ownerReferences") or []
        return any(owner.get("uid") == self._config.current.uid for owner in owners)
