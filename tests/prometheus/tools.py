"""Where servers of the tests are: on the PATH, in the cache, or from Debian.

    python -m tests.prometheus.tools    # prints where they are, and fetches them once

Nothing is installed: the package is unpacked in a folder of the user's cache.
"""

import fcntl
import os
import shutil
import subprocess
from functools import cache
from pathlib import Path

import pytest

# By program, the package of Debian that has it.
PACKAGES = {
    "prometheus": "prometheus",
    "promtool": "prometheus",
    "docker-registry": "docker-registry",
}


class MissingError(Exception):
    """They cannot be had here; the message says why."""


def cache_folder(package):
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "elasticdl" / package


@cache
def locate(name):
    """Return the path of a program of PACKAGES. Raises MissingError."""
    if on_path := shutil.which(name):
        return Path(on_path)
    folder = cache_folder(PACKAGES[name])
    program = folder / "usr" / "bin" / name
    if not program.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with (folder.parent / f"{folder.name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # suites run side by side
            if not program.exists():
                fetch(PACKAGES[name], folder)
    return program


def fetch(package, folder):
    """Unpack Debian's package into a folder. Raises MissingError."""
    if not (shutil.which("apt-get") and shutil.which("dpkg")):
        raise MissingError(
            f"neither {package} on the PATH nor apt-get to fetch it with"
        )
    aside = folder.with_name(f"{folder.name}.{os.getpid()}")
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir()
    try:
        if run("apt-get", "download", "-q", package, cwd=aside) is not None:
            # A fresh machine has no lists of packages yet.
            run("apt-get", "update", "-q", cwd=aside)
            if problem := run("apt-get", "download", "-q", package, cwd=aside):
                raise MissingError(f"apt-get download {package}: {problem}")
        (archive,) = aside.glob("*.deb")
        if problem := run("dpkg", "-x", archive.name, ".", cwd=aside):
            raise MissingError(f"dpkg -x {archive.name}: {problem}")
        archive.unlink()
        aside.rename(folder)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def run(*command, cwd):
    """Run a command; None, or what it said when it failed."""
    done = subprocess.run(
        command, cwd=cwd, capture_output=True, text=True, check=False, timeout=300
    )
    return (done.stderr.strip() or "failed") if done.returncode else None


def program(name):
    """Return its path; without it the test is skipped, but fails in CI."""
    try:
        return locate(name)
    except MissingError as error:
        if os.environ.get("CI") == "true":
            pytest.fail(f"{name} is needed in CI: {error}")
        pytest.skip(f"no {name} here: {error}")


if __name__ == "__main__":
    for tool in PACKAGES:
        print(locate(tool))
