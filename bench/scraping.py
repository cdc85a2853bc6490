"""What metrics cost: a training step with them, and a scrape of a large job's master.

Owns the scraper, a process of its own as Prometheus is one. What is scraped is the
product's; metrics that are off are bench/unmeasured.py.
"""

from __future__ import annotations

import itertools
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
from elasticdl.job.heartbeats import (
    ModelInfo,
    Registration,
    WorkerHeartbeat,
    WorkerReport,
)
from elasticdl.job.tasks import LeaseRequest
from elasticdl.rpc.master_client import MasterClient
from frame import Benchmark, Row, interleaved, progress, ratios, row, seconds_row
from master_role import MasterRig, master, patiently
from roles import TOKEN, StandIn, parameter_server
from step import BATCH, definition, example_batch, trainer_of

if TYPE_CHECKING:
    from elasticdl.metrics.registry import WorkerMetrics

# Short rounds and many: what else the machine does meets both variants alike. And
# several pairs of processes: two of the same kind differ for as long as they live, by
# where their memory lies, by about what is looked for here.
PAIRS = 6
ROUNDS = 25
STEPS = 40
WORKERS = 500
SCRAPES = 200
HEARTBEAT_SECONDS = 1.0
# By a plain socket: what the scraper itself computes would be counted as the job's.
_SCRAPER = """
import socket, sys, time
while True:
    for port in sys.argv[1:]:
        try:
            with socket.create_connection(("127.0.0.1", int(port))) as connection:
                connection.sendall(b"GET /metrics HTTP/1.0\\r\\n\\r\\n")
                while connection.recv(1 << 16):
                    pass
        except OSError:
            break  # metrics are off now: the first of the ports is closed
    time.sleep(1.0)
"""


@contextmanager
def scraped(*ports: int) -> Iterator[None]:
    """Scrape these ports once a second, from another process."""
    command = [sys.executable, "-c", _SCRAPER, *map(str, ports)]
    process = subprocess.Popen(command)
    try:
        yield
    finally:
        process.kill()
        process.wait()


def stepping(metrics: WorkerMetrics, ps: StandIn) -> Iterator[Callable[[], float]]:
    """Give what makes STEPS steps, each counted as a worker counts it."""
    from elasticdl.metrics.goodput import GoodputLedger
    from elasticdl.worker.progress import WorkerProgress
    from elasticdl.worker.shows import Shows
    from elasticdl.worker.trainer import BatchPosition

    batch = example_batch()
    at = BatchPosition(
        task_id=1, epoch=0, records_done=0, num_records=BATCH, last=False
    )
    shows = Shows(
        WorkerProgress(time.monotonic, counted=metrics.count_steps),
        GoodputLedger(time.monotonic),
        metrics,
        log_loss_steps=100,
    )
    with trainer_of(definition("cnn", "Adam"), batch, ps, metrics=metrics) as trainer:

        def steps() -> float:
            began = time.perf_counter()
            for _ in range(STEPS):
                before = time.perf_counter()
                done = trainer.train_batch(batch.features, batch.labels, at)
                shows.step(done, BATCH, time.perf_counter() - before)
            trainer.flush()
            return (time.perf_counter() - began) / STEPS

        yield steps


def metrics_price() -> list[Row]:
    """Compare steps with all metrics on and scraped with steps that count nothing."""
    clock: list[float] = []
    spent: list[float] = []
    for pair in range(PAIRS):
        progress(f"pair {pair + 1} of {PAIRS} starts")
        by_clock, by_cpu = priced_pair(measured_first=pair % 2 == 0)
        clock += by_clock
        spent += by_cpu
    what = (
        "CNN through 1 PS: speed with all metrics on, worker and PS scraped each "
        "second / with metrics that count nothing"
    )
    return [
        row("metrics_price", f"{what}, by the clock", clock, 0.99),
        row("metrics_price_cpu", f"{what}, by CPU seconds of both", spent, 0.99),
    ]


def priced_pair(*, measured_first: bool) -> tuple[list[float], list[float]]:
    """Return a pair's ratios by the clock and by CPU seconds, one for each round."""
    from elasticdl.metrics.registry import WorkerMetrics
    from elasticdl.metrics.server import MetricsServer
    from unmeasured import UnmeasuredWorker

    metrics = WorkerMetrics()
    silent = [str(Path(__file__).with_name("silent_ps.py"))]
    steps: dict[str, Callable[[], float]] = {}
    ps: dict[str, StandIn] = {}
    cpu: dict[str, list[float]] = {"on": [], "off": []}
    with ExitStack() as stack:
        for name in ("on", "off") if measured_first else ("off", "on"):
            on = name == "on"
            ps[name] = stack.enter_context(
                parameter_server() if on else parameter_server(program=silent)
            )
            steps[name] = stack.enter_context(
                contextmanager(stepping)(
                    metrics if on else UnmeasuredWorker(), ps[name]
                )
            )

        def open_server(port: int = 0) -> MetricsServer:
            return MetricsServer(
                metrics.registry, ready=lambda: True, healthy=lambda: True, port=port
            )

        first = open_server()
        port = first.port
        first.close()

        def counted(name: str) -> float:
            before = cpu_seconds(ps[name])
            seconds = steps[name]()
            cpu[name].append(cpu_seconds(ps[name]) - before)
            return seconds

        def with_metrics() -> float:
            server = open_server(port)
            try:
                return counted("on")
            finally:
                server.close()

        with scraped(port, ps["on"].metrics_port):
            times = interleaved(
                {"on": with_metrics, "off": lambda: counted("off")}, ROUNDS
            )
    # The first CPU seconds of each are of the round that warms.
    return ratios(times["off"], times["on"]), ratios(cpu["off"][1:], cpu["on"][1:])


def cpu_seconds(ps: StandIn) -> float:
    """Return what this process and a PS have used of the CPUs."""
    of_ps = psutil.Process(ps.pid).cpu_times()
    return time.process_time() + of_ps.user + of_ps.system


class Crowd:
    """So many workers that tell what working ones tell, until `close`."""

    def __init__(self, rig: MasterRig) -> None:
        """Join as all of the master's workers."""
        rig.open_plan(1_000_000)
        self._over = threading.Event()
        self._pool = ThreadPoolExecutor(16)
        self._clients = [
            MasterClient(rig.address, rig.replica(index), token=TOKEN)
            for index in range(rig.workers)
        ]
        list(self._pool.map(self._join, range(rig.workers)))
        self._beating = threading.Thread(target=self._beat, name="crowd")
        self._beating.start()

    def _join(self, index: int) -> None:
        client = self._clients[index]
        register = Registration(pid=1, metrics_port=1024 + index)
        patiently(lambda: client.register(register))
        client.model_ready(ModelInfo(callbacks_json="[]", custom_reader=True))
        client.lease(LeaseRequest(want=1, wait_seconds=5))
        self._tell(index, 1)

    def _tell(self, index: int, step: int) -> None:
        seconds = {"start": 5.0, "train": 0.1 * step, "waitData": 0.01 * step}
        worker = WorkerReport(
            phase="train",
            step=step,
            step_seconds=0.1 + index / 10_000,
            memory_bytes=500_000_000,
            seconds=seconds,
        )
        self._clients[index].worker_sync(WorkerHeartbeat(worker=worker))

    def _beat(self) -> None:
        everyone = range(len(self._clients))
        for step in itertools.count(2):
            began = time.monotonic()
            list(self._pool.map(self._tell, everyone, itertools.repeat(step)))
            rest = began + HEARTBEAT_SECONDS - time.monotonic()
            if self._over.wait(max(0.0, rest)):
                return

    def close(self) -> None:
        """Be silent."""
        self._over.set()
        self._beating.join()
        self._pool.shutdown()
        for client in self._clients:
            client.close()


def scrape_500() -> list[Row]:
    """Time scrapes of a master whose 500 workers all beat, and look at its memory."""
    times = []
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder,
        master(Path(folder), workers=WORKERS) as rig,
    ):
        crowd = Crowd(rig)
        try:
            url = f"http://127.0.0.1:{metrics_port(Path(folder))}/metrics"
            process = psutil.Process(rig.process.pid if rig.process else 0)
            before = process.memory_info().rss
            for number in range(SCRAPES):
                began = time.perf_counter()
                with urllib.request.urlopen(url) as answer:
                    text = answer.read()
                times.append(time.perf_counter() - began)
                progress(f"scrape {number + 1} of {SCRAPES}")
                time.sleep(0.05)
            after = process.memory_info().rss
        finally:
            crowd.close()
    progress("")
    shown = text.count(b"elasticdl_workers_last_step_seconds{")
    if shown != WORKERS:
        raise RuntimeError(f"{shown} workers are shown, expected {WORKERS}")
    what = f"scrape of a master with {WORKERS} workers that beat, {len(text)} bytes"
    grown = (
        f"master of {WORKERS} workers, resident memory: after {SCRAPES} scrapes "
        f"({after / 2**20:.0f} MiB) / before"
    )
    return [
        seconds_row("scrape_500", what, times, 0.2),
        row("scrape_500_memory", grown, [after / before], 1.1, "lower"),
    ]


def metrics_port(folder: Path) -> int:
    """Return the port that the master's log tells."""
    log = (folder / "master.log").read_text()
    return int(log.partition("metrics on port ")[2].split()[0])


BENCHMARKS = {
    "metrics_price": Benchmark(metrics_price, 330, short=False),
    "scrape_500": Benchmark(scrape_500, 40, short=False),
}
