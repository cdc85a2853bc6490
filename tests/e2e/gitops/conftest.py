"""Argo CD, a repository with this tree's chart and gitops/, and a team's with its jobs.

Only on the cluster of tests/e2e/cluster: Argo CD's definitions are of a whole cluster,
and nobody wants them left in his.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.e2e.gitops.argo import NAMESPACE, ArgoCD
from tests.e2e.gitops.repository import Repository
from tests.e2e.jobs import conftest as in_cluster
from tests.e2e.jobs.conftest import ClusterUnderTest
from tests.e2e.jobs.job import JobInCluster
from tests.e2e.kube import Kube, wait_until
from tests.e2e.releases import Values, merged

JOBS = "ml"  # as gitops/ says


def application(job: str) -> str:
    """Return the name of a job's Application."""
    return f"ml-{job}"


cluster = in_cluster.cluster


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            # The first one also waits for Argo CD to be built.
            item.add_marker(pytest.mark.timeout(3000))


@dataclass
class Deployment:
    """Commits to the team's repository, and waits until they are what runs."""

    argo: ArgoCD
    platform: Repository
    team: Repository
    kube: Kube  # of the jobs' namespace
    helm: object = field(repr=False)
    values: dict[str, Values] = field(default_factory=dict)

    def commit(self, name: str, **changes: object) -> str:
        """Change some keys of a job's values file; return the commit."""
        self.values[name] = merged(self.values.get(name, {}), changes)
        return self._push(name, self.values[name])

    def add(self, values: Values) -> tuple[JobInCluster, str]:
        """Commit a new values file, named as its job."""
        name = values["job"]["name"]
        self.values[name] = values
        revision = self._push(name, values)
        return JobInCluster(self.kube, self.helm, values), revision

    def remove(self, name: str) -> None:
        del self.values[name]
        self._push(name, None)

    def sync(self, name: str, **changes: object) -> str:
        """Commit, and wait until it is what runs."""
        revision = self.commit(name, **changes)
        self.argo.wait_synced(application(name), revision)
        return revision

    def uid(self, kind: str, name: str) -> str:
        found = self.kube.get(kind, name)
        assert found, f"no {kind} {name}"
        return found["metadata"]["uid"]

    def _push(self, name: str, values: Values | None) -> str:
        revision = self.team.commit(f"jobs/{name}.yaml", values)
        known = self.argo.application(application(name)) is not None
        self.argo.refresh(application(name) if known and values is not None else "")
        return revision


@pytest.fixture(scope="module")
def argo(cluster: ClusterUnderTest, tmp_path_factory) -> Iterator[ArgoCD]:
    if cluster.own is None:
        pytest.skip("Argo CD is installed into the cluster of tests/e2e/cluster alone")
    own = cluster.own
    own.script("build-gitops")
    redis = shutil.which("redis-server")
    assert redis
    made = ArgoCD(
        cluster.kube(NAMESPACE),
        own.state / "bin",
        own.state / "argocd-crds",
        tmp_path_factory.mktemp("argocd"),
        redis,
    )
    try:
        made.start()
        yield made
    finally:
        made.stop()


@pytest.fixture(scope="module")
def deployment(
    cluster: ClusterUnderTest,
    argo: ArgoCD,
    tmp_path_factory,
) -> Iterator[Deployment]:
    """The platform and the set of jobs, applied as gitops/README.md says."""
    common = {"jobs": {"defaults": {"images": cluster.images.values}}}
    place = tmp_path_factory.mktemp("git")
    team = Repository.empty(place / "team")
    team.commit("README.yaml", {"jobs": "jobs/JOB.yaml"})
    root = place / "platform"
    platform = Repository.make(root, common, team)
    kube = cluster.kube(JOBS)
    files = root / "gitops" / "argocd"
    argo.kube.run("apply", "--filename", str(files))
    try:
        argo.refresh()
        wait_until("the platform", lambda: kube.get("sa", "elasticdl-job"), seconds=120)
        yield Deployment(argo, platform, team, kube, cluster.helm(JOBS))
    finally:
        for file in ("jobs.yaml", "platform.yaml", "projects.yaml"):
            argo.kube.run("delete", "--filename", str(files / file), seconds=240)
        for name in in_cluster.TRAINING_CLASSES:  # kept, as Helm would
            kube.delete("priorityclass", name)
        kube.delete("namespace", JOBS, wait=True)


@pytest.fixture
def images(cluster: ClusterUnderTest):
    return cluster.images


@pytest.fixture
def elasticdl(deployment: Deployment, cluster: ClusterUnderTest, tmp_path):
    """Runs a command of the CLI on the jobs; returns what it prints."""

    def run(verb: str, *words: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "elasticdl.cli.main", verb, "-n", JOBS, *words],
            env={
                **os.environ,
                "ELASTICDL_JOBS_DIR": str(tmp_path),
                "KUBECONFIG": str(cluster.kubeconfig),
            },
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, f"{verb} {words}: {done.stdout}{done.stderr}"
        return done.stdout + done.stderr

    return run


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]):
    """Show the jobs' namespace and Argo CD's logs when a test fails."""
    report = yield
    found = getattr(item, "funcargs", {}).get("deployment")
    if report.failed and isinstance(found, Deployment):
        report.sections.append((f"namespace {JOBS}", found.kube.dump()))
        report.sections.append(("Argo CD", found.argo.logs()))
    return report
