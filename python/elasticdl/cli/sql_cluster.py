"""`elasticdl sql -n NS`: statements whose rows and models are in a cluster.

Owns how the cluster is named, how a statement's job and pods are run there, and what
is told meanwhile. Called by `cli.sql`. The statement's parts are `sql.remote`'s.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from elasticdl.cli.options.where import add_cluster_options
from elasticdl.cli.submit import state_of
from elasticdl.errors import ElasticDLError, JobError, SpecError
from elasticdl.job import names
from elasticdl.job.spec.kinds import JobType
from elasticdl.job.words import JobState

if TYPE_CHECKING:
    from rich.console import Console

    from elasticdl.client.cluster import ClusterClient, ClusterJob
    from elasticdl.client.cluster.helm import Helm
    from elasticdl.job.status import JobReport
    from elasticdl.job.values.document import ValuesFile
    from elasticdl.sql.remote.flow import Remote

_LOOK_SECONDS = 1.0  # Pods change their state in seconds.
_IN_A_SECRET = (
    f"keep it in a Secret (kubectl create secret generic NAME "
    f"--from-literal={names.ENV_SQL_URL}=URL) and name that with --secret NAME"
)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add what says that statements run in a cluster, and how."""
    group = parser.add_argument_group(
        "in a cluster",
        "The query is read, and models are kept, by pods on the job's volume; the URL\n"
        f"of the tables is {names.ENV_SQL_URL} of a Secret.",
    )
    add_cluster_options(group)
    group.add_argument(
        "--secret",
        metavar="NAME",
        help=f"the Secret with {names.ENV_SQL_URL}, given to the job's pods "
        "(pods.common.envFrom)",
    )
    group.add_argument(
        "--chart",
        metavar="PATH",
        type=Path,
        help="another chart than the one of this package",
    )


def remote_of(args: argparse.Namespace, console: Console) -> Remote:
    """Return the cluster that the options name."""
    from elasticdl.client import cluster as clusters
    from elasticdl.client.cluster.helm import find_helm
    from elasticdl.sql.data.source import engine_of, without_secret
    from elasticdl.sql.remote.flow import Remote

    if args.dry_run:
        raise SpecError("--dry-run: got it beside -n, expected one of them")
    url = args.db or args.environ.get(names.ENV_SQL_URL, "")
    db = "" if url.endswith("://") else args.db or ""
    if without_secret(db) != db:
        raise SpecError(
            "--db: got a URL with a password beside -n, which would be in the job's "
            f"values file; {_IN_A_SECRET}"
        )
    overrides = list(args.overrides)
    if args.secret:
        sources = json.dumps([{"secretRef": {"name": args.secret}}])
        overrides.insert(0, f"pods.common.envFrom={sources}")
    elif args.environ.get(names.ENV_SQL_URL) and not args.db:
        raise SpecError(
            f"{names.ENV_SQL_URL}: got it here, but pods do not see it; {_IN_A_SECRET}"
        )
    where = clusters.Where(args.context or "", args.namespace or "")
    place = ClusterPlace(
        clusters.connect(where),
        find_helm(args.environ.get("PATH")),
        args.chart,
        console,
    )
    models = str(args.models_dir or "models")
    return Remote(place, engine_of(url), models, db, tuple(overrides))


@dataclass(frozen=True)
class ClusterPlace:
    """Runs a statement's jobs and steps in one namespace."""

    cluster: ClusterClient
    helm: Helm
    chart: Path | None
    console: Console

    def run_job(self, values: ValuesFile) -> JobReport:
        """Submit a job, tell its states, return its report."""
        from elasticdl.client import cluster as clusters
        from elasticdl.client.cluster.submit import remove

        name, namespace = values.job.name, self.cluster.namespace
        submission = clusters.submit(
            values, cluster=self.cluster, helm=self.helm, chart=self.chart
        )
        for line in (*submission.notices, f"submitted job {name} -n {namespace}"):
            self.console.print(line, soft_wrap=True)
        try:
            report = self._watched(submission.job)
        except KeyboardInterrupt:
            self.console.print(
                f"job {name} goes on; elasticdl stop {name} -n {namespace} ends it",
                soft_wrap=True,
            )
            raise
        if report is None or report.status != JobState.SUCCEEDED:
            why = report.message if report else "it left no report"
            raise JobError(
                f"job {name} did not succeed: {why} (elasticdl logs {name} worker-0 "
                f"-n {namespace})"
            )
        if values.job.type is not JobType.TRAIN:
            with suppress(ElasticDLError):
                remove(submission.job, self.helm)
        return report

    def _watched(self, job: ClusterJob) -> JobReport | None:
        from elasticdl.client import Condition

        said = ""
        while (view := job.view()).condition in (Condition.RUNNING, Condition.PENDING):
            line = state_of(view)
            if line != said:
                said = line
                self.console.print(
                    f"{time.strftime('%H:%M:%S')} {line}", soft_wrap=True
                )
            time.sleep(_LOOK_SECONDS)
        return view.report

    def run_step(self, values: ValuesFile, words: Sequence[str]) -> str:
        """Run a step in a pod like a worker's; return what it prints."""
        from elasticdl.client.cluster import ClusterJob
        from elasticdl.client.cluster.chart import find_chart
        from elasticdl.client.cluster.errand import run_as_worker
        from elasticdl.client.cluster.submit import rendered, state_path

        objects, _ = rendered(
            values,
            cluster=self.cluster,
            helm=self.helm,
            chart=find_chart(self.chart),
        )
        wanted = names.config_map_name(values.job.name)
        config_map = next(
            one
            for one in objects
            if one["kind"] == "ConfigMap" and one["metadata"]["name"] == wanted
        )
        job = ClusterJob(self.cluster, values.job.name)
        done = run_as_worker(job, config_map, "sql", words, folder=state_path(values))
        if done.exit_code:
            raise JobError(done.text.strip() or "the pod said nothing")
        return done.text
