"""Whether the master hears what is said to it: only then is anybody's silence his own.

Owns the measure. The master calls itself, through its own port: such a call stands in
the same line as everybody's, so that as long as it comes through soon, whoever is not
heard does not speak. The loop asks here before it counts a replica as silent. Pure:
`now` is an argument; must not know who is silent.

A process that was stopped, a loop that is busy and sockets that nobody reads all look
the same from here: the call comes back late.
"""

from __future__ import annotations

# A pause between two calls of the master to itself: each costs milliseconds of a CPU.
PAUSE_SECONDS = 0.5
# The time after one of them counts so long, whether the next one comes through or not.
_COUNTED_SECONDS = 1.0


class Attention:
    """How long the master has received no calls, its own included."""

    def __init__(self, *, now: float) -> None:
        """Start listening."""
        self._heard = now
        self._stopped = 0.0

    def heard(self, *, now: float, stopped: float = 0.0) -> float:
        """Note a call; return the seconds of silence that are the master's own.

        `stopped`: seconds so far that `now` leaves out, since the master stood still.
        Nobody could reach it then either.
        """
        deaf = self._deaf(now) + stopped - self._stopped
        self._heard, self._stopped = now, stopped
        return deaf

    def behind(self, *, now: float) -> bool:
        """Whether calls may be queued that the master has not answered yet."""
        return self._deaf(now) > 0.0

    def _deaf(self, now: float) -> float:
        return max(0.0, now - self._heard - _COUNTED_SECONDS)
