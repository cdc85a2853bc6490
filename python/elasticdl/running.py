"""Time in which this process ran: what a limit is counted by.

Owns how time in which the whole process stood still is left out. A master, a PS and a
worker each have one such clock, and judge hangs, silence and leases by it. Must not
know what is judged.

A container that is frozen for a quarter of an hour, or a machine that is moved, loses
nothing: everybody in it goes on where they stopped. But leases would have expired, a
batch under way would seem to hang, and the watchdog would see a job in which nothing
moves.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

# Whoever has a clock reads it more often than that, as long as the process runs: a
# master calls itself, the others have `keep_reading`.
_MOST_BETWEEN_READS_SECONDS = 3.0
_READ_SECONDS = 1.0


class RunningClock:
    """Unix seconds that start at the wall clock, and do not jump. Thread-safe."""

    def __init__(
        self,
        steady: Callable[[], float] = time.monotonic,
        *,
        wall: Callable[[], float] = time.time,
    ) -> None:
        """Begin at `wall`, and go on as `steady` does, which never goes back."""
        self._steady = steady
        self._lock = threading.Lock()
        self._read = steady()
        self._began = self._offset = wall() - self._read

    def __call__(self) -> float:
        """Return the time; of a gap since the last call at most a few seconds count."""
        with self._lock:
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


def keep_reading(clock: RunningClock) -> RunningClock:
    """Read a clock from a thread as long as this process runs; return it."""

    def read() -> None:
        while True:
            clock()
            time.sleep(_READ_SECONDS)

    threading.Thread(target=read, name="clock", daemon=True).start()
    return clock
