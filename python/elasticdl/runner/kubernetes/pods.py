"""A pod to be created: the template of its role with what the master knows stamped on.

Owns which fields the master sets. Called by `kubernetes.runner`. Pure. Everything else
(image, command, volumes, security) is the chart's, and visible in `helm template`.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Mapping
from pathlib import PurePosixPath
from types import MappingProxyType
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from elasticdl.errors import PlatformError
from elasticdl.job import names
from elasticdl.job.spec.quantity import bytes_or_zero
from elasticdl.runner.base import Launch, ReplicaKey

Json = dict[str, Any]


def stamp(
    template: str,
    launch: Launch,
    *,
    job: str,
    owner: Json,
    enrolment: Mapping[str, str] = MappingProxyType({}),
) -> Json:
    """Return the pod of a launch. `owner` is the job's ConfigMap: name and uid.

    `enrolment`: variables by which the replica gets its certificate.

    Raises PlatformError if the template is no pod with a container `main`.
    """
    pod = copy.deepcopy(_parse(template, names.template_key(launch.key.role)))
    metadata = pod.setdefault("metadata", {})
    metadata["name"] = names.pod_name(job, launch.key.role, launch.key.index)
    metadata["labels"] = {
        **(metadata.get("labels") or {}),
        names.LABEL_JOB: job,
        names.LABEL_ROLE: str(launch.key.role),
        names.LABEL_INDEX: str(launch.key.index),
        names.LABEL_GENERATION: str(launch.generation),
        names.LABEL_MANAGED_BY: names.MANAGED_BY_MASTER,
    }
    # `controller` lets `kubectl drain` move the pod: somebody replaces it. (Autoscalers
    # know only the usual kinds of owners: the chart's annotation tells them.)
    # Without `blockOwnerDeletion`, which needs a permission on the owner's finalizers.
    metadata["ownerReferences"] = [
        {"apiVersion": "v1", "kind": "ConfigMap", "controller": True, **owner}
    ]
    spec = pod["spec"]
    spec["restartPolicy"] = (
        "Never"  # a replica that ends is replaced, under a new number
    )
    if launch.priority:
        spec["priorityClassName"] = launch.priority
    main = _main_container(pod, names.template_key(launch.key.role))
    main["env"] = _environment(main.get("env") or [], launch, enrolment)
    _raise_memory(main, launch.memory)
    return pod


def name_of(job: str, key: ReplicaKey) -> str:
    """Return the name of a replica's pod."""
    return names.pod_name(job, key.role, key.index)


def mounted_below(template: str, role: names.Role, top: str) -> set[PurePosixPath]:
    """Return the folders in a folder `top` of its volume that are mounted one by one.

    As paths in that folder.
    """
    key = names.template_key(role)
    main = _main_container(_parse(template, key), key)
    found = set()
    for mount in main.get("volumeMounts") or []:
        parts = PurePosixPath(str(mount.get("subPath") or "")).parts
        if top in parts[:-1]:
            found.add(PurePosixPath(*parts[parts.index(top) + 1 :]))
    return found


def class_of(template: str, role: names.Role) -> str:
    """Return the PriorityClass that a template names; "" for none."""
    spec = _parse(template, names.template_key(role)).get("spec") or {}
    return str(spec.get("priorityClassName") or "")


@functools.lru_cache(maxsize=8)
def _parse(template: str, key: str) -> Json:
    try:
        pod = YAML(typ="safe", pure=True).load(template)
    except YAMLError as error:
        raise PlatformError(
            f"the ConfigMap's {key} is not YAML: {error}; upgrade the job's release"
        ) from error
    if not isinstance(pod, dict) or pod.get("kind") != "Pod":
        found = pod.get("kind") if isinstance(pod, dict) else type(pod).__name__
        raise PlatformError(
            f"the ConfigMap's {key}: got {found}, expected a v1 Pod; upgrade the job's "
            "release"
        )
    _main_container(pod, key)
    return pod


def _main_container(pod: Json, key: str) -> Json:
    containers: list[Json] = (pod.get("spec") or {}).get("containers") or []
    for container in containers:
        if container.get("name") == names.MAIN_CONTAINER:
            return container
    found = ", ".join(str(c.get("name")) for c in containers) or "none"
    raise PlatformError(
        f"the ConfigMap's {key}: got containers {found}, expected one named "
        f"`{names.MAIN_CONTAINER}`; upgrade the job's release"
    )


def _environment(
    given: list[Json], launch: Launch, enrolment: Mapping[str, str]
) -> list[Json]:
    """Return the template's variables, others of the job, and the replica's identity.

    The chart has put the job's into the template, below those of `pods.<role>.env`.
    """
    named = {str(entry.get("name")) for entry in given}
    values = {k: v for k, v in launch.env.items() if k not in named}
    values |= {
        names.ENV_ROLE: str(launch.key.role),
        names.ENV_INDEX: str(launch.key.index),
        names.ENV_GENERATION: str(launch.generation),
        **enrolment,
    }
    kept = [entry for entry in given if entry.get("name") not in values]
    return [*kept, *({"name": k, "value": v} for k, v in values.items())]


def _raise_memory(container: Json, memory: str) -> None:
    """Raise the container's memory above the template's, after an OOM kill."""
    resources = container.get("resources") or {}
    requests, limits = resources.get("requests") or {}, resources.get("limits") or {}
    asked = bytes_or_zero(requests.get("memory") or limits.get("memory"))
    if not asked or bytes_or_zero(memory) <= asked:
        return
    resources["requests"] = {**requests, "memory": memory}
    if 0 < bytes_or_zero(limits.get("memory")) < bytes_or_zero(memory):
        limits["memory"] = memory
