"""What pods' statuses mean, as API servers of 1.29 to 1.36 write them."""

from typing import Any

import pytest
from elasticdl.job.names import Role
from elasticdl.job.words import ExitReason
from elasticdl.runner.base import ObservedReplica, Phase, ReplicaKey
from elasticdl.runner.kubernetes.pod_state import state_of

Json = dict[str, Any]
STARTED = "2026-11-21T10:00:00Z"
ENDED = "2026-11-21T10:00:30Z"


def pod(status: Json, *, deleting: bool = False, labels: Json | None = None) -> Json:
    metadata: Json = {
        "name": "elasticdl-digits-worker-3",
        "creationTimestamp": "2026-11-21T09:59:50Z",
        "labels": labels
        or {
            "elasticdl-job-name": "digits",
            "elasticdl-replica-type": "worker",
            "elasticdl-replica-index": "3",
            "elasticdl-generation": "7",
        },
    }
    if deleting:
        metadata |= {"deletionTimestamp": ENDED, "deletionGracePeriodSeconds": 30}
    limits = {"resources": {"limits": {"memory": "64Mi"}}}
    return {
        "metadata": metadata,
        "spec": {"containers": [{"name": "sidecar"}, {"name": "main", **limits}]},
        "status": status,
    }


def with_main(phase: str, state: Json, **more: Any) -> Json:
    sidecar = {"name": "sidecar", "state": {"running": {"startedAt": STARTED}}}
    main = {"name": "main", "state": state}
    return {"phase": phase, "containerStatuses": [sidecar, main], **more}


def terminated(code: int, reason: str = "Error", message: str = "") -> Json:
    return {
        "terminated": {
            "exitCode": code,
            "reason": reason,
            "startedAt": STARTED,
            "finishedAt": ENDED,
            **({"message": message} if message else {}),
        }
    }


def ended(code: int, reason: str = "Error", message: str = "", **more: Any) -> Json:
    phase = "Failed" if code else "Succeeded"
    return with_main(phase, terminated(code, reason, message), **more)


def target(reason: str) -> Json:
    condition = {"type": "DisruptionTarget", "status": "True", "reason": reason}
    return {"conditions": [{"type": "Ready", "status": "False"}, condition]}


def unscheduled(message: str, reason: str = "Unschedulable") -> Json:
    condition = {
        "type": "PodScheduled",
        "status": "False",
        "reason": reason,
        "message": message,
    }
    return {"phase": "Pending", "conditions": [condition]}


def waiting(reason: str, message: str = "") -> Json:
    return with_main("Pending", {"waiting": {"reason": reason, "message": message}})


def seen(one: Json, **how: bool) -> ObservedReplica:
    state = state_of(one, **how)
    assert state is not None
    return state


def test_a_running_pod_says_who_it_is_since_when_and_what_it_may_use() -> None:
    state = seen(pod(with_main("Running", {"running": {"startedAt": STARTED}})))
    assert state.key == ReplicaKey(Role.WORKER, 3)
    assert state.generation == 7
    assert state.phase is Phase.RUNNING
    assert state.since == 1795255200.0
    assert state.memory_limit == 64 * 2**20


def test_a_running_pod_that_is_being_deleted_says_who_takes_it_away() -> None:
    running = with_main("Running", {"running": {"startedAt": STARTED}})
    assert seen(pod(running)).reason is ExitReason.NONE
    going = seen(pod(running, deleting=True))
    assert (going.phase, going.reason) == (Phase.RUNNING, ExitReason.DELETED)
    preempted = running | target("PreemptionByScheduler")
    assert seen(pod(preempted, deleting=True)).reason is ExitReason.PREEMPTED


def test_a_pod_whose_quota_kueue_takes_back_is_evicted() -> None:
    condition = {
        "type": "TerminationTarget", "status": "True", "reason": "WorkloadEvicted",
    }  # fmt: skip
    running = with_main("Running", {"running": {"startedAt": STARTED}})
    taken = pod(running | {"conditions": [condition]}, deleting=True)
    assert seen(taken).reason is ExitReason.EVICTED
    assert seen(taken, deleted=True).reason is ExitReason.EVICTED


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        ({"phase": "Pending"}, ""),
        (
            unscheduled(
                "0/3 nodes are available: 1 node(s) had untolerated taint {gpu: }, 2 "
                "Insufficient cpu. preemption: 0/3 nodes are available: 1 Preemption "
                "is not helpful for scheduling, 2 No preemption victims found."
            ),
            "Unschedulable: 0/3 nodes are available: 1 node(s) had untolerated taint "
            "{gpu: }, 2 Insufficient cpu.",
        ),
        (
            unscheduled(
                "0/1 nodes are available: 1 Insufficient cpu. no new claims to "
                "deallocate, preemption: not eligible due to preemptionPolicy=Never."
            ),
            "Unschedulable: 0/1 nodes are available: 1 Insufficient cpu.",
        ),
        (
            unscheduled('persistentvolumeclaim "fileserver-claim" not found'),
            'Unschedulable: persistentvolumeclaim "fileserver-claim" not found',
        ),
        (waiting("ContainerCreating"), "ContainerCreating"),
        (waiting("PodInitializing"), ""),
        (
            waiting("ErrImagePull", 'failed to pull "x:1":\n not found'),
            'ErrImagePull: failed to pull "x:1": not found',
        ),
        (
            waiting("ImagePullBackOff", 'Back-off pulling image "x:1"'),
            'ImagePullBackOff: Back-off pulling image "x:1"',
        ),
        (
            waiting(
                "CreateContainerConfigError", 'secret "elasticdl-x-token" not found'
            ),
            'CreateContainerConfigError: secret "elasticdl-x-token" not found',
        ),
        (
            {
                **waiting("PodInitializing"),
                "initContainerStatuses": [
                    {"name": "a", "state": {"terminated": {"exitCode": 0}}},
                    {
                        "name": "fetch",
                        "state": {"waiting": {"reason": "ErrImageNeverPull"}},
                    },
                ],
            },
            "ErrImageNeverPull",
        ),
    ],
)
def test_a_pod_that_waits_says_why(status: Json, reason: str) -> None:
    state = seen(pod(status))
    assert state.phase is Phase.PENDING
    assert state.reason is ExitReason.NONE
    assert state.pending_reason == reason


def test_long_reasons_are_cut() -> None:
    assert len(seen(pod(unscheduled("no " * 500))).pending_reason) == 300


def test_a_pending_pod_that_is_deleted_says_so() -> None:
    state = seen(pod(unscheduled("no nodes"), deleting=True))
    assert (state.phase, state.pending_reason) == (Phase.PENDING, "being deleted")


@pytest.mark.parametrize(
    ("one", "reason", "code"),
    [
        (pod(ended(0, "Completed")), ExitReason.COMPLETED, 0),
        (pod(ended(1)), ExitReason.ERROR, 1),
        (pod(ended(4)), ExitReason.ERROR, 4),
        # Both forms of an OOM kill: cgroup v1 does not tell.
        (pod(ended(137, "OOMKilled")), ExitReason.OOM_KILLED, 137),
        (pod(ended(137)), ExitReason.KILLED, 137),
        (pod(ended(143)), ExitReason.KILLED, 143),
        (pod(ended(139)), ExitReason.ERROR, 139),
        (pod(ended(134)), ExitReason.ERROR, 134),
        # By hand; with and without an end in good order.
        (pod(ended(0, "Completed"), deleting=True), ExitReason.DELETED, 0),
        (pod(ended(137), deleting=True), ExitReason.DELETED, 137),
        (pod(ended(137, "OOMKilled"), deleting=True), ExitReason.DELETED, 137),
        # Taken away, whatever its exit.
        (
            pod(ended(0, **target("PreemptionByScheduler")), deleting=True),
            ExitReason.PREEMPTED,
            0,
        ),
        (
            pod(ended(143, **target("PreemptionByScheduler")), deleting=True),
            ExitReason.PREEMPTED,
            143,
        ),
        (pod(ended(137, **target("EvictionByEvictionAPI"))), ExitReason.EVICTED, 137),
        (
            pod(ended(137, reason="Error", **target("DeletionByTaintManager"))),
            ExitReason.NODE_LOST,
            137,
        ),
        (pod(ended(137, **target("DeletionByPodGC"))), ExitReason.NODE_LOST, 137),
        (pod(ended(137, **target("SomethingNew"))), ExitReason.EVICTED, 137),
        # The kubelet: node pressure, shutdown, and pods that it would not have.
        (
            pod(
                {
                    "phase": "Failed",
                    "reason": "Evicted",
                    "message": "The node was low on resource: memory.",
                    **target("TerminationByKubelet"),
                }
            ),
            ExitReason.EVICTED,
            0,
        ),
        (pod({"phase": "Failed", "reason": "Evicted"}), ExitReason.EVICTED, 0),
        (pod({"phase": "Failed", "reason": "Preempting"}), ExitReason.PREEMPTED, 0),
        (pod({"phase": "Failed", "reason": "NodeShutdown"}), ExitReason.NODE_LOST, 0),
        (pod({"phase": "Failed", "reason": "Terminated"}), ExitReason.NODE_LOST, 0),
        (pod({"phase": "Failed", "reason": "OutOfcpu"}), ExitReason.EVICTED, 0),
        (pod({"phase": "Unknown", "reason": "NodeLost"}), ExitReason.NODE_LOST, 0),
        (pod({"phase": "Unknown"}), ExitReason.NODE_LOST, 0),
        # The main container ended, a sidecar runs on.
        (pod(with_main("Running", terminated(1))), ExitReason.ERROR, 1),
    ],
)
def test_an_end_is_classified(one: Json, reason: ExitReason, code: int) -> None:
    state = seen(one)
    assert (state.reason, state.exit_code) == (reason, code)
    assert state.phase in (Phase.SUCCEEDED, Phase.FAILED)
    assert (state.phase is Phase.SUCCEEDED) == (
        code == 0 and "containerStatuses" in one["status"]
    )


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        ({"phase": "Pending"}, ExitReason.DELETED),
        (with_main("Running", {"running": {}}), ExitReason.DELETED),
        (
            with_main("Running", {"running": {}}, **target("PreemptionByScheduler")),
            ExitReason.PREEMPTED,
        ),
        (
            with_main("Running", {"running": {}}, **target("DeletionByTaintManager")),
            ExitReason.NODE_LOST,
        ),
        (ended(0, "Completed"), ExitReason.COMPLETED),
    ],
)
def test_a_pod_that_is_gone_has_ended_whatever_its_last_phase(
    status: Json, reason: ExitReason
) -> None:
    state = seen(pod(status), deleted=True)
    assert state.reason is reason
    assert state.phase in (Phase.SUCCEEDED, Phase.FAILED)


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (
            waiting("InvalidImageName", "couldn't parse image name 'X Y'"),
            "InvalidImageName: couldn't parse image name 'X Y'",
        ),
        (
            ended(128, "StartError", 'exec: "begin-it": executable file not found'),
            'exec: "begin-it": executable file not found',
        ),
    ],
)
def test_a_container_that_can_never_start_is_an_end(status: Json, message: str) -> None:
    state = seen(pod(status))
    assert (state.phase, state.reason) == (Phase.FAILED, ExitReason.CANNOT_START)
    assert state.message == message


def test_the_last_lines_of_the_log_are_the_message() -> None:
    log = "Traceback (most recent call last):\n  ...\nValueError: bad shape"
    assert seen(pod(ended(1, message=log))).message == log


def test_an_init_container_that_failed_is_named() -> None:
    status = {
        "phase": "Failed",
        "initContainerStatuses": [
            {"name": "fetch", "state": terminated(2, message="no route to host")}
        ],
        "containerStatuses": [
            {"name": "main", "state": {"waiting": {"reason": "PodInitializing"}}}
        ],
    }
    state = seen(pod(status))
    assert (state.reason, state.exit_code) == (ExitReason.ERROR, 2)
    assert state.message == "init container fetch: no route to host"


def test_an_evicted_pod_keeps_the_kubelets_words() -> None:
    words = "The node was low on resource: memory."
    status = {"phase": "Failed", "reason": "Evicted", "message": words}
    assert seen(pod(status)).message == words


@pytest.mark.parametrize(
    "labels",
    [
        {"elasticdl-job-name": "digits", "elasticdl-replica-type": "master"},
        {
            "elasticdl-job-name": "digits",
            "elasticdl-replica-type": "worker",
            "elasticdl-replica-index": "1",
        },
        {"app": "audit"},
    ],
)
def test_other_pods_are_no_replicas(labels: Json) -> None:
    assert state_of(pod({"phase": "Running"}, labels=labels)) is None
