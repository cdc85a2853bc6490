"""What the runner of a cluster shows of pods listed and pods still to be made."""

import asyncio
import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from elasticdl.job.names import Role
from elasticdl.kube.api import ApiServer
from elasticdl.kube.list_and_watch import Listing
from elasticdl.runner.base import Launch, Phase, ReplicaKey
from elasticdl.runner.kubernetes.config_map import JobConfig, JobConfigMap
from elasticdl.runner.kubernetes.pod_calls import PodCalls
from elasticdl.runner.kubernetes.runner import KubernetesRunner
from kubernetes.client import Configuration

PS = ReplicaKey(Role.PS, 0)
NOBODY = "http://127.0.0.1:9"  # no API server answers there

TERMINATING = {
    "metadata": {
        "name": "elasticdl-digits-ps-0",
        "creationTimestamp": "2026-11-21T09:59:50Z",
        "deletionTimestamp": "2026-11-21T10:00:30Z",
        "ownerReferences": [{"uid": "u-1"}],
        "labels": {
            "elasticdl-job-name": "digits",
            "elasticdl-replica-type": "ps",
            "elasticdl-replica-index": "0",
            "elasticdl-generation": "1",
        },
    },
    "spec": {"containers": [{"name": "main"}]},
    "status": {"phase": "Running"},
}


def test_a_list_shows_the_new_pod_behind_the_old_one_of_its_name() -> None:
    async def story() -> None:
        api = ApiServer(Configuration(host=NOBODY))
        config = JobConfig("elasticdl-digits", "u-1", "", {}, "")
        runner = KubernetesRunner(
            api, namespace="ml", job="digits", config=JobConfigMap(api, "ml", config)
        )
        await runner.start(
            Launch(
                key=PS,
                generation=2,
                cpu=1.0,
                memory="1Gi",
                priority="",
                grace_seconds=1.0,
            )
        )
        whole = runner._whole(Listing([TERMINATING], began=0.0))
        await runner.close()
        assert whole.resync
        new = [s for s in whole.states if (s.key, s.generation) == (PS, 2)]
        assert [s.phase for s in new] == [Phase.PENDING]
        assert {s.generation for s in whole.states} == {1, 2}

    asyncio.run(story())


class Server(HTTPServer):
    """An API server that takes every pod, and notes with what it was asked."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Taking)
        self.asked: list[dict[str, list[str]]] = []
        self.pods: list[dict[str, Any]] = []


class Taking(BaseHTTPRequestHandler):
    """Answers one call."""

    server: Server

    def do_POST(self) -> None:
        pod = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.pods.append(json.loads(pod))
        self.server.asked.append(parse_qs(urlsplit(self.path).query))
        self.send_response(201)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *_: object) -> None:
        """Stay silent."""


TEMPLATE = "{kind: Pod, metadata: {}, spec: {containers: [{name: main}]}}"


def tried(priority: str = "", template: str = TEMPLATE) -> Server:
    """Try a PS out on a server; return that."""

    async def story(address: str) -> None:
        api = ApiServer(Configuration(host=address))
        config = JobConfig("elasticdl-digits", "u-1", "", {Role.PS: template}, "")
        calls = PodCalls(
            api,
            namespace="ml",
            job="digits",
            config=JobConfigMap(api, "ml", config),
            priority_classes={"high": "elasticdl-high", "low": "elasticdl-low"},
        )
        await calls.try_out(Launch(PS, 1, 1.0, "1Gi", priority, 1.0))

    server = Server()
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        asyncio.run(story(f"http://127.0.0.1:{server.server_address[1]}"))
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
    return server


@pytest.mark.parametrize(
    ("named", "priority", "given"),
    [
        # A share: the template has `low`.
        ("elasticdl-low", "high", "elasticdl-high"),
        ("elasticdl-low", "low", "elasticdl-low"),
        ("gold", "gold", "gold"),
        # A master reads it in the journal, which workers can write.
        ("gold", "high", "gold"),
        ("gold", "system-node-critical", "gold"),
        ("elasticdl-low", "system-node-critical", "elasticdl-low"),
    ],
)
def test_a_pod_has_its_templates_class_or_that_of_the_words_high_and_low(
    named: str, priority: str, given: str
) -> None:
    template = TEMPLATE.replace("spec: {", f"spec: {{priorityClassName: {named}, ")
    (pod,) = tried(priority, template).pods
    assert pod["spec"]["priorityClassName"] == given


def test_the_first_pod_is_tried_strictly_so_that_no_misspelt_key_is_dropped() -> None:
    (asked,) = tried().asked
    assert asked["dryRun"] == ["All"]
    assert asked["fieldValidation"] == ["Strict"]
