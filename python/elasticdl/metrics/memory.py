"""How much memory a container may use, as the kernel that kills it has it.

Owns where that is written. Asked by PS and workers in pods; on a bare machine the files
tell of everything that runs there, which is no limit of one process.
"""

from __future__ import annotations

from pathlib import Path

_CGROUP = Path("/sys/fs/cgroup")
# Of cgroups v2 and v1, from inside the container.
_FILES = ("memory.max", "memory/memory.limit_in_bytes")
# Version 1 has no word for "no limit": it shows the largest number of pages.
_NO_LIMIT = 1 << 60


def container_limit_bytes(cgroup: Path = _CGROUP) -> int:
    """Return the container's memory limit in bytes; 0 if there is none."""
    for name in _FILES:
        try:
            text = (cgroup / name).read_text().strip()
        except OSError:
            continue
        limit = int(text) if text.isdigit() else 0
        return limit if limit < _NO_LIMIT else 0
    return 0
