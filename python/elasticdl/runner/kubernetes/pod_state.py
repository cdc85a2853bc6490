"""What a pod's JSON says of a replica: its phase, why it waits, how it ended.

Owns the one function from a pod to a Observed. Called by `kubernetes.runner`. Pure:
must not decide what follows from it.

Two things look alike from here. An OOM kill shows as reason `OOMKilled`, or (cgroup v1)
as exit code 137 with reason `Error`, which a `kill -9` inside the pod does too; the
memory limit goes along, and who knows what the replica used can tell them apart.
"""

from __future__ import annotations

from typing import Any

from elasticdl.job import names
from elasticdl.job.names import Role
from elasticdl.job.spec.quantity import bytes_or_zero
from elasticdl.job.words import ExitReason
from elasticdl.kube import pods
from elasticdl.kube.pods import Ended, Waiting
from elasticdl.kube.times import unix_seconds
from elasticdl.runner.base import ObservedReplica, Phase, ReplicaKey
from elasticdl.runner.last_words import last_words, signal_name

Json = dict[str, Any]

_LONGEST_REASON = 300  # A reason is shown in one or two lines of a table.

# Reasons of the condition DisruptionTarget: who took the pod away.
_DISRUPTIONS = {
    "PreemptionByScheduler": ExitReason.PREEMPTED,
    "EvictionByEvictionAPI": ExitReason.EVICTED,
    "TerminationByKubelet": ExitReason.EVICTED,
    "DeletionByTaintManager": ExitReason.NODE_LOST,
    "DeletionByPodGC": ExitReason.NODE_LOST,
}
# Reasons of the pod itself; the kubelet's, also of versions without the condition.
_POD_REASONS = {
    "Evicted": ExitReason.EVICTED,
    "Preempting": ExitReason.PREEMPTED,
    "NodeLost": ExitReason.NODE_LOST,
    "NodeShutdown": ExitReason.NODE_LOST,
    "Shutdown": ExitReason.NODE_LOST,
    "Terminated": ExitReason.NODE_LOST,
    # The node was given the pod and would not have it.
    "NodeAffinity": ExitReason.EVICTED,
    "OutOfcpu": ExitReason.EVICTED,
    "OutOfmemory": ExitReason.EVICTED,
    "OutOfpods": ExitReason.EVICTED,
    "UnexpectedAdmissionError": ExitReason.EVICTED,
}
# A container that can never run, whatever happens outside.
_NEVER_STARTS_WAITING = ("InvalidImageName",)
_NEVER_STARTS_ENDED = ("StartError", "ContainerCannotRun")
# Exit codes of crashes by a signal (SIGILL, SIGTRAP, SIGABRT, SIGBUS, SIGFPE, SIGSEGV,
# SIGSYS): the program's own fault. Others were sent by somebody.
_CRASHES = frozenset({132, 133, 134, 135, 136, 139, 159})


def state_of(pod: Json, *, deleted: bool = False) -> ObservedReplica | None:
    """Return the replica's state from its pod; `deleted`: this is the pod's last state.

    None for a pod that is no PS or worker of a job.
    """
    identity = _identity(pod)
    if identity is None:
        return None
    key, generation = identity
    limit = _memory_limit(pod)
    lost = pods.phase_of(pod) == "Unknown"
    if deleted or lost or pods.is_over(pod) or _end_of_main(pod):
        return _ended(pod, key, generation, memory_limit=limit)
    waiting = _waiting(pod)
    if waiting and waiting.reason in _NEVER_STARTS_WAITING:
        return ObservedReplica(
            key,
            generation,
            Phase.FAILED,
            reason=ExitReason.CANNOT_START,
            message=_words(waiting),
        )
    since = pods.running_since(pod, names.MAIN_CONTAINER)
    if since is not None:
        going = pods.is_going(pod)
        return ObservedReplica(
            key,
            generation,
            Phase.RUNNING,
            reason=_exit_reason(pod, None) if going else ExitReason.NONE,
            since=since,
            memory_limit=limit,
        )
    return ObservedReplica(
        key,
        generation,
        Phase.PENDING,
        pending_reason=_pending_reason(pod, waiting),
        since=unix_seconds(pod["metadata"].get("creationTimestamp")),
    )


def generation_of(pod: Json) -> int:
    """Return the generation in a pod's labels; 0 if it has none."""
    label = (pod["metadata"].get("labels") or {}).get(names.LABEL_GENERATION, "")
    return int(label) if label.isdigit() else 0


def _identity(pod: Json) -> tuple[ReplicaKey, int] | None:
    labels = pod["metadata"].get("labels") or {}
    role = labels.get(names.LABEL_ROLE, "")
    index = labels.get(names.LABEL_INDEX, "")
    generation = generation_of(pod)
    if role not in (Role.PS, Role.WORKER) or not index.isdigit() or not generation:
        return None
    return ReplicaKey(Role(role), int(index)), generation


def _end_of_main(pod: Json) -> Ended | None:
    """Return how the main container ended, if it has; sidecars do not count."""
    found = (one for one in pods.ended(pod) if one.container == names.MAIN_CONTAINER)
    return next(found, None)


# -- waiting ----------------------------------------------------------------------


def _waiting(pod: Json) -> Waiting | None:
    """Return why a container waits; init containers first."""
    found = (one for one in pods.waiting(pod) if one.reason != "PodInitializing")
    return next((one for one in found if one.reason), None)


def _pending_reason(pod: Json, waiting: Waiting | None) -> str:
    if pods.is_going(pod):
        return "being deleted"
    if waiting:
        return _words(waiting)
    if gates := pods.gated(pod):
        return f"SchedulingGated: {gates}"
    why = pods.unscheduled(pod)
    return _words(why) if why else ""


def _words(why: Waiting) -> str:
    """Return reason and message in one line."""
    # What preemption or claims of devices could not do either says the same again.
    message = why.message.partition(" preemption: ")[0]
    message = message.removesuffix(" no new claims to deallocate,")
    text = f"{why.reason}: {message}" if message else why.reason
    text = " ".join(text.split())
    if len(text) > _LONGEST_REASON:
        text = text[: _LONGEST_REASON - 3] + "..."
    return text


# -- the end ----------------------------------------------------------------------


def _ended(
    pod: Json, key: ReplicaKey, generation: int, *, memory_limit: int
) -> ObservedReplica:
    status = pod.get("status") or {}
    ending = _end_of_main(pod)
    failed = [one for one in pods.ended_init(pod) if one.exit_code]
    of_init = ending is None and bool(failed)
    if of_init:
        ending = failed[0]
    exit_code = ending.exit_code if ending else 0
    reason = _exit_reason(pod, ending)
    message = (ending.message if ending else "") or status.get("message") or ""
    if reason is ExitReason.ERROR and ending and not of_init:
        cause = signal_name(exit_code - 128) if exit_code in _CRASHES else ""
        message = last_words(message, cause)
    if of_init and ending:
        message = f"init container {ending.container}: {message or ending.reason}"
    done = ending is not None and exit_code == 0
    return ObservedReplica(
        key,
        generation,
        Phase.SUCCEEDED if done else Phase.FAILED,
        reason=reason,
        exit_code=exit_code,
        message=message,
        since=ending.time if ending else 0.0,
        memory_limit=memory_limit,
    )


def _exit_reason(pod: Json, ending: Ended | None) -> ExitReason:
    """Return the cause; a removal of the pod counts before its exit code."""
    status = pod.get("status") or {}
    for condition in status.get("conditions") or []:
        if (
            condition.get("type") == "DisruptionTarget"
            and condition["status"] == "True"
        ):
            return _DISRUPTIONS.get(condition.get("reason", ""), ExitReason.EVICTED)
        # Kueue's, when it takes the quota back.
        if (
            condition.get("type") == "TerminationTarget"
            and condition["status"] == "True"
        ):
            return ExitReason.EVICTED
    if known := _POD_REASONS.get(status.get("reason", "")):
        return known
    if pods.is_going(pod):
        return ExitReason.DELETED
    if ending:
        return _own_reason(ending)
    # No container ended, and the pod is gone or lost.
    lost = pods.phase_of(pod) == "Unknown"
    return ExitReason.NODE_LOST if lost else ExitReason.DELETED


def _own_reason(ending: Ended) -> ExitReason:
    exit_code = ending.exit_code
    if ending.reason == "OOMKilled":
        return ExitReason.OOM_KILLED
    if ending.reason in _NEVER_STARTS_ENDED:
        return ExitReason.CANNOT_START
    if exit_code == 0:
        return ExitReason.COMPLETED
    if exit_code > 128 and exit_code not in _CRASHES:
        return ExitReason.KILLED
    return ExitReason.ERROR


# -- parts ------------------------------------------------------------------------


def _memory_limit(pod: Json) -> int:
    for container in (pod.get("spec") or {}).get("containers") or []:
        if container.get("name") == names.MAIN_CONTAINER:
            limits = (container.get("resources") or {}).get("limits") or {}
            return bytes_or_zero(limits.get("memory"))
    return 0
