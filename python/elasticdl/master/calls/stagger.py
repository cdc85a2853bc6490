"""When each of many workers calls, so that they do not all call at once.

Owns each worker's place in a cycle. Called by `master.calls.servicer`, which tells
workers how long a call is held and how long they may wait until the next one. Pure:
`now` is an argument.

A thousand workers that were started together call together, for as long as they live:
the last of them waits until all the others are answered. Each alone would cost the
master more: a write of the journal and a turn of the loop serve whoever is there.
"""

from __future__ import annotations

# Multiples of it, less their whole parts, lie evenly in 0 to 1 however many there are.
_GOLDEN = 0.6180339887498949
_PLACES = 5  # in a cycle; 16 took 0.58 cores of a master of 1,000 workers, these 0.47
# In a cycle that is shorter nobody waits for anybody.
_SHORTEST_SECONDS = 1.0


def until_place(
    worker: int, *, cycle_seconds: float, now: float, at_least: float
) -> float:
    """Return the seconds until a worker's next turn in the cycle.

    They are `at_least` so much of a cycle, and less than one more than that; a cycle
    that is short is returned as it is.
    """
    if cycle_seconds < _SHORTEST_SECONDS:
        return cycle_seconds
    place = int(worker * _GOLDEN % 1.0 * _PLACES) / _PLACES
    left = (place - now / cycle_seconds) % 1.0
    if left < at_least:
        left += 1.0
    return left * cycle_seconds
