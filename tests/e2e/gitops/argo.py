"""Argo CD as plain processes of this machine, against the end-to-end cluster.

Owns their start and end, and what they show of an Application. The programs are built
by tests/e2e/cluster/build-gitops. Must not know what is deployed.
"""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path

from tests.e2e.kube import Json, Kube, wait_until

NAMESPACE = "argocd"
_SERVER = "127.0.0.1:18080"
_REPO = "127.0.0.1:18081"
_REDIS = "127.0.0.1:6390"
# The page of the API that tells that a process serves.
_HEALTHY = (
    f"http://{_SERVER}/healthz",
    "http://127.0.0.1:18082/healthz",  # the controller's
    "http://127.0.0.1:18084/healthz",  # the repo server's
    "http://127.0.0.1:12345/metrics",  # the application set controller's
)
# Folders that Argo CD wants to be there; they stay empty.
_FOLDERS = {
    "ARGOCD_TLS_DATA_PATH": "tls",
    "ARGOCD_SSH_DATA_PATH": "ssh",
    "ARGOCD_GNUPGHOME": "gnupg",
    "ARGOCD_GPG_DATA_PATH": "gpg",
    "ARGOCD_PLUGINSOCKFILEPATH": "plugins",
    "TMPDIR": "tmp",
    "HOME": "home",
}


def _commands(redis: str) -> dict[str, list[str]]:
    redis_flag = ["--redis", _REDIS]
    # From a socket of this machine alone, as all of them.
    here = ["--address", "127.0.0.1"]
    plain = ["--repo-server-plaintext"]
    return {
        "redis": [redis, "--port", _REDIS[-4:], "--save", "", "--bind", "127.0.0.1"],
        "argocd-repo-server": [
            *redis_flag, *here, "--port", _REPO[-5:], "--metrics-port", "18084",
            "--metrics-address", "127.0.0.1", "--disable-tls",
        ],
        "argocd-application-controller": [
            *redis_flag, "--repo-server", _REPO, *plain, "--metrics-port", "18082",
            "--app-resync", "10",
        ],
        "argocd-applicationset-controller": [
            "--argocd-repo-server", _REPO, *plain, "--namespace", NAMESPACE,
            "--metrics-addr", "127.0.0.1:12345", "--probe-addr", "127.0.0.1:12346",
            "--webhook-addr", "127.0.0.1:12347",
        ],
        "argocd-server": [
            *redis_flag, *here, "--repo-server", _REPO, *plain, "--insecure",
            "--disable-auth", "--port", _SERVER[-5:], "--metrics-port", "18083",
            "--metrics-address", "127.0.0.1",
        ],
    }  # fmt: skip


@dataclass
class ArgoCD:
    """One installation; `start` it, and `stop` it always."""

    kube: Kube  # of its own namespace
    programs: Path  # folder of `argocd`, `helm` and kubectl
    crds: Path
    folder: Path  # for logs and what the processes write
    redis: str
    _processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def start(self) -> None:
        self._install()
        environ = self._environment()
        for name, words in _commands(self.redis).items():
            command = (
                words if name == "redis" else [str(self.programs / "argocd"), *words]
            )
            log = (self.folder / f"{name}.log").open("wb")
            self._processes.append(
                subprocess.Popen(
                    command,
                    env=environ | {"ARGOCD_BINARY_NAME": name},
                    cwd=self.folder,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                )
            )
            log.close()
        wait_until("Argo CD serves", self._serves, seconds=120)

    def stop(self) -> None:
        for process in reversed(self._processes):
            process.terminate()
        for process in self._processes:
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    # -- applications ---------------------------------------------------------------

    def application(self, name: str) -> Json | None:
        return self.kube.get("applications.argoproj.io", name)

    def refresh(self, name: str = "") -> None:
        """Have it look at Git now, as a webhook does; without a name the sets."""
        mark = "argocd.argoproj.io/refresh=normal"
        words = ["applications.argoproj.io", name]
        if not name:
            mark = "argocd.argoproj.io/application-set-refresh=true"
            words = ["applicationsets.argoproj.io", "--all"]
        self.kube.run("annotate", "--overwrite", *words, mark)

    def render_anew(self, name: str) -> None:
        """Have it render an Application once more, and wait for its verdict."""
        words = ["applications.argoproj.io", name]
        mark = "argocd.argoproj.io/refresh"
        self.kube.run("annotate", "--overwrite", *words, f"{mark}=hard")

        def done() -> bool:
            # The controller takes the mark away with the verdict that it has then.
            found = (self.application(name) or {}).get("metadata", {})
            return bool(found) and mark not in found.get("annotations", {})

        wait_until(f"{name} is rendered anew", done, seconds=60)

    def wait_application(self, name: str, *, seconds: float = 60) -> Json:
        what = f"Application {name}"
        return wait_until(what, lambda: self.application(name), seconds=seconds) or {}

    def terminate(self, name: str) -> None:
        """End its sync, as `argocd app terminate-op` does.

        An Application that is removed waits for its sync, all retries included.
        """
        ended = {"status": {"operationState": {"phase": "Terminating"}}}
        words = ["applications.argoproj.io", name, "--type=merge", "--patch"]
        self.kube.run("patch", *words, json.dumps(ended))

    def wait_gone(self, name: str, *, seconds: float = 120) -> None:
        what = f"Application {name} is gone"
        wait_until(what, lambda: self.application(name) is None, seconds=seconds)

    def wait_synced(self, name: str, revision: str, *, seconds: float = 120) -> None:
        """Wait until it is as that commit says, and the sync has ended."""

        def probe() -> bool:
            status = (self.application(name) or {}).get("status", {})
            last = status.get("operationState", {})
            return (
                status.get("sync", {}).get("status") == "Synced"
                and revision in status["sync"].get("revisions", [])
                and last.get("phase") == "Succeeded"
            )

        self._wait(f"{name} is synced to {revision[:8]}", name, probe, seconds)

    def wait_health(self, name: str, health: str, *, seconds: float = 120) -> None:
        self._wait(
            f"{name} is {health}", name, lambda: self.health(name) == health, seconds
        )

    def health(self, name: str) -> str:
        status = (self.application(name) or {}).get("status", {})
        return str(status.get("health", {}).get("status", ""))

    def sync_status(self, name: str) -> str:
        status = (self.application(name) or {}).get("status", {})
        return str(status.get("sync", {}).get("status", ""))

    def conditions(self, name: str) -> dict[str, str]:
        """Return the messages of its conditions, as `ComparisonError`, by type."""
        status = (self.application(name) or {}).get("status", {})
        return {one["type"]: one["message"] for one in status.get("conditions") or []}

    def said(self, name: str) -> str:
        """Return what the last sync ended with, in words."""
        status = (self.application(name) or {}).get("status", {})
        return json.dumps(status.get("operationState", {}))

    def tree(self, name: str) -> dict[str, Json]:
        """Return what is shown of its objects, by `Kind/name`; children too."""
        url = f"http://{_SERVER}/api/v1/applications/{name}/resource-tree"
        with urllib.request.urlopen(url, timeout=20) as answer:
            nodes = json.load(answer).get("nodes") or []
        return {f"{node['kind']}/{node['name']}": node for node in nodes}

    def message(self, name: str, thing: str) -> str:
        """Return what the health of one object says."""
        return str(self.tree(name).get(thing, {}).get("health", {}).get("message", ""))

    def logs(self) -> str:
        """Return the last lines of each process."""
        parts = []
        for file in sorted(self.folder.glob("*.log")):
            lines = file.read_text(errors="replace").splitlines()[-40:]
            parts.append(f"--- {file.name}\n" + "\n".join(lines))
        return "\n".join(parts)

    def _wait(self, what: str, name: str, probe, seconds: float) -> None:
        try:
            wait_until(what, probe, seconds=seconds)
        except AssertionError as error:
            status = (self.application(name) or {}).get("status", {})
            raise AssertionError(f"{error}\n{json.dumps(status, indent=1)}") from None

    # -- what has to be there -------------------------------------------------------

    def _install(self) -> None:
        self.kube.run("apply", "--server-side", "--filename", str(self.crds))
        # `kubectl wait` fails on one that has no condition at all yet.
        wait_until("the definitions", self._are_defined, seconds=60)
        if not self.kube.get("namespace", NAMESPACE):
            self.kube.run("create", "namespace", NAMESPACE)
        # Settings that an earlier run of the tests has patched in a cluster left up.
        self.kube.delete("configmap", "argocd-cm", wait=True)
        part = {"app.kubernetes.io/part-of": "argocd"}
        quick = {"timeout.reconciliation": "10s", "timeout.reconciliation.jitter": "0s"}
        for kind, name, data in (
            ("ConfigMap", "argocd-cm", {"data": quick}),
            ("ConfigMap", "argocd-rbac-cm", {}),
            (
                "Secret",
                "argocd-secret",
                {"stringData": {"server.secretkey": secrets.token_urlsafe(32)}},
            ),
        ):
            metadata = {"name": name, "labels": part}
            head = {"apiVersion": "v1", "kind": kind, "metadata": metadata}
            self.kube.apply(head | data)
        self.kube.apply(
            {
                "apiVersion": "argoproj.io/v1alpha1",
                "kind": "AppProject",
                "metadata": {"name": "default"},
                "spec": {
                    "sourceRepos": ["*"],
                    "destinations": [{"server": "*", "namespace": "*"}],
                    "clusterResourceWhitelist": [{"group": "*", "kind": "*"}],
                },
            }
        )

    def _are_defined(self) -> bool:
        return all(
            any(
                one["type"] == "Established" and one["status"] == "True"
                for one in crd.get("status", {}).get("conditions") or []
            )
            for crd in self.kube.list("crd")
        )

    def _environment(self) -> dict[str, str]:
        environ = dict(os.environ)
        for name, folder in _FOLDERS.items():
            place = self.folder / folder
            place.mkdir(exist_ok=True, mode=0o700)
            environ[name] = str(place)
        text = json.loads(self.kube.run("config", "view", "--raw", "--output=json"))
        for context in text["contexts"]:
            context["context"]["namespace"] = NAMESPACE
        kubeconfig = self.folder / "kubeconfig"
        kubeconfig.write_text(json.dumps(text))
        return environ | {
            "PATH": f"{self.programs}:{os.environ['PATH']}",
            "KUBECONFIG": str(kubeconfig),
            # `https://kubernetes.default.svc` means the kubeconfig's cluster.
            "ARGOCD_FAKE_IN_CLUSTER": "true",
            "ARGOCD_GPG_ENABLED": "false",
            "HOSTNAME": "argocd-application-controller-0",
        }

    def _serves(self) -> bool:
        for process in self._processes:
            assert process.poll() is None, f"{process.args!r}: ended\n{self.logs()}"
        try:
            for url in _HEALTHY:
                with urllib.request.urlopen(url, timeout=5):
                    pass
        except OSError:
            return False
        return True
