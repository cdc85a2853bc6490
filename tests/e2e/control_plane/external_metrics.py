"""An API of external metrics, where an autoscaler's figures come from: one figure.

Owns the server that the API server asks, and the objects that say where it is. What
asks is Kubernetes' own HorizontalPodAutoscaler; KEDA's figures reach it this way too.

    python -m tests.e2e.control_plane.external_metrics CERTIFICATE KEY FILE

serves the number that a file holds, whatever metric is asked for.
"""

from __future__ import annotations

import json
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests.e2e.kube import wait_until

ADDRESS = "10.96.7.9"  # of its Service; no kube-proxy stands behind it
GROUP = "external.metrics.k8s.io"
_OBJECTS: list[dict[str, Any]] = [
    {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "figures", "namespace": "kube-system"},
        "spec": {"clusterIP": ADDRESS, "ports": [{"port": 443}]},
    },
    {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": "figures",
            "namespace": "kube-system",
            "labels": {"kubernetes.io/service-name": "figures"},
        },
        "addressType": "IPv4",
        "ports": [{"port": 443}],
        "endpoints": [{"addresses": [ADDRESS]}],
    },
    {
        "apiVersion": "apiregistration.k8s.io/v1",
        "kind": "APIService",
        "metadata": {"name": f"v1beta1.{GROUP}"},
        "spec": {
            "group": GROUP,
            "version": "v1beta1",
            "groupPriorityMinimum": 100,
            "versionPriority": 100,
            "insecureSkipTLSVerify": True,
            "service": {"name": "figures", "namespace": "kube-system"},
        },
    },
    {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": "figures"},
        "rules": [{"apiGroups": [GROUP], "resources": ["*"], "verbs": ["get", "list"]}],
    },
    {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "figures"},
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io",
            "kind": "ClusterRole",
            "name": "figures",
        },
        "subjects": [
            {
                "kind": "ServiceAccount",
                "name": "horizontal-pod-autoscaler",
                "namespace": "kube-system",
            }
        ],
    },
]


@contextmanager
def served(control_plane: Any, file: Path) -> Iterator[None]:
    """Serve what a file holds to the API server of these tests."""
    control_plane.run("node", *("ip", "address", "add", f"{ADDRESS}/32", "dev", "lo"))
    node = (control_plane.state / "run" / "init.pid").read_text().split()[0]
    pki = control_plane.state / "node" / "pki"
    process = subprocess.Popen(
        [
            *("nsenter", "--target", node, "--net", "--", sys.executable, "-m"),
            *("tests.e2e.control_plane.external_metrics", pki / "apiserver.crt"),
            *(pki / "apiserver.key", file),
        ],
        cwd=Path(__file__).parents[3],
    )
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": _OBJECTS})
    try:
        control_plane.kubectl("apply", "-f-", text=text)
        wait_until("an API of metrics", lambda: _answers(control_plane), seconds=120)
        yield
    finally:
        control_plane.kubectl("delete", "--ignore-not-found", "-f-", text=text)
        process.kill()
        process.wait()
        control_plane.run("node", "ip", "address", "del", f"{ADDRESS}/32", "dev", "lo")


def _answers(control_plane: Any) -> bool:
    shown = control_plane.kubectl("get", f"apiservice/v1beta1.{GROUP}", "-ojson")
    conditions = json.loads(shown).get("status", {}).get("conditions", [])
    return any(one["status"] == "True" for one in conditions)


class _Handler(BaseHTTPRequestHandler):
    file: Path

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        *_, last = path.split("/")
        answer: dict[str, Any] = {
            "kind": "APIResourceList",
            "apiVersion": "v1",
            "groupVersion": f"{GROUP}/v1beta1",
            "resources": [],
        }
        if "/namespaces/" in path:
            item = {
                "metricName": last,
                "metricLabels": {},
                "timestamp": "2026-01-01T00:00:00Z",
                "value": self.file.read_text(),
            }
            answer = {
                "kind": "ExternalMetricValueList",
                "apiVersion": f"{GROUP}/v1beta1",
                "metadata": {},
                "items": [item],
            }
        body = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing of each request."""


def _serve(certificate: str, key: str, file: str) -> None:
    _Handler.file = Path(file)
    server = ThreadingHTTPServer((ADDRESS, 443), _Handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    server.serve_forever()


if __name__ == "__main__":
    _serve(*sys.argv[1:])
