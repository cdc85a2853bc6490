"""A real API server, scheduler and controllers, without nodes: no pod ever runs.

What a kubelet would say is written into pods' statuses by the tests, or comes from fake
nodes. A runner under test reaches the server through a link of its own, which a test
can cut; the test itself goes on seeing the server.
"""

import asyncio
import json
import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from elasticdl.job.names import Role
from elasticdl.kube.api import MERGE_PATCH, ApiServer
from elasticdl.runner.base import (
    Launch,
    Observation,
    ObservedReplica,
    Phase,
    ReplicaKey,
)
from elasticdl.runner.kubernetes.cluster import Cluster

Json = dict[str, Any]
SCRIPTS = Path(__file__).parents[1] / "cluster"
BOUND_SECONDS = 40.0
TEMPLATE = """\
apiVersion: v1
kind: Pod
metadata:
  labels: {app.kubernetes.io/name: elasticdl}
spec:
  automountServiceAccountToken: false
  terminationGracePeriodSeconds: 15
  containers:
  - name: main
    image: elasticdl/worker:1
    resources:
      requests: {cpu: "1", memory: 64Mi}
      limits: {cpu: "1", memory: 64Mi}
"""
VALUES = "kind: job\njob:\n  name: digits\n"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            # The first one also waits for the API server, beside a whole cluster.
            item.add_marker(pytest.mark.timeout(600))


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class ControlPlane:
    """One that was brought up for these tests, beside any other."""

    def __init__(self, state: Path) -> None:
        cache = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache")
        programs = os.environ.get("CLUSTER_STATE") or cache / "elasticdl" / "cluster"
        self.programs = Path(programs).expanduser()
        self.state, self.port = state, free_port()
        self.env = {
            **os.environ,
            "CLUSTER_STATE": str(state),
            "CLUSTER_PORT": str(self.port),
        }
        self.kubeconfig = state / "kubeconfig"

    def run(self, script: str, *arguments: str) -> None:
        subprocess.run([SCRIPTS / script, *arguments], env=self.env, check=True)

    def up(self) -> None:
        if not (self.programs / "bin" / "kube-apiserver").exists():
            build_env = {**os.environ, "CLUSTER_STATE": str(self.programs)}
            subprocess.run([SCRIPTS / "build"], env=build_env, check=True)
        for part in ("bin", "images"):
            (self.state / part).symlink_to(self.programs / part)
        self.run("up", "--control-plane")

    def kubectl(self, *arguments: str, text: str | None = None) -> str:
        program = self.state / "bin" / "kubectl"
        done = subprocess.run(
            [program, f"--kubeconfig={self.kubeconfig}", *arguments],
            input=text,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def end_api_server(self) -> None:
        """SIGKILL it; it is started again."""
        ours = f"--client-ca-file={self.state}/node/pki/ca.crt"
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                arguments = (folder / "cmdline").read_text().split("\0")
            except OSError:
                continue
            if arguments[0].endswith("kube-apiserver") and ours in arguments:
                os.kill(int(folder.name), signal.SIGKILL)


@pytest.fixture(scope="session")
def control_plane(tmp_path_factory) -> Iterator[ControlPlane]:
    # A plain kill ends the tests as Ctrl-C does: what was brought up is taken down.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    state = tmp_path_factory.mktemp("control-plane")
    one = ControlPlane(state)
    one.up()
    yield one
    one.run("down")


class Link:
    """A way to the API server that can be cut."""

    def __init__(self, control_plane: ControlPlane) -> None:
        self.port, self._target = free_port(), control_plane.port
        config = json.loads(control_plane.kubectl("config", "view", "--raw", "-ojson"))
        config["clusters"][0]["cluster"]["server"] = f"https://127.0.0.1:{self.port}"
        self.kubeconfig = control_plane.state / f"link-{self.port}.kubeconfig"
        self.kubeconfig.write_text(json.dumps(config))
        self._process: subprocess.Popen[bytes] | None = None

    def join(self) -> None:
        self._process = subprocess.Popen(
            [
                "socat",
                f"TCP-LISTEN:{self.port},bind=127.0.0.1,reuseaddr,fork",
                f"TCP:127.0.0.1:{self._target}",
            ],
            start_new_session=True,
            stderr=subprocess.DEVNULL,
        )
        while True:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return

    def cut(self) -> None:
        """End all connections, and refuse new ones."""
        if self._process is not None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None


class Rig:
    """A namespace with one job's ConfigMap, and the master's side of it."""

    def __init__(self, control_plane: ControlPlane, namespace: str, job: str) -> None:
        self.control_plane, self.namespace, self.job = control_plane, namespace, job
        self.path = f"/api/v1/namespaces/{namespace}"
        self.admin = ApiServer.from_kubeconfig(str(control_plane.kubeconfig))
        self.link = Link(control_plane)
        self.link.join()
        self.generations = count(1)
        self.observations: list[Observation] = []
        self.states: dict[ReplicaKey, ObservedReplica] = {}
        self.seen: list[ObservedReplica] = []

    # -- the cluster ----------------------------------------------------------------

    def make_config_map(self, template: str = TEMPLATE) -> None:
        data = {"job.yaml": VALUES, "ps.yaml": template, "worker.yaml": template}
        metadata = {"name": f"elasticdl-{self.job}"}
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}
        self.admin.call("POST", f"{self.path}/configmaps", body={**body, "data": data})

    def edit_config_map(self, change: Json) -> None:
        self.patch(f"configmaps/elasticdl-{self.job}", change)

    def patch(self, what: str, change: Json, *, status: bool = False) -> None:
        path = f"{self.path}/{what}{'/status' if status else ''}"
        self.admin.call("PATCH", path, body=change, content_type=MERGE_PATCH)

    def apply(self, *objects: Json) -> None:
        text = json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)})
        self.control_plane.kubectl("-n", self.namespace, "apply", "-f-", text=text)

    def get(self, what: str) -> Json:
        return self.admin.call("GET", f"{self.path}/{what}")

    def pods(self) -> dict[str, Json]:
        return {pod["metadata"]["name"]: pod for pod in self.get("pods")["items"]}

    def pod(self, name: str) -> Json | None:
        return self.pods().get(f"elasticdl-{self.job}-{name}")

    def delete_pod(self, name: str, *, grace_seconds: int = 0) -> None:
        full_name = f"elasticdl-{self.job}-{name}"
        self.delete_named(full_name, grace_seconds=grace_seconds)

    def delete_named(self, name: str, *, grace_seconds: int = 0) -> None:
        body = {"gracePeriodSeconds": grace_seconds}
        self.admin.call("DELETE", f"{self.path}/pods/{name}", body=body)

    def say(self, name: str, phase: str, state: Json, **status: Any) -> None:
        """Write what a kubelet would."""
        main = {
            "name": "main",
            "image": "elasticdl/worker:1",
            "imageID": "",
            "ready": phase == "Running",
            "restartCount": 0,
            "state": state,
        }
        status |= {"phase": phase, "containerStatuses": [main]}
        what = f"pods/elasticdl-{self.job}-{name}"
        self.patch(what, {"status": status}, status=True)

    def place(self, name: str, node: str = "nowhere") -> None:
        """Bind a pod to a node, as the scheduler does: deleting it now takes time."""
        self.admin.call(
            "POST",
            f"{self.path}/pods/elasticdl-{self.job}-{name}/binding",
            body={
                "apiVersion": "v1",
                "kind": "Binding",
                "metadata": {"name": f"elasticdl-{self.job}-{name}"},
                "target": {"apiVersion": "v1", "kind": "Node", "name": node},
            },
        )

    # -- the master's side ----------------------------------------------------------

    def launch(
        self, role: Role = Role.WORKER, index: int = 0, **changes: Any
    ) -> Launch:
        values: Json = {
            "key": ReplicaKey(role, index),
            "generation": next(self.generations),
            "cpu": 1.0,
            "memory": "64Mi",
            "priority": "",
            "grace_seconds": 15.0,
        }
        return Launch(**values | changes)

    @asynccontextmanager
    async def cluster(self, *, watch: bool = True, run: int = 1) -> Any:
        """The job's Cluster over the link, and all it observes kept."""
        api = ApiServer.from_kubeconfig(str(self.link.kubeconfig))
        cluster = await Cluster.connect(
            api,
            namespace=self.namespace,
            config_map=f"elasticdl-{self.job}",
            job=self.job,
            run=run,
        )
        watching = asyncio.create_task(self._watch(cluster)) if watch else None
        try:
            yield cluster
        finally:
            if watching is not None:
                watching.cancel()
                await asyncio.gather(watching, return_exceptions=True)
            await cluster.close()

    async def _watch(self, cluster: Cluster) -> None:
        async for observation in cluster.runner.watch():
            self.observations.append(observation)
            if observation.resync:
                self.states.clear()
            for state in observation.states:
                self.states[state.key] = state
                self.seen.append(state)

    async def until(self, condition: Callable[[], object], what: str = "") -> None:
        try:
            async with asyncio.timeout(BOUND_SECONDS):
                while not condition():
                    await asyncio.sleep(0.02)
        except TimeoutError:
            pytest.fail(f"{what or 'it'} did not come about: {self.states}")

    async def until_phase(self, launch: Launch, phase: Phase) -> ObservedReplica:
        def reached() -> bool:
            state = self.states.get(launch.key)
            return state is not None and state.phase is phase

        await self.until(reached, f"{launch.key} {phase}")
        return self.states[launch.key]

    async def until_pending(self, launch: Launch, because: str) -> ObservedReplica:
        def reached() -> bool:
            state = self.states.get(launch.key)
            return (
                state is not None
                and state.generation == launch.generation
                and state.phase is Phase.PENDING
                and because in state.pending_reason
            )

        await self.until(reached, f"{launch.key} {because}")
        return self.states[launch.key]

    def close(self) -> None:
        self.link.cut()
        asyncio.run(self.admin.close())


_numbers = count(1)


@pytest.fixture(scope="session")
def priority_classes(control_plane: ControlPlane) -> None:
    """The classes of a platform, and one of serving."""
    values = {"elasticdl-high": -5, "elasticdl-low": -10, "test-serving": 1_000}
    for name, value in values.items():
        control_plane.kubectl("create", "priorityclass", name, f"--value={value}")


@pytest.fixture
def rig(control_plane: ControlPlane) -> Iterator[Rig]:
    namespace = f"t{next(_numbers)}"
    control_plane.kubectl("create", "namespace", namespace)
    # No pod is taken before a controller has made it, a moment later.
    account = ["--for=create", "serviceaccount/default", f"--timeout={BOUND_SECONDS}s"]
    control_plane.kubectl("-n", namespace, "wait", *account)
    one = Rig(control_plane, namespace, "digits")
    one.make_config_map()
    yield one
    one.close()
    control_plane.kubectl("delete", "namespace", namespace, "--wait=false")


@pytest.fixture
def run() -> Callable[[Awaitable[None]], None]:
    """Runs a story in an event loop of its own."""

    def start(story: Awaitable[None]) -> None:
        async def main() -> None:
            await story

        asyncio.run(main())

    return start


@pytest.fixture(scope="session", autouse=True)
def socat() -> None:
    assert shutil.which("socat"), (
        "socat is missing; tests/e2e/cluster/build installs it"
    )
