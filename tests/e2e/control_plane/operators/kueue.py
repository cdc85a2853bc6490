"""Kueue's own controller, beside the API server of a control plane of these tests.

Owns its installation. The program and what it is installed with come from
tests/e2e/cluster/build-kueue. Must not know what is queued.
"""

from __future__ import annotations

import json
import re

from ruamel.yaml import YAML

from tests.e2e.control_plane.conftest import ControlPlane
from tests.e2e.control_plane.operators.program import (
    Program,
    at_an_address,
    build,
    mount,
    write_kubeconfig,
)
from tests.e2e.kube import KubectlError, wait_until

NAMESPACE = "kueue-system"
# Of the Service of its webhooks: the controller listens on it itself.
_WEBHOOK_IP = "10.96.7.7"
# No pod runs here. The API of pending workloads would be one that nobody serves.
_LEFT_OUT = re.compile(r"(?m)^kind: (Deployment|APIService)$")


class Kueue:
    """One installation; `start` it, and `stop` it always."""

    def __init__(self, control_plane: ControlPlane) -> None:
        self._plane = control_plane
        self._made = control_plane.programs / "kueue"
        self._folder = control_plane.state / "kueue"
        self._program = Program(control_plane, "kueue", self._folder)

    def install(self) -> None:
        """Apply definitions, rights and webhooks, with the shipped configuration."""
        build(self._plane, "build-kueue")
        self._folder.mkdir(parents=True)
        whole = (self._made / "install.yaml").read_text().split("\n---\n")
        documents = [one for one in whole if not _LEFT_OUT.search(one)]
        documents = at_an_address(documents, "kueue-webhook-service", _WEBHOOK_IP)
        # Definitions and the namespace stand before what needs them.
        text = "\n---\n".join(documents)
        self._plane.kubectl("apply", "--server-side", "-f-", text=text)
        address = ("ip", "address", "add", f"{_WEBHOOK_IP}/32", "dev", "lo")
        self._plane.run("node", *address)
        self._write_configuration()
        file = self._folder / "kubeconfig"
        write_kubeconfig(self._plane, NAMESPACE, "kueue-controller-manager", file)

    def start(self) -> None:
        """Run it; return once it judges what is made."""
        self._program.start(
            f"--config={self._folder}/config.yaml",
            f"--kubeconfig={self._folder}/kubeconfig",
            # Served by the API that is left out above.
            "--feature-gates=VisibilityOnDemand=false",
            POD_NAMESPACE=NAMESPACE,
        )
        wait_until("Kueue's certificates", self._is_certified, seconds=60)
        wait_until("Kueue judges", self._judges, seconds=60)

    def stop(self) -> None:
        self._program.stop()

    # -- parts ------------------------------------------------------------------------

    def _write_configuration(self) -> None:
        """As it is shipped, but for ports and places of this machine."""
        config = YAML(typ="safe").load(self._made / "config.yaml")
        config["leaderElection"] = {"leaderElect": False}
        config["metrics"] = {"bindAddress": "0"}
        certificates = str(self._folder / "certificates")
        config["webhook"] = {"host": _WEBHOOK_IP, "port": 443, "certDir": certificates}
        (self._folder / "config.yaml").write_text(json.dumps(config))

    def _is_certified(self) -> bool:
        self._program.check()
        folder = self._folder / "certificates"
        return mount(self._plane, NAMESPACE, "kueue-webhook-server-cert", folder)

    def _judges(self) -> bool:
        self._program.check()
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
