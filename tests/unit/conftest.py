"""Settings for unit tests, thousands of which share one process."""

import gc
import sys
import threading
from collections import Counter
from pathlib import Path

import pytest

# Some dozens stay, of libraries and of servers that tests keep. A process may open 1024
# files on many a machine, and the tests beyond that fail for no reason of their own.
_MOST_FILES = 150
_MOST_THREADS = 150


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail a run that leaves many files open, or many threads, and name them."""
    gc.collect()
    left = {"open files": (_open_files(), _MOST_FILES)}
    left["threads"] = ([one.name for one in threading.enumerate()], _MOST_THREADS)
    for what, (names, most) in left.items():
        if len(names) > most:
            most_common = Counter(_kind(name) for name in names).most_common(8)
            sys.stderr.write(
                f"\nerror: the tests left {len(names)} {what}, expected at most "
                f"{most}; close in the fixture what it made. By name: "
                f"{dict(most_common)}\n"
            )
            session.exitstatus = pytest.ExitCode.TESTS_FAILED


def _open_files() -> list[str]:
    """Return what this process has open, where /proc tells it."""
    numbers = Path("/proc/self/fd")
    if not numbers.exists():
        return []
    return [str(one.readlink()) for one in numbers.iterdir() if one.is_symlink()]


def _kind(name: str) -> str:
    """Return a file's or a thread's name without what numbers it."""
    return Path(name).name.rstrip("0123456789_-[]()")
