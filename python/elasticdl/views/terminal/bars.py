"""Bars and sparklines of text, to be told apart without colours too.

Owns their glyphs. Called by the views. Pure.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

SHADES = "█▓▒░"  # of the parts of a bar, the first one first
EMPTY = "·"
_LEVELS = "▁▂▃▄▅▆▇█"


def widths(shares: Sequence[float], width: int) -> list[int]:
    """Return the cells of each share (0 to 1); their sum never exceeds `width`.

    The largest remainders get what rounding down leaves, so that shares that sum to 1
    fill the bar.
    """
    exact = [max(0.0, share) * width for share in shares]
    cells = [math.floor(value) for value in exact]
    left = min(width, round(sum(exact))) - sum(cells)
    by_rest = sorted(range(len(exact)), key=lambda n: cells[n] - exact[n])
    for number in by_rest[: max(0, left)]:
        cells[number] += 1
    return cells


def bar(share: float, width: int) -> str:
    """Return `████····`; a share above 0 is visible, and only 1 fills the bar."""
    share = min(1.0, max(0.0, share))
    cells = math.floor(share * width)
    if share > 0:
        cells = max(1, cells)
    return SHADES[0] * cells + EMPTY * (width - cells)


def spark(values: Sequence[float], width: int) -> str:
    """Return values over time as at most `width` cells, each a mean."""
    if len(values) < 2 or width < 2:
        return ""
    count = min(width, len(values))
    edges = [round(n * len(values) / count) for n in range(count + 1)]
    means = [
        sum(values[start:end]) / (end - start)
        for start, end in itertools.pairwise(edges)
    ]
    low, high = min(means), max(means)
    top = len(_LEVELS) - 1
    span = (high - low) or 1.0
    return "".join(_LEVELS[round((mean - low) / span * top)] for mean in means)
