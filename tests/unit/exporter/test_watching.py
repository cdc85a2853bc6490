"""The exporter follows a server that throttles, forgets, breaks off and goes away."""

import asyncio
from http.server import BaseHTTPRequestHandler

import pytest
from elasticdl.exporter.watching import WatchedCluster
from elasticdl.kube.api import ApiServer
from elasticdl.kube.errors import ApiError
from elasticdl.kube.inventory import Serving
from elasticdl.metrics.registry import ClusterMetrics
from kubernetes.client.configuration import Configuration
from prometheus_client.exposition import generate_latest

from tests.unit import scripted_server

BOUND_SECONDS = 20.0
NODES, PODS, USAGE = "/nodes", "/api/v1/pods", "/metrics.k8s.io/v1beta1/pods"
JOBS = "/apis/batch/v1/jobs"


class Server(scripted_server.Server):
    """Answers each kind of request by its own script; the last answer stays."""

    def __init__(self) -> None:
        super().__init__()
        self.scripts |= {USAGE: [(404, {})], JOBS: [listing()]}
        self.methods = set()

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        self.methods.add(handler.command)
        path, _, query = handler.path.partition("?")
        (key,) = (k for k in (NODES, PODS, JOBS, USAGE) if path.endswith(k))
        key += "?watch" if "watch=true" in query else ""
        script = self.scripts.get(key, [(200, [])])
        status, content = script[min(self.asked[key], len(script) - 1)]
        self.asked[key] += 1
        self.send(handler, status, content)


@pytest.fixture
def server():
    one = Server()
    yield one
    one.close()


def listing(*items, version="1"):
    return 200, {"metadata": {"resourceVersion": version}, "items": list(items)}


def refusal(code, reason):
    return code, {"kind": "Status", "code": code, "reason": reason, "message": reason}


def node(name, cpu="4"):
    return {
        "metadata": {"name": name, "resourceVersion": "2"},
        "spec": {},
        "status": {
            "allocatable": {"cpu": cpu, "memory": "8Gi"},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def pod(name, cpu="1", **status):
    return {
        "metadata": {
            "name": name,
            "namespace": "ml",
            "uid": name,
            "resourceVersion": "3",
            "labels": {"elasticdl-job-name": "digits"},
        },
        "spec": {
            "nodeName": "n1",
            "containers": [{"name": "main", "resources": {"requests": {"cpu": cpu}}}],
        },
        "status": {"phase": "Running", **status},
    }


def event(kind, item):
    return {"type": kind, "object": item}


GONE = event("ERROR", {"code": 410, "reason": "Expired", "message": "too old"})


def run(server, story) -> None:
    async def main() -> None:
        configuration = Configuration()
        configuration.host = f"http://127.0.0.1:{server.http.server_port}"
        api = ApiServer(configuration)
        cluster = WatchedCluster(api, Serving(1_000_000))
        watching = asyncio.create_task(cluster.watch())
        try:
            async with asyncio.timeout(BOUND_SECONDS):
                await story(cluster, watching)
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
            server.over.set()
            await api.close()

    asyncio.run(main())


def shown(cluster):
    metrics = ClusterMetrics()
    cluster.update(metrics)
    return {
        line.rpartition(" ")[0].removeprefix("elasticdl_cluster_"): float(
            line.rpartition(" ")[2]
        )
        for line in generate_latest(metrics.registry).decode().splitlines()
        if not line.startswith("#")
    }


REQUESTED = (
    'requested_cpu_cores{class="training",'
    'training_job="digits",training_namespace="ml"}'
)


async def until(cluster, name, value):
    while shown(cluster).get(name) != value:
        await asyncio.sleep(0.02)


def test_lists_are_asked_for_until_they_are_answered_and_then_watched(server):
    server.scripts |= {
        NODES: [refusal(429, "TooManyRequests"), listing(node("n1"))],
        PODS: [refusal(500, "InternalError"), listing(pod("w0"))],
        f"{PODS}?watch": [
            (200, [event("ADDED", pod("w1", "2")), event("DELETED", pod("w0"))])
        ],
        f"{NODES}?watch": [(200, [event("MODIFIED", node("n1", "16"))])],
    }

    async def story(cluster, _):
        assert not cluster.known
        await until(cluster, REQUESTED, 2.0)
        await until(cluster, "allocatable_cpu_cores", 16.0)
        assert cluster.known
        assert shown(cluster)["api_up"] == 1

    run(server, story)
    assert server.methods == {"GET"}


def test_after_a_watch_that_is_too_old_or_breaks_the_list_is_compared(server):
    server.scripts |= {
        NODES: [listing(node("n1"))],
        PODS: [
            listing(pod("w0"), pod("w1")),
            listing(pod("w1")),
            listing(pod("w1"), pod("w2", "3")),
        ],
        f"{PODS}?watch": [(200, [GONE]), (200, ["BREAK"]), (200, [])],
    }

    async def story(cluster, _):
        await until(cluster, REQUESTED, 4.0)

    run(server, story)
    assert server.asked[PODS] == 3


def test_a_pod_that_ends_holds_nothing_any_more(server):
    server.scripts |= {
        NODES: [listing(node("n1"))],
        PODS: [listing(pod("w0"), pod("w1"))],
        f"{PODS}?watch": [(200, [event("MODIFIED", pod("w0", phase="Succeeded"))])],
    }

    async def story(cluster, _):
        await until(cluster, REQUESTED, 1.0)

    run(server, story)


def test_without_the_right_to_list_the_exporter_ends_and_says_so(server):
    server.scripts |= {NODES: [refusal(403, "Forbidden")], PODS: [listing()]}

    async def story(_, watching):
        with pytest.raises(ExceptionGroup) as caught:
            await watching
        (error,) = caught.value.exceptions
        assert isinstance(error, ApiError)
        assert error.status == 403

    run(server, story)


def test_what_pods_use_is_shown_where_it_is_measured(server):
    used = {
        "metadata": {"namespace": "ml", "name": "w0"},
        "containers": [{"name": "main", "usage": {"cpu": "500m", "memory": "1Ki"}}],
    }
    server.scripts |= {
        NODES: [listing(node("n1"))],
        PODS: [listing(pod("w0"))],
        USAGE: [(200, {"items": [used]})],
    }

    async def story(cluster, _):
        await until(cluster, REQUESTED.replace("requested", "used"), 0.5)

    run(server, story)


def master_job(name="digits", **conditions):
    return {
        "metadata": {
            "name": f"elasticdl-{name}-master",
            "namespace": "ml",
            "uid": f"job-{name}",
            "resourceVersion": "4",
            "labels": {"elasticdl-job-name": name},
        },
        "spec": {},
        "status": {
            "conditions": [{"type": t, "status": s} for t, s in conditions.items()]
        },
    }


def of_jobs(state, name="digits"):
    return f'jobs{{state="{state}",training_job="{name}",training_namespace="ml"}}'


def test_a_job_that_fails_is_told_for_as_long_as_its_batch_job_is_there(server):
    """Its master has ended then, and nobody could read it from there."""
    failed = event("MODIFIED", master_job(Failed="True"))
    gone, other = event("DELETED", master_job()), event("ADDED", master_job("other"))
    server.scripts |= {
        NODES: [listing(node("n1"))],
        PODS: [listing()],
        JOBS: [listing(master_job())],
        f"{JOBS}?watch": [(200, [failed])],
    }

    async def fails(cluster, _):
        await until(cluster, of_jobs("failed"), 1.0)
        assert of_jobs("waiting") not in shown(cluster)

    run(server, fails)
    server.over.clear()
    server.scripts[f"{JOBS}?watch"] = [(200, [failed, gone, other])]

    async def goes(cluster, _):
        await until(cluster, of_jobs("waiting", "other"), 1.0)
        assert of_jobs("failed") not in shown(cluster)

    run(server, goes)


def test_a_job_whose_master_has_begun_is_told_from_one_that_waits_for_it(server):
    """For room, perhaps: then nobody is paged."""
    begun = master_job("begun")
    begun["metadata"]["annotations"] = {"elasticdl.org/state": "starting"}
    server.scripts |= {
        NODES: [listing(node("n1"))],
        PODS: [listing()],
        JOBS: [listing(master_job(), begun)],
    }

    async def story(cluster, _):
        await until(cluster, of_jobs("waiting"), 1.0)
        assert of_jobs("active", "begun") in shown(cluster)

    run(server, story)


def test_the_masters_that_run_are_counted_for_each_active_job(server):
    master = pod("m")
    master["metadata"]["labels"]["elasticdl-replica-type"] = "master"
    running = 'masters_running{training_job="digits",training_namespace="ml"}'
    server.scripts |= {
        NODES: [listing(node("n1"))],
        PODS: [listing(pod("w0"))],
        f"{PODS}?watch": [(200, [event("ADDED", master)])],
        JOBS: [listing(master_job(), master_job("old", Complete="True"))],
    }

    async def story(cluster, _):
        await until(cluster, running, 1.0)
        assert not [
            name for name in shown(cluster) if "masters" in name and "old" in name
        ]

    run(server, story)
