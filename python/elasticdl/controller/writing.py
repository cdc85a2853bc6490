"""Which grants are to be written: what a plan changed, and what would soon expire.

Owns that choice. Called by `controller.deciding`. Pure: `now` is an argument.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from elasticdl.controller.jobs import KnownJob, is_foreign
from elasticdl.job.grant import LONGEST_GRANT_SECONDS, Grant
from elasticdl.planner.outcome import Plan
from elasticdl.planner.view import JobKey

# Of a grant's time; what is left is enough for an outage, or for another controller.
_RENEW_AFTER = 1 / 3
# All are renewed within such a part of it; a few at once are nothing to a server.
_RENEWED_WITHIN, _LEAST_RENEWALS = 1 / 4, 5


@dataclass(frozen=True)
class Write:
    """One grant that is to be written."""

    key: JobKey
    uid: str  # of the ConfigMap
    grant: Grant
    cause: str  # changed, renewed


def due_writes(
    plan: Plan,
    jobs: Mapping[JobKey, KnownJob],
    *,
    by: str,
    grant_seconds: float,
    most_renewals: int,
    now: float,
) -> list[Write]:
    """Return the writes, changes before renewals, the most urgent renewals alone."""
    lasts = min(grant_seconds, LONGEST_GRANT_SECONDS)
    changes: list[Write] = []
    renewals: list[tuple[float, Write]] = []
    for key, size in plan.sizes.items():
        known = jobs.get(key)
        if known is None:  # it went while the plan was made
            continue
        old = known.grant
        living = old is not None and old.in_force(now=now)
        if living and old is not None and is_foreign(old, by=by, now=now):
            continue
        leave = tuple(plan.leave.get(key, ()))
        changed = not living or old is None or _differ(old, size, leave)
        is_old = old is not None and (
            old.until - now < (1 - _RENEW_AFTER) * lasts or old.by != by
        )
        if not changed and not is_old:
            continue  # so it is with most
        new = Grant(
            workers=size,
            leave=leave,
            until=now + lasts,
            lasts=lasts,
            by=by,
            why=plan.reasons.get(key, ""),
        )
        if changed or old is None:
            changes.append(Write(key, known.uid, new, "changed"))
        else:
            renewals.append((old.until, Write(key, known.uid, new, "renewed")))
    renewals.sort(key=lambda one: one[0])
    return [*changes, *(one for _, one in renewals[:most_renewals])]


def renewals_at_once(num_jobs: int, *, grant_seconds: float, every: float) -> int:
    """Return how many grants may be renewed at once, if some are `every` so often."""
    part = every / (_RENEWED_WITHIN * min(grant_seconds, LONGEST_GRANT_SECONDS))
    return max(_LEAST_RENEWALS, math.ceil(part * num_jobs))


def foreign_jobs(
    jobs: Mapping[JobKey, KnownJob], *, by: str, now: float
) -> list[JobKey]:
    """Return the jobs that another living controller decides about."""
    return [
        key
        for key, known in jobs.items()
        if known.grant is not None and is_foreign(known.grant, by=by, now=now)
    ]


def _differ(old: Grant, workers: int, leave: tuple[int, ...]) -> bool:
    """Whether a master would do something else; another reason alone can wait."""
    return old.workers != workers or (bool(leave) and old.leave != leave)
