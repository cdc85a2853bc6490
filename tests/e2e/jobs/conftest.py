"""A cluster with containers, a namespace of its own for each test, and jobs in it.

E2E_CONTEXT names a context of the kubeconfig to use; its nodes pull images by the
chart's default names, or those of E2E_REGISTRY and E2E_TAG. Without it the cluster of
tests/e2e/cluster is brought up, with images of this tree, and taken down at the end;
KEEP=1 leaves it up.
"""

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.e2e.jobs.job import JobInCluster
from tests.e2e.kube import Kube
from tests.e2e.own_cluster import OwnCluster
from tests.e2e.releases import Helm, Values, merged

NAMESPACES = "elasticdl-e2e"


@dataclass(frozen=True)
class ClusterUnderTest:
    """How to reach the cluster, and the images in it."""

    kubectl: str
    context: str
    kubeconfig: Path | None
    images: Values

    def kube(self, namespace: str) -> Kube:
        return Kube(self.kubectl, self.context, namespace, self.kubeconfig)

    def helm(self, namespace: str) -> Helm:
        return Helm(namespace, self.context, self.kubeconfig)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            # The first one also waits for the cluster and its images.
            item.add_marker(pytest.mark.timeout(1500))


@pytest.fixture(scope="session")
def cluster() -> Iterator[ClusterUnderTest]:
    # A plain kill ends the tests as Ctrl-C does: fixtures take down what they made.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    context = os.environ.get("E2E_CONTEXT")
    if context:
        kubectl = shutil.which("kubectl")
        assert kubectl, "E2E_CONTEXT is set, but kubectl is not on the PATH"
        registry, tag = os.environ.get("E2E_REGISTRY"), os.environ.get("E2E_TAG")
        images = {"registry": registry or "", "tag": tag or ""}
        yield ClusterUnderTest(kubectl, context, None, images)
        return
    own = OwnCluster()
    brought_up = own.up()
    try:
        images = {"registry": own.registry, "tag": own.push_images()}
        yield ClusterUnderTest(own.kubectl, "", own.kubeconfig, images)
    finally:
        if brought_up and not os.environ.get("KEEP"):
            own.down()


@pytest.fixture(scope="session")
def platform(cluster: ClusterUnderTest) -> Iterator[ClusterUnderTest]:
    """The cluster with the PriorityClasses of one platform release."""
    namespace = f"{NAMESPACES}-platform"
    kube, helm = cluster.kube(namespace), cluster.helm(namespace)
    make_namespace(kube)
    helm.uninstall("elasticdl")
    helm.install("elasticdl", {})
    yield cluster
    helm.uninstall("elasticdl")
    kube.delete("namespace", namespace)


@pytest.fixture
def kube(platform: ClusterUnderTest, request: pytest.FixtureRequest) -> Iterator[Kube]:
    """A namespace of the test's own, where jobs can run."""
    test = request.node.originalname.removeprefix("test_").replace("_", "-")
    namespace = f"{NAMESPACES}-{test}"[:50].rstrip("-")
    one = platform.kube(namespace)
    make_namespace(one)
    platform.helm(namespace).install(
        "elasticdl", {"priorityClasses": {"create": False}}
    )
    request.node.stash[_KUBE] = one
    yield one
    one.delete("namespace", namespace, wait=True)


@pytest.fixture
def helm(kube: Kube, platform: ClusterUnderTest) -> Helm:
    return platform.helm(kube.namespace)


@pytest.fixture
def job(kube: Kube, helm: Helm, platform: ClusterUnderTest):
    """Installs a job: the values of a file, with changes."""

    def make(values: Values, **changes: object) -> JobInCluster:
        whole = merged({"images": platform.images, **values}, {"job": changes})
        return JobInCluster(kube, helm, whole).install()

    return make


def make_namespace(kube: Kube) -> None:
    """Make it anew, with the strictest rules for pods that Kubernetes has."""
    if kube.get("namespace", kube.namespace):
        kube.delete("namespace", kube.namespace, wait=True)
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    kube.apply(
        {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"name": kube.namespace, "labels": labels},
        }
    )


_KUBE = pytest.StashKey[Kube]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]):
    """Show what the namespace holds when a test fails."""
    report = yield
    if report.failed and _KUBE in item.stash:
        try:
            dump = item.stash[_KUBE].dump()
        except (OSError, subprocess.SubprocessError) as error:
            dump = str(error)
        report.sections.append((f"namespace {item.stash[_KUBE].namespace}", dump))
    return report
