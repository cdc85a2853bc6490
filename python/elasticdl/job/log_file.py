"""The file that roles of a job append what they log to, beside standard error.

Owns how it is opened and what happens where it cannot be written: the job goes on
without. Called by `job.context`. Must not know what is logged. The master of a cluster
has none: it sees the folders of other jobs, and a values file may name any of them.
"""

from __future__ import annotations

import logging
import os
import stat
import sys
from pathlib import Path

_MODE = 0o644  # as other files of a job have it


class LogFile(logging.Handler):
    """Appends each record by one write, so that lines of several roles do not mix."""

    def __init__(self, path: Path) -> None:
        """Open the file, and make it and its folder where there is none.

        Raises OSError. A link is refused: others who write to the folder can put
        one in its place. So is what is no file, such as a pipe, whose
        reader everybody would wait for.
        """
        super().__init__()
        path.parent.mkdir(parents=True, exist_ok=True)
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK
        self._path = path
        self._fd = os.open(path, flags | os.O_CLOEXEC, _MODE)
        self._told = False
        if not stat.S_ISREG(os.fstat(self._fd).st_mode):
            os.close(self._fd)
            raise OSError(0, "it is not a regular file")

    def emit(self, record: logging.LogRecord) -> None:
        """Append one record; a disk that refuses it is told of once."""
        line = f"{self.format(record)}\n".encode(errors="backslashreplace")
        try:
            os.write(self._fd, line)
        except OSError as error:
            if not self._told:
                self._told = True
                sys.stderr.write(f"{cannot_be_written(self._path, error)}\n")

    def close(self) -> None:
        """Close the file."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
        super().close()


def cannot_be_written(path: Path, error: OSError) -> str:
    """Return what to tell of a file that cannot be opened or written."""
    return (
        f"{path}: cannot be written ({error.strerror}): what is logged is not there, "
        "but in the logs of the job's processes; set job.log.file to a file that can be"
    )
