"""A job's folder: what it says of the job, and how it is made ready for a launch.

Owns run.json, the lock that keeps a second launcher out, and moving finished jobs
aside. Called by `client.launcher` and `client.handle`. Must not start anything.
"""

from __future__ import annotations

import contextlib
import enum
import fcntl
import itertools
import json
import os
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath
from typing import IO

import psutil
from pydantic import ValidationError

from elasticdl.errors import JobError, SpecError
from elasticdl.job.names import JobDir
from elasticdl.job.spec import JobSpec, JobType, ValuesFile
from elasticdl.job.status import JobReport, JobState
from elasticdl.job.values import load_values, write_values

DEFAULT_JOBS_DIR = "~/.elasticdl/jobs"
ASIDE_MARK = "~"  # no job's name contains it
KEPT_ASIDE = 3
# psutil derives start times from the boot time, which moves a little with the clock.
_START_TOLERANCE_SECONDS = 3.0


class Condition(enum.StrEnum):
    """What a job's folder says."""

    ABSENT = "absent"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    STOPPED = "stopped"
    INTERRUPTED = "interrupted"  # its launcher was killed
    PENDING = "pending"  # in a cluster: its master has not started yet


@dataclass(frozen=True)
class RunFile:
    """run.json: who runs the job and where it answers."""

    launcher_pid: int
    platform: str
    master: str
    started: float  # Unix seconds
    launcher_started: float = 0.0  # tells a later process of the same pid apart

    def alive(self) -> bool:
        """Whether that very launcher still lives."""
        try:
            process = psutil.Process(self.launcher_pid)
            if process.status() == psutil.STATUS_ZOMBIE:
                return False
            started = process.create_time()
        except psutil.Error:
            return False
        expected = self.launcher_started
        return not expected or abs(started - expected) < _START_TOLERANCE_SECONDS


def read_run(job_dir: JobDir) -> RunFile | None:
    """Return run.json if there is one that can be read."""
    try:
        return RunFile(**json.loads(job_dir.run_file.read_text()))
    except (OSError, ValueError, TypeError):
        return None


def write_run(job_dir: JobDir, run: RunFile) -> None:
    """Write run.json in one step."""
    temporary = job_dir.run_file.with_suffix(".tmp")
    temporary.write_text(json.dumps(asdict(run), indent=1))
    temporary.replace(job_dir.run_file)


def read_report(job_dir: JobDir) -> JobReport | None:
    """Return the final report, if the job has ended with one."""
    try:
        return JobReport.model_validate_json(job_dir.report_file.read_text())
    except (OSError, ValidationError):
        return None


def inspect(job_dir: JobDir) -> Condition:
    """Tell what state the folder shows; a dead launcher's run.json does not count."""
    if not job_dir.spec_file.exists():
        return Condition.ABSENT
    run = read_run(job_dir)
    if run is not None and run.alive():
        return Condition.RUNNING
    report = read_report(job_dir)
    if report is None or not report.status.ended:
        return Condition.INTERRUPTED
    return {
        JobState.SUCCEEDED: Condition.SUCCEEDED,
        JobState.FAILED: Condition.FAILED,
    }.get(report.status, Condition.STOPPED)


class JobLock:
    """Held by a job's launcher for its whole life; ends with the process."""

    def __init__(self, job_dir: JobDir) -> None:
        """Take the lock. Raises JobError when another launcher has it."""
        job_dir.root.parent.mkdir(parents=True, exist_ok=True)
        path = job_dir.root.parent / f".{job_dir.root.name}.lock"
        self._file: IO[str] = path.open("w")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._file.close()
            name = job_dir.root.name
            run = read_run(job_dir)
            pid = f" (pid {run.launcher_pid})" if run else ""
            raise JobError(
                f"job {name} is already running{pid}; watch it with `elasticdl status "
                f"{name}`, end it with `elasticdl stop {name}`, or give this one "
                "another job.name"
            ) from None

    def release(self) -> None:
        """Let another launcher run the job."""
        self._file.close()


@dataclass(frozen=True)
class PreparedJob:
    """A folder that is ready for its launcher."""

    spec: JobSpec
    job_dir: JobDir
    lock: JobLock
    resumed: bool
    notice: str  # what the user should know of an earlier run; often empty


def prepare(values: ValuesFile, jobs_dir: Path, *, restart: bool) -> PreparedJob:
    """Make the job's folder: values file, model code, nothing of an ended run.

    An unfinished job goes on; a finished one, an evaluation, or any with `restart` is
    moved aside.
    Raises JobError when it runs already or another kind of job is unfinished there.
    """
    spec = values.job
    job_dir = JobDir(jobs_dir / spec.name)
    lock = JobLock(job_dir)
    try:
        resumed, notice = _make_room(job_dir, spec, restart=restart)
        job_dir.logs_dir.mkdir(parents=True, exist_ok=True)
        job_dir.run_file.unlink(missing_ok=True)
        job_dir.report_file.unlink(missing_ok=True)
        write_values(job_dir.spec_file, values)
        _write_model_files(job_dir, spec)
    except BaseException:
        lock.release()
        raise
    return PreparedJob(spec, job_dir, lock, resumed, notice)


def _make_room(job_dir: JobDir, spec: JobSpec, *, restart: bool) -> tuple[bool, str]:
    """Return whether the job goes on from what is there, and what to tell."""
    condition = inspect(job_dir)
    if condition is Condition.ABSENT:
        return False, ""
    earlier = _earlier_type(job_dir)
    # An evaluation holds nothing to go on from, and its checkpoint may be another now.
    again = earlier == spec.type == JobType.EVALUATE
    if restart or again or condition is Condition.SUCCEEDED:
        aside = move_aside(job_dir.root)
        return False, f"the {condition} job of this name was moved to {aside.name}"
    if earlier and earlier != spec.type:
        raise JobError(
            f"job {spec.name}: {job_dir.root} holds an unfinished {earlier} job, this "
            f"is a {spec.type} job; give it another job.name, or --restart to move the "
            "other one aside"
        )
    return True, (
        f"unfinished ({condition}): it goes on where it was; --restart begins afresh"
    )


def _earlier_type(job_dir: JobDir) -> str:
    """Return the type of the job that the folder was made for, "" if unreadable."""
    try:
        return str(load_values(job_dir.spec_file).job.type)
    except (SpecError, OSError):
        return ""


def move_aside(root: Path) -> Path:
    """Rename a job's folder to `<name>~1`, older ones to ~2 and ~3; the rest goes."""
    places = [
        root.with_name(f"{root.name}{ASIDE_MARK}{number}")
        for number in range(1, KEPT_ASIDE + 1)
    ]
    if places[-1].exists():
        shutil.rmtree(places[-1])
    for newer, older in reversed(list(itertools.pairwise(places))):
        if newer.exists():
            newer.rename(older)
    root.rename(places[0])
    return places[0]


def _write_model_files(job_dir: JobDir, spec: JobSpec) -> None:
    for name, content in spec.model.files.items():
        relative = PurePosixPath(name)
        if relative.is_absolute() or ".." in relative.parts:
            raise SpecError(
                f"job.model.files: got {name!r}, expected a file name inside the "
                "model's folder; take `..` and the leading `/` away"
            )
        target = job_dir.model_dir / relative
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(content)


def own_start() -> tuple[int, float]:
    """Return this process's pid and start time, for run.json."""
    return os.getpid(), psutil.Process().create_time()


def remove_run(job_dir: JobDir) -> None:
    """Remove run.json: nobody runs the job any more."""
    with contextlib.suppress(OSError):
        job_dir.run_file.unlink(missing_ok=True)
