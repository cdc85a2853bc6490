"""A pod behind a scheduling gate says which gate, and does not blame the nodes."""

from elasticdl.client.cluster.objects import why_pending
from elasticdl.job import names
from elasticdl.runner.kubernetes.pod_state import state_of

GATE = "kueue.x-k8s.io/admission"
POD = {
    "metadata": {
        "name": "elasticdl-j-worker-0",
        "labels": {
            names.LABEL_ROLE: "worker",
            names.LABEL_INDEX: "0",
            names.LABEL_GENERATION: "1",
            "kueue.x-k8s.io/queue-name": "team",
        },
        "creationTimestamp": "2026-11-21T10:00:00Z",
    },
    "spec": {"schedulingGates": [{"name": GATE}]},
    "status": {
        "phase": "Pending",
        "conditions": [
            {
                "type": "PodScheduled",
                "status": "False",
                "reason": "SchedulingGated",
                "message": "Scheduling is blocked due to non-empty scheduling gates",
            }
        ],
    },
}


def test_a_gated_replica_says_behind_which_gate_and_in_which_queue_it_waits() -> None:
    state = state_of(POD)
    assert state is not None
    assert state.pending_reason == (
        f"SchedulingGated: not admitted yet: {GATE}, queue team"
    )


def test_a_gated_master_does_not_wait_for_a_node() -> None:
    assert why_pending(POD) == f"its pod waits: not admitted yet: {GATE}, queue team"
    admitted = {**POD, "spec": {}}
    assert why_pending(admitted).startswith("no node for its pod")
