"""The programs that a release is made with: git, images/build, CycloneDX, ssh-keygen.

Owns calling each, and the sentence when it fails. Called by `main`; must not know what
is done with what they make.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from release.facts import (
    NAMESPACE,
    ROLES,
    SUMS,
    Image,
    ReleaseError,
    check_digest,
    verify_lines,
)
from release.lock import ROOT, lock_of

_VALIDATE = """\
import sys
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
for file in sys.argv[1:]:
    text = open(file, encoding="utf-8").read()
    problem = JsonStrictValidator(SchemaVersion.V1_6).validate_str(text)
    if problem:
        sys.exit(f"{file}: {problem}")
"""


def _said(
    words: Sequence[str | Path],
    what: str,
    *,
    told: str | None = None,
    cwd: Path = ROOT,
    env: Mapping[str, str] | None = None,
) -> str:
    """Return what a program prints. Raises ReleaseError with its last lines."""
    try:
        done = subprocess.run(
            words,
            cwd=cwd,
            env=env,
            input=told,
            capture_output=True,
            text=True,
            check=False,
        )
    except FileNotFoundError as error:
        raise ReleaseError(
            f"{what}: no program `{error.filename}`; install it"
        ) from None
    if done.returncode:
        lines = (done.stdout + done.stderr).strip().splitlines()[-5:]
        raise ReleaseError(f"{what}: `{words[0]}` failed: " + "; ".join(lines))
    return done.stdout


# What goes into chart and images: files that git is told to ignore would go, too.
_RELEASED = ("charts", "images", "model_zoo", "python/elasticdl")
_NOT_TAKEN = ("**/__pycache__/**", "model_zoo/**/*.edlidx", "python/**/*.edlidx")


def commit(root: Path = ROOT) -> tuple[str, int]:
    """Return commit and its time. Raises ReleaseError where files differ from it."""
    status = _said(["git", "status", "--porcelain"], "commit", cwd=root)
    changed = [line[3:] for line in status.splitlines()]
    but = [f":(exclude,glob){each}" for each in _NOT_TAKEN]
    words = ["git", "ls-files", "--others", "--", *_RELEASED, *but]
    changed += _said(words, "commit", cwd=root).splitlines()
    if changed:
        raise ReleaseError(
            f"commit: {len(set(changed))} files differ from it, as {changed[0]}; "
            "commit or remove them, since a release is of one commit"
        )
    words = ["git", "log", "-1", "--format=%H %ct"]
    found = _said(words, "commit", cwd=root).split()
    return found[0], int(found[1])


def public_key(key: Path) -> str:
    """Return the public half of a key to sign with. Raises ReleaseError."""
    if not key.is_file():
        raise ReleaseError(
            f"key: no file {key}; KEY= names an SSH key to sign with, which "
            "`ssh-keygen -t ed25519 -f release_key` makes"
        )
    beside = key if key.suffix == ".pub" else key.with_name(f"{key.name}.pub")
    if beside.is_file():
        return " ".join(beside.read_text().split()[:2])
    told = _said(["ssh-keygen", "-y", "-f", key], "key")
    return " ".join(told.split()[:2])


def build_images(
    registry: str, base: str, record: Path, env: Mapping[str, str]
) -> None:
    """Build and push all images; what is built is shown. Raises ReleaseError."""
    given = {
        "REGISTRY": registry,
        "BASE_IMAGE": base,
        "RECORD": str(record),
        "PUSH": "1",
    }
    done = subprocess.run(
        [ROOT / "images" / "build"], env={**env, **given}, cwd=ROOT, check=False
    )
    if done.returncode:
        raise ReleaseError(
            "images: not built or not pushed, as said above; images built "
            "elsewhere are released with RECORD=, the folder that images/build wrote"
        )


def recorded(
    record: Path, registry: str, revision: str
) -> tuple[str, tuple[Image, ...]]:
    """Return base and images that images/build has noted. Raises ReleaseError."""

    def noted(name: str) -> str:
        try:
            return (record / name).read_text().strip()
        except FileNotFoundError:
            raise ReleaseError(
                f"record: no {name} in {record}; push all images with it: "
                f"REGISTRY={registry} PUSH=1 RECORD={record} images/build"
            ) from None

    of = noted("revision")
    if of != revision:
        raise ReleaseError(
            f"record: images of commit {of[:12]}, but {revision[:12]} is released; "
            "check that one out, or build them anew"
        )
    extra = noted("worker_extra")
    images = []
    for role in ROLES:
        installed = json.loads(noted(f"{role}.installed.json"))
        images.append(
            Image(
                role=role,
                name=f"{registry}/elasticdl/{role}",
                digest=check_digest(role, noted(f"{role}.digest")),
                machine=installed["machine"],
                python=dict(installed["python"]),
                debian=tuple(
                    (each[0], each[1], each[2]) for each in installed["debian"]
                ),
                lock=lock_of(role, extra),
            )
        )
    return noted("base"), tuple(images)


def sbom_of(requirements: str, folder: Path) -> dict[str, Any]:
    """Return CycloneDX's list of Python packages, made by its own program."""
    words = ["requirements", "-", "--output-reproducible", "--no-validate"]
    told = _said([folder / "cyclonedx-py", *words], "SBOM", told=requirements)
    found: dict[str, Any] = json.loads(told)
    return found


def check_sboms(sboms: Sequence[Path], folder: Path) -> None:
    """Raise ReleaseError unless all are by CycloneDX's schema."""
    _said([folder / "python", "-c", _VALIDATE, *sboms], "SBOM")


def sign(folder: Path, key: Path, identity: str, public: str) -> None:
    """Sign the sums in a folder, and check that as others will. Raises ReleaseError."""
    signers = f'{identity} namespaces="{NAMESPACE}" {public}\n'
    (folder / "allowed_signers").write_text(signers)
    # A passphrase is asked for at the terminal, or known to an agent.
    signed = subprocess.run(
        ["ssh-keygen", "-Y", "sign", "-q", "-f", key, "-n", NAMESPACE, SUMS],
        cwd=folder,
        check=False,
    )
    if signed.returncode:
        raise ReleaseError(f"signature: {key} did not sign, as said above")
    _said(["bash", "-c", f"set -e; {verify_lines(identity)}"], "signature", cwd=folder)
