"""Turns: at which moments which worker calls, so that calls do not come all at once.

Owns the shares of the calls that a master has time for. Called by `master.servicer`.
Pure: `now` is an argument; must not know what a call is about.

Workers that began together, or were told of something together, would call together
ever after: a thousand calls in a moment, the last of which waits for all others, then
seconds without any. So each has a moment of its own in a period, in which it calls
once; from there on it calls once in a period, whenever that is.
"""

from __future__ import annotations

# Of many workers each is heard of more rarely: no more than so many heartbeats a second
# reach the master, and so many calls that lease and report, as far as these can wait.
CALLS_PER_SECOND = 250.0
# Multiples of it lie evenly within a period, whichever numbers in a row workers have.
_APART = 0.6180339887498949
# A period that is longer or shorter by this much is another one.
_OTHER = 0.1


def fair_seconds(workers: int) -> float:
    """Return a worker's share of the master: one call of a kind in so many seconds."""
    return max(1, workers) / CALLS_PER_SECOND


def differ(period: float, before: float) -> bool:
    """Return whether who called in one period has to find its moment in another."""
    return abs(period - before) > _OTHER * period


def seconds_to_turn(
    worker: int, *, period: float, now: float, least: float = 0.0
) -> float:
    """Return how long it is until a worker's next moment that is not sooner.

    That is at most a period more than `least`.
    """
    left = period - (now - worker * _APART * period) % period
    return left if left > least else left + period
