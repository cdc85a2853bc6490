"""A cluster in which statements run: its jobs by Helm, its steps in pods of their own.

Owns how the cluster is named, how a statement's job and pods are run there, and what
is told meanwhile. Made by `cli.sql` and notebooks. The statement's parts are `flow`'s.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from elasticdl.client import Condition, JobView
from elasticdl.client import cluster as clusters
from elasticdl.client.cluster import ClusterClient, ClusterJob
from elasticdl.client.cluster.api import ClusterError
from elasticdl.client.cluster.chart import find_chart
from elasticdl.client.cluster.errand import NotStartedError, run_as_worker
from elasticdl.client.cluster.helm import Helm, find_helm
from elasticdl.client.cluster.submit import remove, rendered, state_path
from elasticdl.errors import ElasticDLError, JobError, SpecError
from elasticdl.job import names
from elasticdl.job.spec.kinds import JobType
from elasticdl.job.status import JobReport
from elasticdl.job.values.document import ValuesFile
from elasticdl.job.words import JobState
from elasticdl.sql.data.passwords import without_secret
from elasticdl.sql.data.source import engine_of
from elasticdl.sql.remote.flow import Remote

DEFAULT_MODELS = "models"  # a folder of the job's volume
_LOOK_SECONDS = 1.0  # Pods change their state in seconds.
_PATIENT_TRIES = 40  # An hour, of a step without which a job would be in vain.
_IN_A_SECRET = (
    f"keep it in a Secret (kubectl create secret generic NAME "
    f"--from-literal={names.ENV_SQL_URL}=URL) and name that with --secret NAME"
)


@dataclass(frozen=True)
class Asked:
    """Which cluster, and what of it: as the options of `elasticdl sql` name it."""

    namespace: str = ""
    context: str = ""
    secret: str = ""  # the Secret with the URL of the tables
    db: str = ""
    models: str = ""
    chart: Path | None = None
    overrides: tuple[str, ...] = ()


def connected(
    asked: Asked,
    environ: Mapping[str, str],
    *,
    say: Callable[[str], None],
    state_of: Callable[[JobView], str],
) -> Remote:
    """Return a cluster for a session.

    Raises SpecError for a password that would get into a values file, or that pods
    would not see.
    """
    url = asked.db or environ.get(names.ENV_SQL_URL, "")
    db = "" if url.endswith("://") else asked.db
    if without_secret(db) != db:
        raise SpecError(
            "--db: got a URL with a password beside -n, which would be in the job's "
            f"values file; {_IN_A_SECRET}"
        )
    overrides = list(asked.overrides)
    if asked.secret:
        sources = json.dumps([{"secretRef": {"name": asked.secret}}])
        overrides.insert(0, f"pods.common.envFrom={sources}")
    elif environ.get(names.ENV_SQL_URL) and not asked.db:
        raise SpecError(
            f"{names.ENV_SQL_URL}: got it here, but pods do not see it; {_IN_A_SECRET}"
        )
    place = ClusterPlace(
        clusters.connect(clusters.Where(asked.context, asked.namespace)),
        find_helm(environ.get("PATH")),
        asked.chart,
        say,
        state_of,
    )
    models = asked.models or DEFAULT_MODELS
    return Remote(place, engine_of(url), models, db, tuple(overrides))


@dataclass(frozen=True)
class ClusterPlace:
    """Runs a statement's jobs and steps in one namespace."""

    cluster: ClusterClient
    helm: Helm
    chart: Path | None
    say: Callable[[str], None]
    state_of: Callable[[JobView], str]

    def run_job(self, values: ValuesFile) -> JobReport:
        """Submit a job, tell its states, return its report."""
        name, namespace = values.job.name, self.cluster.namespace
        submission = clusters.submit(
            values, cluster=self.cluster, helm=self.helm, chart=self.chart
        )
        for line in (*submission.notices, f"submitted job {name} -n {namespace}"):
            self.say(line)
        try:
            report = self._watched(submission.job)
        except KeyboardInterrupt:
            self.say(
                f"job {name} goes on; elasticdl stop {name} -n {namespace} ends it"
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
        """Return the report at the job's end; it goes on while nobody answers here."""
        said = ""
        while True:
            try:
                view = job.view()
            except ClusterError as error:
                if not error.passing:
                    raise
                line = f"{error}; the job goes on, and is looked for again"
            else:
                if view.condition not in (Condition.RUNNING, Condition.PENDING):
                    return view.report
                line = self.state_of(view)
            if line != said:
                said = line
                self.say(f"{time.strftime('%H:%M:%S')} {line}")
            time.sleep(_LOOK_SECONDS)

    def run_step(
        self, values: ValuesFile, words: Sequence[str], *, patient: bool = False
    ) -> str:
        """Run a step in a pod like a worker's; return what it prints."""
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
        folder = state_path(values)
        for left in reversed(range(_PATIENT_TRIES if patient else 1)):
            try:
                done = run_as_worker(job, config_map, "sql", words, folder=folder)
            except NotStartedError as error:
                if not left:
                    raise
                self.say(f"{error}; tried again, as the job's answers wait for it")
            else:
                break
        if done.exit_code:
            raise JobError(done.text.strip() or "the pod said nothing")
        return done.text
