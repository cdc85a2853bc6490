"""What a controller would see of a cluster, asked once; kept in a file, and read back.

Owns the calls, and the format of the file. Called by `elasticdl cluster` and `elasticdl
plan`. What objects mean is the controller's reading of them. Writes to no cluster.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from elasticdl.client.cluster.api import CORE, ClusterClient, ClusterError, Object
from elasticdl.controller.jobs import Classes, JobReader, is_job, with_grant
from elasticdl.controller.reading import node_of, pod_of
from elasticdl.errors import SpecError
from elasticdl.files import write_whole
from elasticdl.job import names
from elasticdl.job.chart.monitoring import ExporterValues
from elasticdl.job.grant import parse_grant
from elasticdl.job.names import Role
from elasticdl.job.status import JobStatus
from elasticdl.kube.inventory import Serving
from elasticdl.planner.view import ClusterView, Job, JobKey, Settings


@dataclass(frozen=True)
class SavedView:
    """A cluster at one time, with what a plan of it depends on."""

    time: float  # Unix seconds
    view: ClusterView
    settings: Settings
    unseen: str = ""  # what this user may not read, in words


_FILE = TypeAdapter(SavedView)


def look(cluster: ClusterClient, settings: Settings, *, now: float) -> SavedView:
    """Return the cluster as it is. Raises ClusterError."""
    serving = Serving(ExporterValues().serving_priority)
    items = cluster.items(f"{CORE}/pods", resourceVersion="0")
    pods = [pod for pod in (pod_of(item, serving) for item in items) if pod]
    values = {
        name: item["spec"].get("priority") or 0
        for item in items
        if (name := item["spec"].get("priorityClassName"))
    }
    maps, unseen = _config_maps(cluster)
    statuses = {
        (one["metadata"]["namespace"], one["metadata"]["name"]): one for one in maps
    }
    with_master = {JobKey(p.namespace, p.job) for p in pods if p.role is Role.MASTER}
    reader, classes = JobReader(), replace(Classes(), values=values)
    jobs: list[Job] = []
    for item in filter(is_job, maps):
        known = reader.read(item, classes)
        if known is None:
            continue
        name = names.status_config_map_name(known.job.name)
        status = statuses.get((known.job.namespace, name))
        if known.job.key in with_master or not _has_ended(status):
            jobs.append(with_grant(known, by=_signed(item), now=now))
    view = ClusterView(
        nodes=tuple(node_of(item) for item in cluster.items(f"{CORE}/nodes")),
        pods=tuple(pods),
        jobs=tuple(jobs),
    )
    return SavedView(now, view, settings, unseen)


def save(saved: SavedView, path: Path) -> None:
    """Keep a view in a file. Raises OSError."""
    write_whole(path, _FILE.dump_json(saved, indent=1).decode() + "\n", durable=False)


def read_saved(path: Path) -> SavedView:
    """Return the view of a file. Raises SpecError."""
    try:
        return _FILE.validate_json(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SpecError(
            f"{path}: cannot be read ({error.strerror}); expected a file that "
            "`elasticdl plan --save FILE` has written"
        ) from error
    except (ValidationError, UnicodeDecodeError) as error:
        raise SpecError(
            f"{path}: got something else, expected a file that `elasticdl plan --save "
            "FILE` of this version has written"
        ) from error


def _config_maps(cluster: ClusterClient) -> tuple[list[Object], str]:
    """Return the ConfigMaps of jobs and statuses, and which cannot be read."""
    try:
        return cluster.items(f"{CORE}/configmaps", labelSelector=names.LABEL_JOB), ""
    except ClusterError as error:
        if not error.forbidden:
            raise
    here = cluster.items(cluster.path("configmaps"), labelSelector=names.LABEL_JOB)
    return here, (
        f"jobs of namespace {cluster.namespace} alone: ConfigMaps of other namespaces "
        "may not be read"
    )


def _signed(item: Object) -> str:
    """Return who granted the job its size: for a look all controllers are one's own."""
    annotations = item["metadata"].get("annotations") or {}
    grant = parse_grant(annotations.get(names.ANNOTATION_WORKERS, "")).grant
    return grant.by if grant else ""


def _has_ended(status: Object | None) -> bool:
    text = ((status or {}).get("data") or {}).get(names.KEY_STATUS, "")
    try:
        return bool(text) and JobStatus.model_validate_json(text).state.ended
    except ValidationError:
        return False
