"""Kueue's own controller, beside the API server of a control plane of these tests.

Owns its installation, its start and its end. The program and what it is installed with
come from tests/e2e/cluster/build-kueue. Must not know what is queued.
"""

from __future__ import annotations

import base64
import json
import os
import re
import signal
import subprocess
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from tests.e2e.control_plane.conftest import SCRIPTS, ControlPlane
from tests.e2e.kube import KubectlError, wait_until

NAMESPACE = "kueue-system"
# The Service of its webhooks has this address, and no kube-proxy stands behind it: the
# controller listens on it itself.
_WEBHOOK_IP = "10.96.7.7"
# No pod runs here. The API of pending workloads would be one that nobody serves.
_LEFT_OUT = re.compile(r"(?m)^kind: (Deployment|APIService)$")
_CERTIFICATES = "kueue-webhook-server-cert"


class Kueue:
    """One installation; `start` it, and `stop` it always."""

    def __init__(self, control_plane: ControlPlane) -> None:
        self._plane = control_plane
        self._made = control_plane.programs / "kueue"
        self._folder = control_plane.state / "kueue"
        self._process: subprocess.Popen[bytes] | None = None

    def install(self) -> None:
        """Apply definitions, rights and webhooks, with the shipped configuration."""
        subprocess.run(
            [SCRIPTS / "build-kueue"],
            env={**os.environ, "CLUSTER_STATE": str(self._plane.programs)},
            check=True,
        )
        (self._folder / "certificates").mkdir(parents=True)
        whole = (self._made / "install.yaml").read_text()
        documents = [
            _with_address(one)
            for one in whole.split("\n---\n")
            if not _LEFT_OUT.search(one)
        ]
        # Definitions and the namespace stand before what needs them.
        text = "\n---\n".join(documents)
        self._plane.kubectl("apply", "--server-side", "-f-", text=text)
        address = ("ip", "address", "add", f"{_WEBHOOK_IP}/32", "dev", "lo")
        self._plane.run("node", *address)
        self._write_configuration()
        self._write_kubeconfig()

    def start(self) -> None:
        """Run it; return once it judges what is made."""
        program = self._plane.state / "bin" / "kueue"
        with (self._folder / "kueue.log").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    *(SCRIPTS / "node", program),
                    f"--config={self._folder}/config.yaml",
                    f"--kubeconfig={self._folder}/kubeconfig",
                    # Served by the API that is left out above.
                    "--feature-gates=VisibilityOnDemand=false",
                ],
                env={**self._plane.env, "POD_NAMESPACE": NAMESPACE},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        wait_until("Kueue's certificates", self._mount_certificates, seconds=60)
        wait_until("Kueue judges", self._judges, seconds=60)

    def stop(self) -> None:
        if self._process is not None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None

    def log(self) -> str:
        return (self._folder / "kueue.log").read_text()[-6000:]

    # -- parts ------------------------------------------------------------------------

    def _write_configuration(self) -> None:
        """As it is shipped, but for ports and places of this machine."""
        config = YAML(typ="safe").load(self._made / "config.yaml")
        config["leaderElection"] = {"leaderElect": False}
        config["metrics"] = {"bindAddress": "0"}
        certificates = str(self._folder / "certificates")
        config["webhook"] = {"host": _WEBHOOK_IP, "port": 443, "certDir": certificates}
        (self._folder / "config.yaml").write_text(json.dumps(config))

    def _write_kubeconfig(self) -> None:
        """With the rights of its own account, no more."""
        account = ("kueue-controller-manager", "--duration=2h")
        token = self._plane.kubectl("-n", NAMESPACE, "create", "token", *account)
        shown = self._plane.kubectl("config", "view", "--raw", "-ojson")
        config: dict[str, Any] = json.loads(shown)
        config["users"][0]["user"] = {"token": token.strip()}
        # It runs among the node's processes, where the API server has its own port.
        config["clusters"][0]["cluster"]["server"] = "https://127.0.0.1:6443"
        (self._folder / "kubeconfig").write_text(json.dumps(config))

    def _mount_certificates(self) -> bool:
        """Do what a kubelet does for the Secret that it writes them to."""
        self._is_alive()
        shown = self._plane.kubectl(
            "-n", NAMESPACE, "get", "secret", _CERTIFICATES, "-ojson"
        )
        data = json.loads(shown).get("data") or {}
        for name, value in data.items():
            file: Path = self._folder / "certificates" / name
            file.write_bytes(base64.b64decode(value))
        return "tls.crt" in data

    def _judges(self) -> bool:
        self._is_alive()
        flavor = {
            "apiVersion": "kueue.x-k8s.io/v1beta2",
            "kind": "ResourceFlavor",
            "metadata": {"name": "probe"},
        }
        try:
            self._plane.kubectl(
                "create", "--dry-run=server", "-f-", text=json.dumps(flavor)
            )
        except (AssertionError, KubectlError):
            return False
        return True

    def _is_alive(self) -> None:
        assert self._process is not None
        assert self._process.poll() is None, f"Kueue ended\n{self.log()}"


def _with_address(document: str) -> str:
    if "\n  name: kueue-webhook-service\n" not in document:
        return document
    if not document.lstrip().startswith("apiVersion: v1\nkind: Service\n"):
        return document
    return document.replace("\nspec:\n", f"\nspec:\n  clusterIP: {_WEBHOOK_IP}\n")
