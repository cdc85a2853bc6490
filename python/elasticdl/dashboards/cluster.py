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

_GRANTED = (
    f"max by ({_JOB}) (label_replace("
    + of_clusters("elasticdl_controller_workers_granted")
    + ', "namespace", "$1", "training_namespace", "(.+)"))'
)


def _of_resource(metric: str, besides: str = "") -> str:
    by = "cluster, resource" + besides
    return f"sum by (resource) (max by ({by}) ({of_clusters(metric)}))"


_SIZES = Row(
    "Sizes that the controller decides",
    (
        Panel(
            "Granted workers",
            PanelKind.TABLE,
            "Workers that each job is given, its bounds, and its part of the cluster. "
            "Empty where nobody decides sizes.",
            columns=(("namespace", "namespace"), ("training_job", "job")),
            queries=(
                Query(_by_job(of_jobs("elasticdl_workers_min")), "min", unit="short"),
                Query(_GRANTED, "granted", unit="short"),
                Query(_by_job(of_jobs("elasticdl_workers_max")), "max", unit="short"),
                Query(
                    f"max by ({_JOB}) (label_replace("
                    + of_clusters("elasticdl_controller_share")
                    + ', "namespace", "$1", "training_namespace", "(.+)"))',
                    "share",
                    unit="percentunit",
                ),
            ),
        ),
        Panel(
            "Granted workers over time",
            PanelKind.TIMESERIES,
            "Workers that each job is given.",
            unit="short",
            stacked=True,
            steps=True,
            queries=(Query(f"sum by (training_job) ({_GRANTED})", "{{training_job}}"),),
        ),
        Panel(
            "Use and ceiling",
            PanelKind.TIMESERIES,
            "Part of the supply that pods hold, and up to which workers are added.",
            unit="percentunit",
            width=8,
            queries=(
                Query(
                    f"{_of_resource('elasticdl_controller_held', ', class')} / "
                    f"({_of_resource('elasticdl_controller_supply')} > 0)",
                    "{{resource}}",
                ),
                Query(
                    f"{_of_resource('elasticdl_controller_ceiling')} / "
                    f"({_of_resource('elasticdl_controller_supply')} > 0)",
                    "ceiling of {{resource}}",
                ),
            ),
        ),
        Panel(
            "Age of plan and view",
            PanelKind.TIMESERIES,
            "Time since the leader's newest plan, and age of what it knows of the "
            "cluster. One is made every 5 s, none on a view of 15 s.",
            unit="s",
            width=8,
            queries=(
                Query(
                    f"max({of_clusters('elasticdl_controller_plan_age_seconds')})",
                    "plan",
                ),
                Query(
                    f"min({of_clusters('elasticdl_controller_view_age_seconds')})",
                    "view",
                ),
            ),
        ),
        Panel(
            "Grants",
            PanelKind.TIMESERIES,
            "Grants that are written per second, by cause, and those that the API "
            "server refuses.",
            unit="short",
            width=8,
            queries=(
                Query(
                    "sum by (cause) ("
                    + rate(of_clusters("elasticdl_controller_grants_total"))
                    + ")",
                    "{{cause}}",
                ),
                Query(
                    "sum("
                    + rate(of_clusters("elasticdl_controller_write_failures_total"))
                    + ")",
                    "refused",
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
    rows=(_UTILISATION, _JOBS, _SIZES, _HOLDERS, _WAITING, _PREEMPTION),
    many_jobs=True,
)
