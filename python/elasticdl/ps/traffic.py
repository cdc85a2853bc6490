"""What a PS uses, and what went through it since its process began.

Owns these sums. Added to by `ps.servicer` in gRPC's threads, read by `ps.control`. Must
not know what the calls do.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass


@dataclass(frozen=True)
class Sums:
    """Sums of tensor bytes, calls, and seconds of calls without transfer."""

    received_bytes: int = 0
    sent_bytes: int = 0
    calls: int = 0
    call_seconds: float = 0.0


class Traffic:
    """Thread-safe sums of a PS's traffic."""

    def __init__(self) -> None:
        """Begin at zero."""
        self._lock = threading.Lock()
        self._sums = Sums()

    def add(
        self,
        *,
        received_bytes: int = 0,
        sent_bytes: int = 0,
        calls: int = 0,
        call_seconds: float = 0.0,
    ) -> None:
        """Add a call, or the bytes of one."""
        with self._lock:
            sums = self._sums
            self._sums = Sums(
                sums.received_bytes + received_bytes,
                sums.sent_bytes + sent_bytes,
                sums.calls + calls,
                sums.call_seconds + call_seconds,
            )

    def sums(self) -> Sums:
        """Return the sums so far."""
        return self._sums


@dataclass(frozen=True)
class Usage:
    """Memory and CPU use of a PS's process."""

    traffic: Traffic
    memory_limit_bytes: int = 0  # at which it is killed; 0: nobody does
