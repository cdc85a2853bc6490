"""The metrics of the platform exporter: what a cluster has, and who holds it.

Owns their names. Filled by `exporter`. Knows nothing of where figures come from.
"""

from __future__ import annotations

from elasticdl.metrics.catalogue import ONE_OR_ZERO, Catalogue, SeriesMetric

CLASSES = ("serving", "training", "other")
JOB = {
    "training_namespace": "of the job; empty for other classes",
    "training_job": "name of the job; empty for other classes",
}
HOLDER = {"class": ", ".join(CLASSES), **JOB}


class ClusterMetrics(Catalogue):
    """The platform exporter's metrics."""

    def __init__(self) -> None:
        """Create the metrics in a new registry."""
        super().__init__()
        self._supply()
        self._demand()
        self.pending_pods = self.series(
            "elasticdl_cluster_pending_pods",
            "Pods of training jobs that are made and do not run, and why.",
            unit="pods",
            labels={**JOB, "reason": "the platform's word: Unschedulable, Starting"},
        )
        self.pending_seconds = self.series(
            "elasticdl_cluster_pending_seconds_total",
            "Seconds that pods of a training job have waited, since this exporter "
            "first saw them, those of running pods included.",
            labels=JOB,
        )
        self.jobs = self.series(
            "elasticdl_cluster_jobs",
            "Batch Jobs of masters, also of jobs that have ended, by what became of "
            "them.",
            unit="Jobs",
            labels={**JOB, "state": "waiting, active, suspended, succeeded, failed"},
        )
        self.masters_running = self.series(
            "elasticdl_cluster_masters_running",
            "Masters that run, of each job whose batch Job has not ended.",
            unit="pods",
            labels=JOB,
        )
        self.up = self.gauge(
            "elasticdl_cluster_api_up",
            "1 while the watches of nodes, pods and Jobs follow the API server; else "
            "the other figures are the last that were known.",
            unit=ONE_OR_ZERO,
        )

    def _supply(self) -> None:
        self.nodes = self.series(
            "elasticdl_cluster_nodes",
            "Nodes by what they can do for pods.",
            unit="nodes",
            labels={"state": "ready, unschedulable (cordoned), notReady"},
        )
        self.allocatable_cpu = self._amount("allocatable_cpu_cores", _SUPPLY)
        self.allocatable_memory = self._amount("allocatable_memory_bytes", _SUPPLY)
        self.allocatable_gpus = self._amount("allocatable_gpus", _SUPPLY, unit="GPUs")

    def _demand(self) -> None:
        self.requested_cpu = self._amount("requested_cpu_cores", _HELD, HOLDER)
        self.requested_memory = self._amount("requested_memory_bytes", _HELD, HOLDER)
        self.requested_gpus = self._amount("requested_gpus", _HELD, HOLDER, unit="GPUs")
        self.used_cpu = self._amount("used_cpu_cores", _USED, HOLDER)
        self.used_memory = self._amount("used_memory_bytes", _USED, HOLDER)

    def _amount(
        self,
        what: str,
        text: str,
        labels: dict[str, str] | None = None,
        *,
        unit: str = "",
    ) -> SeriesMetric:
        return self.series(f"elasticdl_cluster_{what}", text, unit=unit, labels=labels)


_SUPPLY = "What nodes that are ready have for pods, cordoned ones too."
_HELD = "What pods on those nodes have asked for, by class and job."
_USED = "What pods use, by class and job; absent without metrics.k8s.io."
