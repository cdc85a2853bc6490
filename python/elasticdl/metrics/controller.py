"""The metrics of a cluster's controller: what it decided, and whether it may.

Owns their names. Filled by `controller`. Knows nothing of where figures come from.
"""

from __future__ import annotations

from elasticdl.metrics.catalogue import ONE_OR_ZERO, Catalogue
from elasticdl.metrics.cluster import JOB

_RESOURCE = {"resource": "cpu, memory, and each extended resource by its name"}


class ControllerMetrics(Catalogue):
    """The controller's metrics."""

    def __init__(self) -> None:
        """Create the metrics in a new registry."""
        super().__init__()
        self.leader = self.gauge(
            "elasticdl_controller_leader",
            "1 for the replica that holds the Lease and decides, else 0.",
            unit=ONE_OR_ZERO,
        )
        self.view_age = self.series(
            "elasticdl_controller_view_age_seconds",
            "Age of what is known of the cluster; nothing is planned from 15 s on.",
        )
        self.plans = self.counter(
            "elasticdl_controller_plans_total", "Plans that were made.", unit="plans"
        )
        self.plan_seconds = self.summary(
            "elasticdl_controller_plan_seconds", "Time that a plan takes."
        )
        self.plan_age = self.series(
            "elasticdl_controller_plan_age_seconds",
            "Time since the leader made a plan or found that the last one holds, or "
            "since it leads; absent from those that wait for the Lease.",
        )
        self.grants_written = self.counter(
            "elasticdl_controller_grants_total",
            "Grants that were written, by why.",
            unit="grants",
            labels={"cause": "changed, renewed"},
        )
        self.write_failures = self.counter(
            "elasticdl_controller_write_failures_total",
            "Grants that the API server refused, or did not answer.",
            unit="grants",
        )
        self.foreign = self.series(
            "elasticdl_controller_foreign_grants",
            "Jobs that another controller decides about, which are left alone.",
            unit="jobs",
            optional=False,
        )
        self._decided()
        for cause in ("changed", "renewed"):
            self.grants_written.labels(cause)

    def _decided(self) -> None:
        self.granted = self.series(
            "elasticdl_controller_workers_granted",
            "Workers that each job is given.",
            unit="workers",
            labels=JOB,
        )
        self.share = self.series(
            "elasticdl_controller_share",
            "Part of the cluster that each job has, of the resource of which it has "
            "most.",
            unit="1",
            labels=JOB,
        )
        self.supply = self.series(
            "elasticdl_controller_supply",
            "What nodes that are ready and not cordoned have for pods, no less than "
            "pods hold there; thousandths of a core, bytes, pieces.",
            unit="the resource's own",
            labels=_RESOURCE,
        )
        self.ceiling = self.series(
            "elasticdl_controller_ceiling",
            "How much of that may be held by pods, as far as workers can be moved.",
            unit="the resource's own",
            labels=_RESOURCE,
        )
        self.held = self.series(
            "elasticdl_controller_held",
            "How much of that pods have asked for.",
            unit="the resource's own",
            labels={**_RESOURCE, "class": "serving, training, other"},
        )
