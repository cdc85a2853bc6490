"""A command that runs in the cluster, where the jobs' folders are, in a short pod.

Owns that pod. Called by `cli.audit`, `cli.clean` and `cli.sql`. The folders are on a
volume of the cluster, so what reads or deletes there is a pod of a job's own template.
Must not print.
"""

from __future__ import annotations

import copy
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from elasticdl.client.cluster.api import ClusterError, Object
from elasticdl.client.cluster.job import ClusterJob
from elasticdl.client.cluster.logs import read_pod_log
from elasticdl.client.cluster.objects import why_pending
from elasticdl.errors import PlatformError
from elasticdl.job.names import (
    ENV_AUTHORITY,
    ENV_JOB_DIR,
    ENV_TOKEN,
    KEY_JOB,
    MAIN_CONTAINER,
    Role,
    template_key,
)
from elasticdl.job.plain import plain
from elasticdl.job.values.file import parse_values
from elasticdl.kube import pods

_TEMPLATES = (template_key(Role.PS), template_key(Role.WORKER))
# What keeps a worker from other jobs' folders, and those in it that it has.
_HIDES, _FOLDERS = "elasticdl-hidden", ".elasticdl/jobs/"
# Of Secrets that are made with the job's release.
_OF_RELEASE = (ENV_TOKEN, ENV_AUTHORITY)
_LOOK_SECONDS = 0.5  # A pod's start takes seconds.
_DEADLINE_SECONDS = 3600  # 10 M tasks take minutes
_PENDING_SECONDS = 90.0  # an image that has to be pulled
_SILENT_SECONDS = 60.0  # an API server that is started again
# What a count of a journal needs; the PS's own request may be a whole node's.
_RESOURCES = {
    "requests": {"cpu": "100m", "memory": "256Mi"},
    "limits": {"memory": "1Gi"},
}


# Rows of a query are joined and written, by an engine of 600 MiB.
_RESOURCES_OF_ROWS = {
    "requests": {"cpu": "100m", "memory": "512Mi"},
    "limits": {"memory": "2Gi"},
}


# The words of `elasticdl ...`, made of the job's folder as pods see it.
Words = Callable[[PurePosixPath], Sequence[str]]


@dataclass(frozen=True)
class Errand:
    """What the pod printed, and its exit code."""

    text: str
    exit_code: int


class NotStartedError(PlatformError):
    """The pod found no place in time; nothing was done, and it may be asked again."""


def run_errand(
    job: ClusterJob,
    kind: str,
    words: Words,
    *,
    pending_seconds: float = _PENDING_SECONDS,
) -> Errand:
    """Run `elasticdl ...` in a pod of the job's namespace, and remove the pod.

    `kind` is in the pod's name and label, as `audit`. Raises PlatformError when the pod
    does not run within `pending_seconds`.
    """
    pod = errand_pod(job.config_map(), job.name, kind, words)
    return _run(job, kind, pod, pending_seconds)


def run_as_worker(
    job: ClusterJob,
    config_map: Object,
    kind: str,
    words: Sequence[str],
    *,
    folder: PurePosixPath,
) -> Errand:
    """Run `elasticdl WORDS` as a worker of a job would that need not be there.

    Args:
        job: Where, and the name that the pod's begins with.
        config_map: Of the job as the chart renders it.
        kind: What it is for, in the pod's name and label.
        words: The words behind `elasticdl`.
        folder: Where the command starts.

    Raises PlatformError when the pod does not run.
    """
    keys = _TEMPLATES[::-1]
    pod = errand_pod(config_map, job.name, kind, lambda _: words, keys=keys)
    del pod["metadata"]["ownerReferences"]
    main = pod["spec"]["containers"][0]
    main["workingDir"] = str(folder)
    main["resources"] = copy.deepcopy(_RESOURCES_OF_ROWS)
    main["env"] = [
        one for one in main.get("env") or [] if one["name"] not in _OF_RELEASE
    ]
    return _run(job, kind, pod, _PENDING_SECONDS)


def _run(job: ClusterJob, kind: str, made: Object, pending_seconds: float) -> Errand:
    cluster = job.cluster
    pod = cluster.create(cluster.path("pods"), made)
    name = str(pod["metadata"]["name"])
    path = cluster.path("pods", name)
    try:
        pod = _wait(job, kind, pod, pending_seconds)
        lines = list(read_pod_log(cluster, pod))
    finally:
        cluster.delete(path)
    return errand_of(pod, kind, lines)


def errand_of(pod: Object, kind: str, lines: Sequence[str]) -> Errand:
    """Return what an ended pod came to. Raises PlatformError if it was ended.

    What it says is of journals and folders that a job's code can write.
    """
    for ended in pods.ended(pod):
        return Errand(plain("\n".join(lines)), ended.exit_code)
    reason = pod.get("status", {}).get("message") or pod.get("status", {}).get("reason")
    raise PlatformError(f"the {kind}'s pod was ended from outside: {reason}; try again")


def errand_pod(
    config_map: Object,
    name: str,
    kind: str,
    words: Words,
    *,
    keys: Sequence[str] = _TEMPLATES,
) -> Object:
    """Return the pod: the first template that is there, with another command.

    It carries none of the labels by which the master knows its replicas. Raises
    PlatformError when the template is not one of ours.
    """
    template = _template(config_map, keys)
    spec = copy.deepcopy(template["spec"])
    main = _main(spec)
    _uncover(spec)
    folder = PurePosixPath(_job_folder(main))
    for key in (
        "readinessProbe",
        "livenessProbe",
        "startupProbe",
        "ports",
        "lifecycle",
    ):
        main.pop(key, None)
    # `-P` and a folder of its own: workers can write the one that a PS starts in.
    program = ["python", "-P", "-m", "elasticdl.cli.main"]
    main["command"] = program
    main["workingDir"] = "/"
    # The kubelet makes `$` of `$$`, and a variable's value of `$(NAME)`.
    main["args"] = [word.replace("$", "$$") for word in words(folder)]
    main["resources"] = copy.deepcopy(_RESOURCES)
    spec["containers"] = [main]
    spec["restartPolicy"] = "Never"
    spec["activeDeadlineSeconds"] = _DEADLINE_SECONDS
    # Of none it would have the cluster's 0, which pushes out workers.
    spec.pop("priorityClassName", None)
    lowest = _template(config_map, _TEMPLATES[::-1])["spec"].get("priorityClassName")
    if lowest:
        spec["priorityClassName"] = lowest
    metadata = config_map["metadata"]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "generateName": f"elasticdl-{name}-{kind}-",
            "labels": {
                "app.kubernetes.io/name": "elasticdl",
                "app.kubernetes.io/component": kind,
                "app.kubernetes.io/part-of": "elasticdl",
                "app.kubernetes.io/managed-by": "elasticdl",
            },
            "ownerReferences": [
                {
                    "apiVersion": "v1",
                    "kind": "ConfigMap",
                    "name": metadata["name"],
                    "uid": metadata.get("uid", ""),
                }
            ],
        },
        "spec": spec,
    }


def place_of(config_map: Object) -> tuple[str, str, PurePosixPath]:
    """Return where the folders of jobs are: volume, folder in it, and path in pods."""
    spec = _template(config_map, _TEMPLATES)["spec"]
    main = _main(spec)
    _uncover(spec)
    folder = PurePosixPath(_job_folder(main)).parent
    mounts = [
        one
        for one in main.get("volumeMounts") or []
        if folder.is_relative_to(one["mountPath"])
    ]
    mount: Object = max(mounts, key=lambda one: len(one["mountPath"]), default={})
    for volume in spec.get("volumes") or []:
        if volume["name"] == mount.get("name"):
            source = {key: value for key, value in volume.items() if key != "name"}
            claim = source.get("persistentVolumeClaim") or {}
            name = claim.get("claimName") or json.dumps(source, sort_keys=True)
            return str(name), str(mount.get("subPath") or ""), folder
    return "", "", folder


def begins_with(config_map: Object) -> str:
    """Return the checkpoint that a job begins with; "" for none, or where unread."""
    text = str((config_map.get("data") or {}).get(KEY_JOB, ""))
    values, _ = parse_values(text, source=KEY_JOB)
    return values.job.checkpoint.init_from if values is not None else ""


def _template(config_map: Object, keys: Sequence[str]) -> Object:
    from ruamel.yaml import YAML

    data = config_map.get("data") or {}
    for key in keys:
        if key in data:
            template = YAML(typ="safe").load(data[key])
            if isinstance(template, dict) and "spec" in template:
                return template
    raise PlatformError(
        f"ConfigMap {config_map['metadata']['name']}: got no pod template, expected "
        f"{' or '.join(_TEMPLATES)}; was it made by another version of the chart?"
    )


def _uncover(spec: Object) -> None:
    """Show the folders of all jobs: a command runs nobody's model code.

    And where the job's own folder is not there yet the kubelet would make it, with all
    around it, for root alone: no master could make one then.
    """
    main = _main(spec)
    volumes, mounts = spec.get("volumes") or [], main.get("volumeMounts") or []
    if any(one["name"] == _HIDES for one in volumes):
        spec["volumes"] = [one for one in volumes if one["name"] != _HIDES]
        main["volumeMounts"] = [
            one
            for one in mounts
            if one["name"] != _HIDES and _FOLDERS not in f"{one.get('subPath') or ''}/"
        ]


def _main(spec: Object) -> Object:
    containers: list[Object] = spec["containers"]
    return next(
        (one for one in containers if one["name"] == MAIN_CONTAINER), containers[0]
    )


def _job_folder(main: Object) -> str:
    for one in main.get("env") or []:
        if one.get("name") == ENV_JOB_DIR and one.get("value"):
            return str(one["value"])
    raise PlatformError(
        f"the job's pod template does not set {ENV_JOB_DIR}; was it made by another "
        "version of the chart?"
    )


def _wait(job: ClusterJob, kind: str, pod: Object, pending_seconds: float) -> Object:
    """Return the pod when it has ended. Raises PlatformError where it never runs."""
    cluster = job.cluster
    path = cluster.path("pods", str(pod["metadata"]["name"]))
    heard = time.monotonic()
    until = heard + pending_seconds
    while not pods.is_over(pod):
        try:
            why = why_pending(pod, job.events())
            if why and time.monotonic() > until:
                raise NotStartedError(
                    f"the {kind}'s pod did not start within {pending_seconds:g} s, and "
                    f"is removed: {why}"
                )
            time.sleep(_LOOK_SECONDS)
            pod = cluster.get(path)
        except ClusterError as error:
            if not error.passing or time.monotonic() > heard + _SILENT_SECONDS:
                raise
            time.sleep(_LOOK_SECONDS)
        else:
            heard = time.monotonic()
    return pod
