"""Random faults on many real jobs: each must end as an undisturbed one does.

    python -m tests.soak.faults                 200 jobs
    python -m tests.soak.faults --jobs 5        the first five seeds
    python -m tests.soak.faults --seed 17       one seed again

Each seed decides a job (mode, PS, workers, size of tasks, length of steps) and what
happens to it (`plan`). Afterwards: exit code 0, a clean audit, the accuracy of
undisturbed jobs within 0.01, and no process, port, memory file or temporary file left
(`one`). Writes a line for each job to outputs/soak.jsonl, and prints the times of
recovery. The exit code is 1 when a job failed; its seed and folder are printed, and the
folder is kept.

**What an undisturbed job reaches** is the mean of two, after as many epochs, in the
same mode. In sync mode N workers make one version of N gradients, so a job that was
scaled to 4 for a while makes fewer of an epoch, disturbed or not; and an async job's
gradients are staler. So it is compared with jobs of as many workers as it ever had.
Undisturbed jobs are kept in outputs/soak-undisturbed.json while the code is the same.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import elasticdl
from elasticdl.data.formats.example import encode_example
from elasticdl.data.making.builtin import load_arrays
from elasticdl.data.making.shards import write_shards
from elasticdl.job.spec.job import DataFormat

from tests.soak.one import DATA, OUTCOME, Outcome, values_of
from tests.soak.plan import CALM_EPOCHS, COPIES, Plan, calm_plan, plan

RESULTS = Path("outputs/soak.jsonl")
UNDISTURBED = Path("outputs/soak-undisturbed.json")
WITHIN = 0.01
# Packages that decide what an undisturbed job learns.
_LEARNING = ("data", "model", "ps", "tensor", "worker")
# A job that hangs waits 900 s for one thing; none waits for more than a few in a row.
_MOST_SECONDS = 3000.0
_TEST_ROWS = 5  # one of so many is not trained

Curve = list[float]  # accuracy after each epoch
Calm = dict[str, list[Curve]]  # of "sync 2"
Job = Future[tuple[Outcome, Path]]


def make_data(folder: Path) -> None:
    """Write `train`, one file of several copies of the digits, and `all` of them once.

    All records are evaluated, so that accuracy is finer than the bound.
    """
    digits = load_arrays("digits")
    records = [
        encode_example({"image": image.reshape(-1), "label": label.reshape(1)})
        for image, label in zip(digits.x.astype("float32"), digits.y, strict=True)
    ]
    trained = [record for i, record in enumerate(records) if i % _TEST_ROWS]
    for name, part in (("train", trained * COPIES), ("all", records)):
        write_shards(
            part, folder / name, format=DataFormat.RECORDIO, records_per_file=len(part)
        )


def run_one(what: list[str], name: str, work: Path) -> tuple[Outcome, Path]:
    """Run a job in a process of its own; what came of it, and its folder."""
    folder = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=work))
    command = [sys.executable, "-m", "tests.soak.one", *what, str(folder)]
    with (folder / "soak.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
        try:
            process.wait(_MOST_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()  # the job's processes end with its launcher
            process.wait()
    written = folder / OUTCOME
    if not written.exists():
        words = (folder / "soak.log").read_text(errors="replace")[-3000:]
        return Outcome(
            problem=f"no outcome, exit {process.returncode}: {words}"
        ), folder
    fields: dict[str, Any] = json.loads(written.read_text())
    return Outcome(**fields), folder


class Undisturbed:
    """Accuracies of undisturbed jobs, kept in a file while the code is the same."""

    def __init__(self, file: Path, jobs: int) -> None:
        """Read the file if it is of this code; `jobs` of each kind are wanted."""
        self._file = file
        self._jobs = jobs
        self._code = _code()
        kept = json.loads(file.read_text()) if file.exists() else {}
        self._curves: Calm = kept["curves"] if kept.get("code") == self._code else {}

    def missing(self, plans: list[Plan]) -> list[list[str]]:
        """Return the jobs that these plans need beside those that were run."""
        wanted = sorted({(p.mode, p.most_workers) for p in plans})
        return [
            [mode, str(workers)]
            for mode, workers in wanted
            for _ in range(self._jobs - len(self._curves.get(f"{mode} {workers}", [])))
        ]

    def add(self, what: list[str], curve: Curve) -> None:
        """Keep what a job reached."""
        self._curves.setdefault(" ".join(what), []).append(curve)
        text = json.dumps({"code": self._code, "curves": self._curves})
        self._file.write_text(text)

    def of(self, wanted: Plan, epochs: int) -> Curve:
        """Return what undisturbed jobs had after so many epochs."""
        curves = self._curves[f"{wanted.mode} {wanted.most_workers}"]
        # Where epochs are shorter than an evaluation, one evaluation is of several.
        return [curve[min(epochs, len(curve)) - 1] for curve in curves]

    def table(self) -> str:
        """Return the accuracies after the last epoch, and how far apart they are."""
        lines = []
        for name, curves in sorted(self._curves.items()):
            last = [curve[-1] for curve in curves]
            lines.append(
                f"undisturbed, {name} workers: {statistics.mean(last):.4f} "
                f"({min(last):.4f} to {max(last):.4f})"
            )
        return "\n".join(lines)


def _code() -> str:
    """Return a digest of what decides what an undisturbed job learns."""
    package = Path(elasticdl.__file__).parent
    digest = hashlib.sha256()
    for part in _LEARNING:
        for file in sorted((package / part).rglob("*.py")):
            digest.update(file.read_bytes())
    values = values_of(calm_plan("sync", 1), Path(DATA))
    digest.update(values.model_dump_json().encode())
    return digest.hexdigest()


def table(recoveries: list[tuple[str, float]]) -> str:
    """Return the times of recovery by what recovered."""
    times: dict[str, list[float]] = {}
    for name, seconds in recoveries:
        times.setdefault(name, []).append(seconds)
    lines = [f"{'what':52} {'number':>6} {'p50 s':>8} {'p95 s':>8}"]
    for name, found in sorted(times.items()):
        p95 = sorted(found)[round(0.95 * (len(found) - 1))]
        median = statistics.median(found)
        lines.append(f"{name:52} {len(found):6} {median:8.2f} {p95:8.2f}")
    return "\n".join(lines)


class Soak:
    """Runs jobs, some at a time."""

    def __init__(self, work: Path, at_once: int, undisturbed: int) -> None:
        """Take a folder for all of them."""
        self._work = work
        self._pool = ThreadPoolExecutor(at_once)
        self._calm = Undisturbed(UNDISTURBED, undisturbed)

    def run(self, seeds: range) -> int:
        """Run the jobs of these seeds; how many failed."""
        began = time.monotonic()
        failed: list[int] = []
        recoveries: list[tuple[str, float]] = []
        plans = [plan(seed) for seed in seeds]
        calm = [
            (what, self._pool.submit(run_one, what, "-".join(what), self._work))
            for what in self._calm.missing(plans)
        ]
        jobs = [
            (p, self._pool.submit(run_one, [str(p.seed)], f"seed-{p.seed}", self._work))
            for p in plans
        ]
        if not self._keep_undisturbed(calm):
            for _, job in jobs:
                job.cancel()
            return 1
        for wanted, job in jobs:
            outcome, folder = job.result()
            self._compare(wanted, outcome)
            self._tell(wanted, outcome, folder)
            recoveries += [(name, seconds) for name, seconds in outcome.recoveries]
            if outcome.problem:
                failed.append(wanted.seed)
        print(self._calm.table())
        print(table(recoveries))
        print(
            f"{len(plans) - len(failed)} of {len(plans)} passed in "
            f"{(time.monotonic() - began) / 60:.0f} min"
            + (f"; failed: seeds {failed}" if failed else "")
        )
        return len(failed)

    def _keep_undisturbed(self, jobs: list[tuple[list[str], Job]]) -> bool:
        """Keep what these reach; False if one failed."""
        held = True
        for what, job in jobs:
            outcome, folder = job.result()
            words = outcome.problem or f"accuracy {outcome.accuracies[-1]:.4f}"
            print(f"undisturbed, {' '.join(what)} workers: {words}", flush=True)
            if outcome.problem:
                print(f"  folder {folder}", flush=True)
                held = False
                continue
            self._calm.add(what, outcome.accuracies[:CALM_EPOCHS])
            shutil.rmtree(folder)
        return held

    def _compare(self, wanted: Plan, outcome: Outcome) -> None:
        """Hold a job to what undisturbed ones reach in as many epochs."""
        if outcome.problem:
            return
        calm = statistics.mean(self._calm.of(wanted, outcome.epochs))
        accuracy = outcome.accuracies[-1]
        if accuracy < calm - WITHIN:
            outcome.problem = (
                f"accuracy {accuracy:.4f} after {outcome.epochs} epochs, undisturbed "
                f"{calm:.4f}"
            )

    def _tell(self, wanted: Plan, outcome: Outcome, folder: Path) -> None:
        with RESULTS.open("a") as file:
            line = {"seed": wanted.seed, "what": str(wanted), **vars(outcome)}
            line["load"] = os.getloadavg()[0]  # times mean little beside other work
            file.write(json.dumps(line) + "\n")
        accuracy = f"{outcome.accuracies[-1]:.4f}" if outcome.accuracies else "none"
        print(
            f"seed {wanted.seed} {'FAILED' if outcome.problem else 'ok'} in "
            f"{outcome.seconds:.0f} s, {outcome.epochs} epochs, accuracy {accuracy}: "
            f"{wanted}; {'; '.join(outcome.faults)}",
            flush=True,
        )
        if outcome.problem:
            print(f"  folder {folder}\n  {outcome.problem[:6000]}", flush=True)
        else:
            shutil.rmtree(folder)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--jobs", type=int, default=200, help="how many seeds")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--seed", type=int, help="this seed alone")
    parser.add_argument("--at-once", type=int, default=2, help="jobs at a time")
    parser.add_argument(
        "--undisturbed", type=int, default=2, help="undisturbed jobs of each kind"
    )
    args = parser.parse_args()
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    seeds = range(args.first, args.first + args.jobs)
    if args.seed is not None:
        seeds = range(args.seed, args.seed + 1)
    RESULTS.parent.mkdir(exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix="elasticdl-soak-"))
    make_data(work / DATA)
    failed = Soak(work, args.at_once, args.undisturbed).run(seeds)
    if not failed:
        shutil.rmtree(work)
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
