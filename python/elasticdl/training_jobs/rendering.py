"""What the chart makes of a job, by Helm and without a cluster.

Owns the values that Helm is given, and what it says against them. Called by
`training_jobs.controller`, in a thread: it takes up to a second.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from elasticdl.client.cluster import chart as charts
from elasticdl.client.cluster.api import ClusterClient, Where
from elasticdl.client.cluster.helm import Helm, HelmStuckError
from elasticdl.client.cluster.submit import (
    chart_values,
    chart_words,
    missing_needs,
)
from elasticdl.errors import PlatformError, SpecError
from elasticdl.training_jobs.resource import Json, TrainingJob
from elasticdl.training_jobs.verdicts import Reason, Refused, Submit


@dataclass(frozen=True)
class Renderer:
    """The chart of this version, rendered by Helm."""

    helm: Helm
    chart: Path
    cluster: ClusterClient

    def render(self, job: TrainingJob, wanted: Submit) -> list[Json] | Refused:
        """Return the objects of a job, or why there are none.

        Raises ClusterError where the cluster does not answer.
        """
        says = wanted.platform
        values = chart_values(wanted.values)
        values["jobs"] = {"defaults": says.defaults, "fixed": list(says.fixed)}
        where = Where("", job.namespace)
        try:
            text = self.helm.render(self.chart, job.name, where, values)
        except HelmStuckError as error:
            return Refused(Reason.NOT_RENDERED, f"{error}; it is tried again later")
        except (SpecError, PlatformError) as error:
            return Refused(Reason.INVALID, chart_words(error))
        objects = charts.manifests(text)
        missing = missing_needs(self.cluster, charts.needs(objects), wanted.values)
        if missing:
            return Refused(Reason.MISSING, "\n".join(missing))
        return objects
