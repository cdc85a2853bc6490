"""The master: its queue, its calls, its journal, its start.

Owns the load that is put on it; the rig is bench/master_role.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
from elasticdl.data.reader import Shard
from elasticdl.errors import FencedError
from elasticdl.job.tasks import LeaseRequest
from elasticdl.master.tasks.ledger import Ledger
from elasticdl.master.tasks.queue_plan import QueuePlan
from frame import Benchmark, Row, in_one_loop, interleaved, progress, ratios, row
from master_crowd import crowd_of
from master_role import SILENT, lease_rate, master, patiently, percentile_99
from roles import CORES, parameter_server

WORKERS = 1000
MANY, FEW = 10_000_000, 1_000


def plan_of(tasks: int) -> QueuePlan:
    """Return a plan of so many tasks of one record, in shuffled order."""
    return QueuePlan(
        (Shard("simulated", 0, tasks),), 1, 1, epochs=0, shuffle=True, seed=7
    )


@contextmanager
def ledger_of(tasks: int) -> Iterator[Ledger]:
    """Give an open ledger, journal included."""
    with tempfile.TemporaryDirectory() as folder:
        ledger = Ledger.open(Path(folder), now=0.0)
        ledger.open_plan(plan_of(tasks))
        yield ledger
        ledger.close()


def queue_flat() -> list[Row]:
    """Compare the cost of a lease in a long queue with that in a short one."""
    batch = 1000

    def leases(ledger: Ledger) -> Callable[[], float]:
        async def work() -> float:
            began = time.perf_counter()
            for _ in range(batch):
                leased = ledger.lease(1, now=0.0, lease_seconds=60.0)
                if leased is not None:
                    ledger.finish(leased.lease_id, records=1, steps=1, now=1.0)
            seconds = (time.perf_counter() - began) / batch
            await ledger.commit()  # so that the journal's buffer stays short
            return seconds

        return lambda: asyncio.run(work())

    # Both endless, so that the short queue does not run out: an epoch has FEW tasks.
    with ledger_of(MANY) as many, ledger_of(FEW) as few:
        times = interleaved({"many": leases(many), "few": leases(few)}, 30)
    what = "lease and report of a task, seconds: queue of 10 M tasks / of 1 k"
    return [row("queue_flat", what, ratios(times["many"], times["few"]), 1.3, "lower")]


_OPEN = """
import sys, tempfile, time, psutil
from pathlib import Path
import numpy
from elasticdl.data.reader import Shard
from elasticdl.master.tasks.ledger import Ledger
from elasticdl.master.tasks.queue_plan import QueuePlan
folder = tempfile.mkdtemp()
memory = psutil.Process().memory_info
before, began = memory().rss, time.perf_counter()
if sys.argv[1] == "array":
    kept = numpy.arange(10_000_000)
else:
    kept = Ledger.open(Path(folder), now=0.0)
    kept.open_plan(QueuePlan((Shard("simulated", 0, 10_000_000),), 1, 1, shuffle=True))
    kept.lease(1, now=0.0, lease_seconds=60.0)
print(time.perf_counter() - began, (memory().rss - before) / 2**20)
"""


def queue_start() -> list[Row]:
    """Compare opening a job of 10 M tasks with as many integers in memory."""
    seconds: dict[str, list[float]] = {"job": [], "array": []}
    megabytes: dict[str, list[float]] = {"job": [], "array": []}
    for number in range(7):
        progress(f"round {number + 1} of 7")
        for kind, took in seconds.items():
            done = subprocess.run(
                [sys.executable, "-c", _OPEN, kind],
                check=True, capture_output=True, text=True,
            )  # fmt: skip
            first, grew = map(float, done.stdout.split())
            took.append(first)
            megabytes[kind].append(max(grew, 0.1))
    progress("")
    what = "open a job of 10 M tasks, first lease included / 10 M int64 in an array"
    return [
        row(
            "queue_start", f"{what}, seconds", ratios(seconds["job"], seconds["array"]),
            0.3, "lower",
        ),
        row(
            "queue_start_memory", f"{what}, MB",
            ratios(megabytes["job"], megabytes["array"]), 0.3, "lower",
        ),
    ]  # fmt: skip


def rate_of(
    program: Path | None, seconds: float, *, beats: bool = False
) -> tuple[float, list[float]]:
    """Return leases a second of 1,000 workers, and the calls' seconds.

    Raises RuntimeError where a worker that beats was given up.
    """
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder,
        master(
            Path(folder), workers=WORKERS, program=program, patient=not beats
        ) as rig,
    ):
        rig.open_plan(MANY)
        rate = in_one_loop(lease_rate(rig, seconds=seconds, beats=beats))
        if rig.served.stopped:
            raise RuntimeError(f"given up: {rig.served.stopped[:3]}")
        return rate


def queue_rpc() -> list[Row]:
    """Count leases a second with 1,000 workers, which also beat in every other run."""
    rates: dict[bool, list[float]] = {False: [], True: []}
    times: dict[bool, list[float]] = {False: [], True: []}
    for number in range(3):
        progress(f"round {number + 1} of 3")
        for beats in (False, True):
            rate, calls = rate_of(None, 5.0, beats=beats)
            rates[beats].append(rate)
            times[beats] += calls
    progress("")
    what = (
        "leases a second, 1,000 simulated workers on this machine; a call reports one "
        "task and leases the next"
    )
    late, later = (f"p99 {percentile_99(times[beats]):.2f} s" for beats in rates)
    return [
        row("queue_rpc", f"{what} ({late})", rates[False], 1000.0),
        row(
            "queue_rpc_beats",
            f"the same, with heartbeats and default bounds, nobody given up ({later})",
            rates[True],
            500.0,
        ),
    ]


def workers_1000() -> list[Row]:
    """Let 1,000 workers live as they do by default, with tasks of a second each."""
    cores, lost, late, rates = [], [], [], []
    for number in range(3):
        progress(f"round {number + 1} of 3")
        with (
            tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder,
            master(Path(folder), workers=WORKERS, patient=False) as rig,
        ):
            rig.open_plan(MANY)
            crowd = in_one_loop(crowd_of(rig, warm=5.0, seconds=15.0))
        cores.append(crowd.cores)
        lost.append(float(crowd.lost))
        late.append(statistics.quantiles(crowd.lease_seconds, n=20)[18])
        rates.append(crowd.reported / crowd.seconds)
    progress("")
    what = (
        "1,000 workers that beat, lease and report a task a second, default bounds "
        f"({min(rates):.0f} tasks a second at least)"
    )
    return [
        row("workers_1000", f"{what}: cores that the master uses", cores, 0.5, "lower"),
        row("workers_1000_lost", f"{what}: workers given up", lost, 0.0, "lower"),
        row(
            "workers_1000_lease", f"{what}: a lease, seconds, p95", late, 0.2, "lower"
        ),
    ]  # fmt: skip


def journal() -> list[Row]:
    """Compare the rate with the journal and without."""
    rates = interleaved(
        {
            "with": lambda: rate_of(None, 4.0)[0],
            "without": lambda: rate_of(SILENT, 4.0)[0],
        },
        3,
    )
    what = "leases a second of 1,000 workers, journal on disk / no journal"
    return [row("journal", what, ratios(rates["with"], rates["without"]), 0.8)]


async def write_journal(folder: Path, tasks: int) -> None:
    """Lease and finish so many tasks, as the master's loop does it."""
    ledger = Ledger.open(folder, now=time.time())
    for number in range(tasks):
        leased = ledger.lease(0, now=time.time(), lease_seconds=60.0)
        if leased is not None:
            ledger.finish(leased.lease_id, records=1, steps=1, now=time.time())
        if number % 5000 == 0:
            await ledger.commit()
            if ledger.wants_compaction():
                await ledger.compact()
            progress(f"journal of {number} tasks")
    await ledger.commit()
    ledger.close()


def master_restart() -> list[Row]:
    """Compare the restart after a long life with that after a short one."""
    with contextlib.ExitStack() as stack:
        starts: dict[str, Callable[[], float]] = {}
        for name, tasks in (("long", 1_000_000), ("short", 1_000)):
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            rig = stack.enter_context(master(folder))
            client = rig.open_plan(MANY)
            client.lease(LeaseRequest(want=1, wait_seconds=5))
            rig.kill()
            asyncio.run(write_journal(folder / "job" / "journal", tasks))

            def start(rig: object = rig, client: object = client) -> float:
                began = time.perf_counter()
                rig.start()  # type: ignore[attr-defined] # a MasterRig

                def lease() -> None:
                    reply = client.lease(  # type: ignore[attr-defined] # MasterClient
                        LeaseRequest(want=1, wait_seconds=5)
                    )
                    if not reply.tasks:
                        raise FencedError("no task was leased")

                patiently(lease)
                seconds = time.perf_counter() - began
                rig.kill()  # type: ignore[attr-defined] # as above
                return seconds

            starts[name] = start
        times = interleaved(starts, 7)
    what = "exec to first lease, seconds: journal of 1 M finished tasks / of 1 k"
    return [
        row("master_restart", what, ratios(times["long"], times["short"]), 2, "lower")
    ]


def cold_start() -> list[Row]:
    """Compare what PS and master need to listen with TensorFlow's import."""
    memory: dict[str, list[float]] = {"roles": [], "tensorflow": []}

    def listening(role: str) -> float:
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
            folder = Path(name)
            if role == "master":
                began = time.perf_counter()
                with master(folder) as rig:
                    rig.replica(0)  # it listens before it asks for replicas
                    seconds = time.perf_counter() - began
                    pid = rig.process.pid if rig.process else 0
                    memory["roles"].append(psutil.Process(pid).memory_info().rss)
                return seconds
            began = time.perf_counter()
            with parameter_server(cpu=CORES):
                seconds = time.perf_counter() - began
                (child,) = [
                    child
                    for child in psutil.Process().children()
                    if "elasticdl.ps.main" in child.cmdline()
                ]
                memory["roles"].append(child.memory_info().rss)
            return seconds

    def tensorflow() -> float:
        code = "import psutil, tensorflow; print(psutil.Process().memory_info().rss)"
        began = time.perf_counter()
        done = subprocess.run(
            [sys.executable, "-c", code], check=True, capture_output=True, text=True
        )
        seconds = time.perf_counter() - began
        memory["tensorflow"].append(float(done.stdout.split()[-1]))
        return seconds

    times = interleaved(
        {
            "ps": lambda: listening("ps"),
            "master": lambda: listening("master"),
            "tensorflow": tensorflow,
        },
        5,
    )
    slower = [max(pair) for pair in zip(times["ps"], times["master"], strict=True)]
    larger = max(memory["roles"])
    what = "PS and master (the slower, the larger one) listening / import tensorflow"
    return [
        row(
            "cold_start", f"{what}, seconds", ratios(slower, times["tensorflow"]),
            0.25, "lower",
        ),
        row(
            "cold_start_memory", f"{what}, resident memory",
            [larger / size for size in memory["tensorflow"]], 0.35, "lower",
        ),
    ]  # fmt: skip


BENCHMARKS = {
    "queue_flat": Benchmark(queue_flat, 5),
    "queue_start": Benchmark(queue_start, 5),
    "queue_rpc": Benchmark(queue_rpc, 70, short=False),
    "workers_1000": Benchmark(workers_1000, 90, short=False),
    "journal": Benchmark(journal, 80, short=False),
    "master_restart": Benchmark(master_restart, 90, short=False),
    "cold_start": Benchmark(cold_start, 30, short=False),
}
