"""How many threads TensorFlow computes in.

Owns reading the limit of the worker's container. Called by `main`, before the model
module is imported, which may start TensorFlow. Must not import it.

TensorFlow makes as many threads as the machine has CPUs. In a container of 2 on a node
of 64 these use up the time of 2 CPUs in a 32nd of each period, and stand still for the
rest.
"""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Mapping, MutableMapping
from pathlib import Path

log = logging.getLogger(__name__)

_CGROUP = Path("/sys/fs/cgroup")
# Both: operations of a backward pass run side by side, each in a thread of the second
# kind, so the first alone would let a step take every core.
_THREADS = ("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS")


def bound_threads(wanted: int, environ: MutableMapping[str, str]) -> None:
    """Limit TensorFlow's threads.

    `wanted`: by the job; 0 is what the environment says, else the limit of CPUs.
    """
    if wanted:
        environ.update(dict.fromkeys(_THREADS, str(wanted)))
        return
    limit = cpu_limit()
    if limit is None:
        return
    for name in _THREADS:
        environ.setdefault(name, str(limit))
    log.info("The container is limited to %d CPUs: so many threads compute", limit)


def inter_op_threads(environ: Mapping[str, str]) -> int:
    """Return in how many threads TensorFlow runs operations side by side."""
    told = environ.get(_THREADS[1], "")
    return (int(told) if told.isdigit() else 0) or len(os.sched_getaffinity(0))


def cpu_limit(cgroup: Path = _CGROUP) -> int | None:
    """Return the CPU limit of this container, rounded up; None without one.

    None too where the limit is no less than what the machine offers the process.
    """
    quota = _version_2(cgroup / "cpu.max") or _version_1(cgroup / "cpu")
    if quota is None:
        return None
    cpus = max(1, math.ceil(quota))
    return cpus if cpus < len(os.sched_getaffinity(0)) else None


def _version_2(path: Path) -> float | None:
    """Return the CPUs in `200000 100000` (quota, period in us); `max`: no limit."""
    words = _words(path)
    if len(words) != 2:
        return None
    return _ratio(*words)


def _version_1(folder: Path) -> float | None:
    quota = _words(folder / "cpu.cfs_quota_us")
    period = _words(folder / "cpu.cfs_period_us")
    if len(quota) != 1 or len(period) != 1:
        return None
    return _ratio(quota[0], period[0])


def _ratio(quota: str, period: str) -> float | None:
    if not (quota.isdigit() and period.isdigit() and int(period)):
        return None  # `max`, or -1
    return int(quota) / int(period)


def _words(path: Path) -> list[str]:
    try:
        return path.read_text().split()
    except OSError:
        return []  # no Linux, or the other version
