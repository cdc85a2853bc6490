"""Files and folders below one that somebody with fewer rights can write to.

Owns how they are reached: from a folder that is trusted, one name after the other and
never through a link, and only files are opened, no pipes or devices. So what a worker
puts into its job's folder does not have its master, which sees the folders of other
jobs and has rights of its own, read, write or delete anything elsewhere. Called where a
master, or a command that sees a whole claim, touches what lies in a job's folder. The
folder itself may be a link: who says where it is is trusted. Must not know what files
hold.

A hard link needs no rule: the kernel makes none from one mount to another, and in the
pod of a worker the job's folder is a mount.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import IO

# Readable by others: processes of one job may run as different users.
DEFAULT_MODE = 0o644
# Who may write into a folder need not be allowed to list it; macOS asks for both.
_STEP = os.O_DIRECTORY | os.O_CLOEXEC | getattr(os, "O_PATH", os.O_RDONLY)
_LIST = os.O_DIRECTORY | os.O_CLOEXEC | os.O_RDONLY


class Folder:
    """An open folder: what is done in it is done there, wherever its name leads now."""

    def __init__(self, path: Path, handle: int) -> None:
        """Take over the handle; `path` is for messages."""
        self.path = path
        self._handle = handle

    def __enter__(self) -> Folder:
        """Return the folder, which is closed with the block."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the folder."""
        os.close(self._handle)

    def below(self, name: str) -> Folder:
        """Open a folder in this one. Raises OSError, also for a link."""
        return Folder(self.path / name, self._open(name, _STEP, 0))

    def made(self, name: str, *, durable: bool) -> Folder:
        """Open a folder in this one; make it if it is not there. Raises OSError.

        `durable`: a power cut leaves it.
        """
        try:
            # First: to make one that is there is refused on NFS where its place may not
            # be written to.
            return self.below(name)
        except FileNotFoundError:
            pass
        with contextlib.suppress(FileExistsError):
            os.mkdir(_one(name), dir_fd=self._handle)
            if durable:
                # Who may write into a folder need not be allowed to read it, and to
                # sync it is to open it for reading.
                with contextlib.suppress(PermissionError):
                    self.flush()
        return self.below(name)

    def open(
        self, name: str, flags: int = os.O_RDONLY, mode: int = DEFAULT_MODE
    ) -> int:
        """Open a file; return its handle. Raises OSError, also for what is no file."""
        # A pipe would be waited for.
        handle = self._open(name, flags | os.O_NONBLOCK | os.O_CLOEXEC, mode)
        kind = os.fstat(handle).st_mode
        if stat.S_ISREG(kind):
            return handle
        os.close(handle)
        wrong = errno.EISDIR if stat.S_ISDIR(kind) else errno.EINVAL
        raise OSError(wrong, "is no file", str(self.path / name))

    def reader(self, name: str) -> IO[bytes]:
        """Open a file to read. Raises OSError."""
        return os.fdopen(self.open(name), "rb")

    def names(self) -> list[str]:
        """Return the names in the folder. Raises OSError."""
        handle = os.open(".", _LIST, dir_fd=self._handle)
        try:
            return os.listdir(handle)  # noqa: PTH208
        finally:
            os.close(handle)

    def stat(self, name: str) -> os.stat_result:
        """Return what is known of a file, or of a link itself. Raises OSError."""
        return os.stat(_one(name), dir_fd=self._handle, follow_symlinks=False)

    def has(self, name: str) -> bool:
        """Whether there is a file, folder or link of this name. Raises OSError."""
        try:
            self.stat(name)
        except FileNotFoundError:
            return False
        return True

    def rename(self, old: str, new: str) -> None:
        """Rename; what had the new name goes, as far as it can. Raises OSError."""
        os.rename(
            _one(old), _one(new), src_dir_fd=self._handle, dst_dir_fd=self._handle
        )

    def unlink(self, name: str) -> None:
        """Remove a file, or a link itself. Raises OSError."""
        os.unlink(_one(name), dir_fd=self._handle)

    def remove_tree(self, name: str) -> None:
        """Remove a folder with all that is in it. Raises OSError."""
        try:
            shutil.rmtree(_one(name), dir_fd=self._handle)
        except RecursionError:
            words = "folders in it are nested too deeply"
            place = str(self.path / name)
            raise OSError(errno.ENAMETOOLONG, words, place) from None

    def flush(self) -> None:
        """Flush the folder, so that its names survive a power cut. Raises OSError."""
        handle = os.open(".", _LIST, dir_fd=self._handle)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

    @contextlib.contextmanager
    def replacing(self, name: str, *, mode: int = DEFAULT_MODE) -> Iterator[int]:
        """Give the handle of a file that takes this name when the block ends well.

        Raises OSError; then, and where the block fails, what was there stays and
        nothing is left behind.
        """
        aside = f".{name}.{secrets.token_hex(8)}.tmp"
        handle = self.open(aside, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            try:
                yield handle
                os.fchmod(handle, mode)
            finally:
                os.close(handle)
            os.replace(
                aside, _one(name), src_dir_fd=self._handle, dst_dir_fd=self._handle
            )
        except BaseException:
            with contextlib.suppress(OSError):
                self.unlink(aside)
            raise

    def _open(self, name: str, flags: int, mode: int) -> int:
        try:
            return os.open(_one(name), flags | os.O_NOFOLLOW, mode, dir_fd=self._handle)
        except OSError as error:
            number, words = error.errno, error.strerror
            if self._is_link(name):
                number, words = errno.ELOOP, "is a link, and none is followed there"
            raise OSError(number, words, str(self.path / name)) from error

    def _is_link(self, name: str) -> bool:
        try:
            return stat.S_ISLNK(self.stat(name).st_mode)
        except OSError:
            return False


def opened(path: Path, *, root: Path, make: bool = False) -> Folder:
    """Open a folder below a trusted one, or that itself.

    `make`: make both, where they are not there. Raises OSError.
    """
    if make:
        root.mkdir(parents=True, exist_ok=True)
    folder = Folder(root, os.open(root, _STEP))
    for name in path.relative_to(root).parts:
        with folder as above:
            folder = above.made(name, durable=True) if make else above.below(name)
    return folder


def reader(path: Path, *, root: Path) -> IO[bytes]:
    """Open a file below a trusted folder to read. Raises OSError."""
    with opened(path.parent, root=root) as folder:
        return folder.reader(path.name)


def read_text(path: Path, *, root: Path) -> str:
    """Return the text of a file below a trusted folder. Raises OSError, ValueError."""
    with reader(path, root=root) as file:
        return file.read().decode()


def _one(name: str) -> str:
    """Return a name that is one step down. Raises OSError for any other."""
    if name in ("", ".", "..") or "/" in name or "\0" in name:
        raise OSError(errno.EINVAL, "is no name of a file", name)
    return name
