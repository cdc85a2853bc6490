"""What a job may leave behind: processes, ports, memory files, temporary files.

Owns the list of all that the descendants of this process were seen with, and the search
for what is left of it. Used by `one`, which runs one job. Must not know the job.

This process adopts what its descendants leave behind (Linux: "child subreaper"), so a
process cannot escape by changing its session or its environment.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import threading
from pathlib import Path

import psutil

_PR_SET_CHILD_SUBREAPER = 36
_SHARED = "/dev/shm/"
_MEMORY = "/memfd:"


def adopt_orphans() -> None:
    """From now on a process whose parent ended is a child of this one."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "cannot adopt orphans")


class Leftovers:
    """Looks at all descendants while a job runs; afterwards at what is left."""

    def __init__(
        self, folder: Path, temporary: Path, *, look_seconds: float = 3.0
    ) -> None:
        """Take the folder of the job and that of its temporary files."""
        self._look_seconds = look_seconds
        self._folder = folder
        self._temporary = temporary
        self._ports: set[int] = set()
        self._processes: set[tuple[int, float]] = set()
        self._memory: set[int] = set()  # inodes of memory files
        self._shared: set[str] = set()
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._look_often, daemon=True)
        self._thread.start()

    @property
    def seen(self) -> dict[str, int]:
        """How many of each kind were seen."""
        return {
            "processes": len(self._processes),
            "ports": len(self._ports),
            "memory files": len(self._memory),
        }

    def find(self) -> list[str]:
        """Return what is left, a line for each; the job has ended."""
        self._end.set()
        self._thread.join()
        _bury()
        found = [f"process {_words(child)}" for child in _descendants()]
        found += [
            f"port {c.laddr.port} of process {c.pid}"
            for c in psutil.net_connections("inet")
            if c.status == psutil.CONN_LISTEN
            and c.laddr.port in self._ports
            and self._is_ours(c.pid)
        ]
        for process in psutil.process_iter():
            held = _memory_files(process.pid)[0] & self._memory
            if held:
                found.append(f"{len(held)} memory files in {_words(process)}")
        found += [f"shared {name}" for name in self._shared if Path(name).exists()]
        names = [*self._folder.rglob(".*"), *self._folder.rglob("*.tmp")]
        names += self._folder.rglob("pending-*")
        # The lock of a job's name is kept for its next run.
        found += [f"file {path}" for path in names if path.suffix != ".lock"]
        found += [f"file {path}" for path in sorted(self._temporary.iterdir())]
        return found

    def end_all(self) -> None:
        """Kill what is left."""
        self._end.set()
        for child in _descendants():
            with contextlib.suppress(psutil.Error):
                child.kill()

    def _is_ours(self, pid: int | None) -> bool:
        if pid is None:
            return True  # a port that nobody holds
        try:
            return (pid, psutil.Process(pid).create_time()) in self._processes
        except psutil.Error:
            return False  # it has just ended, and its port with it

    def _look_often(self) -> None:
        while not self._end.wait(self._look_seconds):
            for child in _descendants():
                with contextlib.suppress(psutil.Error):
                    self._look_at(child)

    def _look_at(self, child: psutil.Process) -> None:
        self._processes.add((child.pid, child.create_time()))
        memory, shared = _memory_files(child.pid)
        self._memory |= memory
        self._shared |= shared
        for connection in child.net_connections("inet"):
            if connection.status == psutil.CONN_LISTEN:
                self._ports.add(connection.laddr.port)


def _descendants() -> list[psutil.Process]:
    return psutil.Process().children(recursive=True)


def _bury() -> None:
    """Wait for adopted processes that have ended."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _memory_files(pid: int) -> tuple[set[int], set[str]]:
    """Return inodes of open memory files, and names of files in shared memory."""
    inodes, names = set(), set()
    for link in _links(Path(f"/proc/{pid}/fd")):
        # It may be closed, or its process gone, in between.
        with contextlib.suppress(OSError):
            target = str(link.readlink())
            if target.startswith(_MEMORY):
                inodes.add(link.stat().st_ino)
            elif target.startswith(_SHARED):
                names.add(target)
    return inodes, names


def _links(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError:
        return []


def _words(process: psutil.Process) -> str:
    try:
        return f"{process.pid} {process.status()} {' '.join(process.cmdline())[:200]}"
    except psutil.Error:
        return f"{process.pid}, which has just ended"
