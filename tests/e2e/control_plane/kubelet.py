"""A kubelet of a few lines: pods of a job as processes of this machine.

Each pod gets an address of its own on loopback, as a network namespace would give it
one, and the environment that its template and the master's stamp say. Owns the
processes; tells the API server what a kubelet tells.
"""

import json
import os
import signal
import subprocess
import threading
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from elasticdl.job import names
from elasticdl.kube.api import ApiError
from elasticdl.rpc.tls.certificates import Authority

TOKEN = "of this job alone"
# The PriorityClasses behind the words `high` and `low`.
HIGH, LOW = "elasticdl-test-high", "elasticdl-test-low"
# What the chart's master runs, but for the way to the API server.
MASTER = """\
import os, sys
from elasticdl.master.main import main
from elasticdl.master.pod import serve_in_pod
from elasticdl.kube.api import ApiServer

def serve(context):
    return serve_in_pod(context, ApiServer.from_kubeconfig(sys.argv[1]))

sys.exit(main(os.environ, serve))
"""


@dataclass
class Running:
    name: str
    process: subprocess.Popen[bytes]
    told: bool = False


class Kubelet:
    """Runs what the API server shows, until `close`."""

    def __init__(self, rig, folder: Path, cwd: Path) -> None:
        self.rig, self.folder, self.cwd = rig, folder, cwd
        self.job_dir = names.JobDir(folder / "jobs" / rig.namespace / rig.job)
        self.config_dir = folder / "etc"
        self.authority_dir = folder / "authority"
        for path in (self.config_dir, self.authority_dir, folder / "logs"):
            path.mkdir(parents=True)
        Authority.new().write(self.authority_dir)
        self.running: dict[str, Running] = {}
        self.leaving: list[Running] = []  # told to go; their pods are no more
        self.seen: list[str] = []  # names of pods, as they came
        self.masters: list[subprocess.Popen[bytes]] = []
        self.problem: Exception | None = None
        self._addresses = (f"127.1.0.{number}" for number in count(2))
        self._master_address = f"127.1.{os.getpid() % 250}.1"
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="kubelet")

    # -- what Helm makes ------------------------------------------------------------

    def install(self, job_yaml: str) -> None:
        """Make the ConfigMap, as a release does, and mount it."""
        (self.config_dir / "job.yaml").write_text(job_yaml)
        template = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"labels": {"app.kubernetes.io/name": "elasticdl"}},
            "spec": {
                "automountServiceAccountToken": False,
                "containers": [{"name": "main", "image": "elasticdl/any:1"}],
            },
        }
        main = template["spec"]["containers"][0]
        data = {"job.yaml": job_yaml}
        for role in ("ps", "worker"):
            env = self._told() | {
                "ELASTICDL_PORT": "50002",
                "ELASTICDL_AUTHORITY": (self.authority_dir / "tls.crt").read_text(),
            }
            main["command"] = ["python", "-P", "-m", f"elasticdl.{role}.main"]
            main["env"] = [{"name": k, "value": v} for k, v in env.items()]
            data[f"{role}.yaml"] = json.dumps(template)
        self.rig.admin.call(
            "POST",
            f"{self.rig.path}/configmaps",
            body={
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"name": f"elasticdl-{self.rig.job}"},
                "data": data,
            },
        )
        self._thread.start()

    def _told(self) -> dict[str, str]:
        return {
            "ELASTICDL_JOB_DIR": str(self.job_dir.root),
            "ELASTICDL_MASTER_ADDRESS": f"{self._master_address}:50001",
            "ELASTICDL_HOST": "0.0.0.0",
            "ELASTICDL_METRICS_PORT": "8080",
            "ELASTICDL_TOKEN": TOKEN,
        }

    def start_master(self) -> subprocess.Popen[bytes]:
        """Start a master's pod, as the batch Job does."""
        environ = self._told() | {
            "ELASTICDL_HOST": self._master_address,
            "ELASTICDL_POD_IP": self._master_address,
            "ELASTICDL_PORT": "50001",
            "ELASTICDL_PLATFORM": "kubernetes",
            "ELASTICDL_NAMESPACE": self.rig.namespace,
            "ELASTICDL_CONFIG_MAP": f"elasticdl-{self.rig.job}",
            "ELASTICDL_CONFIG_DIR": str(self.config_dir),
            "ELASTICDL_AUTHORITY_DIR": str(self.authority_dir),
            # So short that it is renewed while the job runs.
            "ELASTICDL_CERTIFICATE_HOURS": "0.004",
            "ELASTICDL_PRIORITY_HIGH": HIGH,
            "ELASTICDL_PRIORITY_LOW": LOW,
        }
        command = ["python", "-c", MASTER, str(self.rig.link.kubeconfig)]
        process = self._execute("master", command, environ)
        self.masters.append(process)
        return process

    def _execute(
        self, name: str, command: list[str], environ: dict[str, str]
    ) -> subprocess.Popen[bytes]:
        with (self.folder / "logs" / f"{name}.log").open("ab") as log:
            return subprocess.Popen(
                command,
                env={**os.environ, **environ},
                cwd=self.cwd,
                stdout=log,
                stderr=log,
            )

    # -- the pods -------------------------------------------------------------------

    def log(self, name: str) -> str:
        path = self.folder / "logs" / f"{name}.log"
        return path.read_text() if path.exists() else ""

    def process(self, name: str) -> subprocess.Popen[bytes]:
        (one,) = (r for r in self.running.values() if r.name == name)
        return one.process

    def _run(self) -> None:
        try:
            while not self._stop.wait(0.1):
                self._look()
        except Exception as error:  # noqa: BLE001 - top of the thread; tests look
            self.problem = error

    def _look(self) -> None:
        shown = {pod["metadata"]["uid"]: pod for pod in self.rig.get("pods")["items"]}
        for uid, one in list(self.running.items()):
            if uid not in shown:  # never bound to a node, it is deleted at once
                one.process.send_signal(signal.SIGTERM)
                self.leaving.append(self.running.pop(uid))
            elif one.process.poll() is not None and not one.told:
                one.told = True
                self._tell_end(one)
        for uid, pod in shown.items():
            if uid not in self.running and pod["status"]["phase"] == "Pending":
                self.running[uid] = self._start(pod)

    def _start(self, pod) -> Running:
        name = pod["metadata"]["name"].removeprefix(f"elasticdl-{self.rig.job}-")
        self.seen.append(name)
        (main,) = pod["spec"]["containers"]
        address = next(self._addresses)
        environ = {entry["name"]: entry["value"] for entry in main["env"]}
        environ |= {"ELASTICDL_HOST": address, "ELASTICDL_POD_IP": address}
        started = {"running": {"startedAt": "2026-11-21T10:00:00Z"}}
        self._say(name, "Running", started)
        return Running(name, self._execute(name, main["command"], environ))

    def _tell_end(self, one: Running) -> None:
        code = one.process.returncode
        ending = {
            "exitCode": 128 - code if code < 0 else code,
            "reason": "Error" if code else "Completed",
            "startedAt": "2026-11-21T10:00:00Z",
            "finishedAt": "2026-11-21T10:00:01Z",
        }
        phase = "Failed" if code else "Succeeded"
        self._say(one.name, phase, {"terminated": ending})

    def _say(self, name: str, phase: str, state) -> None:
        try:
            self.rig.say(name, phase, state)
        except ApiError as error:
            if error.status != 404:  # deleted meanwhile
                raise

    def close(self) -> None:
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()
        pods = [*self.running.values(), *self.leaving]
        for process in [*self.masters, *(pod.process for pod in pods)]:
            process.kill()
            process.wait()
        assert self.problem is None, self.problem
