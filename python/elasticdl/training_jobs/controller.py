"""The one loop that acts: it takes each changed TrainingJob to what it says.

Owns the calls to the API server, when they are tried again, and how often a status is
written. What to do is decided in `reconcile` and `changes`, what is shown in `telling`.
Started by `training_jobs.main`; lives in one event loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace

from elasticdl.client.cluster.training_jobs import owner_of, path_of
from elasticdl.errors import PlatformError
from elasticdl.job.names import config_map_name
from elasticdl.job.values.training_job import read_manifest
from elasticdl.kube import times
from elasticdl.kube.api import MERGE_PATCH, ApiServer
from elasticdl.kube.errors import ApiError, Backoff
from elasticdl.training_jobs.changes import FIELD_MANAGER, changes
from elasticdl.training_jobs.reconcile import reconcile
from elasticdl.training_jobs.rendering import Renderer
from elasticdl.training_jobs.resource import Json, Seen, TrainingJob
from elasticdl.training_jobs.telling import Outcome, is_soft, patch_of, status_of
from elasticdl.training_jobs.turns import Turns
from elasticdl.training_jobs.verdicts import (
    Changes,
    Edit,
    Reason,
    Refused,
    Step,
    Submit,
    Verb,
)
from elasticdl.training_jobs.watching import WatchedNamespace

log = logging.getLogger(__name__)

_APPLY_PATCH = "application/apply-patch+yaml"  # JSON is YAML
# What is missing may come: nothing tells of it.
_LOOK_AGAIN_SECONDS = 30.0
# Where Helm gave no answer, it holds one of the places below for long.
_RENDER_AGAIN_SECONDS = 600.0
# Charts that are rendered at once, by a process of 110 to 260 MiB each.
_RENDERS = 3
# Loss and progress change all the time; who looks at them looks every now and then.
_SOFT_SECONDS = 10.0
# A Secret that is there: of an earlier job, and about to go, or ours. Collecting takes
# seconds.
_COLLECTED_SECONDS = 30.0
# Of an object that the server does not make now, until it is told: some seconds. A
# webhook may be away for long.
_QUIET_TRIES = 4
_CONFLICT, _ABSENT = 409, 404


@dataclass
class _Begun:
    """What was made of one TrainingJob, and may not be in its status yet."""

    uid: str
    objects: set[str] = field(default_factory=set)
    secrets: set[str] = field(default_factory=set)  # that were created
    in_the_way_since: float | None = None  # one that was not


class Controller:
    """Makes jobs of the TrainingJobs of one namespace."""

    def __init__(self, api: ApiServer, namespace: str, renderer: Renderer) -> None:
        """Act on `namespace`; `renderer` blocks, and is called in a thread."""
        self._api = api
        self._namespace = namespace
        self._renderer = renderer
        self._watched = WatchedNamespace(api, namespace)
        self._backoffs: dict[str, Backoff] = {}
        self._refused: dict[str, Refused] = {}  # as they were logged
        self._wrote: dict[str, float] = {}  # when loss and progress were
        self._later: dict[str, asyncio.TimerHandle] = {}
        self._begun: dict[str, _Begun] = {}
        self._renders = ThreadPoolExecutor(_RENDERS, thread_name_prefix="render")

    @property
    def known(self) -> bool:
        """Whether it has seen everything once."""
        return self._watched.known

    async def run(self) -> None:
        """Act for ever. Raises PlatformError where the first lists are refused."""
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._watched.watch(), name="watch")
                tasks.create_task(self._act(Turns(tasks, self._one)), name="act")
        finally:
            self._renders.shutdown(wait=False, cancel_futures=True)

    async def _act(self, turns: Turns) -> None:
        while True:
            for name in sorted(await self._watched.changed()):
                turns.give(name)

    async def _one(self, name: str) -> None:
        job = self._watched.job(name)
        if job is None or job.leaving:
            self._forget(name)
            return
        seen = self._watched.seen(name)
        # What is wrong with one of them, or with us, is nothing to the others.
        try:
            outcome = await self._carry_out(job, seen)
            if outcome is None:
                return  # its next turn has been given already
            await self._tell(job, outcome)
        except Exception as error:
            if isinstance(error, ApiError) and error.status == _ABSENT:
                return  # it was deleted meanwhile
            pause = self._backoffs.setdefault(name, Backoff()).next_seconds()
            known = isinstance(error, PlatformError)
            log.warning(
                "TrainingJob %s: %s; trying again in %.1f s",
                name, error if known else repr(error), pause,
                exc_info=None if known else error,
            )  # fmt: skip
            self._look_again(name, pause)
            return
        self._backoffs.pop(name, None)
        self._follow_up(name, outcome)

    def _follow_up(self, name: str, outcome: Outcome) -> None:
        """Log a refusal, and look again where nothing tells that its cause is gone."""
        if outcome.refused is None:
            self._refused.pop(name, None)
            return
        if self._refused.get(name) != outcome.refused:
            log.info("TrainingJob %s: %s", name, outcome.refused.message[:1000])
        self._refused[name] = outcome.refused
        # One that cannot be read is the same until it is edited, and takes seconds if
        # it is large.
        if outcome.refused.reason is Reason.NOT_RENDERED:
            self._look_again(name, _RENDER_AGAIN_SECONDS)
        elif outcome.values is not None:
            self._look_again(name, _LOOK_AGAIN_SECONDS)

    async def _carry_out(self, job: TrainingJob, seen: Seen) -> Outcome | None:
        decision = reconcile(job, seen)
        # One without the label of a job is not watched.
        if (
            isinstance(decision, Submit)
            and seen.config_map is None
            and (theirs := await self._somebody_elses(job))
        ):
            decision = reconcile(job, replace(seen, config_map=theirs))
        values, _ = read_manifest(job.manifest)
        match decision:
            case Refused():
                return Outcome(job.made, decision, values)
            case Edit(patch=patch, made=made):
                path = f"/api/v1/namespaces/{job.namespace}/configmaps"
                try:
                    changed = await self._api.request(
                        "PATCH",
                        f"{path}/{config_map_name(job.name)}",
                        query={"fieldManager": FIELD_MANAGER},
                        body=patch,
                        content_type=MERGE_PATCH,
                    )
                except ApiError as error:
                    if error.status == _ABSENT:
                        raise  # a watch tells of it
                    return Outcome(job.made, self._refusal(job, error), values)
                self._watched.note(changed)
                log.info("TrainingJob %s: its specification was changed", job.name)
                return Outcome(made, None, values)
            case Submit():
                return await self._submit(job, seen, decision)
            case _:
                return Outcome(decision.made, None, values)

    async def _somebody_elses(self, job: TrainingJob) -> Json | None:
        """Return the ConfigMap that has the name of this job's, if it is not its."""
        path = f"/api/v1/namespaces/{job.namespace}/configmaps"
        name = config_map_name(job.name)
        try:
            found = await self._api.request("GET", f"{path}/{name}")
        except ApiError as error:
            if error.status != _ABSENT:
                raise
            return None
        return None if (owner_of(found) or {}).get("uid") == job.uid else found

    def _begun_of(self, job: TrainingJob) -> _Begun:
        known = self._begun.get(job.name)
        if known is None or known.uid != job.uid:
            known = self._begun[job.name] = _Begun(job.uid)
        return known

    async def _submit(
        self, job: TrainingJob, seen: Seen, wanted: Submit
    ) -> Outcome | None:
        """Make a job's objects; None where it was edited or deleted meanwhile."""
        loop = asyncio.get_running_loop()
        render = self._renderer.render
        rendered = await loop.run_in_executor(self._renders, render, job, wanted)
        planned: Changes | Refused
        now = self._watched.job(job.name)
        if now is None or (now.uid, now.generation) != (job.uid, job.generation):
            return None
        begun = self._begun_of(job)
        if isinstance(rendered, Refused):
            planned = rendered
        else:
            planned = changes(job, seen, wanted, rendered, sorted(begun.objects))
        if isinstance(planned, Refused):
            return Outcome(job.made, planned, wanted.values)
        begun.objects |= set(planned.made.objects)
        for step in planned.steps:
            try:
                await self._call(job, step)
            except ApiError as error:
                return Outcome(job.made, self._refusal(job, error), wanted.values)
        begun.objects = set(planned.made.objects)
        log.info(
            "TrainingJob %s: run %d is there, %d objects",
            job.name, planned.made.run, len(planned.made.objects),
        )  # fmt: skip
        return Outcome(planned.made, None, wanted.values)

    def _refusal(self, job: TrainingJob, error: ApiError) -> Refused:
        """Return what is told of a refusal. Raises one that may be over in a moment."""
        backoff = self._backoffs.get(job.name)
        tries = backoff.tries if backoff is not None else 0
        if error.transient and (not error.status or tries < _QUIET_TRIES):
            raise error
        return Refused(Reason.NOT_APPLIED, str(error))

    async def _call(self, job: TrainingJob, step: Step) -> None:
        query = {"fieldManager": FIELD_MANAGER}
        match step.verb:
            case Verb.APPLY:
                made = await self._api.request(
                    "PATCH",
                    step.path,
                    query={**query, "force": "true"},
                    body=step.body,
                    content_type=_APPLY_PATCH,
                )
                self._watched.note(made)
            case Verb.CREATE:
                await self._create(job, step)
            case Verb.DELETE:
                body = {"propagationPolicy": "Background"}
                try:
                    await self._api.request("DELETE", step.path, body=body)
                except ApiError as error:
                    if error.status != _ABSENT:
                        raise

    async def _create(self, job: TrainingJob, step: Step) -> None:
        """Create a Secret, once: it may not be read, so that ours is known by its time.

        Raises ApiError while one of an earlier job may be in its place.
        """
        folder, _, name = step.path.rpartition("/")
        known = self._begun_of(job)
        try:
            await self._api.request(
                "POST", folder, query={"fieldManager": FIELD_MANAGER}, body=step.body
            )
        except ApiError as error:
            if error.status != _CONFLICT or error.reason != "AlreadyExists":
                raise
            if name in known.secrets or any(
                made.endswith(f"/secrets/{name}") for made in job.made.objects
            ):
                return
            now = asyncio.get_running_loop().time()
            known.in_the_way_since = known.in_the_way_since or now
            if now - known.in_the_way_since < _COLLECTED_SECONDS:
                raise ApiError(f"{error}; waiting for it to go") from error
        # Not in the status before all the rest is made, too.
        known.secrets.add(name)

    async def _tell(self, job: TrainingJob, outcome: Outcome) -> None:
        """Write the status, if it is another one."""
        seen = self._watched.seen(job.name)
        shown = status_of(job, seen, outcome, now=times.now())
        patch = patch_of(job.status, shown)
        if patch is None:
            return
        now = asyncio.get_running_loop().time()
        next_ = self._wrote.get(job.name, 0.0) + _SOFT_SECONDS
        if is_soft(patch) and now < next_:
            self._look_again(job.name, next_ - now)
            return
        self._wrote[job.name] = now
        path = path_of(job.namespace, job.name)
        try:
            changed = await self._api.request(
                "PATCH",
                f"{path}/status",
                query={"fieldManager": FIELD_MANAGER},
                # What was done may be about one of this name that is gone.
                body={"metadata": {"resourceVersion": job.version}, **patch},
                content_type=MERGE_PATCH,
            )
        except ApiError as error:
            if error.status == _ABSENT:
                # Else what is collected now is made again, until a watch tells.
                self._watched.forget(job)
            raise
        self._watched.note(changed)

    def _look_again(self, name: str, seconds: float) -> None:
        """Let a job be looked at in so many seconds, if nothing changes before."""
        if known := self._later.pop(name, None):
            known.cancel()
        look: Callable[[str], None] = self._watched.look_again
        self._later[name] = asyncio.get_running_loop().call_later(seconds, look, name)

    def _forget(self, name: str) -> None:
        if known := self._later.pop(name, None):
            known.cancel()
        for kept in (self._backoffs, self._refused, self._wrote, self._begun):
            kept.pop(name, None)
