"""Recovery times: each role of a real job killed again and again while it trains.

Owns the measuring; the job, the faults and the journal are the product's own.
"""

from __future__ import annotations

import itertools
import re
import signal
import statistics
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

from elasticdl.client import Scaling
from elasticdl.data.making.datasets import DatasetOptions, make_dataset
from elasticdl.job.status import JobStatus
from elasticdl.job.values.document import ValuesFile
from elasticdl.master.tasks.journal_files import read_events
from elasticdl.testing.job import JobUnderTest
from frame import Benchmark, Row, progress, seconds_row

ROOT = Path(__file__).resolve().parent.parent
RUNS = 5
SETTLE_SECONDS = 3.0
_LOSS_LINE = re.compile(r"^(\S+ \S+) \w+ worker-\d+ \w+: Loss ")


@contextmanager
def training(
    workers: int = 3,
    *,
    sections: Mapping[str, Mapping[str, object]] | None = None,
    group: Mapping[str, object] | None = None,
    ps: Mapping[str, object] | None = None,
    added: str = "",
    environ: Mapping[str, str] | None = None,
    dataset: DatasetOptions | None = None,
) -> Iterator[JobUnderTest]:
    """Give an endless job on digits that trains, logging every step.

    Args:
        workers: How many.
        sections: More of `job`: `training`, beside small batches and tasks, and
            `checkpoint`, else frequent ones, as a loss is to cost little.
        group: `job.allReduce` of workers that make steps together, without PS.
        ps: `job.ps` of the others; None: two.
        added: Code at the end of the model's module.
        environ: Of its processes, beside this one's.
        dataset: How digits are divided; None: into files of 360 records.
    """
    sections = sections or {}
    strategy: dict[str, object] = {"ps": dict(ps or {"replicas": 2})}
    if group is not None:
        strategy = {"strategy": "allReduce", "allReduce": dict(group)}
    module = ROOT / "model_zoo" / "digits" / "cnn.py"
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        work = Path(folder)
        make_dataset("digits", work / "data", dataset)
        values = ValuesFile.model_validate(
            {
                "kind": "job",
                "job": {
                    "name": "bench",
                    "model": {
                        "definition": "net.custom_model",
                        "files": {"net.py": module.read_text() + added},
                    },
                    "data": {"training": "data/digits/train"},
                    "training": {
                        "epochs": 0,
                        "batchSize": 16,
                        "batchesPerTask": 8,
                        **sections.get("training", {}),
                        "logLossSteps": 1,
                    },
                    "checkpoint": dict(
                        sections.get("checkpoint", {"everySeconds": 2.0})
                    ),
                    **strategy,
                    "worker": {"replicas": workers, "threads": 1},
                },
            }
        )
        with JobUnderTest(values, work / "jobs", work, environ=environ or {}) as job:
            job.wait_until(lambda s: at_work(s) == workers, "all workers at work")
            yield job


def at_work(status: JobStatus) -> int:
    """Count the workers that train."""
    return sum(r.state == "running" and r.phase == "train" for r in status.replicas)


def settle(job: JobUnderTest, workers: int = 3) -> JobStatus:
    """Wait until everybody is at work again and has been for a while."""
    job.wait_until(lambda s: at_work(s) == workers, "all workers at work")
    time.sleep(SETTLE_SECONDS)
    return job.wait_until(lambda s: at_work(s) == workers, "all workers at work")


def step_times(job: JobUnderTest, index: int) -> list[float]:
    """Return the Unix times of a worker's steps, from its log."""
    times = []
    for line in job.log_text("worker", index).splitlines():
        match = _LOSS_LINE.match(line)
        if match:
            times.append(datetime.fromisoformat(match[1]).astimezone().timestamp())
    return times


def longest_pause(times: list[float], start: float, end: float) -> float:
    """Return the longest time between two steps in [start, end)."""
    inside = [start, *(t for t in times if start <= t < end), end]
    return max(b - a for a, b in itertools.pairwise(inside))


def worker_lost(runs: int = RUNS) -> list[Row]:
    """SIGKILL a worker: how long does any other worker pause?"""
    window = 2.0
    before, after, back = [], [], []
    with training() as job:
        for run in range(runs):
            progress(f"{run + 1} of {runs}")
            status = settle(job)
            indexes = [
                r.index
                for r in status.replicas
                if r.state == "running" and r.phase == "train"
            ]
            killed = job.fault("worker", signal.SIGKILL)
            began = time.time()
            job.wait_until(
                lambda s, k=killed: any(r.replica == k for r in s.relaunches),
                "the relaunch",
            )
            time.sleep(window)
            others = [i for i in indexes if f"worker-{i}" != killed]
            times = [step_times(job, i) for i in others if job_has_log(job, i)]
            before += [longest_pause(t, began - window, began) for t in times if t]
            after += [longest_pause(t, began, began + window) for t in times if t]
            settle(job)
            relaunch = next(
                r for r in job.status_now().relaunches if r.replica == killed
            )
            if relaunch.seconds is not None:
                back.append(relaunch.seconds)
    return [
        seconds_row(
            "worker_lost",
            "worker killed: longest pause between steps of any other worker, 2 s after "
            f"(2 s before: median {statistics.median(before):.2f} s)",
            after,
            1.0,
        ),
        seconds_row(
            "worker_back", "worker killed: until its replacement has a task", back, 20.0
        ),
    ]


def job_has_log(job: JobUnderTest, index: int) -> bool:
    """Tell whether a worker has written a log."""
    return job.job_dir.log_file("worker", index).exists()


def ps_lost(runs: int = RUNS) -> list[Row]:
    """SIGKILL a PS: when is the first gradient applied on it again?"""
    values = []
    with training() as job:
        for run in range(runs):
            progress(f"{run + 1} of {runs}")
            settle(job)
            count = len(job.status_now().relaunches)
            job.fault("ps", signal.SIGKILL)
            status = job.wait_until(
                lambda s, n=count: (
                    len(s.relaunches) > n and s.relaunches[-1].seconds is not None
                ),
                "the PS at work again",
            )
            values.append(status.relaunches[-1].seconds or 0.0)
    return [
        seconds_row(
            "ps_lost", "PS killed: until a gradient is applied on it", values, 10.0
        )
    ]


def master_lost(runs: int = RUNS) -> list[Row]:
    """SIGKILL the master: when is the first task leased again, do workers pause?"""
    leases, pauses = [], []
    # Tasks of a second or so: a worker holds one and the next, and goes on with them.
    sizes = {"batchSize": 2, "batchesPerTask": 1000}
    with training(sections={"training": sizes}) as job:
        lease_seconds = job.values.job.tasks.lease_seconds
        for run in range(runs):
            progress(f"{run + 1} of {runs}")
            status = settle(job)
            job.fault("master", signal.SIGKILL)
            began = time.time()
            job.wait_until(
                lambda s, n=run: s.master_generation == n + 2, "the next master"
            )
            time.sleep(SETTLE_SECONDS)
            opened = False
            for _, event in read_events(job.job_dir.journal_dir):
                if event["k"] == "open" and event["t"] >= began:
                    opened = True
                if opened and event["k"] == "lease" and "i" in event:
                    leases.append(event["d"] - lease_seconds - began)
                    break
            pauses += [
                longest_pause(step_times(job, r.index), began, began + SETTLE_SECONDS)
                for r in status.replicas
                if r.role == "worker" and r.phase == "train"
            ]
    return [
        seconds_row("master_lost", "master killed: until the first lease", leases, 5.0),
        seconds_row(
            "master_lost_pause",
            "master killed: longest pause between steps of a worker",
            pauses,
            1.0,
        ),
    ]


def scale(runs: int = RUNS) -> list[Row]:
    """Grow and shrink a running job."""
    up, start, down = [], [], []
    with training(workers=2) as job:
        for run in range(runs):
            progress(f"{run + 1} of {runs}")
            settle(job, 2)
            running = processes(job)
            began = time.time()
            job.handle.scale(Scaling(workers=3))
            while processes(job) <= running:
                time.sleep(0.02)
            up.append(time.time() - began)
            job.wait_until(lambda s: at_work(s) == 3, "three workers at work")
            start.append(time.time() - began)
            began = time.time()
            job.handle.scale(Scaling(workers=2))
            while processes(job) > running:
                time.sleep(0.02)
            down.append(time.time() - began)
    return [
        seconds_row("scale_up", "scale 2 to 3: until the new process runs", up, 5.0),
        seconds_row(
            "scale_up_whole", "scale 2 to 3: until the new worker trains", start, 20.0
        ),
        seconds_row("scale_down", "scale 3 to 2: until one has left", down, 5.0),
    ]


def processes(job: JobUnderTest) -> int:
    """Count the job's worker processes."""
    return sum("elasticdl.worker" in line for line in job.processes())


BENCHMARKS: dict[str, Benchmark] = {
    "worker_lost": Benchmark(worker_lost, 180, short=False),
    "ps_lost": Benchmark(ps_lost, 90, short=False),
    "master_lost": Benchmark(master_lost, 80, short=False),
    "scale": Benchmark(scale, 120, short=False),
}
