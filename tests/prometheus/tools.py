"""Where `prometheus` and `promtool` are: on the PATH, in the cache, or from Debian.

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

PACKAGE = "prometheus"


class MissingError(Exception):
    """They cannot be had here; the message says why."""


def cache_folder():
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "elasticdl" / "prometheus"


@cache
def locate(name):
    """Return the path of `prometheus` or `promtool`. Raises MissingError."""
    if on_path := shutil.which(name):
        return Path(on_path)
    folder = cache_folder()
    program = folder / "usr" / "bin" / name
    if not program.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with (folder.parent / "prometheus.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # suites run side by side
            if not program.exists():
                fetch(folder)
    return program


def fetch(folder):
    """Unpack Debian's package into a folder. Raises MissingError."""
    if not (shutil.which("apt-get") and shutil.which("dpkg")):
        raise MissingError(
            "neither prometheus and promtool on the PATH nor apt-get to fetch them with"
        )
    aside = folder.with_name(f"{folder.name}.{os.getpid()}")
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir()
    try:
        if run("apt-get", "download", "-q", PACKAGE, cwd=aside) is not None:
            # A fresh machine has no lists of packages yet.
            run("apt-get", "update", "-q", cwd=aside)
            if problem := run("apt-get", "download", "-q", PACKAGE, cwd=aside):
                raise MissingError(f"apt-get download {PACKAGE}: {problem}")
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
    for tool in ("prometheus", "promtool"):
        print(locate(tool))
