"""Every Prometheus metric of ElasticDL, by what shows it.

Owns the list of roles: dashboards, alerts, docs/metrics.md and tests are written
against these names. Each process makes one of these classes. Knows nothing of where
figures come from.
"""

from __future__ import annotations

from collections.abc import Mapping

from elasticdl.metrics.catalogue import Catalogue
from elasticdl.metrics.cluster import ClusterMetrics
from elasticdl.metrics.controller import ControllerMetrics
from elasticdl.metrics.master import MasterMetrics
from elasticdl.metrics.ps import PsMetrics
from elasticdl.metrics.worker import WorkerMetrics

ROLES: Mapping[str, type[Catalogue]] = {
    "master": MasterMetrics,
    "ps": PsMetrics,
    "worker": WorkerMetrics,
    "exporter": ClusterMetrics,
    "controller": ControllerMetrics,
}

__all__ = [
    "ROLES",
    "ClusterMetrics",
    "ControllerMetrics",
    "MasterMetrics",
    "PsMetrics",
    "WorkerMetrics",
]
