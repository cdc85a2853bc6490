"""Sets the controller's metrics from a plan.

Owns which figure of a plan is which metric, and what one that does not lead shows.
Called by `controller.deciding`. Pure but for the metrics.
"""

from __future__ import annotations

from elasticdl.metrics.registry import ControllerMetrics
from elasticdl.planner.outcome import Plan


class PlanAge:
    """How old the newest plan is of one that leads."""

    def __init__(self) -> None:
        """Begin as one that does not lead."""
        self._since: float | None = None

    def planned(self, now: float) -> None:
        """Note a plan."""
        self._since = now

    def seconds(self, now: float, *, leads: bool) -> float | None:
        """Return its age, from the beginning of leading on; None without the Lease."""
        if not leads:
            self._since = None
            return None
        if self._since is None:
            self._since = now
        return max(0.0, now - self._since)


def hide(metrics: ControllerMetrics) -> None:
    """Take away what was decided: it is for the one that leads now to say."""
    for one in (
        *(metrics.granted, metrics.share, metrics.supply),
        *(metrics.ceiling, metrics.held),
    ):
        one.set({})


def show(metrics: ControllerMetrics, made: Plan, num_foreign: int) -> None:
    """Set the metrics to what was decided."""
    jobs = made.summary.jobs
    metrics.foreign.set_one(num_foreign)
    metrics.granted.set({tuple(key): size for key, size in made.sizes.items()})
    metrics.share.set({tuple(one.key): one.share for one in jobs})
    held = made.summary.holdings
    metrics.supply.set_by({one.resource: one.supply for one in held})
    metrics.ceiling.set_by({one.resource: one.limit for one in held})
    metrics.held.set(
        {
            (one.resource, kind): amount
            for one in held
            for kind, amount in (
                ("serving", one.serving),
                ("training", one.training),
                ("other", one.other),
            )
        }
    )
