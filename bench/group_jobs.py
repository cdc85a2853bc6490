"""Jobs of a group whose members are killed, stopped and told to leave while they train.

Owns how long the others make no step, and what a slow member costs. The job and the
faults are the product's own.
"""

from __future__ import annotations

import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psutil
from elasticdl.client import Scaling
from elasticdl.data.making.datasets import DatasetOptions
from elasticdl.job.names import ENV_LENT_MEMORY
from elasticdl.job.status import JobStatus
from elasticdl.testing.job import JobUnderTest
from frame import Benchmark, Row, progress, ratios, row, seconds_row
from recovery import job_has_log, longest_pause, step_times, training

MEMBERS = 3
RUNS = 6
CALM_SECONDS = 3.0
_SETTLE_SECONDS = 5.0
_COMPARED = 5  # rounds of jobs that take turns
_MEASURED_SECONDS = 8.0


def together(job: JobUnderTest, number: int = MEMBERS) -> list[str]:
    """Wait until so many members have made steps for a while; the oldest first."""

    def all_in(status: JobStatus) -> bool:
        group = status.group
        return bool(group and group.level and len(group.members) == number)

    job.wait_until(all_in, f"{number} members")
    time.sleep(CALM_SECONDS)
    group = job.wait_until(all_in, f"{number} members").group
    return group.members if group else []


def pauses(
    job: JobUnderTest, others: list[str], began: float, seconds: float
) -> list[float]:
    """Return the longest time between two steps of each of these since then."""
    time.sleep(max(0.0, began + seconds - time.time()))
    indexes = [int(name.rpartition("-")[2]) for name in others]
    times = [step_times(job, i) for i in indexes if job_has_log(job, i)]
    return [longest_pause(t, began, began + seconds) for t in times if t]


def _lost(
    name: str, what: str, fault: Callable[[JobUnderTest, str], None], *, bar: float
) -> list[Row]:
    """Do this to the leader and to another member, in turn."""
    window = max(3.0, 1.5 * bar)
    before, after = [], []
    with training(group={}) as job:
        for run in range(RUNS):
            progress(f"{run + 1} of {RUNS}")
            members = together(job)
            lost = members[0] if run % 2 == 0 else members[-1]
            others = [member for member in members if member != lost]
            before += pauses(job, others, time.time() - CALM_SECONDS, CALM_SECONDS)
            began = time.time()
            fault(job, lost)
            after += pauses(job, others, began, window)
    said = f"{what} (before: median {statistics.median(before):.2f} s)"
    return [seconds_row(name, said, after, bar)]


def group_lost() -> list[Row]:
    """SIGKILL a member: how long do the others make no step?"""
    return _lost(
        "group_lost",
        "any member killed: longest time between two steps of the others",
        lambda job, name: job.handle.kill(name, signal.SIGKILL),
        bar=1.0,
    )


def group_frozen() -> list[Row]:
    """SIGSTOP a member: how long do the others make no step?"""
    return _lost(
        "group_frozen",
        "any member stopped: longest time between two steps of the others",
        lambda job, name: job.handle.kill(name, signal.SIGSTOP),
        bar=10.0,
    )


def group_leave() -> list[Row]:
    """Scale 3 -> 2: how long do the others make no step?"""
    after = []
    with training(group={}) as job:
        for run in range(RUNS):
            progress(f"{run + 1} of {RUNS}")
            members = together(job)
            began = time.time()
            job.handle.scale(Scaling(workers=MEMBERS - 1))
            status = job.wait_until(
                lambda s: bool(s.group and len(s.group.members) == MEMBERS - 1),
                "two members",
            )
            stayed = status.group.members if status.group else members
            after += pauses(job, stayed, began, 3.0)
            job.handle.scale(Scaling(workers=MEMBERS))
    what = "scale 3 -> 2: longest time between two steps of those who stay"
    return [seconds_row("group_leave", what, after, 0.5)]


@contextmanager
def half_a_cpu(pid: int, whole: int) -> Iterator[None]:
    """Let a process share its CPU with one that computes all the time.

    Another one, `whole`, has a CPU of its own, as members on two machines have: where
    the system moves both at will, the second one is on the busy CPU now and then.
    """
    cpus = sorted(os.sched_getaffinity(0))
    for process, cpu in ((pid, cpus[-1]), (whole, cpus[0])):
        for thread in psutil.Process(process).threads():
            os.sched_setaffinity(thread.id, {cpu})
    busy = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    os.sched_setaffinity(busy.pid, {cpus[-1]})
    try:
        yield
    finally:
        busy.kill()
        busy.wait()


def _records_a_second(shares: str) -> float:
    """Return those of two members; a batch has room for what the faster one takes."""
    records = 256
    # 1,536 of 1,797 records in one file: each step is one of 256, none a file's end.
    sizes = {"batchSize": records, "globalBatchSize": records, "batchesPerTask": 6}
    dataset = DatasetOptions(validation_share=0.1453, records_per_file=6 * records)
    with training(
        2,
        sections={"training": sizes},
        group={"shares": shares},
        dataset=dataset,
    ) as job:
        members = together(job, 2)
        pids = {r.name: r.pid for r in job.status_now().replicas}
        with half_a_cpu(pids[members[1]], pids[members[0]]):
            time.sleep(_SETTLE_SECONDS)
            first, began = job.status_now().progress, time.monotonic()
            time.sleep(_MEASURED_SECONDS)
            last = job.status_now().progress
        steps = last.version - first.version
        return steps * records / (time.monotonic() - began)


def group_balance() -> list[Row]:
    """Give one of two members half a CPU, with even shares and with those by speed."""
    speeds: dict[str, list[float]] = {"even": [], "speed": []}
    for number in range(_COMPARED):
        progress(f"{number + 1} of {_COMPARED}")
        for shares, found in speeds.items():
            found.append(_records_a_second(shares))
    what = "2 members, one with half a CPU: records a second by speed / even shares"
    return [row("group_balance", what, ratios(speeds["speed"], speeds["even"]), 1.25)]


# 5.9 M parameters of float32.
_MLP = """

def custom_model():
    return keras.Sequential([
        keras.Input((8, 8, 1)),
        keras.layers.Flatten(),
        keras.layers.Dense(2400, activation="relu"),
        keras.layers.Dense(2400, activation="relu"),
        keras.layers.Dense(10)])
"""


def _trained_a_second(**of_job: Any) -> float:
    """Return the records a second of two workers, each with batches of 64."""
    with training(
        2,
        sections={"training": {"batchSize": 64}, "checkpoint": {}},
        added=_MLP,
        **of_job,
    ) as job:
        time.sleep(_SETTLE_SECONDS)
        first, began = job.status_now().progress, time.monotonic()
        time.sleep(2 * _MEASURED_SECONDS)
        last = job.status_now().progress
        steps = last.version - first.version
        return steps * 2 * 64 / (time.monotonic() - began)


def group_ps() -> list[Row]:
    """Compare two members with two workers and a PS that waits for both."""
    group: dict[str, Any] = {"group": {}}
    ps: dict[str, Any] = {"ps": {"replicas": 1, "mode": "sync"}}
    apart = {"environ": {ENV_LENT_MEMORY: "off"}}
    variants = {
        "group": group,
        "ps": ps,
        "group apart": {**group, **apart},
        "ps apart": {**ps, **apart},
    }
    found: dict[str, list[float]] = {name: [] for name in variants}
    for number in range(_COMPARED):
        progress(f"{number + 1} of {_COMPARED}")
        for name, variant in variants.items():
            found[name].append(_trained_a_second(**variant))
    what = (
        "MLP of 23 MB, 2 workers: records a second of a group / with 1 PS in sync mode"
    )
    return [
        row("group_ps", what, ratios(found["group"], found["ps"]), 1.2),
        row(
            "group_ps_apart",
            f"{what}, without lent memory, as between pods",
            ratios(found["group apart"], found["ps apart"]),
            1.2,
        ),
    ]


BENCHMARKS = {
    "group_ps": Benchmark(group_ps, 600, short=False),
    "group_balance": Benchmark(group_balance, 250, short=False),
    "group_lost": Benchmark(group_lost, 120, short=False),
    "group_frozen": Benchmark(group_frozen, 220, short=False),
    "group_leave": Benchmark(group_leave, 120, short=False),
}
