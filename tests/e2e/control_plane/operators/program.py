"""A controller of somebody else, beside the API server of a control plane.

Owns its process, its rights and the certificates that a kubelet would mount for it.
Used by the modules beside it, one for each product. Must not know what the controller
is for.
"""

from __future__ import annotations

import base64
import json
import os
import signal
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.e2e.control_plane.conftest import SCRIPTS, ControlPlane


def build(control_plane: ControlPlane, script: str) -> None:
    """Build it by a script of tests/e2e/cluster."""
    subprocess.run(
        [SCRIPTS / script],
        env={**os.environ, "CLUSTER_STATE": str(control_plane.programs)},
        check=True,
    )


def at_an_address(documents: list[str], service: str, address: str) -> list[str]:
    """Give a Service an address: no kube-proxy stands behind it here."""

    def given(text: str) -> str:
        if f"\n  name: {service}\n" not in text or "\nkind: Service\n" not in text:
            return text
        return text.replace("\nspec:\n", f"\nspec:\n  clusterIP: {address}\n")

    return [given(text) for text in documents]


class Program:
    """One process among the node's; `start` it, and `stop` it always."""

    def __init__(self, control_plane: ControlPlane, name: str, folder: Path) -> None:
        self._plane, self.name = control_plane, name
        self.folder = folder
        self._log = folder / f"{name}.log"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, *arguments: str, **environ: str) -> None:
        program = self._plane.state / "bin" / self.name
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [*(SCRIPTS / "node", program), *arguments],
                env={**self._plane.env, **environ},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def stop(self) -> None:
        if self._process is not None:
            with suppress(ProcessLookupError):  # it has ended, as its log says
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None

    def check(self) -> None:
        """Fail where it has ended, with its last words."""
        assert self._process is not None
        words = self._log.read_text()[-6000:]
        assert self._process.poll() is None, f"{self.name} ended\n{words}"


def write_kubeconfig(
    control_plane: ControlPlane, namespace: str, account: str, file: Path
) -> None:
    """Write one with the rights of an account, no more."""
    words = ("-n", namespace, "create", "token", account, "--duration=2h")
    shown = control_plane.kubectl("config", "view", "--raw", "-ojson")
    config: dict[str, Any] = json.loads(shown)
    config["users"][0]["user"] = {"token": control_plane.kubectl(*words).strip()}
    # It runs among the node's processes, where the API server has its own port.
    config["clusters"][0]["cluster"]["server"] = "https://127.0.0.1:6443"
    file.write_text(json.dumps(config))


def mount(control_plane: ControlPlane, namespace: str, secret: str, to: Path) -> bool:
    """Do what a kubelet does for a Secret; return whether a certificate is in it."""
    words = ("-n", namespace, "get", "secret", secret, "--ignore-not-found", "-ojson")
    shown = control_plane.kubectl(*words)
    data = (json.loads(shown) if shown.strip() else {}).get("data") or {}
    to.mkdir(parents=True, exist_ok=True)
    for name, value in data.items():
        (to / name).write_bytes(base64.b64decode(value))
    return "tls.crt" in data
