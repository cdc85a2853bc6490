"""Makes writes that a process waits for slow, while a file says by how many seconds.

Put on PYTHONPATH of a job under soak. os.fsync and os.pwrite are what journal and
checkpoints wait for; the file is named by SOAK_SLOW_DISK.
"""

import os
import time

_SWITCH = os.environ.get("SOAK_SLOW_DISK", "")


def _slow(call):
    def slowed(*args, **keywords):
        try:
            with open(_SWITCH) as file:  # noqa: PTH123 - before pathlib is imported
                time.sleep(float(file.read() or 0))
        except OSError:
            pass  # the disk is quick now
        return call(*args, **keywords)

    return slowed


if _SWITCH:
    os.fsync, os.pwrite = _slow(os.fsync), _slow(os.pwrite)
