"""From the API server's objects to figures: requests, classes, waiting."""

from datetime import UTC, datetime

import pytest
from elasticdl.exporter.figures import Waits, figures, show
from elasticdl.exporter.watching import usage_of
from elasticdl.kube.amounts import Amounts, effective_request, quantity
from elasticdl.kube.inventory import Holder, Serving, node_of, pod_of
from elasticdl.metrics.registry import ClusterMetrics
from prometheus_client.exposition import generate_latest

GI = 2.0**30
SERVING = Serving(1_000_000, {"tier": "serving"})
NOW = 1_800_000_000.0


def at(seconds):
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def asks(cpu, memory, gpus=None):
    requests = {"cpu": cpu, "memory": memory}
    if gpus:
        requests["nvidia.com/gpu"] = gpus
    return {"name": "c", "resources": {"requests": requests, "limits": requests}}


def pod(name="web-1", *, node="n1", phase="Running", spec=None, **metadata):
    return {
        "metadata": {
            "name": name,
            "namespace": "ml",
            "uid": f"uid-{name}",
            "creationTimestamp": at(NOW - 100),
            **metadata,
        },
        "spec": {
            "containers": [asks("1", "1Gi")],
            **({"nodeName": node} if node else {}),
            **(spec or {}),
        },
        "status": {"phase": phase},
    }


def of_job(name, job="digits", **changes):
    labels = {"elasticdl-job-name": job}
    return pod(name, metadata={}, **changes) | {
        "metadata": pod(name)["metadata"] | {"labels": labels}
    }


def node(name="n1", *, ready="True", **spec):
    return {
        "metadata": {"name": name},
        "spec": spec,
        "status": {
            "allocatable": {
                "cpu": "3920m",
                "memory": "15835988Ki",
                "nvidia.com/gpu": "2",
                "pods": "110",
            },
            "capacity": {"cpu": "4", "memory": "16Gi"},
            "conditions": [
                {"type": "MemoryPressure", "status": "False"},
                {"type": "Ready", "status": ready},
            ],
        },
    }


def of(nodes, pods, usage=None):
    read = (pod_of(item, SERVING) for item in pods)
    return figures(map(node_of, nodes), [p for p in read if p], usage)


# -- requests --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("250m", 0.25), ("2", 2.0), (2, 2.0), ("1.5", 1.5), ("1e3", 1000.0),
        ("12345678n", 0.012345678), ("100u", 1e-4), ("4Gi", 4 * GI), ("4G", 4e9),
        ("15835988Ki", 15835988 * 1024.0), ("1E", 1e18), ("2Ei", 2.0**61),
        ("", 0.0), (None, 0.0), ("many", 0.0),
    ],
)  # fmt: skip
def test_quantities_of_kubernetes_are_read(text, number):
    assert quantity(text) == pytest.approx(number)


def test_containers_of_a_pod_are_added_up():
    spec = {"containers": [asks("500m", "1Gi", "1"), asks("1", "2Gi"), {"name": "c"}]}
    assert effective_request(spec) == Amounts(1.5, 3 * GI, 1.0)


def test_an_init_container_counts_only_as_far_as_it_asks_for_more():
    spec = {
        "initContainers": [asks("4", "1Gi"), asks("1", "8Gi")],
        "containers": [asks("2", "2Gi")],
    }
    assert effective_request(spec) == Amounts(4.0, 8 * GI)


def test_a_sidecar_runs_beside_containers_and_beside_later_init_containers():
    sidecar = asks("1", "1Gi") | {"restartPolicy": "Always"}
    spec = {
        "initContainers": [asks("4", "1Gi"), sidecar, asks("3500m", "1Gi")],
        "containers": [asks("2", "2Gi")],
    }
    # Before the sidecar 4; with it 4.5; then 3 for ever.
    assert effective_request(spec) == Amounts(4.5, 3 * GI)


def test_overhead_of_the_runtime_is_added():
    spec = {
        "containers": [asks("1", "1Gi")],
        "overhead": {"cpu": "250m", "memory": "160Mi"},
    }
    assert effective_request(spec) == Amounts(1.25, GI + 160 * 2**20)


def test_what_is_asked_for_the_whole_pod_goes_before_its_containers():
    spec = {
        "containers": [asks("1", "1Gi")],
        "resources": {"requests": {"cpu": "3"}},
    }
    assert effective_request(spec) == Amounts(3.0, GI)


def test_gpus_of_all_makers_are_counted_and_other_devices_are_not():
    requests = {
        "nvidia.com/gpu": "1",
        "amd.com/gpu": "2",
        "gpu.intel.com/i915": "1",
        "example.com/fpga": "8",
    }
    spec = {"containers": [{"name": "c", "resources": {"requests": requests}}]}
    assert effective_request(spec).gpus == 4


# -- classes ---------------------------------------------------------------------------


def holder(item):
    return pod_of(item, SERVING).holder


def test_a_pod_of_a_job_is_training_whatever_its_priority():
    item = of_job("elasticdl-digits-ps-0", spec={"priority": 1_000_000})
    assert holder(item) == Holder("training", "ml", "digits")


def test_serving_is_what_is_important_or_carries_the_labels():
    assert holder(pod(spec={"priority": 1_000_000})).kind == "serving"
    assert holder(pod(labels={"tier": "serving"})).kind == "serving"
    assert holder(pod(spec={"priority": 999_999})).kind == "other"
    assert holder(pod()).kind == "other"


def test_what_runs_the_cluster_itself_is_not_serving():
    assert holder(pod(spec={"priority": 2_000_001_000})).kind == "other"


def test_without_labels_only_priority_makes_serving():
    item = pod(labels={"tier": "serving"})
    assert pod_of(item, Serving(1_000_000)).holder.kind == "other"


# -- sums ------------------------------------------------------------------------------


def test_who_holds_what_is_summed_by_class_and_job():
    made = of(
        [node("n1"), node("n2")],
        [
            pod("web-1", spec={"priority": 1_000_000}),
            pod("web-2", spec={"priority": 1_000_000}, node="n2"),
            of_job("a-worker-0", job="a", spec={"containers": [asks("2", "1Gi", "1")]}),
            of_job("a-worker-1", job="a", spec={"containers": [asks("2", "1Gi", "1")]}),
            of_job("b-worker-0", job="b"),
            pod("agent"),
        ],
    )
    assert made.nodes == {"ready": 2}
    assert made.allocatable == Amounts(7.84, 2 * 15835988 * 1024, 4)
    assert made.requested == {
        Holder("serving"): Amounts(2, 2 * GI),
        Holder("training", "ml", "a"): Amounts(4, 2 * GI, 2),
        Holder("training", "ml", "b"): Amounts(1, GI),
        Holder("other"): Amounts(1, GI),
    }
    assert made.used is None


def test_pods_that_ended_or_are_not_on_a_node_hold_nothing():
    made = of(
        [node()],
        [
            pod("done", phase="Succeeded"),
            pod("crashed", phase="Failed"),
            pod("waits", phase="Pending", node=""),
        ],
    )
    assert made.requested == {}


def test_a_pod_that_is_leaving_holds_its_place_until_it_is_gone():
    made = of([node()], [pod(deletionTimestamp=at(NOW))])
    assert made.requested == {Holder("other"): Amounts(1, GI)}


def test_a_node_that_is_not_ready_is_no_capacity_and_its_pods_hold_none():
    made = of([node("n1"), node("n2", ready="Unknown")], [pod(node="n2")])
    assert made.nodes == {"ready": 1, "notReady": 1}
    assert made.allocatable.cpu == pytest.approx(3.92)
    assert made.requested == {}


def test_a_cordoned_node_counts_and_is_told_apart():
    made = of([node(unschedulable=True)], [pod()])
    assert made.nodes == {"unschedulable": 1}
    assert made.allocatable.cpu == pytest.approx(3.92)
    assert made.requested[Holder("other")].cpu == 1


def test_usage_is_summed_as_requests_are():
    usage = usage_of(
        {
            "items": [
                {
                    "metadata": {"namespace": "ml", "name": "a-worker-0"},
                    "containers": [
                        {"name": "main", "usage": {"cpu": "250m", "memory": "512Mi"}},
                        {"name": "log", "usage": {"cpu": "1000000n", "memory": "1Mi"}},
                    ],
                },
                {"metadata": {"namespace": "ml", "name": "gone"}, "containers": []},
            ]
        }
    )
    made = of([node()], [of_job("a-worker-0", job="a"), pod()], usage)
    assert made.used == {
        Holder("training", "ml", "a"): Amounts(pytest.approx(0.251), 513 * 2**20)
    }


# -- waiting ---------------------------------------------------------------------------


def waits(name, *conditions, **status):
    item = of_job(name, node="", phase="Pending")
    item["status"] |= {"conditions": list(conditions), **status}
    return item


UNSCHEDULABLE = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
SCHEDULED = {"type": "PodScheduled", "status": "True"}


def test_pods_of_jobs_that_wait_are_counted_with_the_platforms_word():
    pulling = {"state": {"waiting": {"reason": "ImagePullBackOff"}}}
    starting = {"state": {"waiting": {"reason": "ContainerCreating"}}}
    made = of(
        [node()],
        [
            waits("w0", UNSCHEDULABLE),
            waits("w1", UNSCHEDULABLE),
            waits("w2", SCHEDULED, containerStatuses=[pulling]),
            waits("w3", SCHEDULED, containerStatuses=[starting]),
            waits("w4"),
            of_job("w5"),
            pod("web", phase="Pending", node=""),
        ],
    )
    assert made.pending == {
        ("ml", "digits", "Unschedulable"): 2,
        ("ml", "digits", "ImagePullBackOff"): 1,
        ("ml", "digits", "Starting"): 2,
    }


def started(name, after):
    item = of_job(name)
    running = {"startedAt": at(NOW - 100 + after)}
    item["status"]["containerStatuses"] = [{"state": {"running": running}}]
    return item


def read(item):
    return pod_of(item, SERVING)


def test_seconds_of_waiting_are_those_until_the_start_or_until_now():
    job = ("ml", "digits")
    waited = Waits()
    pods = [read(waits("w0", UNSCHEDULABLE)), read(started("w1", 30))]
    assert waited.seconds(pods, now=NOW) == {job: 130}
    assert waited.seconds(pods, now=NOW + 10) == {job: 140}


def test_seconds_of_waiting_never_go_back_and_outlive_a_pod():
    job = ("ml", "digits")
    waited = Waits()
    pending, other = read(waits("w0", UNSCHEDULABLE)), read(started("w1", 30))
    assert waited.seconds([pending, other], now=NOW + 0.5) == {job: 130.5}
    # It started in the second that was just over: what was shown stays.
    assert waited.seconds([read(started("w0", 100)), other], now=NOW + 1) == {
        job: 130.5
    }
    waited.left(other, now=NOW + 2)
    assert waited.seconds([read(started("w0", 100))], now=NOW + 2) == {job: 130.5}
    # A job without pods is gone, and one of its name begins anew.
    assert waited.seconds([], now=NOW + 3) == {}
    assert waited.seconds([other], now=NOW + 4) == {job: 30}


# -- showing ---------------------------------------------------------------------------


def text_of(metrics):
    return generate_latest(metrics.registry).decode()


def test_what_holds_nothing_any_more_disappears():
    metrics = ClusterMetrics()
    show(metrics, of([node()], [of_job("w0")]), {("ml", "digits"): 3.0}, up=True)
    text = text_of(metrics)
    assert (
        'elasticdl_cluster_requested_cpu_cores{class="training",'
        'training_job="digits",training_namespace="ml"} 1.0'
    ) in text
    assert (
        'elasticdl_cluster_pending_seconds_total{training_job="digits",'
        'training_namespace="ml"} 3.0'
    ) in text
    assert "elasticdl_cluster_api_up 1.0" in text
    show(metrics, of([node()], []), {}, up=False)
    text = text_of(metrics)
    assert "digits" not in text
    assert "elasticdl_cluster_allocatable_gpus 2.0" in text
    assert "elasticdl_cluster_api_up 0.0" in text


def test_nothing_is_said_of_usage_where_nobody_measures_it():
    metrics = ClusterMetrics()
    show(metrics, of([node()], [pod()]), {}, up=True)
    assert "\nelasticdl_cluster_used_cpu_cores" not in text_of(metrics)
