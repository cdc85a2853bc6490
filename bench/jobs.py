"""Whole jobs: what elasticity, checkpoints and a second worker cost or bring.

Owns the data and the values of the jobs, and how their rate is read off their logs.
"""

from __future__ import annotations

import itertools
import re
import tempfile
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from elasticdl.data.making.datasets import make_dataset
from elasticdl.data.making.shards import write_shards
from elasticdl.data.reader import open_reader
from elasticdl.job.names import ENV_LENT_MEMORY
from elasticdl.job.spec.job import DataFormat
from elasticdl.job.values.document import ValuesFile
from elasticdl.testing.job import JobUnderTest
from frame import Benchmark, Row, interleaved, progress, ratios, row
from roles import parameter_server
from step import BATCH, MODELS, records_of, trainer_of

if TYPE_CHECKING:
    from elasticdl.model.feeding import Batch
    from elasticdl.worker.trainer import Trainer

ZOO = Path(__file__).resolve().parent.parent / "model_zoo"
_LOSS = re.compile(r"^(\S+ \S+) \w+ worker-\d+ \w+: Loss \S+ at step (\d+) ", re.M)

# Of `elastic_price`: a round is a job's seconds; the loop has half of them. Several
# pairs of job and loop: two of the same kind differ by 0.02 for as long as they live.
_PAIRS = 4
_ROUNDS = 12
_ROUND_SECONDS = 3.0
_RESUMED_SECONDS = 0.3  # until calls that were under way have been made again
_WARM_SECONDS = 3.0
_WARM_STEPS = 500

# 50 M parameters; little data, so that its traffic is all there is.
WIDE = (
    MODELS
    + """
def wide():
    return keras.Sequential([
        keras.Input((28, 28, 1)),
        keras.layers.Flatten(),
        keras.layers.Dense(6700, activation="relu"),
        keras.layers.Dense(6700, activation="relu"),
        keras.layers.Dense(10)])
"""
)


def losses(job: JobUnderTest, worker: int) -> list[tuple[float, int]]:
    """Return (Unix seconds, step) of the losses that a worker has logged."""
    path = job.job_dir.log_file("worker", worker)
    text = path.read_text(errors="replace") if path.exists() else ""
    return [
        (datetime.fromisoformat(stamp).astimezone().timestamp(), int(step))
        for stamp, step in _LOSS.findall(text)
    ]


def rate(marks: list[tuple[float, int]]) -> float:
    """Return the steps a second between the first mark and the last."""
    (first, begun), (last, done) = marks[0], marks[-1]
    return (done - begun) / (last - first)


def steady_rate(
    values: ValuesFile,
    cwd: Path,
    *,
    workers: int,
    seconds: float,
    warm: float = 2.0,
    apart: bool = False,
) -> float:
    """Return the steps a second of all workers together, once all of them train.

    `apart`: workers lend PS no memory, as between pods.
    """
    environ = {ENV_LENT_MEMORY: "off"} if apart else {}
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder,
        JobUnderTest(values, Path(folder), cwd, environ=environ) as job,
    ):
        job.wait_until(
            lambda _: all(losses(job, worker) for worker in range(workers)),
            "the first step of every worker",
        )
        began = time.time() + warm
        time.sleep(warm + seconds)
        total = 0.0
        for worker in range(workers):
            marks = [mark for mark in losses(job, worker) if mark[0] >= began]
            total += rate(marks)
    return total


def images(folder: Path, count: int) -> Path:
    """Write records for MODELS' feed."""
    write_shards(
        records_of(count),
        folder / "data" / "train",
        format=DataFormat.RECORDIO,
        records_per_file=4096,
    )
    return folder


def image_job(model: str, **changes: Any) -> ValuesFile:
    """Return an endless job on those records."""
    return ValuesFile.model_validate(
        {
            "kind": "job",
            "job": {
                "name": "bench",
                "model": {"definition": f"net.{model}", "files": {"net.py": WIDE}},
                "data": {"training": "data/train"},
                "training": {
                    "epochs": 0,
                    "batchSize": BATCH,
                    "batchesPerTask": 16,
                    "logLossSteps": 1,
                },
                **changes,
            },
        }
    )


def workers_2() -> list[Row]:
    """Compare two workers with one; each worker has one thread."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        cwd = images(Path(name), 8192)

        def with_workers(count: int, *, apart: bool = False) -> Callable[[], float]:
            values = image_job("cnn", worker={"replicas": count, "threads": 1})
            return lambda: steady_rate(
                values, cwd, workers=count, seconds=10.0, apart=apart
            )

        variants = {
            "two": with_workers(2),
            "one": with_workers(1),
            "two apart": with_workers(2, apart=True),
            "one apart": with_workers(1, apart=True),
        }
        rates = interleaved(variants, 3, warm=False)
    what = "CNN, samples a second: 2 workers + 1 PS / 1 worker + 1 PS, a thread each"
    apart = f"{what}, without lent memory, as between pods"
    ours = ratios(rates["two"], rates["one"])
    theirs = ratios(rates["two apart"], rates["one apart"])
    return [
        row("workers_2", what, ours, 1.5),
        row("workers_2_apart", apart, theirs, 1.5),
    ]


def checkpoint_price() -> list[Row]:
    """Compare a job that writes 200 MB every 10 s with one that never does."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        cwd = images(Path(name), 8192)

        def checkpointed(seconds: float) -> Callable[[], float]:
            values = image_job(
                "wide",
                checkpoint={"everySeconds": seconds, "keep": 1},
                worker={"replicas": 1},
            )
            # Whole periods, so that each round has as many checkpoints.
            return lambda: steady_rate(values, cwd, workers=1, seconds=30.0, warm=5.0)

        rates = interleaved(
            {"often": checkpointed(10), "never": checkpointed(0)}, 5, warm=False
        )
    what = "model of 200 MB, steps a second: checkpoint every 10 s / never"
    return [row("checkpoint_price", what, ratios(rates["often"], rates["never"]), 0.9)]


def _prices_beside(
    values: ValuesFile, cwd: Path, bare: Callable[[float], float], pair: str
) -> list[float]:
    """Return a job's speed over that of a loop, before it and after it, by round.

    A small virtual machine is a quarter faster in one minute than in the next. So the
    job is stopped as a whole, for the loop to run, and goes on a few seconds later.
    """
    prices = []
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder,
        JobUnderTest(values, Path(folder), cwd) as running,
    ):
        running.wait_until(lambda s: s.progress.version > _WARM_STEPS, "a warm job")
        with running.frozen():
            before = bare(_ROUND_SECONDS / 2)
        for number in range(_ROUNDS):
            progress(f"{pair}, round {number + 1} of {_ROUNDS}")
            began = time.time() + _RESUMED_SECONDS
            time.sleep(_RESUMED_SECONDS + _ROUND_SECONDS)
            with running.frozen():
                marks = [mark for mark in losses(running, 0) if mark[0] >= began]
                after = bare(_ROUND_SECONDS / 2)
            prices.append(2 * rate(marks) / (before + after))
            before = after
        progress("")
    return prices


def _bare_loop(trainer: Trainer, batches: list[Batch]) -> Callable[[float], float]:
    """Return what trains for some seconds, and how many steps a second it made."""
    from elasticdl.worker.trainer import BatchPosition

    at = BatchPosition(1, 0, 0, batches[0].num_records, last=False)
    turns = itertools.cycle(batches)

    def run(seconds: float) -> float:
        began, steps = time.perf_counter(), 0
        while time.perf_counter() < began + seconds:
            batch = next(turns)
            trainer.train_batch(batch.features, batch.labels, at)
            steps += 1
        trainer.flush()
        return steps / (time.perf_counter() - began)

    return run


def elastic_price() -> list[Row]:
    """Compare the digits job with the bare loop over the same batches."""
    from elasticdl.data.reader import Metadata
    from elasticdl.job.names import JobDir
    from elasticdl.job.spec.job import JobSpec
    from elasticdl.model.definition import load_definition
    from elasticdl.model.feeding import Feeder

    batch_size = 32
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        cwd = Path(name)
        made = make_dataset("digits", cwd / "data")
        values = ValuesFile.model_validate(
            {
                "kind": "job",
                "job": {
                    "name": "digits",
                    "model": {"zoo": str(ZOO), "definition": "digits.cnn.custom_model"},
                    "data": {"training": "data/digits/train"},
                    "training": {
                        "epochs": 10_000,  # it is ended before
                        "batchSize": batch_size,
                        "batchesPerTask": 4,
                        "logLossSteps": 50,
                    },
                },
            }
        )
        reader = open_reader(str(made.train), data_root=cwd)
        records = [
            record
            for shard in reader.shards()
            for record in reader.read(
                shard.source, shard.start, shard.end, skip_bad=False
            ).values
        ]

        module = load_definition(
            JobSpec.model_validate(values.job.document()), JobDir(cwd / "job")
        )
        module.build_model(Metadata(), records[:batch_size])
        feeder = Feeder(
            module, mode="training", batch_size=batch_size, metadata=Metadata()
        )
        batches = list(feeder.batches(records))
        prices: list[float] = []
        for pair in range(_PAIRS):
            with (
                parameter_server() as ps,
                trainer_of(module, batches[0], ps) as trainer,
            ):
                bare = _bare_loop(trainer, batches)
                bare(_WARM_SECONDS)
                what = f"digits job and bare loop, pair {pair + 1} of {_PAIRS}"
                prices += _prices_beside(values, cwd, bare, what)
    what = "digits, steps a second: job with 1 worker, leases, journal / bare step loop"
    return [row("elastic_price", what, prices, 0.97)]


BENCHMARKS = {
    "workers_2": Benchmark(workers_2, 260, short=False),
    "elastic_price": Benchmark(elastic_price, 360, short=False),
    "checkpoint_price": Benchmark(checkpoint_price, 430, short=False),
}
