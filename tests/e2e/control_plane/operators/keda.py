"""KEDA's own operator and server of metrics, beside the API server of these tests.

Owns their installation. The programs and what they are installed with come from
tests/e2e/cluster/build-keda. Must not know what is sized.
"""

from __future__ import annotations

import json
import re

from tests.e2e.control_plane.conftest import ControlPlane
from tests.e2e.control_plane.operators.program import (
    Program,
    at_an_address,
    build,
    mount,
    write_kubeconfig,
)
from tests.e2e.kube import wait_until

NAMESPACE = "keda"
# Of the Service of its metrics: the server listens on it itself.
_METRICS_IP = "10.96.7.8"
_API = "v1beta1.external.metrics.k8s.io"
# No pod runs here, and the webhooks that judge KEDA's own objects run in a third one.
_LEFT_OUT = re.compile(r"(?m)^kind: (Deployment|ValidatingWebhookConfiguration)$")


class Keda:
    """One installation; `start` it, and `stop` it always."""

    def __init__(self, control_plane: ControlPlane) -> None:
        self._plane = control_plane
        self._made = control_plane.programs / "keda"
        self._folder = control_plane.state / "keda"
        self._certificates = self._folder / "certificates"
        self._operator = Program(control_plane, "keda-operator", self._folder)
        self._server = Program(control_plane, "keda-adapter", self._folder)

    def install(self) -> None:
        """Apply definitions and rights."""
        build(self._plane, "build-keda")
        self._certificates.mkdir(parents=True)
        whole = (self._made / "install.yaml").read_text().split("\n---\n")
        documents = [one for one in whole if not _LEFT_OUT.search(one)]
        documents = at_an_address(documents, "keda-metrics-apiserver", _METRICS_IP)
        text = "\n---\n".join(documents)
        self._plane.kubectl("apply", "--server-side", "-f-", text=text)
        self._plane.kubectl("apply", "-f-", text=json.dumps(_endpoints()))
        address = ("ip", "address", "add", f"{_METRICS_IP}/32", "dev", "lo")
        self._plane.run("node", *address)
        file = self._folder / "kubeconfig"
        write_kubeconfig(self._plane, NAMESPACE, "keda-operator", file)

    def start(self) -> None:
        """Run both; return once the API server asks them for figures."""
        environ = {
            "POD_NAMESPACE": NAMESPACE,
            "KEDA_CLUSTER_OBJECT_NAMESPACE": NAMESPACE,
            "WATCH_NAMESPACE": "",
            "KUBECONFIG": str(self._folder / "kubeconfig"),
        }
        certificates = self._certificates

        def operate() -> None:
            self._operator.start(
                "--enable-cert-rotation=true",
                "--enable-webhook-patching=false",
                f"--cert-dir={certificates}",
                "--metrics-bind-address=0",
                "--metrics-service-bind-address=127.0.0.1:9666",
                **environ,
            )

        # It makes its certificates and ends; a kubelet would start it again with them.
        operate()
        wait_until("KEDA's certificates", self._is_certified, seconds=120)
        self._operator.stop()
        operate()
        self._server.start(
            f"--bind-address={_METRICS_IP}",
            "--secure-port=443",
            "--port=8082",
            f"--client-ca-file={certificates}/ca.crt",
            f"--tls-cert-file={certificates}/tls.crt",
            f"--tls-private-key-file={certificates}/tls.key",
            f"--cert-dir={certificates}",
            *(
                f"--{what}={self._folder}/kubeconfig"
                for what in ("authentication-kubeconfig", "authorization-kubeconfig",
                             "lister-kubeconfig")
            ),
            "--metrics-service-address=127.0.0.1:9666",
            f"--metrics-service-grpc-authority=keda-operator.{NAMESPACE}.svc",
            **environ,
        )  # fmt: skip
        wait_until("KEDA's metrics", self._answers, seconds=120)

    def stop(self) -> None:
        self._server.stop()
        self._operator.stop()

    # -- parts ------------------------------------------------------------------------

    def _is_certified(self) -> bool:
        return mount(self._plane, NAMESPACE, "kedaorg-certs", self._certificates)

    def _answers(self) -> bool:
        self._operator.check()
        self._server.check()
        shown = json.loads(self._plane.kubectl("get", f"apiservice/{_API}", "-ojson"))
        conditions = shown.get("status", {}).get("conditions", [])
        return any(one["status"] == "True" for one in conditions)


def _endpoints() -> dict[str, object]:
    """What a controller makes of a Service's pods."""
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": "keda-metrics-apiserver",
            "namespace": NAMESPACE,
            "labels": {"kubernetes.io/service-name": "keda-metrics-apiserver"},
        },
        "addressType": "IPv4",
        "ports": [{"name": "https", "port": 443}],
        "endpoints": [{"addresses": [_METRICS_IP]}],
    }
