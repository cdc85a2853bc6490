"""How many processes the kernel has killed because there was no memory left.

Owns where that is counted. Asked by `runner.local.platform` when a process was killed
by nobody known, so that a replica which outgrows the machine counts as a crash: else it
would be started again for ever. Must not know replicas.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

_NAME = "oom_kill"


def counters(
    own: Path = Path("/proc/self/cgroup"), groups: Path = Path("/sys/fs/cgroup")
) -> list[Path]:
    """Return the files with kill counts, the most exact one first.

    That of cgroups v2 counts the processes of this group alone; the machine's counts
    all, and is what is left outside any group and with version 1.
    """
    try:
        of_v2 = re.search(r"^0::/(.*)$", own.read_text(), re.MULTILINE)
    except OSError:  # not Linux
        return []
    found = [groups / of_v2[1] / "memory.events"] if of_v2 else []
    return [*found, Path("/proc/vmstat")]


class OomKills:
    """Tells OOM kills from other kills. The caller holds a lock."""

    def __init__(self, files: Sequence[Path] | None = None) -> None:
        """Start counting in the first of `files` that has a count."""
        self._files = counters() if files is None else files
        self._explained = self._count()

    def explain_one(self) -> bool:
        """Return whether the kernel killed one more process than already explained.

        Where the whole machine is counted that may have been somebody else's: a kill
        by hand after it counts as one crash, which is forgiven.
        """
        if self._count() <= self._explained:
            return False
        self._explained += 1
        return True

    def _count(self) -> int:
        for file in self._files:
            try:
                text = file.read_text()
            except OSError:
                continue
            if found := re.search(rf"^{_NAME} (\d+)$", text, re.MULTILINE):
                return int(found[1])
        return 0
