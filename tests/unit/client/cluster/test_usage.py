"""How full a cluster is, and with what, from its nodes and pods."""

from __future__ import annotations

from typing import Any

from elasticdl.client.cluster.usage import usage_of
from elasticdl.client.usage import Amount, ClusterUsage, Holder

LOW, SYSTEM = 1000, 2_000_000_000


def node(cpu: str, *, ready: str = "True", **spec: Any) -> dict[str, Any]:
    return {
        "spec": spec,
        "status": {
            "conditions": [{"type": "Ready", "status": ready}],
            "allocatable": {"cpu": cpu, "memory": "8Gi", "nvidia.com/gpu": "1"},
        },
    }


def container(cpu: str, memory: str = "1Gi", **fields: Any) -> dict[str, Any]:
    return {"resources": {"requests": {"cpu": cpu, "memory": memory}}, **fields}


def pod(
    *containers: dict[str, Any], job: str = "", phase: str = "Running", **spec: Any
) -> dict[str, Any]:
    labels = {"elasticdl-job-name": job} if job else {}
    return {
        "metadata": {"namespace": "ml", "labels": labels},
        "spec": {"nodeName": "a", "containers": list(containers), **spec},
        "status": {"phase": phase},
    }


def test_a_cluster_is_what_ready_nodes_have_for_pods() -> None:
    nodes = [
        node("3500m"),
        node("4"),
        node("8", ready="False"),
        node("8", unschedulable=True),
    ]
    assert usage_of(nodes, []) == ClusterUsage(2, Amount(7.5, 16 << 30, 2), [])


def test_pods_are_serving_training_by_job_or_other() -> None:
    usage = usage_of(
        [node("8")],
        [
            pod(container("500m"), priority=LOW, job="digits"),
            pod(container("1"), priority=1_000_000, job="digits"),
            pod(container("2"), priority=1_000_000),
            pod(container("250m"), priority=SYSTEM),
            pod(container("250m")),
        ],
    )
    assert usage.holders == [
        Holder("other", Amount(0.5, 2 << 30)),
        Holder("serving", Amount(2.0, 1 << 30)),
        Holder("training", Amount(1.5, 2 << 30), "digits", "ml"),
    ]
    assert usage.held("training").cpus == 1.5


def test_a_pod_that_ended_or_waits_holds_nothing() -> None:
    pods = [
        pod(container("1"), phase="Succeeded"),
        pod(container("1"), phase="Failed"),
        pod(container("1"), phase="Pending", nodeName=""),
    ]
    assert usage_of([node("8")], pods).holders == []


def test_what_a_pod_asks_for_is_all_at_once_or_the_most_before() -> None:
    sidecar = container("500m", restartPolicy="Always")
    before = container("3", "512Mi")
    usage = usage_of(
        [node("8")],
        [
            pod(container("1"), {"name": "asks for nothing"}, initContainers=[sidecar]),
            pod(container("1"), initContainers=[before], overhead={"cpu": "250m"}),
        ],
    )
    assert usage.held("other") == Amount(1.5 + 3.25, 3 << 30)
