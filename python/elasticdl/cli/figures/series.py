"""Arithmetic on a history's samples: rates of counters, medians, scales.

Owns it. Called by the charts of a job. Pure.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise

from elasticdl.job.history import Sample

# A worker, or a PS, is told apart from the others when it takes so much more.
OUTLIER = 1.5

Reading = Callable[[Sample], float | None]
_BYTES = ((1024.0**3, "GiB"), (1024.0**2, "MiB"), (1024.0, "KiB"), (1.0, "B"))
_SECONDS = ((3600.0, "h"), (60.0, "min"), (1.0, "s"), (0.001, "ms"))


def rates(
    samples: Sequence[Sample], reading: Reading, *, of_process: bool = False
) -> list[float | None]:
    """Return how fast a counter grew up to each sample, per second.

    None where either of two samples has no value, and first of all. A counter that
    fell is one that began anew (`of_process`: it counts from its process's start), or
    one that a restarted master took up a little earlier: then nothing was added.
    """
    result: list[float | None] = [None] * min(1, len(samples))
    for before, after in pairwise(samples):
        old, new = reading(before), reading(after)
        seconds = after.time - before.time
        if old is None or new is None or seconds <= 0:
            result.append(None)
            continue
        grown = new - old
        if grown < 0:
            grown = new if of_process else 0.0
        result.append(grown / seconds)
    return result


def total(samples: Sequence[Sample], reading: Reading) -> float:
    """Return how much a counter of a process grew in all, over its restarts too."""
    seen = 0.0
    before = 0.0
    for value in filter(None, map(reading, samples)):
        seen += value - before if value >= before else value
        before = value
    return seen


def median(values: Sequence[float | None]) -> float | None:
    """Return the median of what is there; None of nothing."""
    there = [value for value in values if value is not None and math.isfinite(value)]
    return statistics.median(there) if there else None


def outliers(values: Mapping[str, float]) -> set[str]:
    """Return whose value is far above the median of all others."""
    found = set()
    for name, value in values.items():
        others = [other for key, other in values.items() if key != name]
        if others and value > OUTLIER * statistics.median(others) > 0:
            found.add(name)
    return found


def byte_scale(most: float) -> tuple[float, str]:
    """Return what to divide bytes by so that the largest reads well, and its unit."""
    return next((s for s in _BYTES if most >= s[0]), _BYTES[-1])


def second_scale(most: float) -> tuple[float, str]:
    """Return the same for seconds."""
    return next((s for s in _SECONDS if most >= 2 * s[0]), _SECONDS[-1])


def largest(*series: Sequence[float | None]) -> float:
    """Return the largest finite value of several series, 0 of nothing."""
    return max(
        (v for values in series for v in values if v is not None and math.isfinite(v)),
        default=0.0,
    )


def divided(values: Sequence[float | None], by: float) -> list[float | None]:
    """Return the values in another unit."""
    return [None if value is None else value / by for value in values]
