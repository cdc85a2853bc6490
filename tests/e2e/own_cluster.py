"""The cluster of tests/e2e/cluster, with the images of this tree in its registry.

Owns bringing it up and down, and building what its registry lacks. Called by the
fixtures; the scripts themselves know nothing of ElasticDL.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
SCRIPTS = Path(__file__).parent / "cluster"
ROLES = ("master", "ps", "worker")
# What the cloud tutorial's pods need: the scheduler counts, the machine shares.
CPUS = "19"
# All that .dockerignore lets into one of these images.
_INPUTS = (
    "images", "model_zoo", "charts/elasticdl", "python/elasticdl",
    "python/pyproject.toml", "python/README.md", "python/hatch_build.py",
    "python/constraints.txt",
)  # fmt: skip


class OwnCluster:
    """One per state folder; one that is up already is used, and left up."""

    def __init__(self) -> None:
        cache = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache")
        state = os.environ.get("CLUSTER_STATE") or cache / "elasticdl" / "cluster"
        self.state = Path(state).expanduser().resolve()
        self.kubeconfig = self.state / "kubeconfig"
        self.kubectl = str(self.state / "bin" / "kubectl")
        port = os.environ.get("CLUSTER_REGISTRY_PORT") or "5000"
        self.registry = f"localhost:{port}"

    def up(self) -> bool:
        """Return whether it was brought up now."""
        cpus = os.environ.get("CLUSTER_CPUS") or CPUS
        # A kubeconfig alone says little: a machine that was restarted has it too.
        told = self.script("up", CLUSTER_CPUS=cpus)
        self.script("registry")
        return "already up" not in told

    def down(self) -> None:
        self.script("down")

    def push_images(self) -> str:
        """Return the tag of this tree's images, built and pushed if need be."""
        tag = f"tree-{_digest()}"
        self.push_images_of(ROOT, tag)
        return tag

    def push_images_of(
        self, root: Path, tag: str, roles: Sequence[str] = ROLES
    ) -> None:
        """Build images of a tree and push them, where they are not there yet."""
        missing = [role for role in roles if not self._is_there(role, tag)]
        if missing:
            self.script("base-image")
        for role in missing:
            name = f"localhost/elasticdl/{role}:{tag}"
            dockerfile = f"--file={root}/images/{role}/Dockerfile"
            self.script("image", name, str(root), dockerfile)
            self.script("registry", "push", name)

    def image_megabytes(self, role: str, tag: str) -> float:
        """Return what a node pulls: the layers as they are in the registry."""
        manifest = self._registry(f"elasticdl/{role}/manifests/{tag}")
        return sum(layer["size"] for layer in manifest["layers"]) / 1e6

    def build_env(self) -> dict[str, str]:
        """Return what lets a plain buildah use this cluster's images and registry."""
        storage, registries = (
            self.state / "storage.conf",
            self.state / "registries.conf",
        )
        storage.write_text(
            f'[storage]\ndriver = "overlay"\ngraphroot = "{self.state}/storage"\n'
            f'runroot = "{self.state}/storage-run"\n'
        )
        registries.write_text(
            f'[[registry]]\nlocation = "{self.registry}"\ninsecure = true\n'
        )
        return {
            "BUILDAH_ISOLATION": "chroot",
            "CONTAINERS_STORAGE_CONF": str(storage),
            "CONTAINERS_REGISTRIES_CONF": str(registries),
        }

    def on_node(self, *command: str) -> str:
        """Run a command inside the node; return what it prints."""
        return self.script("node", *command)

    def script(self, name: str, *words: str, **env: str) -> str:
        """Run one of the scripts; raise AssertionError with its last lines."""
        done = subprocess.run(
            [SCRIPTS / name, *words],
            env={**os.environ, **env},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            lines = (done.stdout + done.stderr).splitlines()[-30:]
            raise AssertionError(f"cluster/{name} failed:\n" + "\n".join(lines))
        return done.stdout

    def _is_there(self, role: str, tag: str) -> bool:
        try:
            tags = self._registry(f"elasticdl/{role}/tags/list")
        except urllib.error.HTTPError:
            return False  # no image of this name yet
        return tag in (tags.get("tags") or [])

    def _registry(self, path: str) -> Any:
        kinds = (
            "application/vnd.oci.image.manifest.v1+json",
            "application/vnd.docker.distribution.manifest.v2+json",
        )
        request = urllib.request.Request(
            f"http://{self.registry}/v2/{path}", headers={"Accept": ", ".join(kinds)}
        )
        with urllib.request.urlopen(request, timeout=10) as answer:
            return json.load(answer)


def _digest() -> str:
    places = [ROOT / place for place in _INPUTS]
    files = [file for place in places for file in [place, *place.rglob("*")]]
    digest = hashlib.sha256()
    for file in sorted(files):
        if not file.is_file() or "__pycache__" in file.parts:
            continue
        digest.update(str(file.relative_to(ROOT)).encode() + b"\0")
        digest.update(hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()[:12]
