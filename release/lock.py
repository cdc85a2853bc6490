"""The locks of the images: every Python package in them, with its files' hashes.

Owns which extras an image has, and the files `images/**/*lock.txt`, from which alone
the Dockerfiles install. Made by uv for all processors and Pythons at once, with the
versions of python/constraints.txt. Called by `make lock`; must not know of registries.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parents[1]
CONSTRAINTS = "python/constraints.txt"
BUILD_LOCK = "images/lock.txt"
# With what builds the wheel in each of them.
BUILD_REQUIREMENT = "hatchling"
# Images of users' zoos are built on the worker's, and a job that names one runs all its
# roles in it: it has what master and PS need, and TensorBoard for the chart's
# monitoring.tensorboard.
_EVERY_ROLE = ("ps", "cluster", "examples", "arrow", "sql", "tensorboard")
EXTRAS: Mapping[str, tuple[str, ...]] = {
    # The master counts the rows of Parquet and Arrow files.
    "images/master/lock.txt": ("cluster", "arrow"),
    "images/ps/lock.txt": ("ps",),
    "images/training-jobs/lock.txt": ("cluster", "helm"),
    "images/worker/worker-cpu.lock.txt": ("worker-cpu", *_EVERY_ROLE),
    "images/worker/worker-gpu.lock.txt": ("worker-gpu", *_EVERY_ROLE),
}
_HEADER = "# Made by `make lock`; do not edit. Every file that pip may install here.\n"


def lock_of(role: str, worker_extra: str) -> str:
    """Return the path of the lock that an image is installed from."""
    return f"images/{role}/{worker_extra + '.' if role == 'worker' else ''}lock.txt"


def pinned(lock: str) -> dict[str, str]:
    """Return {package: version} of a lock's text, each name as it is written there."""
    found = {}
    for line in lock.splitlines():
        if line[:1].isalnum():
            name, version = line.split(" ")[0].split("==")
            found[name] = version.rstrip("\\")
    return found


def _compile(uv: Path, path: str, source: Path, extras: tuple[str, ...]) -> None:
    words = ["--universal", "--python-version", "3.11", "--generate-hashes", "--quiet"]
    words += ["--no-header", "--no-annotate", "--no-emit-index-url", "--upgrade"]
    words += [word for extra in extras for word in ("--extra", extra)]
    done = subprocess.run(
        [uv, "pip", "compile", source, *words, "--constraints", ROOT / CONSTRAINTS],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    (ROOT / path).write_text(_HEADER + done.stdout)


def main(uv: Path) -> None:
    """Write all locks anew."""
    for path, extras in EXTRAS.items():
        sys.stdout.write(f"{path}\n")
        _compile(uv, path, ROOT / "python" / "pyproject.toml", extras)
    with tempfile.NamedTemporaryFile("w", suffix=".in") as source:
        source.write(f"{BUILD_REQUIREMENT}\n")
        source.flush()
        sys.stdout.write(f"{BUILD_LOCK}\n")
        _compile(uv, BUILD_LOCK, Path(source.name), ())


if __name__ == "__main__":
    main(Path(sys.argv[1]))
