"""Stand-ins for `os`, `tempfile` and `pathlib.Path`: a real folder with a bad disk.

Owns what writing costs and how it fails: slow, full, torn by a crash of the process or
of the machine. Files are real ones (in memory where the system has such a place), so
that the product's own reading, renaming and mapping is used. Must not know what is
written.
"""

from __future__ import annotations

import errno
import os as real_os
import pathlib
import tempfile as real_tempfile
import types
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.simulation.kernel import Killed, Process, current_process, kernel

_PAGE = 64  # of a torn write: small, as the files of a run are


@dataclass
class Disk:
    """The disk of one run."""

    root: str
    full: bool = False
    slow: float = 0.0  # a write takes up to so many seconds
    writes: int = 0
    # Asked before each write of a process: whether it dies in the middle of it.
    dies: Callable[[Process, str], bool] = lambda _process, _path: False
    machine_fails: Callable[[], bool] = lambda: False
    paths: dict[int, str] = field(default_factory=dict)  # of open files
    unsynced: dict[str, list[tuple[int, bytes]]] = field(default_factory=dict)

    def mine(self, path: object) -> bool:
        return str(path).startswith(self.root)

    def before(self, path: object, *, needs_room: bool) -> None:
        """Let time pass, fail, or let the process die before a change of the disk."""
        process = current_process()
        if process is None or not self.mine(path):
            return
        run = kernel()
        run.check()
        self.writes += 1
        if self.slow:
            run.sleep(run.random.uniform(0.0, self.slow))
        else:
            run.may_give_way()
        if self.dies(process, str(path)):
            process.exit(-9, killed=True)
        if self.full and needs_room:
            raise OSError(errno.ENOSPC, real_os.strerror(errno.ENOSPC), str(path))

    def write(
        self, fd: int, data: Any, offset: int | None, put: Callable[[Any], int]
    ) -> int:
        """Write; torn if the process dies in it, short if there is no room."""
        path = self.paths.get(fd, "")
        process = current_process()
        if process is None or not self.mine(path):
            return put(data)
        run = kernel()
        run.check()
        self.writes += 1
        if self.slow:
            run.sleep(run.random.uniform(0.0, self.slow))
        else:
            run.may_give_way()
        if self.dies(process, path):
            put(data[: run.random.randrange(len(data) + 1)])
            process.exit(-9, killed=True)
        if self.full:
            part = run.random.randrange(len(data) + 1) if len(data) else 0
            if not part or run.random.random() < 0.5:
                raise OSError(errno.ENOSPC, real_os.strerror(errno.ENOSPC), path)
            data = data[:part]
        if offset is not None:
            self.unsynced.setdefault(path, []).append((offset, bytes(data)))
        return put(data)

    def synced(self, fd: int) -> None:
        self.unsynced.pop(self.paths.get(fd, ""), None)

    def power_cut(self) -> None:
        """The machine fails: of what was not synced any page may be missing."""
        chance = kernel().random
        for path, writes in self.unsynced.items():
            place = pathlib.Path(path)
            if not place.exists():
                continue
            size = place.stat().st_size
            with place.open("r+b") as file:
                for offset, data in writes:
                    for start in range(0, len(data), _PAGE):
                        if chance.random() < 0.5:
                            file.seek(offset + start)
                            file.write(b"\0" * len(data[start : start + _PAGE]))
                if chance.random() < 0.3:
                    file.truncate(min(size, writes[0][0]))
        self.unsynced.clear()


_disk: list[Disk] = []


def use(disk: Disk) -> None:
    """Make a run's disk the one that files are written to."""
    _disk[:] = [disk]


def world_disk() -> Disk | None:
    """Return the disk of the run under way."""
    return _disk[-1] if _disk else None


def _before(path: object, *, needs_room: bool) -> None:
    disk = world_disk()
    if disk is not None:
        disk.before(path, needs_room=needs_room)


_ROOM = real_os.O_CREAT


def _there(path: Any) -> bool:
    return pathlib.Path(path).exists()


def _path(name: Any, folder: int | None) -> str:
    """Return the path of a name in an open folder."""
    disk = world_disk()
    above = disk.paths.get(folder, "") if disk is not None and folder else ""
    return str(pathlib.Path(above, name))


def _open(
    name: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None
) -> int:
    disk, path = world_disk(), _path(name, dir_fd)
    if disk is not None and flags & _ROOM and not _there(path):
        disk.before(path, needs_room=True)
    fd = real_os.open(name, flags, mode, dir_fd=dir_fd)
    if disk is not None:
        disk.paths[fd] = path
    return _owned(fd)


def _owned(fd: int) -> int:
    """Have a handle closed with its process, if it was not before."""
    process = current_process()
    if process is not None:
        opened = process.__dict__.setdefault("fds", {})
        if not opened:
            process.closers.append(lambda: _close_all(process))
        opened[fd] = None
    return fd


def _pipe() -> tuple[int, int]:
    reading, writing = real_os.pipe()
    return _owned(reading), _owned(writing)


def _close(fd: int) -> None:
    process = current_process()
    if process is not None:
        if fd not in process.__dict__.get("fds", {fd: None}):
            if not process.alive:  # what it had open was closed with it
                return
            raise OSError(errno.EBADF, "closed already")
        process.__dict__.get("fds", {}).pop(fd, None)
    real_os.close(fd)


def _close_all(process: Process) -> None:
    for fd in list(process.__dict__.get("fds", {})):
        real_os.close(fd)
    process.__dict__.get("fds", {}).clear()


def _mkdir(name: Any, mode: int = 0o777, *, dir_fd: int | None = None) -> None:
    if not _there(path := _path(name, dir_fd)):
        _before(path, needs_room=True)
    real_os.mkdir(name, mode, dir_fd=dir_fd)


def _rename(old: Any, new: Any, *, src_dir_fd: int, dst_dir_fd: int) -> None:
    _before(_path(old, src_dir_fd), needs_room=False)
    real_os.replace(old, new, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)


def _unlink(name: Any, *, dir_fd: int) -> None:
    _before(_path(name, dir_fd), needs_room=False)
    real_os.unlink(name, dir_fd=dir_fd)


def _pwrite(fd: int, data: Any, offset: int) -> int:
    disk = world_disk()
    if disk is None:
        return real_os.pwrite(fd, data, offset)
    return disk.write(fd, data, offset, lambda part: real_os.pwrite(fd, part, offset))


def _write(fd: int, data: Any) -> int:
    disk = world_disk()
    if disk is None:
        return real_os.write(fd, data)
    offset = real_os.lseek(fd, 0, real_os.SEEK_CUR)
    return disk.write(fd, data, offset, lambda part: real_os.write(fd, part))


def _sync(fd: int) -> None:
    disk = world_disk()
    if disk is not None:
        path = disk.paths.get(fd, "")
        if disk.mine(path) and current_process() is not None:
            # Until it is over the machine may fail, and what was written be torn.
            kernel().sleep(kernel().random.uniform(0.0, 0.004))
        disk.before(path, needs_room=False)
        disk.synced(fd)


def _ftruncate(fd: int, size: int) -> None:
    disk = world_disk()
    if disk is not None and real_os.fstat(fd).st_size != size:
        disk.before(disk.paths.get(fd, ""), needs_room=False)
    kernel().check()
    real_os.ftruncate(fd, size)


def _exit(code: int) -> None:
    process = current_process()
    if process is None:
        raise RuntimeError("os._exit outside of the simulation")
    process.exit(code)


def _getpid() -> int:
    process = current_process()
    return process.pid if process is not None else real_os.getpid()


def _fdopen(fd: int, *args: Any, **kwargs: Any) -> Any:
    process = current_process()
    if process is not None and kwargs.get("closefd", True):
        process.__dict__.get("fds", {}).pop(fd, None)
    return _File(real_os.fdopen(fd, *args, **kwargs))


class _File:
    """A file whose end does not come with the process that had it open."""

    def __init__(self, file: Any) -> None:
        self._file = file

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def __enter__(self) -> Any:
        return self._file

    def __exit__(self, *_: object) -> None:
        self._file.close()


def _mkstemp(**options: Any) -> tuple[int, str]:
    folder, prefix = options["dir"], options.get("prefix", "tmp")
    run = kernel()
    name = f"{folder}/{prefix}{run.random.getrandbits(40):010x}"
    return _open(name, real_os.O_RDWR | real_os.O_CREAT | real_os.O_EXCL, 0o600), name


class Path(type(pathlib.Path())):  # type: ignore[misc]
    """pathlib.Path, whose changes of the disk may fail."""

    __slots__ = ()

    def mkdir(self, *args: Any, **kwargs: Any) -> None:
        if not self.exists():
            _before(self, needs_room=True)
        super().mkdir(*args, **kwargs)

    def rename(self, target: Any) -> Any:
        _before(self, needs_room=False)
        return super().rename(target)

    def replace(self, target: Any) -> Any:
        _before(self, needs_room=False)
        return super().replace(target)

    def unlink(self, *args: Any, **kwargs: Any) -> None:
        _before(self, needs_room=False)
        super().unlink(*args, **kwargs)

    def rmdir(self) -> None:
        _before(self, needs_room=False)
        super().rmdir()

    def open(self, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
        if any(letter in mode for letter in "wax+"):
            _before(self, needs_room=True)
        return super().open(mode, *args, **kwargs)


def _module(name: str, real: types.ModuleType, **changed: Any) -> types.ModuleType:
    module = types.ModuleType(name)
    module.__getattr__ = lambda attribute: getattr(real, attribute)  # type: ignore[method-assign]
    module.__dict__.update(changed)
    return module


os = _module(
    "os", real_os, open=_open, close=_close, pwrite=_pwrite, write=_write,
    fsync=_sync, fdatasync=_sync, ftruncate=_ftruncate, _exit=_exit, getpid=_getpid,
    fdopen=_fdopen, mkdir=_mkdir, rename=_rename, replace=_rename, unlink=_unlink,
    pipe=_pipe, dup=lambda fd: _owned(real_os.dup(fd)), setpriority=lambda *_: None,
)  # fmt: skip
tempfile = _module("tempfile", real_tempfile, mkstemp=_mkstemp)
paths = _module("pathlib", pathlib, Path=Path)

__all__ = ["Disk", "Killed", "os", "paths", "tempfile", "use", "world_disk"]
