"""Positioned reads from many files through a bounded number of open ones.

Owns file descriptors. Called by the readers of single files. Knows no format.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from elasticdl.errors import DataError


@dataclass
class _Open:
    fd: int
    users: int = 0


class FilePool:
    """Opens files when they are read and closes the longest unused. Thread-safe.

    One that nobody holds any more closes all: no reader of records knows its last use.
    """

    def __init__(self, most_open: int = 64) -> None:
        """Keep at most `most_open` files open (more only while all are being read)."""
        self._most_open = most_open
        self._lock = threading.Lock()
        self._open: OrderedDict[Path, _Open] = OrderedDict()

    @property
    def num_open(self) -> int:
        """Files open now."""
        return len(self._open)

    def pread(self, path: Path, offset: int, length: int) -> bytes:
        """Return bytes [offset, offset + length), fewer at the end of the file.

        Raises DataError if the file cannot be opened or read.
        """
        try:
            with self._use(path) as fd:
                data = os.pread(fd, length, offset)
                if len(data) == length:
                    return data
                # One call returns at most 2 GiB on Linux, and less where it pleases.
                parts = [data]
                done = len(data)
                while data and done < length:
                    data = os.pread(fd, length - done, offset + done)
                    parts.append(data)
                    done += len(data)
                return b"".join(parts)
        except OSError as error:
            raise DataError(
                f"{path}: cannot be read: {error.strerror}; check that the file is "
                "there and that this user may read it"
            ) from error

    def close(self) -> None:
        """Close every file that nobody is reading."""
        with self._lock:
            self._close_unused(0)

    def __del__(self) -> None:
        self.close()

    @contextmanager
    def _use(self, path: Path) -> Iterator[int]:
        with self._lock:
            entry = self._open.get(path)
            if entry is None:
                entry = _Open(os.open(path, os.O_RDONLY | os.O_CLOEXEC))
                self._open[path] = entry
            entry.users += 1
            self._open.move_to_end(path)
            self._close_unused(self._most_open)
        try:
            yield entry.fd
        finally:
            with self._lock:
                entry.users -= 1

    def _close_unused(self, keep: int) -> None:
        for path in [path for path, entry in self._open.items() if not entry.users]:
            if len(self._open) <= keep:
                return
            os.close(self._open.pop(path).fd)
