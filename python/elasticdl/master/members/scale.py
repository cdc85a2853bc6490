"""How many workers, which priority each, and who leaves first: pure arithmetic.

Called by `master.members.membership`, and by whoever has to know how large the job is
to be. Knows nothing of runners or clocks.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from elasticdl.job.spec.job import JobSpec

HIGH = "high"
LOW = "low"


def split_priorities(priority: str, count: int) -> list[str]:
    """Return the priority of each of `count` workers, as `worker.priority` says.

    A name is everybody's. A share f makes ceil(f * count) of them `high`, spread over
    both ends, so that neither the oldest nor the newest are all `low`:
    4 workers at 0.5 are high, low, low, high.
    """
    try:
        share = float(priority)
    except ValueError:
        return [priority] * count
    high = min(count, math.ceil(share * count - 1e-9))
    front = (high + 1) // 2
    back = high - front
    return [
        HIGH if place < front or place >= count - back else LOW
        for place in range(count)
    ]


@dataclass(frozen=True)
class Seat:
    """A present or scheduled worker: the facts that matter for scaling."""

    index: int
    priority: str
    running: bool


@dataclass(frozen=True)
class Resize:
    """The workers to start and to drain."""

    start: tuple[str, ...] = ()  # a priority for each new worker
    drain: tuple[int, ...] = ()  # indexes


def wanted_workers(spec: JobSpec) -> int:
    """Return how many workers the job is to have now, if it does not rest.

    Everybody in the master asks here, so that a size which is decided elsewhere has one
    place to come in.
    """
    return spec.worker.replicas


def resize(seats: Iterable[Seat], *, wanted: int, priority: str) -> Resize:
    """Return which workers to start or drain so that `wanted` workers are there.

    Those that only wait for a machine go first, then low priority before high, the
    newest first. New ones take the priorities that the split lacks.
    """
    seats = list(seats)
    if len(seats) > wanted:
        order = sorted(seats, key=lambda s: (s.running, s.priority == HIGH, -s.index))
        return Resize(drain=tuple(s.index for s in order[: len(seats) - wanted]))
    missing = split_priorities(priority, wanted)
    for seat in seats:
        if seat.priority in missing:
            missing.remove(seat.priority)
        elif missing:
            missing.pop()
    return Resize(start=tuple(missing[: wanted - len(seats)]))
