"""One soak job from its beginning to its end, in a process of its own.

    python -m tests.soak.one SEED FOLDER              the disturbed job of a seed
    python -m tests.soak.one MODE WORKERS FOLDER      an undisturbed job

Owns carrying out a plan and what is asked of the job afterwards, but for its accuracy,
which `faults` compares. It calls this as a process, since it adopts what the job leaves
behind and gives it an environment. Writes FOLDER/outcome.json.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import resource
import signal
import struct
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path

from elasticdl.client import Scaling
from elasticdl.errors import ElasticDLError, JobError
from elasticdl.job.status import JobReport, JobStatus
from elasticdl.job.values.document import ValuesFile
from elasticdl.testing.job import JobUnderTest

from tests.soak.leftovers import Leftovers, adopt_orphans
from tests.soak.plan import (
    BATCH,
    CALM_EPOCHS,
    LEAST_EPOCHS,
    Fault,
    Plan,
    calm_plan,
    plan,
)

HERE = Path(__file__).resolve().parent
OUTCOME = "outcome.json"
DATA = "data"  # of the folder above the job's
_SETTLE_SECONDS = 900.0  # a bound for hung jobs, no claim


@dataclass
class Outcome:
    """What came of a job.

    Attributes:
        accuracies: After each evaluation, the last one of the job's end.
        faults: Name and seconds since the first one was waited for.
        recoveries: What recovered, seconds.
    """

    problem: str = ""
    seconds: float = 0.0
    epochs: int = 0
    steps: int = 0
    accuracies: list[float] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    recoveries: list[tuple[str, float]] = field(default_factory=list)
    seen: dict[str, int] = field(default_factory=dict)
    replayed_records: int = 0
    lost_updates: int = 0
    rewinds: int = 0
    master_restarts: int = 0


def values_of(wanted: Plan, data: Path) -> ValuesFile:
    """Return the job of a plan; a disturbed one lasts until it is told to end."""
    module = (HERE / "model.py").read_text()
    calm = not wanted.faults
    return ValuesFile.model_validate(
        {
            "kind": "job",
            "job": {
                "name": f"soak-{wanted.mode}-{wanted.num_workers}"
                if calm
                else f"soak-{wanted.seed}",
                "model": {
                    "definition": "net.custom_model",
                    "files": {
                        "net.py": f"{module}\n\nloss = loss_of({wanted.step_seconds})\n"
                    },
                },
                "data": {
                    "training": str(data / "train"),
                    "validation": str(data / "all"),
                },
                "training": {
                    "epochs": CALM_EPOCHS if calm else 100_000,
                    "batchSize": BATCH,
                    "batchesPerTask": wanted.batches_per_task,
                },
                "evaluation": {"atEpochEnd": calm},
                "checkpoint": {"everySeconds": wanted.checkpoint_seconds},
                "ps": {"replicas": wanted.num_ps, "mode": wanted.mode},
                "worker": {"replicas": wanted.num_workers, "threads": 1},
            },
        }
    )


class Disturber:
    """Does what a plan says to a running job."""

    def __init__(self, job: JobUnderTest, slow_disk: Path) -> None:
        """Take the job, and the file that makes its disk slow."""
        self._job = job
        self._slow = slow_disk
        self.master_back: list[tuple[str, float]] = []
        self.times: list[tuple[Fault, float]] = []  # Unix seconds

    def run(self, faults: tuple[Fault, ...]) -> None:
        """Do all of them, then undo what lasts."""
        for fault in faults:
            time.sleep(fault.after)
            self.times.append((fault, time.time()))
            {
                "kill": self._kill,
                "freeze": self._freeze,
                "capacity": self._capacity,
                "scale": self._scale,
                "full disk": self._full_disk,
                "slow disk": self._slow_disk,
            }[fault.kind](fault)
        self._slow.unlink(missing_ok=True)
        self._again(lambda: self._job.handle.set_capacity(None))

    def _kill(self, fault: Fault) -> None:
        self._signal(fault, signal.SIGKILL)

    def _freeze(self, fault: Fault) -> None:
        self._signal(fault, signal.SIGSTOP)

    def _signal(self, fault: Fault, number: signal.Signals) -> None:
        if fault.role == "master":
            began = time.monotonic()
            self._again(lambda: self._job.handle.kill("master", number))
            self._job.status_now()
            took = time.monotonic() - began
            self.master_back.append((f"{fault.name}: until it answers", took))
            return
        # With no CPU left to it, or paused by a fault before, a role may have nobody.
        running = [
            r.name
            for r in self._job.status_now().replicas
            if r.role == fault.role
            and r.state == "running"
            # One that is frozen while it starts is found after startSeconds alone.
            and (number != signal.SIGSTOP or r.memory_bytes)
            and (number != signal.SIGSTOP or r.role == "ps" or r.phase == "train")
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
        self._slow.write_text(f"{fault.amount:.3f}")

    def _pids(self, role: str) -> list[int]:
        lines = self._job.processes()
        return [int(p.split()[0]) for p in lines if f"elasticdl.{role}." in p]

    def _again(self, call: Callable[[], object]) -> None:
        """Call until a master or launcher that is away answers."""
        end = time.monotonic() + _SETTLE_SECONDS
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


def run(wanted: Plan, folder: Path) -> Outcome:
    """Run a job; say what came of it."""
    outcome = Outcome()
    began = time.monotonic()
    signs, temporary = folder / "signs", folder / "tmp"
    signs.mkdir()
    temporary.mkdir()
    path = [str(HERE / "slow_disk"), os.environ.get("PYTHONPATH", "")]
    os.environ.update(
        SOAK_DIR=str(signs),
        TMPDIR=str(temporary),
        PYTHONPATH=os.pathsep.join(p for p in path if p),
        TF_CPP_MIN_LOG_LEVEL="3",
    )
    adopt_orphans()
    leftovers = Leftovers(folder, temporary)
    values = values_of(wanted, folder.parent / DATA)
    job = JobUnderTest(values, folder / "jobs", folder, limit_seconds=_SETTLE_SECONDS)
    try:
        with job:
            if wanted.faults:
                _disturb(job, wanted, signs, outcome)
            (signs / "quick").touch()
            _finish(job, outcome)
            left = leftovers.find()
            outcome.seen = leftovers.seen
            if left:
                raise JobError("left behind:\n" + "\n".join(left[:20]))
    except ElasticDLError as error:
        outcome.problem = str(error)
    finally:
        leftovers.end_all()
    outcome.seconds = time.monotonic() - began
    return outcome


def _disturb(job: JobUnderTest, wanted: Plan, signs: Path, outcome: Outcome) -> None:
    job.wait_until(lambda s: _at_work(s) == wanted.num_workers, "all at work")
    disturber = Disturber(job, signs / "slow-disk")
    began = time.time()
    disturber.run(wanted.faults)
    status = job.wait_until(
        lambda s: _is_whole(s, wanted), "all that was lost is replaced"
    )
    job.wait_for_step(status.progress.steps + 10)
    outcome.faults = [f"{when - began:.1f} s: {f}" for f, when in disturber.times]
    outcome.recoveries += disturber.master_back
    outcome.recoveries += pauses(disturber.times, step_times(signs), end=time.time())
    job.end_after_this_epoch(least_epochs=LEAST_EPOCHS)


def _at_work(status: JobStatus) -> int:
    return sum(r.state == "running" and r.phase == "train" for r in status.replicas)


def _is_whole(status: JobStatus, wanted: Plan) -> bool:
    """Whether everybody is there and nobody starts; a worker may lack a task."""
    running = [r for r in status.replicas if r.state == "running"]
    workers = [
        r for r in running if r.role == "worker" and r.phase not in ("", "start")
    ]
    ps = [r for r in running if r.role == "ps" and r.memory_bytes]
    return len(workers) == wanted.last_workers and len(ps) == wanted.num_ps


def step_times(signs: Path) -> list[float]:
    """Return the Unix times of all workers' steps, in order."""
    parts = [file.read_bytes() for file in signs.glob("steps-*")]
    size = struct.calcsize("d")
    whole = [part[: len(part) - len(part) % size] for part in parts]
    return sorted(time for part in whole for (time,) in struct.iter_unpack("d", part))


def pauses(
    faults: list[tuple[Fault, float]], steps: list[float], *, end: float
) -> list[tuple[str, float]]:
    """Return the longest time without a step of any worker after each fault.

    Up to the next fault; a pause that has not ended by then counts for both.
    """
    nexts = [when for _, when in faults[1:]] + [end]
    found = []
    for (fault, when), following in zip(faults, nexts, strict=True):
        gaps = [
            b - max(a, when)
            for a, b in itertools.pairwise(steps)
            if b > when and a < following
        ]
        if gaps:
            found.append((f"{fault.name}: longest pause of the job", max(gaps)))
    return found


def _finish(job: JobUnderTest, outcome: Outcome) -> None:
    report: JobReport = job.finish()
    outcome.epochs, outcome.steps = report.epochs, report.steps
    outcome.accuracies = [e.metrics["accuracy"] for e in report.evaluations]
    outcome.replayed_records = report.replayed_records
    outcome.lost_updates, outcome.rewinds = report.lost_updates, report.rewinds
    outcome.master_restarts = report.master_restarts
    for relaunch in report.relaunches:
        if relaunch.seconds is not None:
            role = relaunch.replica.split("-")[0]
            what = "takes a task" if role == "worker" else "applies a gradient"
            name = f"{role} {relaunch.reason}: until its replacement {what}"
            outcome.recoveries.append((name, relaunch.seconds))
    audited = job.audit()
    if not audited.ok:
        raise JobError(f"audit is not clean: {audited.gaps} {audited.faults}")


def main(arguments: list[str]) -> int:
    """Run what the command line names."""
    *what, folder = arguments
    wanted = plan(int(what[0])) if len(what) == 1 else calm_plan(what[0], int(what[1]))
    outcome = run(wanted, Path(folder))
    (Path(folder) / OUTCOME).write_text(json.dumps(asdict(outcome)))
    return bool(outcome.problem)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
