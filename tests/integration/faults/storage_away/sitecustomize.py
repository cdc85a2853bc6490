"""Makes storage refuse reads and writes, as a file server that moves, by a switch.

Put on PYTHONPATH of a job under test. While the file named by STORAGE_AWAY names a
role, the calls by which it reads records, or writes journal and checkpoints, fail.
"""

import errno
import os

_SWITCH = os.environ.get("STORAGE_AWAY", "")
_ROLE = os.environ.get("ELASTICDL_ROLE", "")


def _away(call):
    def refused(*args, **keywords):
        try:
            with open(_SWITCH) as file:  # noqa: PTH123 - before pathlib is imported
                away = _ROLE in file.read().split()
        except OSError:
            away = False  # all have their storage
        if away:
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))
        return call(*args, **keywords)

    return refused


if _SWITCH and _ROLE:
    os.pread, os.pwrite, os.fsync = map(_away, (os.pread, os.pwrite, os.fsync))
