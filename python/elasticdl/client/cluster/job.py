"""Jobs of a cluster by name: found, read, changed and stopped through the API server.

Owns what the CLI's verbs do to a job in a cluster. What its objects mean is in
`client.cluster.objects`. Must not print.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from elasticdl.client.cluster.api import BATCH, ClusterClient, ClusterError, Object
from elasticdl.client.cluster.logs import read_pod_log
from elasticdl.client.cluster.managed_fields import Patch, change
from elasticdl.client.cluster.objects import (
    JobObjects,
    documents,
    history_of,
    is_by_argo_cd,
    name_of,
    newest,
    pods_of,
    replica_of,
    view_of,
    why_pending,
)
from elasticdl.client.cluster.training_jobs import owner_of, patch_of, path_of
from elasticdl.client.handle import JobView, parse_replica
from elasticdl.client.scaling import Scaled, Scaling
from elasticdl.errors import JobError, NotFoundError
from elasticdl.job.folder import Condition
from elasticdl.job.history import History
from elasticdl.job.names import (
    ANNOTATION_STOP,
    KEY_JOB,
    LABEL_JOB,
    Role,
    config_map_name,
    history_config_map_name,
    status_config_map_name,
)
from elasticdl.job.spec.job import JobSpec
from elasticdl.job.spec.problems import nearest, spec_error
from elasticdl.job.status import JobReport
from elasticdl.job.values.document import ValuesFile
from elasticdl.job.values.file import edit_text, parse_values
from elasticdl.kube.pods import phase_of

_LOOK_SECONDS = 1.0  # Jobs in a cluster change in seconds.
_TRIES = 5  # A patch loses against other writers now and then, not five times.
_LIVE = (Condition.RUNNING, Condition.PENDING)


@dataclass(frozen=True)
class ClusterJob:
    """One job in a namespace: its ConfigMap and everything its master created."""

    cluster: ClusterClient
    name: str

    @property
    def place(self) -> str:
        """Where it is: `namespace ml`."""
        return f"namespace {self.cluster.namespace}"

    def view(self) -> JobView:
        """Return status or report, and why the job or its master does not run."""
        return view_of(self.name, self.observe(), place=self.place)

    def history(self) -> History:
        """Return samples and decisions as the master shows them, thinned.

        Empty if it has not begun. Raises NotFoundError when there is no such job.
        """
        path = self.cluster.path("configmaps", history_config_map_name(self.name))
        return history_of(self.config_map(), self.cluster.find(path))

    def observe(self) -> JobObjects:
        """Return the job's objects. Raises NotFoundError if there is no such job."""
        config_map = self.config_map()
        status_map = self.cluster.find(
            self.cluster.path("configmaps", status_config_map_name(self.name))
        )
        quick = JobObjects(config_map, status_map)
        status, report = documents(quick)
        if report is not None or (status is not None and status.state.ended):
            return quick
        job = self._master_job()
        pods = self.pods()
        running = any(phase_of(pod) == "Running" for pod in pods_of(pods, Role.MASTER))
        events = [] if running else self.events()
        return JobObjects(config_map, status_map, job, pods, events)

    def config_map(self) -> Object:
        """Return the ConfigMap that is the job's specification."""
        found = self.cluster.find(self.cluster.path("configmaps", self._object))
        if found is None:
            raise self._absent()
        return found

    def pods(self) -> list[Object]:
        """Return all pods of the job."""
        return self.cluster.items(
            self.cluster.path("pods"), labelSelector=f"{LABEL_JOB}={self.name}"
        )

    def events(self) -> list[Object]:
        """Return the warnings about objects of this job; [] if they may not be read."""
        try:
            events = self.cluster.items(
                self.cluster.path("events"), fieldSelector="type=Warning"
            )
        except ClusterError as error:
            if error.forbidden:
                return []  # what pods say of themselves is left
            raise
        return [
            one
            for one in events
            if str(one.get("involvedObject", {}).get("name", "")).startswith(
                self._object
            )
        ]

    def spec(self) -> JobSpec:
        """Return the specification in force."""
        return _parse(self.config_map()).job

    def stop(self, reason: str = "elasticdl stop") -> None:
        """Ask for a clean end; a job whose master never ran will not start any more."""
        view = self._live_view()
        self._patch_map({"metadata": {"annotations": {ANNOTATION_STOP: reason}}})
        job = self._master_job() if view.condition is Condition.PENDING else None
        if job is not None:
            self.cluster.patch(
                self.cluster.path("jobs", name_of(job), group=BATCH),
                {"spec": {"suspend": True}},
            )

    def scale(self, wanted: Scaling) -> Scaled:
        """Change the number of workers, or pause or resume the job.

        Nothing is written if the result would not be valid. Raises JobError when the
        job does not run, SpecError when it cannot have that.
        """
        self._live_view()
        for _ in range(_TRIES):
            config_map = self.config_map()
            made, scaled = changed(config_map, wanted)
            if made is None:
                return scaled
            if owner := owner_of(config_map):
                path = path_of(self.cluster.namespace, str(owner["name"]))
                self.cluster.patch(path, patch_of(wanted.edits(scaled.before)))
                return scaled
            try:
                self._write(made)
            except ClusterError as error:
                if error.reason != "Conflict":
                    raise
                continue  # somebody else wrote meanwhile: read again
            return scaled
        raise JobError(
            f"job {self.name}: its ConfigMap is changed all the time by somebody else; "
            f"who does? kubectl -n {self.cluster.namespace} get configmap "
            f"{self._object} -o yaml --show-managed-fields"
        )

    def logs(
        self,
        replica: str,
        *,
        tail: int | None = None,
        follow: bool = False,
        previous: bool = False,
    ) -> Iterator[str]:
        """Yield lines of a replica's log; with `follow` until its pod has ended.

        With `previous` those of the pod before the newest one of that name.
        """
        self.config_map()  # says that there is no such job, where there is none
        pods = self.pods()
        found = pods_of(pods, replica) if parse_replica(replica) else []
        if not found:
            there = sorted(filter(None, {replica_of(pod) for pod in pods}))
            raise NotFoundError(
                f"job {self.name} has no pod of {replica!r} in {self.place}; there "
                f"are: {', '.join(there) or 'none'}"
            )
        if previous and len(found) < 2:
            raise NotFoundError(
                f"job {self.name} has no earlier pod of {replica}; Kubernetes keeps "
                "logs of pods that are still there, leave --previous out for the newest"
            )
        pod = found[1 if previous else 0]
        why = why_pending(pod, self.events()) if phase_of(pod) == "Pending" else ""
        if why and not follow:
            raise JobError(f"{replica} of job {self.name} has no log yet: {why}")
        return read_pod_log(self.cluster, pod, tail=tail, follow=follow)

    def wait(self, timeout_seconds: float | None = None) -> JobReport | None:
        """Wait until the job no longer runs; return its report, None if it left none.

        Raises JobError when it still runs after `timeout_seconds`.
        """
        end = None if timeout_seconds is None else time.monotonic() + timeout_seconds
        while (view := self.view()).condition in _LIVE:
            if end is not None and time.monotonic() > end:
                raise JobError(
                    f"job {self.name} still runs after {timeout_seconds:g} seconds"
                )
            time.sleep(_LOOK_SECONDS)
        return view.report

    @property
    def _object(self) -> str:
        return config_map_name(self.name)

    def _master_job(self) -> Object | None:
        """Return the batch Job of the master, None if there is none."""
        jobs = self.cluster.items(
            self.cluster.path("jobs", group=BATCH),
            labelSelector=f"{LABEL_JOB}={self.name}",
        )
        return newest(jobs)

    def _live_view(self) -> JobView:
        view = self.view()
        if view.condition in _LIVE:
            return view
        why = f": {view.note}" if view.note else ""
        raise JobError(
            f"job {self.name} in {self.place} does not run ({view.condition}{why}); "
            "submit it again with its values file, as `elasticdl train -f FILE`"
        )

    def _patch_map(self, body: Object) -> None:
        self.cluster.patch(self.cluster.path("configmaps", self._object), body)

    def _write(self, wanted: Patch) -> None:
        if not wanted.manager:
            self._patch_map(wanted.body)
            return
        path = self.cluster.path("configmaps", self._object)
        self.cluster.apply(path, wanted.body, manager=wanted.manager)

    def _absent(self) -> NotFoundError:
        path = self.cluster.path("configmaps")
        known = sorted(
            str(one["metadata"]["labels"][LABEL_JOB])
            for one in self.cluster.items(path, labelSelector=LABEL_JOB)
            if KEY_JOB in (one.get("data") or {})
        )
        near = nearest(self.name, known)
        if near:
            hint = f"did you mean {near!r}?"
        elif known:
            hint = f"there are: {', '.join(known)}"
        else:
            hint = "there is none; `elasticdl list -A` looks in all namespaces"
        return NotFoundError(
            f"no job {self.name!r} in {self.place} of kube context "
            f"{self.cluster.context!r}; {hint}"
        )


def changed(config_map: Object, wanted: Scaling) -> tuple[Patch | None, Scaled]:
    """Return the patch to write (None for no change) and the change that it makes.

    The write fails if another came first. Comments and the order of keys in `job.yaml`
    stay as they are. Raises SpecError when the result would not be valid.
    """
    before = _parse(config_map).job
    edits = wanted.edits(before)
    if not edits:
        return None, Scaled(before, before)
    source = f"ConfigMap {name_of(config_map)}"
    text, values = edit_text(config_map["data"][KEY_JOB], edits, source=source)
    scaled = Scaled(before, values.job, is_by_argo_cd(config_map))
    return change(config_map, ("data", KEY_JOB), text), scaled


def find_in_cluster(cluster: ClusterClient, name: str) -> ClusterJob:
    """Return the job of that name. Raises NotFoundError with names that are near."""
    job = ClusterJob(cluster, name)
    job.config_map()
    return job


def _parse(config_map: Object) -> ValuesFile:
    source = f"ConfigMap {name_of(config_map)}"
    data: Mapping[str, str] = config_map.get("data") or {}
    values, problems = parse_values(data.get(KEY_JOB, ""), source=source)
    if values is None:
        raise spec_error(problems)
    return values
