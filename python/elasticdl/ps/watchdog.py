"""Ends a PS whose lock is held for too long: it answers its master, but nobody else.

Owns that limit. Started by ps/main.py on a thread of its own. Knows nothing of what the
lock is held for.

Heartbeats do not take the lock, so that a copy of a large shard is not taken for a
hang; but then a real one has to be found here.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Protocol

# What is done under the lock goes through memory a few times; a push that waits for
# others of its version (rpc/ps_tensors.SYNC_WAIT_SECONDS) counts as well.
_LEAST_SECONDS = 60.0
_SLOWEST_BYTES_PER_SECOND = 20e6
_LOOK_SECONDS = 5.0
# A look may be so much later before the process counts as stopped meanwhile.
_LATE_SECONDS = 1.0


class Lockable(Protocol):
    """The part of a server that the watchdog observes."""

    @property
    def held_seconds(self) -> float:
        """For how long the lock has been held; 0 when it is free."""

    @property
    def nbytes(self) -> int:
        """Bytes that the lock guards."""


class HangError(RuntimeError):
    """A thread of this process is stuck."""


def check(server: Lockable, stopped: float = 0.0) -> None:
    """Raise HangError if the lock has been held for longer than any work takes.

    `stopped`: seconds of that in which the whole process stood still.
    """
    held = server.held_seconds - stopped
    limit = _LEAST_SECONDS + server.nbytes / _SLOWEST_BYTES_PER_SECOND
    if held > limit:
        raise HangError(
            f"the lock of this PS has been held for {held:.0f} s, expected at most "
            f"{limit:.0f} s for its {server.nbytes} bytes; it ends, so that it is "
            "started again"
        )


def watch(
    server: Lockable,
    stop: threading.Event,
    *,
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Check until `stop` is set. Raises HangError, which ends the process.

    Whoever holds the lock while a container is frozen goes on with it afterwards.
    """
    stopped = 0.0
    looked = clock()
    while not stop.wait(_LOOK_SECONDS):
        now = clock()
        stopped += max(0.0, now - looked - _LOOK_SECONDS - _LATE_SECONDS)
        looked = now
        if server.held_seconds < stopped:
            stopped = 0.0  # it is held by a later call
        check(server, stopped)
