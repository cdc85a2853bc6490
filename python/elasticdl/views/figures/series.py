"""Arithmetic on a history's samples: rates of counters, medians, scales.

Owns it. Called by the charts of a job. Pure.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise

from elasticdl.job.history import HistorySample

# A worker whose steps take so many times the others' median is a straggler, a PS with
# so many times the mean traffic is hot; alerts and `top` draw the line there too.
OUTLIER = 1.5

Reading = Callable[[HistorySample], float | None]
_BYTES = ((1024.0**3, "GiB"), (1024.0**2, "MiB"), (1024.0, "KiB"), (1.0, "B"))
_SECONDS = ((3600.0, "h"), (60.0, "min"), (1.0, "s"), (0.001, "ms"))


def rates(samples: Sequence[HistorySample], reading: Reading) -> list[float | None]:
    """Return by sample the growth per second of a process's counter.

    None where either of two samples has no value, and first of all. A counter that
    fell began anew: it counts from its process's start.
    """
    result: list[float | None] = [None] * min(1, len(samples))
    for before, after in pairwise(samples):
        old, new = reading(before), reading(after)
        seconds = after.time - before.time
        if old is None or new is None or seconds <= 0:
            result.append(None)
        else:
            result.append((new - old if new >= old else new) / seconds)
    return result


def job_rates(samples: Sequence[HistorySample], reading: Reading) -> list[float | None]:
    """Return the same of a counter of the whole job, which never resets.

    It is lower for a while after a restart of the master, until all replicas have
    reported again: what it grew meanwhile is spread over that time.
    """
    result: list[float | None] = [None] * len(samples)
    good = 0  # the newest sample that is as high as those before it
    for number in range(1, len(samples)):
        old, new = reading(samples[good]), reading(samples[number])
        seconds = samples[number].time - samples[good].time
        if old is None or new is None or new < old or seconds <= 0:
            continue
        since = range(good + 1, number + 1)
        result[good + 1 : number + 1] = [(new - old) / seconds for _ in since]
        good = number
    return result


def total(samples: Sequence[HistorySample], reading: Reading) -> float:
    """Return the total growth of a process's counter, over its restarts."""
    seen = 0.0
    before = 0.0
    for value in filter(None, map(reading, samples)):
        seen += value - before if value >= before else value
        before = value
    return seen


def median(values: Sequence[float | None]) -> float | None:
    """Return the median of the present values; None if there are none."""
    there = [value for value in values if value is not None and math.isfinite(value)]
    return statistics.median(there) if there else None


def above_mean(values: Mapping[str, float]) -> set[str]:
    """Return the names whose value is far above the mean of all."""
    bound = OUTLIER * statistics.fmean(values.values()) if values else 0.0
    return {name for name, value in values.items() if value > bound}


def outliers(values: Mapping[str, float]) -> set[str]:
    """Return the names whose value is far above the median of all others."""
    found = set()
    for name, value in values.items():
        others = [other for key, other in values.items() if key != name]
        if others and value > OUTLIER * statistics.median(others) > 0:
            found.add(name)
    return found


def byte_scale(most: float) -> tuple[float, str]:
    """Return the divisor and unit in which the largest number of bytes reads well."""
    return next((s for s in _BYTES if most >= s[0]), _BYTES[-1])


def second_scale(most: float) -> tuple[float, str]:
    """Return the same for seconds."""
    return next((s for s in _SECONDS if most >= 2 * s[0]), _SECONDS[-1])


def largest(*series: Sequence[float | None]) -> float:
    """Return the largest finite value of several series; 0 if there are none."""
    return max(
        (v for values in series for v in values if v is not None and math.isfinite(v)),
        default=0.0,
    )


def divided(values: Sequence[float | None], by: float) -> list[float | None]:
    """Return the values in another unit."""
    return [None if value is None else value / by for value in values]
