"""What a pod's object says: its phase, what its containers wait for, how they ended.

Owns how that is read, in one place. Called by the runner, the command line and the
exporter, which decide what follows from it and how it is said. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from elasticdl.kube.times import unix_seconds

Json = dict[str, Any]

# What every container goes through.
ON_ITS_WAY = ("ContainerCreating", "PodInitializing")
_QUEUE = "kueue.x-k8s.io/queue-name"
_INIT, _MAIN = "initContainerStatuses", "containerStatuses"


@dataclass(frozen=True)
class Waiting:
    """Why a container does not run yet; the name "" stands for the pod."""

    container: str
    reason: str  # Kubernetes' word, as ImagePullBackOff
    message: str = ""


@dataclass(frozen=True)
class Ended:
    """How a container ended."""

    container: str
    exit_code: int
    reason: str  # Kubernetes' word, as OOMKilled
    message: str
    time: float  # Unix seconds; 0 is not known


def phase_of(pod: Json) -> str:
    """Return the pod's phase; a pod that no node has reported on is pending."""
    return str(_status(pod).get("phase") or "Pending")


def is_over(pod: Json) -> bool:
    """Whether all containers of the pod have ended for good."""
    return phase_of(pod) in ("Succeeded", "Failed")


def is_going(pod: Json) -> bool:
    """Whether the pod is being deleted."""
    return bool(pod["metadata"].get("deletionTimestamp"))


def waiting(pod: Json) -> Iterator[Waiting]:
    """Yield what containers wait for, init containers first."""
    for one in _containers(pod, _INIT, _MAIN):
        found = (one.get("state") or {}).get("waiting")
        if found:
            yield Waiting(
                str(one.get("name", "")),
                str(found.get("reason") or ""),
                str(found.get("message") or ""),
            )


def unscheduled(pod: Json) -> Waiting | None:
    """Return why no node was found; None if one was, or the reason is unknown."""
    for condition in _status(pod).get("conditions") or []:
        found = condition.get("type") == "PodScheduled"
        if found and condition.get("status") != "True":
            return Waiting(
                "",
                str(condition.get("reason") or ""),
                str(condition.get("message") or ""),
            )
    return None


def gated(pod: Json) -> str:
    """Return the scheduling gates of a pod and its queue; "" if it has none."""
    gates = (pod.get("spec") or {}).get("schedulingGates") or []
    names = ", ".join(str(gate.get("name", "")) for gate in gates)
    if not names:
        return ""
    queue = queue_of(pod)
    return f"not admitted yet: {names}{f', queue {queue}' if queue else ''}"


def queue_of(thing: Json) -> str:
    """Return Kueue's queue of a pod or Job; "" if it is in none."""
    return str((thing["metadata"].get("labels") or {}).get(_QUEUE, ""))


def running_since(pod: Json, container: str) -> float | None:
    """Return when a container started (Unix seconds); None if it does not run."""
    for one in _containers(pod, _MAIN):
        running = (one.get("state") or {}).get("running")
        if one.get("name") == container and running is not None:
            return unix_seconds(running.get("startedAt"))
    return None


def first_start(pod: Json) -> float:
    """Return when the first container started; 0 if none has."""
    starts = []
    for one in _containers(pod, _MAIN):
        for state in (one.get("state") or {}, one.get("lastState") or {}):
            found = [state.get(kind) or {} for kind in ("running", "terminated")]
            at = next((f["startedAt"] for f in found if f.get("startedAt")), None)
            if at:
                starts.append(unix_seconds(at))
                break
    return min(starts, default=0.0)


def ended(pod: Json) -> list[Ended]:
    """Return how the containers ended, without init containers."""
    return list(_ended(pod, _MAIN))


def ended_init(pod: Json) -> list[Ended]:
    """Return how the init containers ended."""
    return list(_ended(pod, _INIT))


def _ended(pod: Json, kind: str) -> Iterator[Ended]:
    for one in _containers(pod, kind):
        found = (one.get("state") or {}).get("terminated")
        if found:
            yield Ended(
                str(one.get("name", "")),
                int(found.get("exitCode", 0)),
                str(found.get("reason") or ""),
                str(found.get("message") or ""),
                unix_seconds(found.get("finishedAt")),
            )


def _status(pod: Json) -> Json:
    status: Json = pod.get("status") or {}
    return status


def _containers(pod: Json, *kinds: str) -> Iterator[Json]:
    status = _status(pod)
    for kind in kinds:
        yield from status.get(kind) or []
