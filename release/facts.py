"""What is known of one release, and the statements that follow from it.

Owns names in the registry, the install and verify lines, SBOMs as completed, and the
provenance; all pure. Called by `main`; must not call programs, registries or the clock.
"""

from __future__ import annotations

import hashlib
import json
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

# The roles of a job, and the controller of TrainingJobs.
CONTROLLER = "training-jobs"
ROLES = ("master", "ps", "worker", CONTROLLER)
NAMESPACE = "elasticdl-release"
SUMS = "SHA256SUMS"
SOURCE = "https://github.com/elasticdl/elasticdl"
BUILD_TYPE = f"{SOURCE}/blob/main/docs/releasing.md#v1"
_REGISTRY = re.compile(r"([a-z0-9.-]+|\[[0-9a-f:]+\])(:[0-9]+)?(/[a-z0-9._-]+)*")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_BASE = re.compile(r"[^\s@]+@sha256:[0-9a-f]{64}")
_LOOPBACK = re.compile(r"(localhost|127(\.[0-9]+){3}|\[::1\])(:|/|$)")


class ReleaseError(Exception):
    """Nothing is released; the message says what came, and what to do."""


@dataclass(frozen=True)
class Image:
    """One image as it was pushed."""

    role: str
    name: str  # registry and folders included, without a tag
    digest: str
    machine: str
    python: Mapping[str, str]
    debian: tuple[tuple[str, str, str], ...]  # name, version, architecture
    lock: str  # path in the repository


@dataclass(frozen=True)
class Release:
    """All that the statements are made of."""

    version: str
    commit: str
    registry: str
    base: str
    builder: str
    chart_digest: str
    images: tuple[Image, ...]


def is_loopback(registry: str) -> bool:
    """Whether it is this machine's own, which is reached without TLS."""
    return _LOOPBACK.match(registry) is not None


def check_registry(registry: str) -> str:
    """Return it without a slash at its end. Raises ReleaseError."""
    wanted = registry.removesuffix("/")
    if not _REGISTRY.fullmatch(wanted):
        raise ReleaseError(
            f"registry: got {registry!r}, expected a host with folders, as "
            "registry.example/team: REGISTRY=registry.example/team"
        )
    return wanted


def check_base(base: str) -> str:
    """Return the base image, which has to be one by its digest. Raises ReleaseError."""
    if not _BASE.fullmatch(base):
        raise ReleaseError(
            f"base image: got {base!r}, expected NAME@sha256:DIGEST, so that what was "
            "built on can be named: BASE_IMAGE=python@sha256:... (`docker buildx "
            "imagetools inspect python:3.11-slim` prints it)"
        )
    return base


def check_digest(role: str, digest: str) -> str:
    """Return an image's digest. Raises ReleaseError."""
    if not _DIGEST.fullmatch(digest):
        raise ReleaseError(
            f"image {role}: got digest {digest!r}, expected sha256:..., as "
            "images/build records it: PUSH=1 RECORD=FOLDER images/build"
        )
    return digest


def chart_version(version: str) -> str:
    """Return a version of Python's as SemVer: 1.0.0.dev0 is 1.0.0-dev.0."""
    found = re.fullmatch(r"(\d+\.\d+\.\d+)(?:\.?(dev|a|b|rc)(\d+))?", version)
    if not found:
        raise ReleaseError(
            f"version: got {version!r}, expected one as 1.2.0 or 1.2.0rc1"
        )
    number, kind, count = found.groups()
    return f"{number}-{kind}.{count}" if kind else number


def check_locked(image: Image, locked: Mapping[str, str]) -> None:
    """Raise ReleaseError where an image has a package that its lock has not."""
    strange = [
        f"{name} {version}"
        for name, version in image.python.items()
        if plain(name) != "elasticdl" and locked.get(plain(name)) != version
    ]
    if strange:
        raise ReleaseError(
            f"image {image.role}: got {', '.join(strange)}, which {image.lock} "
            "does not have so; build the images of this commit anew"
        )


def plain(name: str) -> str:
    """Return a package's name as indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def requirements(image: Image, lock: str) -> str:
    """Return the lines of a lock, hashes included, that an image has."""
    wanted = {plain(name) for name in image.python}
    lines, taken = [], False
    for line in lock.splitlines():
        if line[:1].isalnum():
            taken = plain(line.split("==")[0]) in wanted
        if taken and not line.startswith("#"):
            lines.append(line)
    return "\n".join(lines) + "\n"


def completed(sbom: dict[str, Any], image: Image, release: Release) -> dict[str, Any]:
    """Return the SBOM of an image's Python with Debian's packages and what it is of."""
    debian = [
        {
            "type": "library",
            "bom-ref": f"debian:{name}:{architecture}",
            "name": name,
            "version": version,
            "purl": f"pkg:deb/debian/{_quoted(name)}@{_quoted(version)}"
            f"?arch={architecture}",
        }
        for name, version, architecture in image.debian
    ]
    own = {
        "type": "application",
        "bom-ref": "elasticdl",
        "name": "elasticdl",
        "version": release.version,
        "purl": f"pkg:pypi/elasticdl@{release.version}",
    }
    root = {
        "type": "container",
        "bom-ref": "image",
        "name": image.name,
        "version": image.digest,
        "purl": f"pkg:oci/{image.role}@{_quoted(image.digest)}"
        f"?arch={image.machine}&repository_url={_quoted(image.name)}",
    }
    metadata = {**sbom.get("metadata", {}), "component": root}
    components = [*sbom["components"], own, *debian]
    depends = {
        "ref": "image",
        "dependsOn": sorted(each["bom-ref"] for each in components),
    }
    others = [
        each for each in sbom.get("dependencies", ()) if each["ref"] != "root-component"
    ]
    return {
        **sbom,
        "metadata": metadata,
        "components": components,
        "dependencies": [*others, depends],
    }


def _quoted(text: str) -> str:
    return text.replace("%", "%25").replace("+", "%2B").replace(":", "%3A")


def provenance(
    release: Release, files: Mapping[str, bytes], began: str, ended: str
) -> dict[str, Any]:
    """Return an in-toto statement: SLSA's provenance of all that is released."""
    subjects = [_file(name, content) for name, content in sorted(files.items())]
    subjects.append(
        _pushed(f"{release.registry}/charts/elasticdl", release.chart_digest)
    )
    subjects += [_pushed(image.name, image.digest) for image in release.images]
    base, digest = release.base.rsplit("@sha256:", 1)
    return {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": subjects,
        "predicateType": "https://slsa.dev/provenance/v1",
        "predicate": {
            "buildDefinition": {
                "buildType": BUILD_TYPE,
                "externalParameters": {
                    "version": release.version,
                    "registry": release.registry,
                    "baseImage": release.base,
                },
                "resolvedDependencies": [
                    {"uri": f"git+{SOURCE}", "digest": {"gitCommit": release.commit}},
                    {"uri": f"docker://{base}", "digest": {"sha256": digest}},
                    *(_locked(image, files) for image in release.images),
                ],
            },
            "runDetails": {
                "builder": {"id": release.builder},
                "metadata": {"startedOn": began, "finishedOn": ended},
            },
        },
    }


def _file(name: str, content: bytes) -> dict[str, Any]:
    return {"name": name, "digest": {"sha256": hashlib.sha256(content).hexdigest()}}


def _locked(image: Image, files: Mapping[str, bytes]) -> dict[str, Any]:
    return _file(image.lock, files[f"{image.role}.lock.txt"])


def _pushed(name: str, digest: str) -> dict[str, Any]:
    return {"name": name, "digest": {"sha256": digest.removeprefix("sha256:")}}


def sums(files: Mapping[str, bytes]) -> str:
    """Return what `sha256sum --check` reads."""
    return "".join(
        f"{hashlib.sha256(content).hexdigest()}  {name}\n"
        for name, content in sorted(files.items())
    )


def install_line(release: Release) -> str:
    """Return how a platform is installed, nothing of it by a tag alone."""
    where = f"oci://{release.registry}/charts/elasticdl@{release.chart_digest}"
    lines = [f"helm install elasticdl {where} -n ml --create-namespace"]
    if is_loopback(release.registry):
        lines.append("--plain-http")
    lines.append(f"--set images.registry={release.registry}")
    lines += [
        f"--set controller.trainingJobs.image={image.name}@{image.digest}"
        if image.role == CONTROLLER
        else f"--set jobs.defaults.images.digests.{image.role}={image.digest}"
        for image in release.images
    ]
    return " \\\n    ".join(lines) + "\n"


def verify_lines(identity: str) -> str:
    """Return the shell lines that check a folder of a release."""
    return (
        f"ssh-keygen -Y verify -f allowed_signers -I {shlex.quote(identity)} \\\n"
        f"    -n {NAMESPACE} -s {SUMS}.sig < {SUMS} \\\n"
        f"    && sha256sum --check --quiet {SUMS}\n"
    )


def as_json(tree: Mapping[str, Any]) -> bytes:
    """Return a tree as text that is the same for the same tree."""
    return (json.dumps(tree, indent=1, sort_keys=True) + "\n").encode()
