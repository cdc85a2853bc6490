"""Bytes on their way to the end of a file, while the master does other things.

Owns what waits to be written. Used by `master.telling.history`. Never raises: what a
full disk does not take waits for a while, then it is left out.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from pathlib import Path

from elasticdl.beneath import opened

log = logging.getLogger(__name__)

_MOST_WAITING_BYTES = 1 << 20  # Bounds memory while the disk does not answer.


class Appending:
    """One file that only grows; belongs to an event loop."""

    def __init__(self, path: Path, *, root: Path, ending: bytes = b"") -> None:
        """`root`: the job's folder, below which no link is followed.

        `ending` ends each entry; it is added where an earlier writer left it out.
        """
        self.path = path
        self._root = root
        self._ending = ending
        self._waiting = b""
        self._failed = False

    def add(self, entry: bytes) -> None:
        """Queue an entry."""
        if len(self._waiting) < _MOST_WAITING_BYTES:
            self._waiting += entry + self._ending

    async def write(self) -> bool:
        """Write the queued entries in a thread; return whether the file has grown."""
        taken, self._waiting = self._waiting, b""
        if not taken:
            return False
        loop = asyncio.get_running_loop()
        try:
            await loop.run_in_executor(
                None, lambda: append(self.path, taken, self._ending, root=self._root)
            )
        except OSError as error:
            self._waiting = taken + self._waiting
            if not self._failed:
                log.warning(
                    "%s: cannot be written now (%s); training goes on without it",
                    self.path,
                    error.strerror,
                )
            self._failed = True
            return False
        self._failed = False
        return True


def append(path: Path, data: bytes, ending: bytes = b"", *, root: Path) -> None:
    """Append all of the data or nothing; create the folder. Raises OSError."""
    with opened(path.parent, root=root, make=True) as folder:
        handle = folder.open(path.name, os.O_RDWR | os.O_CREAT | os.O_APPEND)
    with os.fdopen(handle, "ab+", buffering=0) as file:
        before = file.seek(0, os.SEEK_END)
        if before and ending:
            file.seek(before - len(ending))
            if file.read(len(ending)) != ending:
                data = ending + data
        try:
            left = memoryview(data)
            while left:
                left = left[file.write(left) :]
        except OSError:
            with contextlib.suppress(OSError):
                file.truncate(before)
            raise
