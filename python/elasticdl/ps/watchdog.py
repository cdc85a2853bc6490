"""Ends a PS whose lock is held for too long: it answers its master, but nobody else.

Owns that limit. Started by ps/main.py on a thread of its own. Knows nothing of what the
lock is held for.

Heartbeats do not take the lock, so that a copy of a large shard is not taken for a
hang; but then a real one has to be found here.
"""

from __future__ import annotations

import threading
from typing import Protocol

# What is done under the lock goes through memory a few times; a push that waits for
# others of its version (rpc/ps_tensors.SYNC_WAIT_SECONDS) counts as well.
_LEAST_SECONDS = 60.0
_SLOWEST_BYTES_PER_SECOND = 20e6
_LOOK_SECONDS = 5.0


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


def check(server: Lockable) -> None:
    """Raise HangError if the lock has been held for longer than any work takes."""
    held = server.held_seconds
    limit = _LEAST_SECONDS + server.nbytes / _SLOWEST_BYTES_PER_SECOND
    if held > limit:
        raise HangError(
            f"the lock of this PS has been held for {held:.0f} s, expected at most "
            f"{limit:.0f} s for its {server.nbytes} bytes; it ends, so that it is "
            "started again"
        )


def watch(server: Lockable, stop: threading.Event) -> None:
    """Check until `stop` is set. Raises HangError, which ends the process."""
    while not stop.wait(_LOOK_SECONDS):
        check(server)
