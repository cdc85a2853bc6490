"""The clock by which a master judges: time in which it ran.

Owns how time in which the whole process stood still is left out. Made once by
`master.serving`; all of a job's limits go by it. Must not know what is judged.

A container that is frozen for a quarter of an hour, or a machine that is moved, loses
nothing: everybody in it goes on where they stopped. But leases would have expired, and
the watchdog would see a job in which nothing moves.
"""

from __future__ import annotations

import time
from collections.abc import Callable

# A master that runs reads its clock about twice a second, to call itself.
_MOST_BETWEEN_READS_SECONDS = 3.0


class RunningClock:
    """Unix seconds that start at the wall clock, and do not jump."""

    def __init__(
        self,
        steady: Callable[[], float] = time.monotonic,
        *,
        wall: Callable[[], float] = time.time,
    ) -> None:
        """Begin at `wall`, and go on as `steady` does, which never goes back."""
        self._steady = steady
        self._read = steady()
        self._began = self._offset = wall() - self._read

    def __call__(self) -> float:
        """Return the time; of a gap since the last call at most a few seconds count."""
        now = self._steady()
        stopped = now - self._read - _MOST_BETWEEN_READS_SECONDS
        if stopped > 0.0:
            self._offset -= stopped
        self._read = now
        return now + self._offset

    @property
    def stopped(self) -> float:
        """Seconds so far that this clock has left out."""
        return self._began - self._offset

    def unix(self) -> float:
        """Return the time as others have it, who did not stand still."""
        return self._steady() + self._began
