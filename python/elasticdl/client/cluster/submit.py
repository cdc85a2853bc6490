"""Submits a job to a cluster: one release of the chart.

Owns what is checked before, and what follows when a job of that name is there. Called
by `cli.submit`. Must not print.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from elasticdl.client.cluster import chart as charts
from elasticdl.client.cluster.api import ClusterClient, ClusterError, Object, Where
from elasticdl.client.cluster.defaults import notice, platform_of
from elasticdl.client.cluster.helm import Helm, Values
from elasticdl.client.cluster.job import ClusterJob
from elasticdl.client.cluster.training_jobs import owner_of, path_of
from elasticdl.errors import JobError, NotFoundError, PlatformError, SpecError
from elasticdl.job.folder import Condition
from elasticdl.job.names import LABEL_JOB
from elasticdl.job.spec.job import JobSpec
from elasticdl.job.spec.problems import spec_error
from elasticdl.job.values.defaults import (
    PlatformDefaults,
    origins,
    refused,
    sections_of,
    without_registry,
)
from elasticdl.job.values.document import ValuesFile
from elasticdl.job.values.training_job import KIND

_RELEASE = "meta.helm.sh/release-name"
_OF_HELM = re.compile(r"^helm: (execution error at \([^)]*\): )?")
_SCHEDULING = "/apis/scheduling.k8s.io/v1/priorityclasses"


@dataclass(frozen=True)
class Submission:
    """A job that was handed to a cluster."""

    job: ClusterJob
    release: str
    made: list[str]  # `ConfigMap elasticdl-digits`
    notices: list[str] = field(default_factory=list)


def chart_values(values: ValuesFile) -> Values:
    """Return the values for Helm: the job, and the chart's keys beside it."""
    return {
        "kind": values.kind,
        "job": values.job.document(),
        **values.chart_keys(),
    }


def state_path(values: ValuesFile) -> PurePosixPath:
    """Return the path at which the pods of a job mount the volume with its folder."""
    return PurePosixPath(values.state.mount_path)


def is_for_cluster(job: JobSpec) -> bool:
    """Whether a job names an image, so that it runs in a cluster by default."""
    roles = (job.master, job.ps, job.worker)
    return bool(job.image) or any(role.image for role in roles)


def render(values: ValuesFile, *, helm: Helm, chart: Path | None, where: Where) -> str:
    """Return the manifests that `submit` would apply. Makes no call to a cluster.

    Raises SpecError for a job that has its registry from its platform alone: that one
    is not asked.
    """
    problems = without_registry(PlatformDefaults(), sections_of(values), values.job)
    if problems:
        raise spec_error(problems)
    named = Where(where.context, where.namespace or "default")
    found = charts.find_chart(chart)
    return helm.render(found, values.job.name, named, chart_values(values))


def refusal(
    tree: Values,
    values: ValuesFile,
    platform: PlatformDefaults,
    *,
    helm: Helm,
    chart: Path,
    namespace: str,
) -> str:
    """Return why the chart refuses a file's tree as `helm install -f` has it, or "".

    A registry is not asked for: the platform may have it.
    """
    defaults = platform.defaults or {"images": {"registry": "registry.invalid"}}
    given = {**tree, "jobs": {"defaults": defaults}}
    try:
        helm.render(chart, values.job.name, Where("", namespace), given)
    except (PlatformError, SpecError) as error:
        return chart_words(error)
    return ""


def chart_words(error: Exception) -> str:
    """Return what a chart says, without where in its templates."""
    return _OF_HELM.sub("", str(error))


def submit(
    values: ValuesFile,
    *,
    cluster: ClusterClient,
    helm: Helm,
    chart: Path | None = None,
    create_namespace: bool = False,
) -> Submission:
    """Install the job's release under the job's name, removing an ended one first.

    Raises:
        JobError: A job of that name is there and has not ended.
        PlatformError: Something that its pods need is missing, or the cluster refuses.
        SpecError: The chart refuses the values, or the platform of the namespace.
    """
    where = Where(cluster.context, cluster.namespace)
    name = values.job.name
    found = charts.find_chart(chart)
    # Rendered before anything changes: what is wrong in the values changes nothing.
    objects, told = rendered(values, cluster=cluster, helm=helm, chart=found)
    notices = _make_room(cluster, name, helm=helm)
    notices += told
    missing = missing_needs(
        cluster, charts.needs(objects), values, create_namespace=create_namespace
    )
    if missing:
        raise PlatformError("\n".join(missing))
    try:
        helm.install(
            found, name, where, chart_values(values), create_namespace=create_namespace
        )
    except PlatformError as error:
        left = _clean_up(helm, name, where)
        raise PlatformError(f"job {name} was not submitted, {left}: {error}") from None
    made = [f"{one['kind']} {one['metadata']['name']}" for one in objects]
    return Submission(ClusterJob(cluster, name), name, made, notices)


def rendered(
    values: ValuesFile, *, cluster: ClusterClient, helm: Helm, chart: Path
) -> tuple[list[Object], list[str]]:
    """Return a job's objects with what the platform of its namespace says, and lines.

    Raises SpecError where the chart or the platform refuses the values.
    """
    where = Where(cluster.context, cluster.namespace)
    platform, given = platform_of(cluster), sections_of(values)
    problems = refused(platform, given, values.job, namespace=where.namespace)
    problems += without_registry(platform, given, values.job)
    if problems:
        raise spec_error(problems)
    said = {"jobs": {"defaults": platform.defaults}} if platform.defaults else {}
    given_values = {**chart_values(values), **said}
    text = helm.render(chart, values.job.name, where, given_values)
    lines = notice(origins(platform, given), where.namespace)
    return charts.manifests(text), lines


def _clean_up(helm: Helm, release: str, where: Where) -> str:
    """Remove the leftovers of a failed install; return a sentence about the result."""
    try:
        helm.uninstall(release, where)
    except PlatformError as error:
        return f"and Helm cannot say what is left of it ({error})"
    return "and nothing of it is left"


def remove(job: ClusterJob, helm: Helm) -> str:
    """Remove all objects of a job but not its folder; return what had them.

    `release digits`, or `TrainingJob digits`. Raises JobError for a job that was made
    in another way.
    """
    config_map = job.config_map()
    if owner := owner_of(config_map):
        name = str(owner["name"])
        job.cluster.delete(path_of(job.cluster.namespace, name))
        return f"{KIND} {name}"
    annotations = config_map["metadata"].get("annotations") or {}
    release = str(annotations.get(_RELEASE) or "")
    if not release:
        raise JobError(
            f"job {job.name} in {job.place} was not made by Helm; remove it where it "
            f"was made, or with kubectl -n {job.cluster.namespace} delete "
            f"jobs,services,configmaps,secrets -l {LABEL_JOB}={job.name}"
        )
    helm.uninstall(release, Where(job.cluster.context, job.cluster.namespace))
    return f"release {release}"


def _make_room(cluster: ClusterClient, name: str, *, helm: Helm) -> list[str]:
    """Remove the release of an ended job with this name; return the lines to show."""
    job = ClusterJob(cluster, name)
    try:
        view = job.view()
    except NotFoundError:
        return []
    except ClusterError as error:
        if error.forbidden:
            return []  # then Helm says what is in its way
        raise
    place = job.place
    if view.condition in (Condition.RUNNING, Condition.PENDING):
        state = f"waits ({view.note})" if view.note else "runs"
        named = f"{name} -n {cluster.namespace}"
        raise JobError(
            f"job {name} is in {place} already and {state}; watch it with `elasticdl "
            f"status {named}`, end it with `elasticdl stop {named}`, or give this one "
            "another name (--job_name, job.name)"
        )
    if owner_of(job.config_map()):
        raise JobError(
            f"job {name} in {place} belongs to a TrainingJob; raise `run` in it to run "
            f"it again, or remove it first: kubectl -n {cluster.namespace} delete "
            f"trainingjob {name}"
        )
    remove(job, helm)
    if view.condition is Condition.SUCCEEDED:
        return [f"the succeeded job of this name was removed ({place})"]
    return [f"the {view.condition} job of this name is replaced, and goes on"]


def missing_needs(
    cluster: ClusterClient,
    needs: charts.Needs,
    values: ValuesFile,
    *,
    create_namespace: bool = False,
) -> list[str]:
    """Return a line for each missing object that the job's pods refer to.

    What the user may not look at is not missing: the cluster will say.
    """
    namespace = cluster.namespace
    if not create_namespace and _gone(cluster, f"/api/v1/namespaces/{namespace}"):
        return [
            f"no namespace {namespace!r} in kube context {cluster.context!r}; make it "
            f"(kubectl create namespace {namespace}), install the platform there, or "
            "name another with -n"
        ]
    accounts = [
        name
        for name in sorted(needs.service_accounts)
        if _gone(cluster, cluster.path("serviceaccounts", name))
    ]
    if accounts:
        return [
            f"the platform is not in namespace {namespace}: no ServiceAccount "
            f"{', '.join(accounts)}; install it: helm install elasticdl "
            f"charts/elasticdl -n {namespace} --set images.registry=REGISTRY"
        ]
    lines = []
    for name in sorted(needs.claims):
        path = cluster.path("persistentvolumeclaims", name)
        if _gone(cluster, path):
            there = _names(cluster, cluster.path("persistentvolumeclaims"))
            lines.append(
                f"no volume claim {name!r} in namespace {namespace} (there "
                f"{'are: ' + ', '.join(there) if there else 'is none'}); make it, or "
                "name another in state.claimName and --volume"
            )
    classes = needs.priority_classes
    if values.job.worker.priority[:1] in tuple("0123456789."):  # a share of them
        classes |= needs.split_classes
    for name in sorted(classes):
        if _gone(cluster, f"{_SCHEDULING}/{name}"):
            there = _names(cluster, _SCHEDULING)
            lines.append(
                f"no PriorityClass {name!r} (there are: {', '.join(there)}); install "
                "the platform, which makes `high` and `low`, or name another priority"
            )
    lines += [
        f"no Secret {name!r} for pulling images in namespace {namespace}; make it, or "
        "take it out of images.pullSecrets"
        for name in sorted(needs.pull_secrets)
        if _gone(cluster, cluster.path("secrets", name))
    ]
    return lines


def _gone(cluster: ClusterClient, path: str) -> bool:
    try:
        return cluster.find(path) is None
    except ClusterError as error:
        if error.forbidden:
            return False
        raise


def _names(cluster: ClusterClient, path: str) -> list[str]:
    try:
        return sorted(str(one["metadata"]["name"]) for one in cluster.items(path))
    except ClusterError:
        return []
