"""What the controller sees of its namespace: TrainingJobs and the objects of jobs.

Owns the copies of them, kept by lists and watches, and the names of jobs about which
something changed. Made by `training_jobs.controller`; lives in one event loop. Must not
know what is made of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from elasticdl.errors import PlatformError
from elasticdl.job.names import (
    LABEL_COMPONENT,
    LABEL_JOB,
    config_map_name,
    status_config_map_name,
)
from elasticdl.job.values.defaults import CONFIG_MAP, KEY
from elasticdl.job.values.training_job import API_VERSION, PLURAL
from elasticdl.kube.api import ApiServer
from elasticdl.kube.errors import ApiError, Json
from elasticdl.kube.list_and_watch import Listing, reflect
from elasticdl.training_jobs.resource import Seen, TrainingJob, job_of

_ABSENT = 404


class WatchedNamespace:
    """The observed state of one namespace."""

    def __init__(self, api: ApiServer, namespace: str) -> None:
        """Start with no observation."""
        self._api = api
        self._namespace = namespace
        self._jobs: dict[str, Json] = {}
        self._config_maps: dict[str, Json] = {}
        self._masters: dict[str, Json] = {}
        self._platform: dict[str, Json] = {}
        self._listed: set[str] = set()
        self._changed: set[str] = set()
        self._news = asyncio.Event()

    @property
    def known(self) -> bool:
        """Whether everything was listed once: nothing is decided before."""
        return len(self._listed) == 4

    async def watch(self) -> None:
        """Follow the namespace for ever, through outages.

        Raises PlatformError when a first list is refused.
        """
        core = f"/api/v1/namespaces/{self._namespace}/configmaps"
        batch = f"/apis/batch/v1/namespaces/{self._namespace}/jobs"
        own = f"/apis/{API_VERSION}/namespaces/{self._namespace}/{PLURAL}"
        # Not the histories of jobs, which are large and change every ten seconds.
        of_jobs = {"labelSelector": f"{LABEL_JOB},{LABEL_COMPONENT}!=history"}
        of_masters = {"labelSelector": f"{LABEL_JOB},{LABEL_COMPONENT}=master"}
        platform = {"fieldSelector": f"metadata.name={CONFIG_MAP}"}
        async with asyncio.TaskGroup() as tasks:
            for path, selector, kept, name_of in (
                (own, {}, self._jobs, _own_name),
                (core, of_jobs, self._config_maps, job_of),
                (batch, of_masters, self._masters, job_of),
                (core, platform, self._platform, None),
            ):
                tasks.create_task(self._follow(path, selector, kept, name_of))

    async def changed(self) -> set[str]:
        """Return the names of jobs about which something is new; wait for one."""
        while not (self.known and self._changed):
            self._news.clear()
            await self._news.wait()
        changed, self._changed = self._changed, set()
        return changed

    def look_again(self, name: str) -> None:
        """Let a job be among those about which something is new."""
        self._tell({name})

    @property
    def names(self) -> list[str]:
        """The names of all TrainingJobs."""
        return list(self._jobs)

    def job(self, name: str) -> TrainingJob | None:
        """Return a TrainingJob; None if there is none of that name."""
        item = self._jobs.get(name)
        return TrainingJob.of(item) if item else None

    def seen(self, name: str) -> Seen:
        """Return what is there of a job."""
        platform = self._platform.get(CONFIG_MAP) or {}
        return Seen(
            config_map=self._config_maps.get(config_map_name(name)),
            status_map=self._config_maps.get(status_config_map_name(name)),
            masters=tuple(m for m in self._masters.values() if job_of(m) == name),
            platform=str((platform.get("data") or {}).get(KEY) or ""),
        )

    def forget(self, job: TrainingJob) -> None:
        """Take it that a TrainingJob is gone, of which its watch has not told yet."""
        if self._jobs.get(job.name, {}).get("metadata", {}).get("uid") == job.uid:
            del self._jobs[job.name]

    def note(self, item: Json) -> None:
        """Take what a call of ours returned, which a watch will bring later."""
        name = str(item["metadata"]["name"])
        kept = {
            PLURAL: self._jobs,
            "ConfigMap": self._config_maps,
            "Job": self._masters,
        }.get(PLURAL if item.get("kind") == "TrainingJob" else str(item.get("kind")))
        # One of ours may have been deleted meanwhile.
        if kept is None or (kept is self._jobs and name not in kept):
            return
        if not _is_older(item, kept.get(name, {})):
            kept[name] = item

    async def _follow(
        self,
        path: str,
        selector: dict[str, str],
        kept: dict[str, Json],
        name_of: Callable[[Json], str] | None,
    ) -> None:
        try:
            async for seen in reflect(self._api, path, selector):
                if isinstance(seen, Listing):
                    before = dict(kept)
                    kept.clear()
                    kept |= {one["metadata"]["name"]: one for one in seen.items}
                    self._listed.add(path + str(selector))
                    touched = [*before.values(), *kept.values()]
                else:
                    name = seen.item["metadata"]["name"]
                    if seen.deleted:
                        kept.pop(name, None)
                    else:
                        kept[name] = seen.item
                    touched = [seen.item]
                if name_of is None:  # the platform, which is about all jobs
                    self._tell(set(self._jobs))
                else:
                    self._tell({name_of(one) for one in touched})
        except ApiError as error:
            raise _in_words(error, path, self._namespace) from error

    def _tell(self, names: set[str]) -> None:
        self._changed |= {name for name in names if name}
        self._news.set()


def _is_older(item: Json, known: Json) -> bool:
    """Whether a watch was quicker than an answer, with what came in between."""
    one, other = item["metadata"], known.get("metadata") or {}
    versions = [str(about.get("resourceVersion", "")) for about in (one, other)]
    if one.get("uid") != other.get("uid") or not all(v.isdecimal() for v in versions):
        return False
    return int(versions[0]) < int(versions[1])


def _own_name(item: Json) -> str:
    return str(item["metadata"]["name"])


def _in_words(error: ApiError, path: str, namespace: str) -> PlatformError:
    if error.status == _ABSENT and path.endswith(f"/{PLURAL}"):
        return PlatformError(
            "the cluster does not know TrainingJobs: install the platform's release "
            "with controller.trainingJobs.enabled and "
            "controller.trainingJobs.definition.create"
        )
    return PlatformError(
        f"{error}; the rights of this process come with the platform: install its "
        f"release in namespace {namespace} with controller.trainingJobs.enabled"
    )
