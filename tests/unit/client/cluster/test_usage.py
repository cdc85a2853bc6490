"""How full a cluster is, and with what, from its nodes and pods."""

from __future__ import annotations

from typing import Any

from elasticdl.client.cluster.api import ClusterClient, ClusterError, Object
from elasticdl.client.cluster.usage import cluster_usage, usage_of
from elasticdl.client.usage import ClusterUsage
from elasticdl.kube.amounts import Amounts

LOW, SYSTEM = 1000, 2_000_000_000


def node(name: str, cpu: str, *, ready: str = "True", **spec: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": name},
        "spec": spec,
        "status": {
            "conditions": [{"type": "Ready", "status": ready}],
            "allocatable": {"cpu": cpu, "memory": "8Gi", "nvidia.com/gpu": "1"},
        },
    }


def container(cpu: str, memory: str = "1Gi") -> dict[str, Any]:
    return {"resources": {"requests": {"cpu": cpu, "memory": memory}}}


def pod(
    *containers: dict[str, Any], job: str = "", phase: str = "Running", **spec: Any
) -> dict[str, Any]:
    labels = {"elasticdl-job-name": job} if job else {}
    return {
        "metadata": {"namespace": "ml", "name": "pod", "labels": labels},
        "spec": {"nodeName": "a", "containers": list(containers), **spec},
        "status": {"phase": phase},
    }


def test_a_cluster_is_what_its_nodes_have_and_who_holds_it() -> None:
    usage = usage_of(
        [node("a", "3500m"), node("b", "4"), node("c", "8", ready="False")],
        [
            pod(container("500m"), priority=LOW, job="digits"),
            pod(container("1"), priority=1_000_000, job="mnist"),
            pod(container("2"), priority=1_000_000),
            pod(container("250m"), priority=SYSTEM),
            pod(container("250m")),
            pod(container("9"), phase="Succeeded"),
            pod(container("9"), phase="Pending", nodeName=""),
            pod(container("9"), nodeName="c"),
        ],
    )
    assert usage == ClusterUsage(
        2,
        Amounts(7.5, 16 << 30, 2),
        {
            "training": Amounts(1.5, 2 << 30),
            "serving": Amounts(2.0, 1 << 30),
            "other": Amounts(0.5, 2 << 30),
        },
    )


def test_who_may_not_look_is_told_which_right_it_takes() -> None:
    class Forbidding(ClusterClient):
        def items(self, path: str, **query: str) -> list[Object]:
            raise ClusterError(f"cannot read {path}", status=403, reason="Forbidden")

    server: Any = None
    usage = cluster_usage(Forbidding(server, "kind", "ml"))
    assert usage.unknown == "not known: it takes the right to list nodes and all pods"
