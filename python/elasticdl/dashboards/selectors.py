"""Series as dashboards select them: by `cluster`, `namespace` and `job`.

Owns the labels of Prometheus' targets (docs/monitoring.md). Called by the modules of
the dashboards. Must not know which metrics there are.
"""

from __future__ import annotations

NAMESPACE = "namespace"
JOB = "training_job"
# Empty where Prometheus has one cluster alone, which the pattern of all of them fits.
CLUSTER = "cluster"


def of_job(metric: str, besides: str = "", **labels: str) -> str:
    """Return the selector of a metric for the selected job.

    `besides`: one more matcher, as `cause!="joined"`.
    """
    selector = _selector(metric, "=", labels)
    return f"{selector[:-1]},{besides}}}" if besides else selector


def of_jobs(metric: str, **labels: str) -> str:
    """Return the selector of a metric for all selected jobs."""
    return _selector(metric, "=~", labels)


def of_clusters(metric: str) -> str:
    """Return the selector of a metric from the exporters of the selected clusters."""
    return f'{metric}{{{CLUSTER}=~"$cluster"}}'


def _selector(metric: str, equals: str, labels: dict[str, str]) -> str:
    parts = [f'{CLUSTER}=~"$cluster"']
    parts += [f'{NAMESPACE}{equals}"$namespace"', f'{JOB}{equals}"$job"']
    parts += [f'{name}="{value}"' for name, value in labels.items()]
    return f"{metric}{{{','.join(parts)}}}"


def rate(series: str) -> str:
    """Return a counter's growth per second over the shortest window that has points."""
    return f"rate({series}[$__rate_interval])"


def quantile(share: float, histogram: str, by: str = "") -> str:
    """Return a quantile of a job's histogram over the recent past, by labels.

    Nothing, not NaN, where nothing was observed meanwhile.
    """
    labels = f"le, {by}" if by else "le"
    buckets = f"sum by ({labels}) ({rate(of_job(f'{histogram}_bucket'))})"
    return f"histogram_quantile({share}, {buckets}) >= 0"


def mean(histogram: str, by: str, **labels: str) -> str:
    """Return the mean of a job's histogram over the recent past, by a label.

    Nothing, not NaN, where nothing was observed meanwhile.
    """
    total = f"sum by ({by}) ({rate(of_job(f'{histogram}_sum', **labels))})"
    count = f"sum by ({by}) ({rate(of_job(f'{histogram}_count', **labels))})"
    return f"{total} / ({count} > 0)"
