"""A cluster with containers, a namespace of its own for each test, and jobs in it.

E2E_CONTEXT names a context of the kubeconfig to use; its nodes pull images of
E2E_REGISTRY (default: localhost, for images that they have already) by the chart's
default names, and E2E_TAG. Without it the cluster of
tests/e2e/cluster is brought up, with images of this tree, and taken down at the end;
KEEP=1 leaves it up.
"""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path

import elasticdl as elasticdl_package
import pytest

from tests.e2e import figures
from tests.e2e.jobs import serving
from tests.e2e.jobs.job import JobInCluster
from tests.e2e.kube import Kube, wait_until
from tests.e2e.own_cluster import ROLES, ROOT, OwnCluster
from tests.e2e.releases import Helm, Values, merged

NAMESPACES = "elasticdl-e2e"
TRAINING_CLASSES = ("elasticdl-high", "elasticdl-low")  # by the chart's defaults


@dataclass(frozen=True)
class Images:
    """Where the images are: `registry` and `tag` of the chart's values."""

    registry: str
    tag: str

    @property
    def values(self) -> Values:
        return {"registry": self.registry, "tag": self.tag}

    def of(self, role: str) -> str:
        tag = self.tag or elasticdl_package.__version__
        return f"{self.registry}/elasticdl/{role}:{tag}"

    @property
    def ps(self) -> str:
        return self.of("ps")


@dataclass(frozen=True)
class ClusterUnderTest:
    """How to reach the cluster, and the images in it."""

    kubectl: str
    context: str
    kubeconfig: Path | None
    images: Images
    # For programs that build images into the cluster's registry.
    build_env: dict[str, str] = field(default_factory=dict, repr=False)
    own: OwnCluster | None = None  # whose node can be reached into

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
        environ = os.environ
        images = Images(
            environ.get("E2E_REGISTRY") or "localhost", environ.get("E2E_TAG", "")
        )
        yield ClusterUnderTest(kubectl, context, None, images)
        return
    own = OwnCluster()
    brought_up = own.up()
    try:
        images = Images(own.registry, own.push_images())
        for role in ROLES:
            size = own.image_megabytes(role, images.tag)
            figures.record(f"image_{role}_mb", size)
        build_env = own.build_env()
        made = ClusterUnderTest(own.kubectl, "", own.kubeconfig, images, build_env, own)
        _assert_family(made, os.environ.get("CLUSTER_FAMILY", "ipv4"))
        yield made
    finally:
        if brought_up and not os.environ.get("KEEP"):
            own.down()


def _assert_family(cluster: ClusterUnderTest, family: str) -> None:
    """Assert that the nodes have the addresses asked for: one was perhaps up before."""
    expected = {"ipv4": [4], "ipv6": [6], "dual": [4, 6]}[family]
    for node in cluster.kube("default").list("nodes"):
        addresses = node["status"]["addresses"]
        inside = [one["address"] for one in addresses if one["type"] == "InternalIP"]
        assert [ip_address(one).version for one in inside] == expected, addresses


@pytest.fixture(scope="session")
def platform(cluster: ClusterUnderTest) -> Iterator[ClusterUnderTest]:
    """The cluster with the PriorityClasses of one platform release, and of serving."""
    namespace = f"{NAMESPACES}-platform"
    kube, helm = cluster.kube(namespace), cluster.helm(namespace)
    make_namespace(kube)
    helm.uninstall("elasticdl")
    helm.install("elasticdl", {})
    serving.make_class(kube)
    yield cluster
    helm.uninstall("elasticdl")
    for name in (*TRAINING_CLASSES, serving.CLASS):  # which the release keeps
        kube.delete("priorityclass", name)
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
    one.delete("namespace", namespace)
    # What takes room; the rest goes while the next test begins.
    wait_until("no pod is left", lambda: not one.list("pods"), seconds=180)


@pytest.fixture
def helm(kube: Kube, platform: ClusterUnderTest) -> Helm:
    return platform.helm(kube.namespace)


@pytest.fixture
def job(kube: Kube, helm: Helm, platform: ClusterUnderTest):
    """Installs a job: the values of a file, with changes."""

    def make(values: Values, **changes: object) -> JobInCluster:
        whole = merged({"images": platform.images.values, **values}, {"job": changes})
        return JobInCluster(kube, helm, whole).install()

    return make


@pytest.fixture
def images(platform: ClusterUnderTest) -> Images:
    return platform.images


@pytest.fixture
def node(platform: ClusterUnderTest):
    """Runs a command among the node's processes; returns what it prints."""
    if platform.own is None:
        pytest.skip("only the node of the own cluster can be reached into")
    return platform.own.on_node


@pytest.fixture
def elasticdl(kube: Kube, platform: ClusterUnderTest, tmp_path):
    """Runs a command of the CLI in the test's namespace; returns what it prints."""

    def run(*words: str, env: dict[str, str] | None = None, code: int = 0) -> str:
        verb, *rest = words
        if verb != "zoo":
            context = [f"--context={platform.context}"] if platform.context else []
            there = ["--namespace", kube.namespace, *context]
            inner = verb in ("jobs", "models")
            rest = [*rest, *there] if inner else [*there, *rest]
        environ = {**os.environ, **(env or {}), "ELASTICDL_JOBS_DIR": str(tmp_path)}
        if platform.kubeconfig:
            environ["KUBECONFIG"] = str(platform.kubeconfig)
        done = subprocess.run(
            [sys.executable, "-m", "elasticdl.cli.main", verb, *rest],
            env=environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == code, f"{words}: {done.stdout}{done.stderr}"
        return done.stdout + done.stderr

    return run


@pytest.fixture
def zoo_image(elasticdl, images: Images, platform: ClusterUnderTest, tmp_path) -> str:
    """The repository's model zoo, built on the worker image and pushed."""
    zoo = tmp_path / "model_zoo"
    shutil.copytree(ROOT / "model_zoo", zoo)
    name = f"{images.registry}/elasticdl/zoo:{images.tag or 'e2e'}"
    env = platform.build_env
    # Built where the worker image was built: no need to pull it.
    base = f"localhost/elasticdl/worker:{images.tag}" if env else images.of("worker")
    elasticdl("zoo", "init", str(zoo), f"--base-image={base}")
    elasticdl("zoo", "build", f"--image={name}", str(zoo), env=env)
    elasticdl("zoo", "push", name, env=env)
    return name


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
