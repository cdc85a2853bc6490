"""An audit in the cluster: a short pod reads the journal where it lies.

Owns that pod. Called by `cli.audit`. The job's folder is on a volume of the cluster, so
the count runs there, in a pod of the job's own template. Must not print.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from elasticdl.client.cluster.api import Object
from elasticdl.client.cluster.job import ClusterJob
from elasticdl.client.cluster.logs import read_pod_log
from elasticdl.client.cluster.objects import why_pending
from elasticdl.errors import PlatformError
from elasticdl.job.names import ENV_JOB_DIR, MAIN_CONTAINER, Role, template_key

_TEMPLATES = (template_key(Role.PS), template_key(Role.WORKER))
_LOOK_SECONDS = 0.5
_DEADLINE_SECONDS = 3600  # 10 M tasks take minutes
_PENDING_SECONDS = 90.0  # an image that has to be pulled
# What a count of a journal needs; the PS's own request may be a whole node's.
_RESOURCES = {
    "requests": {"cpu": "100m", "memory": "256Mi"},
    "limits": {"memory": "1Gi"},
}


@dataclass(frozen=True)
class Audited:
    """What the pod printed, and its exit code: OK, or AUDIT for a missed record."""

    text: str
    exit_code: int


def audit(
    job: ClusterJob,
    arguments: Sequence[str] = (),
    *,
    pending_seconds: float = _PENDING_SECONDS,
) -> Audited:
    """Run `elasticdl audit` in a pod of the job's namespace, and remove the pod.

    Raises PlatformError when the pod does not run within `pending_seconds`.
    """
    config_map = job.config_map()
    cluster = job.cluster
    pod = cluster.create(
        cluster.path("pods"), audit_pod(config_map, job.name, arguments)
    )
    name = str(pod["metadata"]["name"])
    path = cluster.path("pods", name)
    try:
        pod = _wait(job, pod, pending_seconds)
        lines = list(read_pod_log(cluster, pod))
    finally:
        cluster.delete(path)
    for one in pod.get("status", {}).get("containerStatuses") or []:
        ended = one.get("state", {}).get("terminated")
        if ended:
            return Audited("\n".join(lines), int(ended["exitCode"]))
    reason = pod.get("status", {}).get("message") or pod.get("status", {}).get("reason")
    raise PlatformError(f"the audit's pod was ended from outside: {reason}; try again")


def audit_pod(config_map: Object, name: str, arguments: Sequence[str] = ()) -> Object:
    """Return the pod that counts: the PS's template with another command.

    It carries none of the labels by which the master knows its replicas. Raises
    PlatformError when the template is not one of ours.
    """
    template = _template(config_map)
    spec = copy.deepcopy(template["spec"])
    main = _main(spec)
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
    main["command"] = [*program, "audit", folder.name]
    main["workingDir"] = "/"
    main["args"] = ["--jobs-dir", str(folder.parent), *arguments]
    main["resources"] = copy.deepcopy(_RESOURCES)
    spec["containers"] = [main]
    spec["restartPolicy"] = "Never"
    spec["activeDeadlineSeconds"] = _DEADLINE_SECONDS
    spec.pop("priorityClassName", None)
    metadata = config_map["metadata"]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "generateName": f"elasticdl-{name}-audit-",
            "labels": {
                "app.kubernetes.io/name": "elasticdl",
                "app.kubernetes.io/component": "audit",
                "app.kubernetes.io/part-of": "elasticdl",
                "app.kubernetes.io/managed-by": "elasticdl",
            },
            "ownerReferences": [
                {
                    "apiVersion": "v1",
                    "kind": "ConfigMap",
                    "name": metadata["name"],
                    "uid": metadata["uid"],
                }
            ],
        },
        "spec": spec,
    }


def _template(config_map: Object) -> Object:
    from ruamel.yaml import YAML

    data = config_map.get("data") or {}
    for key in _TEMPLATES:
        if key in data:
            template = YAML(typ="safe").load(data[key])
            if isinstance(template, dict) and "spec" in template:
                return template
    raise PlatformError(
        f"ConfigMap {config_map['metadata']['name']}: got no pod template, expected "
        f"{' or '.join(_TEMPLATES)}; was it made by another version of the chart?"
    )


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


def _wait(job: ClusterJob, pod: Object, pending_seconds: float) -> Object:
    """Return the pod when it has ended. Raises PlatformError where it never runs."""
    cluster = job.cluster
    path = cluster.path("pods", str(pod["metadata"]["name"]))
    until = time.monotonic() + pending_seconds
    while pod.get("status", {}).get("phase") not in ("Succeeded", "Failed"):
        why = why_pending(pod, job.events())
        if why and time.monotonic() > until:
            raise PlatformError(
                f"the audit's pod did not start within {pending_seconds:g} s, and "
                f"is removed: {why}"
            )
        time.sleep(_LOOK_SECONDS)
        pod = cluster.get(path)
    return pod
