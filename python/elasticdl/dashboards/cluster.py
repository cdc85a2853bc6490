"""The dashboard of a cluster: how full it is, with what, which jobs run and wait.

Owns its panels. Called by `boards`. Utilisation comes from the platform exporter,
which counts the pods of the whole cluster; jobs are those of the variables.
"""

from __future__ import annotations

from elasticdl.dashboards.board import Board, Panel, PanelKind, Query, Row
from elasticdl.dashboards.selectors import of_clusters, of_jobs, rate

_HOLDER = "cluster, class, training_namespace, training_job"
_JOB = "cluster, namespace, training_job"
_RESOURCES = (
    ("CPU", "cpu_cores", "short"),
    ("Memory", "memory_bytes", "bytes"),
    ("GPUs", "gpus", "short"),
)


def _by_class(metric: str) -> str:
    return f"sum by (class) (max by ({_HOLDER}) ({metric}))"


def _allocatable(resource: str) -> str:
    metric = of_clusters(f"elasticdl_cluster_allocatable_{resource}")
    return f"sum(max by (cluster) ({metric}))"


def _requested(resource: str) -> str:
    return of_clusters(f"elasticdl_cluster_requested_{resource}")


def _free(resource: str) -> str:
    held = f"sum(max by ({_HOLDER}) ({_requested(resource)}))"
    return f"{_allocatable(resource)} - ({held} or vector(0))"


def _by_job(expression: str, by: str = _JOB) -> str:
    return f"max by ({by}) ({expression})"


_UTILISATION = Row(
    "Utilisation",
    (
        Panel(
            "How full",
            PanelKind.STAT,
            "Share of the cluster's allocatable CPU that each class of pods asks for, "
            "and what is free.",
            unit="percentunit",
            width=24,
            height=4,
            queries=(
                Query(
                    f"{_by_class(_requested('cpu_cores'))} / on () group_left () "
                    f"({_allocatable('cpu_cores')} > 0)",
                    "{{class}}",
                ),
                Query(
                    f"({_free('cpu_cores')}) / ({_allocatable('cpu_cores')} > 0)",
                    "free",
                ),
            ),
        ),
        *(
            Panel(
                f"{title} by class",
                PanelKind.TIMESERIES,
                f"{title} that pods ask for: serving, training, others; and what is "
                "free of that which nodes have for pods.",
                unit=unit,
                width=8,
                stacked=True,
                queries=(
                    Query(_by_class(_requested(resource)), "{{class}}"),
                    Query(_free(resource), "free"),
                ),
            )
            for title, resource, unit in _RESOURCES
        ),
        Panel(
            "CPU in use",
            PanelKind.TIMESERIES,
            "Cores that pods really use, by class. Empty where the cluster has no "
            "metrics server.",
            unit="short",
            stacked=True,
            queries=(
                Query(
                    _by_class(of_clusters("elasticdl_cluster_used_cpu_cores")),
                    "{{class}}",
                ),
            ),
        ),
        Panel(
            "Memory in use",
            PanelKind.TIMESERIES,
            "Memory that pods really use, by class. Empty where the cluster has no "
            "metrics server.",
            unit="bytes",
            stacked=True,
            queries=(
                Query(
                    _by_class(of_clusters("elasticdl_cluster_used_memory_bytes")),
                    "{{class}}",
                ),
            ),
        ),
    ),
)

_HOLDERS = Row(
    "Who holds what",
    (
        Panel(
            "Who holds what",
            PanelKind.TABLE,
            "What pods ask for, by class, and of training by job.",
            width=24,
            columns=(
                ("class", "class"),
                ("training_namespace", "namespace"),
                ("training_job", "job"),
            ),
            queries=tuple(
                Query(f"max by ({_HOLDER}) ({_requested(resource)})", title, unit=unit)
                for title, resource, unit in _RESOURCES
            ),
        ),
    ),
)

_RECORDS = (
    f"{_by_job(of_jobs('elasticdl_job_records_done'))}"
    f" / ({_by_job(of_jobs('elasticdl_job_records_wanted'))} > 0)"
)
_JOBS = Row(
    "Jobs",
    (
        Panel(
            "Jobs",
            PanelKind.TABLE,
            "Every job that is scraped: its state, workers, progress, loss, and "
            "goodput since it began.",
            width=24,
            columns=(
                ("namespace", "namespace"),
                ("training_job", "job"),
                ("state", "state"),
            ),
            queries=(
                Query(
                    f"sum by ({_JOB}) ("
                    + of_jobs(
                        "elasticdl_replicas", replica_role="worker", state="running"
                    )
                    + f") or {_by_job(of_jobs('elasticdl_workers_wanted'))} * 0",
                    "workers",
                    unit="short",
                ),
                Query(
                    _by_job(of_jobs("elasticdl_workers_wanted")), "wanted", unit="short"
                ),
                Query(_RECORDS, "progress", unit="percentunit"),
                Query(
                    f"min by ({_JOB}) ({of_jobs('elasticdl_job_eta_seconds')})",
                    "ends in",
                    unit="s",
                ),
                Query(_by_job(of_jobs("elasticdl_job_loss")), "loss", unit="short"),
                Query(
                    f"sum by ({_JOB}) ("
                    + of_jobs("elasticdl_goodput_seconds_total", cause="train")
                    + f") / sum by ({_JOB}) ("
                    + of_jobs("elasticdl_goodput_seconds_total")
                    + ")",
                    "goodput",
                    unit="percentunit",
                ),
                Query(
                    _by_job(of_jobs("elasticdl_job_state") + " == 1", f"{_JOB}, state"),
                ),
            ),
        ),
    ),
)

_WAITING = Row(
    "Waiting",
    (
        Panel(
            "Pending pods",
            PanelKind.TABLE,
            "Pods of training jobs that have no node, and why.",
            unit="short",
            columns=(
                ("training_namespace", "namespace"),
                ("training_job", "job"),
                ("reason", "reason"),
            ),
            queries=(
                Query(
                    "max by (cluster, training_namespace, training_job, reason) ("
                    + of_clusters("elasticdl_cluster_pending_pods")
                    + ") > 0",
                    "pods",
                ),
            ),
        ),
        Panel(
            "Pods waiting over time",
            PanelKind.TIMESERIES,
            "Pending pods of each job: pending seconds per second.",
            unit="short",
            stacked=True,
            queries=(
                Query(
                    "max by (training_namespace, training_job) ("
                    + rate(of_clusters("elasticdl_cluster_pending_seconds_total"))
                    + ")",
                    "{{training_job}}",
                ),
            ),
        ),
    ),
)

_PREEMPTION = Row(
    "Preemption",
    (
        Panel(
            "Preemptions so far",
            PanelKind.TIMESERIES,
            "Workers and parameter servers of each job that had to give way.",
            unit="short",
            steps=True,
            queries=(
                Query(
                    f"sum by (training_job) ({of_jobs('elasticdl_preemptions_total')})",
                    "{{training_job}}",
                ),
            ),
        ),
        Panel(
            "Preemptions and capacity taken back",
            PanelKind.TIMESERIES,
            "All jobs together: workers preempted so far, workers away for that, and "
            "workers running. What is away comes back as soon as there is room.",
            unit="short",
            queries=(
                Query(
                    "sum("
                    + of_jobs("elasticdl_preemptions_total", replica_role="worker")
                    + ")",
                    "preempted so far",
                ),
                Query(
                    "sum("
                    + rate(
                        of_jobs("elasticdl_goodput_seconds_total", cause="preempted")
                    )
                    + f") or sum({of_jobs('elasticdl_goodput_seconds_total')}) * 0",
                    "away now",
                ),
                Query(
                    "sum("
                    + of_jobs(
                        "elasticdl_replicas", replica_role="worker", state="running"
                    )
                    + f") or sum({of_jobs('elasticdl_workers_wanted')}) * 0",
                    "running",
                ),
            ),
        ),
    ),
)

BOARD = Board(
    uid="elasticdl-cluster",
    title="ElasticDL / Cluster",
    description="How full the cluster is, with what, and which jobs run and wait.",
    rows=(_UTILISATION, _JOBS, _HOLDERS, _WAITING, _PREEMPTION),
    many_jobs=True,
)
