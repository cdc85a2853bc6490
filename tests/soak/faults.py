"""Random faults on many real jobs: each must end as an undisturbed one does.

    python -m tests.soak.faults                 200 jobs, some hours
    python -m tests.soak.faults --jobs 5        the first five seeds
    python -m tests.soak.faults --seed 17       one seed again

Each seed decides a job (mode, PS, workers, size of tasks, length of steps) and what
happens to it (`plan`). Afterwards: exit code 0, a clean audit, the accuracy of an
undisturbed job within 0.01, and no process or temporary file left. Writes
outputs/soak.jsonl, a line for each job, and prints the times of recovery. The exit code
is 1 when a job failed; its seed and folder are printed, and the folder is kept.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import resource
import shutil
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from elasticdl.client import Scaling
from elasticdl.data.datasets import make_dataset
from elasticdl.errors import ElasticDLError, JobError
from elasticdl.job.spec import ValuesFile
from elasticdl.job.status import JobReport, JobStatus
from elasticdl.testing.job import JobUnderTest

from tests.soak.plan import Fault, Plan, plan

HERE = Path(__file__).resolve().parent
MODEL = (HERE / "model.py").read_text()
RESULTS = Path("outputs/soak.jsonl")
SETTLE_SECONDS = 420.0  # a bound for hung jobs, no claim
WITHIN = 0.01


def values_of(wanted: Plan, *, disturbed: bool) -> ValuesFile:
    """Return the job of a plan; a disturbed one lasts until it is told to end."""
    module = MODEL + f"\n\nloss = loss_of({wanted.step_seconds})\n"
    return ValuesFile.model_validate(
        {
            "kind": "job",
            "job": {
                "name": f"soak-{wanted.seed}" + ("" if disturbed else "-calm"),
                "model": {
                    "definition": "net.custom_model",
                    "files": {"net.py": module},
                },
                # All records, so that accuracy is finer than the bound.
                "data": {
                    "training": "data/digits/train",
                    "validation": "data/digits/train,data/digits/test",
                },
                "training": {
                    "epochs": 100_000 if disturbed else wanted.least_epochs,
                    "batchSize": 16,
                    "batchesPerTask": wanted.batches_per_task,
                },
                "evaluation": {"atEpochEnd": False},
                "checkpoint": {"everySeconds": wanted.checkpoint_seconds},
                "ps": {"replicas": wanted.num_ps, "mode": wanted.mode},
                "worker": {"replicas": wanted.num_workers, "threads": 1},
            },
        }
    )


@dataclass
class Outcome:
    """What came of a job."""

    seed: int
    what: str
    faults: list[str]
    problem: str
    seconds: float
    accuracy: float
    relaunches: list[tuple[str, str, float | None]]
    master_back: list[float]


class Disturber:
    """Does what a plan says to a running job."""

    def __init__(self, job: JobUnderTest, switch: Path) -> None:
        """Take the job, and the file that makes its disk slow."""
        self._job = job
        self._switch = switch
        self.master_back: list[float] = []

    def run(self, faults: tuple[Fault, ...]) -> None:
        """Do all of them, then undo what lasts."""
        for fault in faults:
            time.sleep(fault.after)
            {
                "kill": self._kill,
                "freeze": self._freeze,
                "capacity": self._capacity,
                "scale": self._scale,
                "full disk": self._full_disk,
                "slow disk": self._slow_disk,
            }[fault.kind](fault)
        self._switch.unlink(missing_ok=True)
        self._again(lambda: self._job.handle.set_capacity(None))

    def _kill(self, fault: Fault) -> None:
        self._signal(fault.role, signal.SIGKILL)

    def _freeze(self, fault: Fault) -> None:
        self._signal(fault.role, signal.SIGSTOP)

    def _signal(self, role: str, number: signal.Signals) -> None:
        began = time.monotonic()
        if role == "master":
            self._again(lambda: self._job.handle.kill("master", number))
            self._job.status_now()
            self.master_back.append(time.monotonic() - began)
            return
        # With no CPU left to it, or paused by a fault before, a role may have nobody.
        running = [
            r.name
            for r in self._job.status_now().replicas
            if r.role == role
            and r.state == "running"
            # One that is frozen while it starts is found after startSeconds alone.
            and (number != signal.SIGSTOP or role != "worker" or r.phase == "train")
        ]
        if running:
            with contextlib.suppress(ElasticDLError):  # it has just ended
                self._job.handle.kill(running[0], number)

    def _capacity(self, fault: Fault) -> None:
        self._again(lambda: self._job.handle.set_capacity(fault.amount))

    def _scale(self, fault: Fault) -> None:
        self._again(lambda: self._job.handle.scale(Scaling(workers=int(fault.amount))))

    def _full_disk(self, fault: Fault) -> None:
        met = self._pids(fault.role)
        for pid in met:
            _limit_files(pid, 8192)
        time.sleep(fault.amount)
        for pid in met:
            _limit_files(pid, resource.RLIM_INFINITY)

    def _slow_disk(self, fault: Fault) -> None:
        self._switch.write_text(f"{fault.amount:.3f}")

    def _pids(self, role: str) -> list[int]:
        lines = self._job.processes()
        return [int(p.split()[0]) for p in lines if f"elasticdl.{role}." in p]

    def _again(self, call: Callable[[], object]) -> None:
        """Call until a master or launcher that is away answers."""
        end = time.monotonic() + SETTLE_SECONDS
        while True:
            try:
                call()
            except ElasticDLError:
                if time.monotonic() > end:
                    raise
                time.sleep(0.2)
            else:
                return


def _limit_files(pid: int, size: int) -> None:
    """From now on no file of that process grows beyond `size`, as on a full disk."""
    with contextlib.suppress(ProcessLookupError):
        hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)[1]
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (size, hard))


def soak(seed: int, work: Path) -> Outcome:
    """Run the job of a seed, disturbed and undisturbed; say what came of it."""
    wanted = plan(seed)
    faults = [f"{fault.after:.1f} s: {fault}" for fault in wanted.faults]
    began = time.monotonic()
    outcome = Outcome(seed, str(wanted), faults, "", 0.0, 0.0, [], [])
    try:
        calm = _run(values_of(wanted, disturbed=False), work, wanted, ())[0]
        report, outcome.master_back = _run(
            values_of(wanted, disturbed=True), work, wanted, wanted.faults
        )
        outcome.accuracy = report.metrics["accuracy"]
        outcome.relaunches = [
            (r.replica.split("-")[0], r.reason, r.seconds) for r in report.relaunches
        ]
        behind = calm.metrics["accuracy"] - outcome.accuracy
        if behind > WITHIN:
            raise JobError(
                f"accuracy {outcome.accuracy:.4f}, undisturbed "
                f"{calm.metrics['accuracy']:.4f}"
            )
    except ElasticDLError as error:
        outcome.problem = str(error)
    outcome.seconds = time.monotonic() - began
    return outcome


def _run(
    values: ValuesFile, work: Path, wanted: Plan, faults: tuple[Fault, ...]
) -> tuple[JobReport, list[float]]:
    switch = work / f"slow-{values.job.name}"
    job = JobUnderTest(values, work / "jobs", work, limit_seconds=SETTLE_SECONDS)
    with _environment(switch), _nothing_left(work), job:
        back: list[float] = []
        if faults:
            job.wait_until(lambda s: _at_work(s) == wanted.num_workers, "all at work")
            disturber = Disturber(job, switch)
            disturber.run(faults)
            back = disturber.master_back
            steps = job.status_now().progress.steps
            job.wait_for_step(steps + 20)
            job.end_after_this_epoch(least_epochs=wanted.least_epochs)
        report = job.finish()
        audited = job.audit()
        if not audited.ok:
            raise JobError(f"audit is not clean: {audited.gaps}")
    return report, back


def _at_work(status: JobStatus) -> int:
    return sum(r.state == "running" and r.phase == "train" for r in status.replicas)


@contextlib.contextmanager
def _environment(switch: Path) -> Iterator[None]:
    before = dict(os.environ)
    os.environ["SOAK_SLOW_DISK"] = str(switch)
    path = [str(HERE / "slow_disk"), os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(p for p in path if p)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


@contextlib.contextmanager
def _nothing_left(work: Path) -> Iterator[None]:
    """Raise JobError if a job leaves temporary files; memory files have no names."""
    before = _temporary(work)
    yield
    left = _temporary(work) - before
    if left:
        raise JobError(f"left behind: {sorted(left)[:5]}")


def _temporary(work: Path) -> set[str]:
    # The lock of a job's name is kept for its next run.
    names = [*work.rglob(".*"), *work.rglob("*.tmp"), *work.rglob("pending-*")]
    return {str(path) for path in names if path.suffix != ".lock"}


def table(outcomes: list[Outcome]) -> str:
    """Return the times of recovery by role and reason."""
    times: dict[str, list[float]] = {}
    for outcome in outcomes:
        for role, reason, seconds in outcome.relaunches:
            if seconds is not None:
                times.setdefault(f"{role} {reason}", []).append(seconds)
        times.setdefault("master away", []).extend(outcome.master_back)
    lines = [f"{'what':32} {'number':>6} {'p50 s':>8} {'p95 s':>8}"]
    for name, seconds in sorted(times.items()):
        if seconds:
            p95 = sorted(seconds)[round(0.95 * (len(seconds) - 1))]
            median = statistics.median(seconds)
            lines.append(f"{name:32} {len(seconds):6} {median:8.2f} {p95:8.2f}")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--jobs", type=int, default=200, help="how many seeds")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--seed", type=int, help="this seed alone")
    args = parser.parse_args()
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    seeds = range(args.first, args.first + args.jobs)
    if args.seed is not None:
        seeds = range(args.seed, args.seed + 1)
    RESULTS.parent.mkdir(exist_ok=True)
    outcomes: list[Outcome] = []
    for seed in seeds:
        work = Path(tempfile.mkdtemp(prefix=f"elasticdl-soak-{seed}-"))
        make_dataset("digits", work / "data")
        outcome = soak(seed, work)
        outcomes.append(outcome)
        with RESULTS.open("a") as file:
            file.write(json.dumps(asdict(outcome)) + "\n")
        verdict = "ok" if not outcome.problem else "FAILED"
        print(
            f"seed {seed} {verdict} in {outcome.seconds:.0f} s, accuracy "
            f"{outcome.accuracy:.3f}: {outcome.what}; {'; '.join(outcome.faults)}",
            flush=True,
        )
        if outcome.problem:
            print(f"  folder {work}\n  {outcome.problem[:6000]}", flush=True)
        else:
            shutil.rmtree(work, ignore_errors=True)
    failed = [outcome.seed for outcome in outcomes if outcome.problem]
    print(table(outcomes))
    print(f"{len(outcomes) - len(failed)} passed, {len(failed)} failed", end="")
    print(f": seeds {failed}" if failed else "")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
