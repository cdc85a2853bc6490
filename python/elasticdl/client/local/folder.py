"""A job's folder as a launcher here sees it: who runs it, and a new launch prepared.

Owns run.json. Called by `client.local.launcher` and `client.local.job`. Must not start
anything.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
import threading
from dataclasses import asdict, dataclass, field
from pathlib import Path

import psutil

from elasticdl.errors import JobError, is_storage_away
from elasticdl.files import write_whole
from elasticdl.job import folder
from elasticdl.job.folder import Condition, JobLock
from elasticdl.job.names import JobDir
from elasticdl.job.spec.job import MAX_NAME_LENGTH, JobSpec
from elasticdl.job.values.document import ValuesFile

DEFAULT_JOBS_DIR = "~/.elasticdl/jobs"
# psutil derives start times from the boot time, which moves a little with the clock.
_START_TOLERANCE_SECONDS = 3.0
_LEAST_ROOM_BYTES = 64 * 1024  # the journal needs a block or two
_TRIAL_SECONDS = 2.0


@dataclass(frozen=True)
class RunFile:
    """run.json: who runs the job and where it answers."""

    launcher_pid: int
    platform: str
    master: str
    started: float  # Unix seconds
    launcher_started: float = 0.0  # tells a later process of the same pid apart
    token: str = field(default="", repr=False)  # calls to the job carry it
    launcher_mark: str = ""  # the same, also where the clock was set; "" is not known

    def alive(self) -> bool:
        """Whether the launcher that wrote run.json is still alive."""
        try:
            process = psutil.Process(self.launcher_pid)
            if process.status() == psutil.STATUS_ZOMBIE:
                return False
            started = process.create_time()
        except psutil.Error:
            return False
        mark = start_mark(self.launcher_pid)
        if mark and self.launcher_mark:
            return mark == self.launcher_mark
        expected = self.launcher_started
        return not expected or abs(started - expected) < _START_TOLERANCE_SECONDS


def read_run(job_dir: JobDir) -> RunFile | None:
    """Return run.json if there is one that can be read."""
    try:
        return RunFile(**json.loads(job_dir.run_file.read_text()))
    except (OSError, ValueError, TypeError):
        return None


def write_run(job_dir: JobDir, run: RunFile) -> None:
    """Write run.json atomically, readable by this user alone: it has the token."""
    text = json.dumps(asdict(run), indent=1)
    write_whole(job_dir.run_file, text, durable=False, mode=0o600)


def awaited_storage(job_dir: JobDir, *, tries: bool) -> str:
    """Return what of its storage a master waits for that does not begin; "" if nothing.

    It cannot say so itself: it answers no call before its journal has its first word.
    `tries`: write a file there, which takes a while; no figure tells of a quota.
    """
    place = job_dir.journal_dir
    try:
        free = shutil.disk_usage(place).free
    except OSError as error:
        if not is_storage_away(error):
            return ""
        why = f"{error.strerror} ({place}); the job goes on once its storage answers"
    else:
        if free < _LEAST_ROOM_BYTES:
            why = f"no space left on device ({place}); free some, and the job goes on"
        elif tries and (problem := _refusal(place)):
            why = f"{problem} ({place}); the job goes on once it can be written"
        else:
            return ""
    return f"its master waits for its journal's disk: {why}"


def _refusal(place: Path) -> str:
    """Return why a folder takes no file; "" if it does."""
    said: list[str] = []

    def write() -> None:
        try:
            with tempfile.TemporaryFile(dir=place) as file:
                file.write(bytes(_LEAST_ROOM_BYTES))
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            said.append(error.strerror or str(error))
        else:
            said.append("")

    # A daemon: a file server that hangs is not waited for.
    thread = threading.Thread(target=write, name="trial", daemon=True)
    thread.start()
    thread.join(_TRIAL_SECONDS)
    return said[0] if said else f"no answer in {_TRIAL_SECONDS:.0f} s"


def inspect(job_dir: JobDir) -> Condition:
    """Return the state of a job's folder; run.json of a dead launcher is ignored."""
    run = read_run(job_dir)
    if job_dir.spec_file.exists() and run is not None and run.alive():
        return Condition.RUNNING
    return folder.inspect(job_dir)


@dataclass(frozen=True)
class PreparedJob:
    """A folder that is ready for its launcher."""

    spec: JobSpec
    job_dir: JobDir
    lock: JobLock
    resumed: bool
    notice: str  # what the user should know of an earlier run; often empty


class RunsAlreadyError(JobError):
    """A job of that name runs."""


def prepare(values: ValuesFile, jobs_dir: Path, *, restart: bool) -> PreparedJob:
    """Make the job's folder: values file, model code, nothing of an ended run.

    An unfinished job goes on; a finished one, an evaluation, or any with `restart` is
    moved aside.
    Raises RunsAlreadyError when it runs, JobError when another kind of job is
    unfinished there.
    """
    spec = values.job
    job_dir = JobDir(jobs_dir / spec.name)
    try:
        lock = JobLock(job_dir)
    except JobError:
        raise _runs_already(job_dir, spec) from None
    try:
        condition = inspect(job_dir)
        if condition is Condition.RUNNING:  # where the file system knows no locks
            raise _runs_already(job_dir, spec)
        resumed, notice = folder.make_room(job_dir, spec, condition, restart=restart)
        if resumed:
            notice += "; --restart begins afresh"
        job_dir.run_file.unlink(missing_ok=True)
        folder.fill(job_dir, values)
    except BaseException:
        lock.release()
        raise
    return PreparedJob(spec, job_dir, lock, resumed, notice)


def prepare_free(values: ValuesFile, jobs_dir: Path, *, restart: bool) -> PreparedJob:
    """Do the same under a name as which none runs, also where others begin just now."""
    while True:
        free = with_free_name(values, jobs_dir)
        with contextlib.suppress(RunsAlreadyError):
            return prepare(free, jobs_dir, restart=restart)


def with_free_name(values: ValuesFile, jobs_dir: Path) -> ValuesFile:
    """Return a job under a name as which none runs: its own, or with a number behind.

    For jobs whose names nobody chose, so that one does not keep out the next.
    """
    wanted = values.job.name
    name, number = wanted, 1
    while _is_taken(JobDir(jobs_dir.expanduser().absolute() / name)):
        number += 1
        end = f"-{number}"
        name = wanted[: MAX_NAME_LENGTH - len(end)].rstrip("-") + end
    if name == wanted:
        return values
    job = values.job.model_copy(update={"name": name})
    return values.model_copy(update={"job": job})


def _is_taken(job_dir: JobDir) -> bool:
    try:
        JobLock(job_dir).release()
    except JobError:
        return True
    return inspect(job_dir) is Condition.RUNNING


def _runs_already(job_dir: JobDir, spec: JobSpec) -> RunsAlreadyError:
    run = read_run(job_dir)
    pid = f" (pid {run.launcher_pid})" if run else ""
    return RunsAlreadyError(
        f"job {spec.name} is already running{pid}; watch it with `elasticdl status "
        f"{spec.name}`, end it with `elasticdl stop {spec.name}`, or give this one "
        "another job.name"
    )


def start_mark(pid: int) -> str:
    """Return a mark that tells a process from later ones with its pid; or "".

    Counted from the machine's start, so that it stays when somebody sets the clock.
    """
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        # After the name, which may have spaces and brackets: state is field 3.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return f"{boot}:{fields[22 - 3]}"


def own_start() -> tuple[int, float]:
    """Return this process's pid and start time, for run.json."""
    return os.getpid(), psutil.Process().create_time()


def remove_run(job_dir: JobDir) -> None:
    """Remove run.json: the job has no launcher any more."""
    with contextlib.suppress(OSError):
        job_dir.run_file.unlink(missing_ok=True)
