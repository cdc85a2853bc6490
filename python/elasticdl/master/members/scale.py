"""How many workers, which priority each, and who leaves first: pure arithmetic.

Called by `master.members.membership`, and by whoever has to know how large the job is
to be. Knows nothing of runners or clocks.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from elasticdl.job.grant import Grant
from elasticdl.job.spec.job import JobSpec

HIGH = "high"
LOW = "low"


def split_priorities(priority: str, count: int) -> list[str]:
    """Return the priority of each of `count` workers, as `worker.priority` says.

    A name is everybody's. A share f makes ceil(f * count) of them `high`, spread over
    both ends, so that neither the oldest nor the newest are all `low`:
    4 workers at 0.5 are high, low, low, high.
    """
    if not re.fullmatch(r"[0-9.]+", priority):
        return [priority] * count
    share = float(priority)
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
    idle: bool = False  # runs, and has nothing to do
    leaves: bool = False  # says that it goes by itself
    has_state: bool = False  # of a model that workers alone have


@dataclass(frozen=True)
class Resize:
    """The workers to start and to drain."""

    start: tuple[str, ...] = ()  # a priority for each new worker
    drain: tuple[int, ...] = ()  # indexes


def wanted_workers(
    spec: JobSpec, grant: Grant | None = None, *, tasks_left: int | None = None
) -> int:
    """Return how many workers the job is to have now, if it does not rest.

    Everybody asks here: `MemberTable.wanted` in the master, and the simulator. The
    user's bounds go before a grant, a grant before `worker.replicas`. `grant` is one
    that has not expired. More workers than `tasks_left` would be of no use: where the
    size is decided for the job, what it cannot use is for others.
    """
    worker = spec.worker
    if grant is None or not worker.takes_part:
        return worker.replicas
    least, most = worker.bounds
    wanted = min(max(grant.workers, least), most)
    return wanted if tasks_left is None else min(wanted, max(tasks_left, least))


def resize(
    seats: Iterable[Seat], *, wanted: int, priority: str, leave: Sequence[int] = ()
) -> Resize:
    """Return which workers to start or drain so that `wanted` workers are there.

    Those that leave by themselves go first, then those named in `leave`, in that order;
    then those that only wait for a machine, those that have yet to get the model from
    others, those without a task, and low priority before high, the newest first. New
    ones take the priorities that the split lacks.
    """
    seats = list(seats)
    if len(seats) > wanted:
        named = {index: place for place, index in enumerate(leave)}
        order = sorted(
            seats,
            key=lambda s: (
                not s.leaves,
                named.get(s.index, len(named)),
                s.running,
                s.has_state,
                not s.idle,
                s.priority == HIGH,
                -s.index,
            ),
        )
        return Resize(drain=tuple(s.index for s in order[: len(seats) - wanted]))
    missing = split_priorities(priority, wanted)
    for seat in seats:
        if seat.priority in missing:
            missing.remove(seat.priority)
        elif missing:
            missing.pop()
    return Resize(start=tuple(missing[: wanted - len(seats)]))
