"""The trace of 20 jobs on a real scheduler, beside the same one in the simulator.

    python -m tests.soak.scheduler
    python -m tests.soak.scheduler --jobs 4 --until 120

Real are the API server, the scheduler, the controller with its own times, and a master
for each job as a process; nodes and the pods on them are kwok's, and contain nothing:
so no worker ever reports, and as in the simulator none is replaced for it.
Prints both courses beside each other; fails if they differ by more than the bars.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from elasticdl.job.names import LABEL_JOB, LABEL_ROLE
from elasticdl.kube.amounts import quantity
from elasticdl.simulator.trace import Jobs as JobsOfTrace
from elasticdl.simulator.trace import Trace

from tests.e2e.control_plane.conftest import ControlPlane, Rig
from tests.e2e.control_plane.test_cluster_of_jobs import Jobs
from tests.unit.simulator import cases

NAMESPACE = "trace"
CLASSES = {"sizes-high": 1_000_000, "sizes-low": 1_000}
LEAVE = 1.5
# How far the real course may be from the simulated one; of moves, a share.
BAR_SIZE, BAR_USE, BAR_WAIT, BAR_MOVES = 2, 0.03, 2.0, 0.25
_LOOK_SECONDS = 1.0
_TEMPLATE = """\
apiVersion: v1
kind: Pod
metadata: {{labels: {{app.kubernetes.io/name: elasticdl}}}}
spec:
  automountServiceAccountToken: false
  containers:
  - name: main
    image: x
    resources: {{requests: {{cpu: "{cpu:g}", memory: {memory}}}}}
"""
_VALUES = """\
kind: job
job:
  name: {name}
  model: {{definition: net.custom_model}}
  data: {{training: {data}}}
  training: {{epochs: 100000}}
  master: {{resources: {{cpu: {master.cpu}, memory: {master.memory}}}}}
  ps:
    {{replicas: {ps.replicas}, priority: sizes-high,
     resources: {{cpu: {ps.cpu}, memory: {ps.memory}}}}}
  worker:
    {{replicas: {size}, min: {workers.min}, max: {workers.max}, priority: sizes-low,
     startSeconds: 1.0e+9, deadSeconds: 1.0e+9,
     resources: {{cpu: {workers.cpu}, memory: {workers.memory}}}}}
"""


class Cluster(Jobs):
    """The jobs of a trace, by their names."""

    def __init__(self, rig: Rig, folder: Path, jobs: list[JobsOfTrace]) -> None:
        super().__init__(rig, folder)
        self.by_name = {job.name: job for job in jobs}

    def documents(self, name: str, most: int) -> dict[str, str]:
        del most
        job = self.by_name[name]
        values = _VALUES.format(
            name=name,
            data=self.data,
            master=job.master,
            ps=job.ps,
            workers=job.workers,
            size=job.workers.replicas or job.workers.max,
        )
        return {
            "job.yaml": values,
            "ps.yaml": _TEMPLATE.format(cpu=job.ps.cpu, memory=job.ps.memory),
            "worker.yaml": _TEMPLATE.format(
                cpu=job.workers.cpu, memory=job.workers.memory
            ),
        }

    def master_pod(self, name: str) -> None:
        """Make what stands for the master's pod: it holds its room on a node."""
        job = self.by_name[name]
        pod = yaml.safe_load(
            _TEMPLATE.format(cpu=job.master.cpu, memory=job.master.memory)
        )
        pod["metadata"]["name"] = f"elasticdl-{name}-master-0"
        pod["metadata"]["labels"] |= {LABEL_JOB: name, LABEL_ROLE: "master"}
        pod["spec"]["priorityClassName"] = "sizes-high"
        self.rig.admin.call("POST", f"{self.rig.path}/pods", body=pod)

    @contextmanager
    def deciding(self) -> Iterator[None]:
        """Run a controller with its own times."""
        command = [
            sys.executable, "-m", "elasticdl.controller.main",
            f"--kubeconfig={self.link().kubeconfig}", f"--namespace={NAMESPACE}",
            "--priority-class=low=sizes-low:1000", "--port=0",
            "--priority-class=high=sizes-high:1000000",
        ]  # fmt: skip
        with (self.folder / "controller.log").open("wb") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log)
            try:
                yield
                assert process.poll() is None, "the controller ended"
            finally:
                process.terminate()
                process.wait(30)


@dataclass
class Seen:
    """What happened to the jobs, by looks at the pods a second apart."""

    total: float  # CPUs of all nodes
    taken: float  # of them, by others
    began: float = field(default_factory=time.monotonic)
    came: dict[str, float] = field(default_factory=dict)
    first: dict[str, float] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)
    workers: set[str] = field(default_factory=set)  # by uid, that run or ran
    moved: set[str] = field(default_factory=set)
    preempted: set[str] = field(default_factory=set)  # of those, by the scheduler
    moves_of: dict[str, int] = field(default_factory=dict)  # by job
    uses: list[tuple[float, float]] = field(default_factory=list)

    def look(self, pods: list[dict[str, Any]]) -> None:
        """Take the pods of all jobs."""
        now = time.monotonic() - self.began
        held, there = self.taken, set()
        sizes = dict.fromkeys(self.came, 0)
        for pod in pods:
            meta, labels = pod["metadata"], pod["metadata"].get("labels", {})
            leaving = "deletionTimestamp" in meta
            if pod["spec"].get("nodeName"):
                (main,) = pod["spec"]["containers"]
                held += quantity(main["resources"]["requests"]["cpu"])
            if labels.get(LABEL_ROLE) != "worker":
                continue
            there.add(meta["uid"])
            name = labels[LABEL_JOB]
            if leaving and meta["uid"] in self.workers:
                if meta["uid"] not in self.moved:
                    self.moves_of[name] = self.moves_of.get(name, 0) + 1
                self.moved.add(meta["uid"])
                if _is_preempted(pod):
                    self.preempted.add(meta["uid"])
            elif pod["status"]["phase"] == "Running" and not leaving:
                self.workers.add(meta["uid"])
                sizes[name] += 1
                self.first.setdefault(name, now - self.came[name])
        self.moved |= self.workers - there
        self.sizes = sizes
        self.uses.append((now, held / self.total))

    def use(self, since: float) -> float:
        """Return the mean use from a time on."""
        return statistics.fmean(use for at, use in self.uses if at >= since)


def _is_preempted(pod: dict[str, Any]) -> bool:
    return any(
        condition.get("reason") == "PreemptionByScheduler"
        for condition in pod["status"].get("conditions", [])
    )


def stages(programs: Path, times: Any, file: Path) -> None:
    """Write kwok's stages, with the trace's times of starts and of leaving."""
    found = list(yaml.safe_load_all((programs / "kwok-stages.yaml").read_text()))
    delays = {"pod-ready": times.pod_start, "pod-delete": times.leave}
    for stage in found:
        seconds = delays.get(stage["metadata"]["name"])
        if seconds is not None:
            stage["spec"]["delay"] = {"durationMilliseconds": round(1000 * seconds)}
    file.write_text(yaml.safe_dump_all(found))


def nodes(control_plane: ControlPlane, trace: Trace) -> tuple[float, float]:
    """Make nodes, and on each a pod of others; return all CPUs, and those taken."""
    objects: list[dict[str, Any]] = []
    total = taken = 0.0
    for name, kind in trace.each_node():
        has = {"cpu": f"{kind.cpu:g}", "memory": kind.memory, "pods": str(kind.pods)}
        labels = {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux"}
        meta = {
            "name": name,
            "labels": labels,
            "annotations": {"kwok.x-k8s.io/node": "fake"},
        }
        status = {"allocatable": has, "capacity": has}
        objects.append(
            {"apiVersion": "v1", "kind": "Node", "metadata": meta, "status": status}
        )
        asked = {"requests": {"cpu": f"{kind.taken:g}"}}
        objects.append(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": f"agent-{name}", "namespace": "kube-system"},
                "spec": {
                    "nodeName": name,
                    "containers": [{"name": "main", "image": "x", "resources": asked}],
                },
            }
        )
        total, taken = total + kind.cpu, taken + kind.taken
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
    control_plane.kubectl("apply", "-f-", text=text)
    control_plane.kubectl("wait", "--for=condition=Ready", "node", "--all")
    return total, taken


def course(trace: Trace, folder: Path) -> Seen:
    """Run the trace on a control plane of its own."""
    jobs = trace.all_jobs()
    with ExitStack() as stack:
        control_plane = ControlPlane(folder / "control-plane")
        control_plane.state.mkdir()
        stack.callback(control_plane.run, "down")
        control_plane.up()
        for name, value in CLASSES.items():
            control_plane.kubectl("create", "priorityclass", name, f"--value={value}")
        config = folder / "stages.yaml"
        stages(control_plane.state / "bin", trace.times, config)
        kwok = subprocess.Popen(
            [
                control_plane.state / "bin" / "kwok",
                f"--kubeconfig={control_plane.kubeconfig}",
                f"--config={config}",
                "--manage-all-nodes=false",
                "--manage-nodes-with-annotation-selector=kwok.x-k8s.io/node=fake",
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        stack.callback(kwok.wait)
        stack.callback(kwok.kill)
        total, taken = nodes(control_plane, trace)
        control_plane.kubectl("create", "namespace", NAMESPACE)
        for_account = ["--for=create", "serviceaccount/default", "--timeout=40s"]
        control_plane.kubectl("-n", NAMESPACE, "wait", *for_account)
        rig = Rig(control_plane, NAMESPACE, "digits")
        stack.callback(rig.close)
        rig.make_config_map()
        cluster = Cluster(rig, folder, jobs)
        stack.callback(cluster.close)
        stack.enter_context(cluster.deciding())
        time.sleep(5.0)  # it has a Lease, and a view
        seen = Seen(total, taken)
        for job in jobs:
            _until(seen, cluster, seen.began + job.at)
            seen.came[job.name] = time.monotonic() - seen.began
            cluster.master_pod(job.name)
            starting = threading.Timer(
                trace.times.pod_start,
                lambda name=job.name: stack.enter_context(cluster.master(name)),
            )
            starting.start()
            stack.callback(starting.join)
        _until(seen, cluster, seen.began + trace.until)
        return seen


def _until(seen: Seen, cluster: Cluster, end: float) -> None:
    """Look at the pods until a time."""
    while (now := time.monotonic()) < end:
        seen.look(cluster.rig.get("pods")["items"])
        running = sum(seen.sizes.values())
        line = f"{now - seen.began:5.0f} s: {len(seen.came)} jobs, {running} workers"
        sys.stderr.write(f"\r{line} ")
        time.sleep(max(0.0, min(end, now + _LOOK_SECONDS) - time.monotonic()))


def main() -> int:
    """Run both; the exit code is 1 if they differ by more than the bars."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak.scheduler")
    parser.add_argument("--jobs", type=int, default=20)
    parser.add_argument("--until", type=float, default=540.0)
    options = parser.parse_args()
    given = cases.trace("20-jobs", leave=LEAVE)
    (jobs,) = given.jobs
    fewer = jobs.model_copy(update={"count": options.jobs})
    trace = given.model_copy(update={"jobs": [fewer], "until": options.until})
    simulated, figures = cases.run(trace, "elastic")
    with tempfile.TemporaryDirectory(prefix="elasticdl-trace-") as name:
        seen = course(trace, Path(name))
    sys.stderr.write("\n")
    last = simulated.samples[-1]
    names = [job.name for job in trace.all_jobs()]
    theirs = dict(zip(simulated.jobs, last.running, strict=True))
    apart = max(abs(seen.sizes[one] - theirs[one]) for one in names)
    waits = statistics.fmean(seen.first[one] for one in names if one in seen.first)
    use = seen.use(trace.last_arrival)
    moves = abs(len(seen.moved) - figures.moved) / max(1, figures.moved)
    rows = [
        ("jobs without a worker", len(names) - len(seen.first), figures.never, 0),
        ("sizes at rest: apart at most", apart, 0, BAR_SIZE),
        ("use", use, figures.use, BAR_USE),
        ("first worker after, s, mean", waits, figures.first_mean or 0.0, BAR_WAIT),
        ("workers moved", len(seen.moved), figures.moved, BAR_MOVES * figures.moved),
    ]
    print(f"{'':34}{'real':>10}{'simulated':>12}{'bar':>10}")
    missed = False
    for what, real, other, bar in rows:
        holds = abs(real - other) <= bar
        missed = missed or not holds
        word = "ok" if holds else "MISSED"
        print(f"{what:34}{real:10.3f}{other:12.3f}{bar:10.2f}  {word}")
    print(
        f"of the moved, pushed out by the scheduler: {len(seen.preempted)} real, "
        f"{figures.preempted} simulated; moves by job, real: "
        f"{[seen.moves_of.get(one, 0) for one in names]}, "
        f"simulated: {[job.moved for job in simulated.done]}"
    )
    print(f"sizes at rest, real: {[seen.sizes[one] for one in names]}")
    print(f"sizes at rest, simulated: {[theirs[one] for one in names]}")
    print(f"moves differ by {moves:.0%}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
