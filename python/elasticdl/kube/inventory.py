"""What is kept of a node and of a pod for figures, and which class a pod belongs to.

Owns the reading of Kubernetes' objects: a cluster has many pods, and all that is not
needed is dropped at once. Called by `exporter.watching` and by commands; the class also
by the controller. Pure. Must not sum anything.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from elasticdl.job.names import ANNOTATION_STATE, LABEL_JOB, LABEL_ROLE, Role
from elasticdl.kube import pods
from elasticdl.kube.amounts import Amounts, amounts, effective_request
from elasticdl.kube.times import unix_seconds

Json = dict[str, Any]

SERVING, TRAINING, OTHER = "serving", "training", "other"
READY, UNSCHEDULABLE, NOT_READY = "ready", "unschedulable", "notReady"
STARTING = "Starting"
ACTIVE, SUSPENDED, SUCCEEDED, FAILED = "active", "suspended", "succeeded", "failed"
WAITING = "waiting"  # active, and none of its masters has begun yet
# What runs the cluster itself has priorities above all that users may make.
_HIGHEST_OF_USERS = 1_000_000_000
# What every pod goes through is no reason to tell.


@dataclass(frozen=True)
class Serving:
    """Which pods count as serving: by priority, or by labels."""

    priority: int  # and above, up to the highest that users may make
    labels: Mapping[str, str] = field(default_factory=dict)  # all of them; {} is none


@dataclass(frozen=True)
class Holder:
    """Who owns a pod: a class, and for training the job."""

    kind: str
    namespace: str = ""
    job: str = ""


@dataclass(frozen=True)
class Node:
    """A node: its capacity and what it offers to pods."""

    name: str
    state: str
    allocatable: Amounts


@dataclass(frozen=True)
class MasterJob:
    """The batch Job of a training job's master, which outlives the job."""

    uid: str
    namespace: str
    job: str
    state: str  # waiting, active, suspended, succeeded, failed


@dataclass(frozen=True)
class Pod:
    """A pod that has not ended."""

    uid: str
    namespace: str
    name: str
    holder: Holder
    request: Amounts
    node: str  # "" where none was found yet
    waiting: str  # why it does not run yet; "" when it does, or did
    created: float  # Unix seconds
    started: float  # of its first container; 0 if it has not
    is_running_master: bool = False


def node_of(item: Json) -> Node:
    """Return a node from the API server's object."""
    conditions = item.get("status", {}).get("conditions") or []
    ready = any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)
    state = NOT_READY
    if ready:
        cordoned = item.get("spec", {}).get("unschedulable")
        state = UNSCHEDULABLE if cordoned else READY
    allocatable = amounts(item.get("status", {}).get("allocatable"))
    return Node(item["metadata"]["name"], state, allocatable)


def pod_of(item: Json, serving: Serving) -> Pod | None:
    """Return a pod from the API server's object; None if it has ended."""
    metadata, spec = item["metadata"], item.get("spec") or {}
    if pods.is_over(item):
        return None
    phase = pods.phase_of(item)
    return Pod(
        uid=metadata.get("uid", ""),
        namespace=metadata["namespace"],
        name=metadata["name"],
        holder=holder_of(metadata, spec, serving),
        request=effective_request(spec),
        node=spec.get("nodeName", ""),
        waiting=_waiting(item) if phase == "Pending" else "",
        created=unix_seconds(metadata.get("creationTimestamp")),
        started=pods.first_start(item),
        is_running_master=phase == "Running"
        and (metadata.get("labels") or {}).get(LABEL_ROLE) == Role.MASTER,
    )


def master_job_of(item: Json) -> MasterJob:
    """Return a master's batch Job from the API server's object."""
    metadata, status = item["metadata"], item.get("status") or {}
    held = {c["type"] for c in status.get("conditions") or [] if c["status"] == "True"}
    # The first thing that a master shows.
    begun = ANNOTATION_STATE in (metadata.get("annotations") or {})
    state = ACTIVE if begun else WAITING
    if "Failed" in held:
        state = FAILED
    elif "Complete" in held:
        state = SUCCEEDED
    elif (item.get("spec") or {}).get("suspend"):
        state = SUSPENDED
    return MasterJob(
        uid=metadata.get("uid", ""),
        namespace=metadata["namespace"],
        job=metadata["labels"][LABEL_JOB],
        state=state,
    )


def holder_of(metadata: Json, spec: Json, serving: Serving) -> Holder:
    """Return who a pod works for."""
    labels = metadata.get("labels") or {}
    if job := labels.get(LABEL_JOB):
        return Holder(TRAINING, metadata["namespace"], job)
    priority = spec.get("priority") or 0
    chosen = serving.labels and serving.labels.items() <= labels.items()
    if chosen or serving.priority <= priority <= _HIGHEST_OF_USERS:
        return Holder(SERVING)
    return Holder(OTHER)


def _waiting(pod: Json) -> str:
    if why := pods.unscheduled(pod):
        return why.reason or STARTING
    found = (one.reason for one in pods.waiting(pod))
    return next((why for why in found if why and why not in pods.ON_ITS_WAY), STARTING)
