"""Makes writes that a process waits for slow, while a file says by how many seconds.

Put on PYTHONPATH of a job under soak. os.fsync and os.pwrite are what journal and
checkpoints wait for; the file is slow-disk in SOAK_DIR.
"""

import os
import time

_FOLDER = os.environ.get("SOAK_DIR", "")
_SWITCH = f"{_FOLDER}/slow-disk"


def _slow(call):
    def slowed(*args, **keywords):
        try:
            with open(_SWITCH) as file:  # noqa: PTH123 - before pathlib is imported
                time.sleep(float(file.read() or 0))
        except OSError:
            pass  # the disk is quick now
        return call(*args, **keywords)

    return slowed


if _FOLDER:
    os.fsync, os.pwrite = _slow(os.fsync), _slow(os.pwrite)
