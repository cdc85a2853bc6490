"""Makes a job's data when it is not there: `data.prepare`, once for all processes.

Owns the lock and the marker that make it once. Called before the first task reads, by
whichever role is told to. Must not know which role that is.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from elasticdl.data.making.datasets import make_dataset
from elasticdl.data.making.shards import MARKER
from elasticdl.data.reader import find_files
from elasticdl.errors import DataError
from elasticdl.job.spec.job import DataPrepareSpec

_LOCK = ".elasticdl-prepare.lock"
_LINES_TOLD = 5  # The end of the output has the error.


def prepare(
    spec: DataPrepareSpec,
    root: Path,
    log: Callable[[str], None],
    *,
    needed: Sequence[str] = (),
) -> None:
    """Create the data in `root` unless they exist; return when they do.

    A data set goes to the folder of its name in the data paths: with `digits` and
    `data/digits/train` to `<root>/data/digits/{train,test}`, without such a folder to
    `<root>/digits`. A command runs in `root`; that it ran is noted there, so that it
    runs once. Several processes may call this at once: one makes the data, the others
    wait.

    Args:
        spec: What makes the data.
        root: The data root; made if it is not there.
        log: Told what happens, line by line.
        needed: The job's data paths. If data is at all of them, nothing is done; if it
            is not after the command, that is an error.

    Raises DataError if the data cannot be made.
    """
    if needed and not _missing(needed, root):
        return
    try:
        root.mkdir(parents=True, exist_ok=True)
        with _lock(root / _LOCK, log):
            if needed and not _missing(needed, root):
                return
            if spec.dataset is not None:
                _make(spec.dataset, _home(spec.dataset, root, needed), log)
            elif spec.command is not None:
                _run(spec.command, root, log, again=bool(needed))
    except OSError as error:
        raise DataError(
            f"{error.filename or root}: data.prepare cannot write there: "
            f"{error.strerror}; make room, or set data.root to a folder that can be "
            "written"
        ) from error
    missing = _missing(needed, root)
    if missing:
        raise DataError(
            f"data.prepare ran, but there is still no data at {', '.join(missing)} "
            f"(in {root}); let it write there, or correct the data paths"
        )


def _missing(needed: Sequence[str], root: Path) -> list[str]:
    missing = []
    for path in needed:
        try:
            find_files(path, data_root=root)
        except DataError:
            missing.append(path)
    return missing


@contextmanager
def _lock(file: Path, log: Callable[[str], None]) -> Iterator[None]:
    with file.open("a") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            log("another process is preparing the data; waiting for it")
            fcntl.flock(handle, fcntl.LOCK_EX)
        # Closing the file gives the lock back, also when the process is killed.
        yield


def _home(name: str, root: Path, needed: Sequence[str]) -> Path:
    """Return the folder in which the data set's folder has to be."""
    for path in needed:
        parts = Path(path).parts
        if name in parts:
            return root.joinpath(*parts[: parts.index(name)])
    return root


def _make(name: str, root: Path, log: Callable[[str], None]) -> None:
    if (root / name / MARKER).exists():
        # Made by hand, perhaps in another format or split: it is the user's.
        return
    made = make_dataset(name, root)
    log(
        f"made the data set {name} in {made.directory}: {made.num_train} training and "
        f"{made.num_test} test records"
    )


def _run(
    command: Sequence[str], root: Path, log: Callable[[str], None], *, again: bool
) -> None:
    digest = hashlib.sha256(json.dumps(list(command)).encode()).hexdigest()[:16]
    marker = root / f".elasticdl-prepared-{digest}"
    if marker.exists() and not again:
        return
    log(f"preparing the data with {' '.join(command)}")
    lines: list[str] = []
    try:
        with subprocess.Popen(
            list(command),
            cwd=root,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        ) as process:
            for line in process.stdout or ():
                log(line.rstrip("\n"))
                lines = [*lines[1 - _LINES_TOLD :], line.rstrip("\n")]
    except OSError as error:
        raise DataError(
            f"data.prepare.command {command[0]!r} cannot be run: {error.strerror}; "
            "give a command that is on the path, as [python, make_data.py]"
        ) from error
    if process.returncode:
        raise DataError(
            f"data.prepare.command {' '.join(command)} ended with exit code "
            f"{process.returncode}, expected 0; its last lines: {' | '.join(lines)}"
        )
    marker.touch()
