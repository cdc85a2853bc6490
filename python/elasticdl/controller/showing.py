"""Sets the controller's metrics from a plan.

Owns which figure of a plan is which metric. Called by `controller.deciding`. Pure but
for the metrics.
"""

from __future__ import annotations

from elasticdl.metrics.registry import ControllerMetrics
from elasticdl.planner.outcome import Plan


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
