"""Pauses between tries that grow: twice as long after each failure, up to a bound.

Owns how they grow. Called by whatever tries again. Pure.
"""

from __future__ import annotations

# Two to the power of more would be no float.
_MOST_DOUBLINGS = 64


def growing(tries: int, *, first: float, most: float, share: float = 0.0) -> float:
    """Return the seconds to wait after failed try number `tries` (from 0).

    Doubles from `first` up to `most`; `share` in [0, 1) takes away up to half, so that
    a thousand callers do not come back in the same instant.
    """
    whole: float = min(most, first * 2.0 ** min(tries, _MOST_DOUBLINGS))
    return whole * (1.0 - share / 2.0)
