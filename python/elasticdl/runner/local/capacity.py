"""Which workers run on the CPUs there are: the local platform's scheduler.

Owns the decision who starts, who is preempted and who waits, as a kubelet and a
scheduler take it in a cluster. Called by `runner.local.platform` after every change.
Pure: must not know processes or time.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

_ROUNDING = 1e-9  # tenths of a CPU do not add up exactly


class ClaimState(enum.Enum):
    """Whether a claim holds CPUs now."""

    WAITING = "waiting"
    RUNNING = "running"
    LEAVING = "leaving"  # told to end, holds its CPUs until it has


@dataclass(frozen=True)
class Claim:
    """A worker that wants or holds CPUs."""

    key: int
    cpu: float
    rank: int  # of its priority; higher goes first
    age: int  # order of arrival; lower is older
    holding: ClaimState


@dataclass(frozen=True)
class CapacityPlan:
    """The replicas to start, preempt and resume. A key in none stays as it is."""

    start: tuple[int, ...]
    preempt: tuple[int, ...]
    waiting: Mapping[int, str]  # key -> why


def rank_of(priority: str) -> int:
    """Return the rank of a worker's priority; `high` comes first."""
    return 1 if priority == "high" else 0


def plan(claims: Iterable[Claim], capacity: float | None) -> CapacityPlan:
    """Return who gets CPUs, by priority and then age; `None` is no limit.

    A running worker is preempted only for a smaller capacity or a higher priority,
    never for an older worker of its own priority. Freed CPUs are given away when the
    process that held them has ended, not before.
    """
    claims = list(claims)
    live = [claim for claim in claims if claim.holding is not ClaimState.LEAVING]
    live.sort(key=lambda c: (-c.rank, c.holding is not ClaimState.RUNNING, c.age))
    admitted = _admit(live, capacity)
    preempt = tuple(
        claim.key
        for claim in live
        if claim.holding is ClaimState.RUNNING and claim.key not in admitted
    )
    used = sum(claim.cpu for claim in claims if claim.holding is not ClaimState.WAITING)
    start: list[int] = []
    waiting: dict[int, str] = {}
    for claim in live:
        if claim.holding is not ClaimState.WAITING:
            continue
        if claim.key in admitted and _fits(used + claim.cpu, capacity):
            start.append(claim.key)
            used += claim.cpu
        else:
            waiting[claim.key] = ""
    reason = f"waiting for CPU: {used:g} of {capacity or 0:g} in use"
    return CapacityPlan(tuple(start), preempt, dict.fromkeys(waiting, reason))


def _admit(ordered: Iterable[Claim], capacity: float | None) -> set[int]:
    admitted: set[int] = set()
    given = 0.0
    for claim in ordered:
        if _fits(given + claim.cpu, capacity):
            admitted.add(claim.key)
            given += claim.cpu
    return admitted


def _fits(cpu: float, capacity: float | None) -> bool:
    return capacity is None or cpu <= capacity + _ROUNDING
