"""A job's folder from one run to the next: locked, moved aside, filled.

Owns the lock that keeps a second runner of the job out, what an ended run leaves and
what a new one begins with. Called by `client.local.folder` for a launch here, and by
`master.pod`, because in a cluster the master is the first process of its job. Must not
start anything.
"""

from __future__ import annotations

import enum
import errno
import fcntl
import itertools
import logging
import time
from pathlib import Path, PurePosixPath
from typing import IO

from elasticdl.beneath import opened, read_text
from elasticdl.errors import JobError, SpecError, is_file_away
from elasticdl.files import write_whole
from elasticdl.job.names import JobDir
from elasticdl.job.plain import plain_json
from elasticdl.job.spec.job import JobSpec, JobType
from elasticdl.job.status import JobReport
from elasticdl.job.values.document import ValuesFile
from elasticdl.job.values.file import dump_values, load_values
from elasticdl.job.words import JobState

log = logging.getLogger(__name__)

ASIDE_MARK = "~"  # no job's name contains it
KEPT_ASIDE = 3  # The newest earlier runs of a name; older ones are deleted.
_LOOK_SECONDS = 0.5  # How often a taken lock is tried.
# What file systems without locks say, NFS without its lock service among them.
_NO_LOCKS = frozenset(
    {errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EINVAL}
)


class Condition(enum.StrEnum):
    """The state of a job as its folder shows it."""

    ABSENT = "absent"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    STOPPED = "stopped"
    INTERRUPTED = "interrupted"  # whoever ran it was killed
    PENDING = "pending"  # in a cluster: its master has not started yet


def read_report(job_dir: JobDir) -> JobReport | None:
    """Return the final report; None if the job has not ended with one."""
    try:
        return _report(job_dir)
    except (OSError, ValueError):
        return None


def _report(job_dir: JobDir) -> JobReport:
    text = plain_json(read_text(job_dir.report_file, root=job_dir.root))
    return JobReport.model_validate_json(text)


def inspect(job_dir: JobDir) -> Condition:
    """Return the state of a job that nobody runs now, from its folder.

    Raises OSError when its storage is away: a finished job is no interrupted one.
    """
    if not job_dir.spec_file.exists():
        return Condition.ABSENT
    report = None
    try:
        report = _report(job_dir)
    except (OSError, ValueError) as error:
        if is_file_away(error):
            raise
    if report is None or not report.status.ended:
        return Condition.INTERRUPTED
    return {
        JobState.SUCCEEDED: Condition.SUCCEEDED,
        JobState.FAILED: Condition.FAILED,
    }.get(report.status, Condition.STOPPED)


class JobLock:
    """Exclusive right to run a job; released when the process ends."""

    def __init__(self, job_dir: JobDir, *, wait_seconds: float = 0.0) -> None:
        """Take the lock, waiting `wait_seconds` at most. Raises JobError.

        On a file system that knows no locks there is none: then the journal alone
        tells two masters apart. Raises OSError when storage fails.
        """
        job_dir.root.parent.mkdir(parents=True, exist_ok=True)
        path = job_dir.root.parent / f".{job_dir.root.name}.lock"
        self._file: IO[str] = path.open("w")
        until = time.monotonic() + wait_seconds
        told = False
        while True:
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() >= until:
                    self._file.close()
                    raise JobError(
                        f"job {job_dir.root.name} is already running: {path} is locked"
                    ) from None
                if not told:
                    log.warning("%s is locked: waiting until another one ends", path)
                    told = True
                time.sleep(_LOOK_SECONDS)
            except OSError as error:
                if error.errno not in _NO_LOCKS:
                    self._file.close()
                    raise
                log.warning("%s: cannot be locked (%s)", path, error.strerror)
                return
            else:
                return

    def release(self) -> None:
        """Release the lock."""
        self._file.close()


def make_room(
    job_dir: JobDir, spec: JobSpec, condition: Condition, *, restart: bool
) -> tuple[bool, str]:
    """Move a job aside that cannot be continued.

    A finished job, an evaluation, or any with `restart` is moved; an unfinished one
    goes on. Returns whether it goes on, and what to tell the user. Raises JobError
    when another kind of job is unfinished there.
    """
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
    return True, f"unfinished ({condition}): it goes on where it was"


def _earlier_type(job_dir: JobDir) -> str:
    """Return the type of the job that the folder was made for, "" if unreadable."""
    try:
        return str(load_values(job_dir.spec_file).job.type)
    except (SpecError, OSError):
        return ""


def move_aside(root: Path) -> Path:
    """Rename a job's folder to `<name>~1`, older ones to ~2, ~3; delete the rest."""
    places = [
        root.with_name(f"{root.name}{ASIDE_MARK}{number}")
        for number in range(1, KEPT_ASIDE + 1)
    ]
    if places[-1].is_symlink():
        places[-1].unlink()
    elif places[-1].exists():
        with opened(root.parent, root=root.parent) as above:
            above.remove_tree(places[-1].name)
    for newer, older in reversed(list(itertools.pairwise(places))):
        if newer.exists():
            newer.rename(older)
    root.rename(places[0])
    return places[0]


def fill(job_dir: JobDir, values: ValuesFile) -> None:
    """Write the inputs of a run: values file and model code; remove an old report.

    Raises SpecError for a model file that would lie outside its folder.
    """
    with opened(job_dir.logs_dir, root=job_dir.root, make=True):
        pass  # it is there now
    job_dir.report_file.unlink(missing_ok=True)
    job_dir.in_force_file.unlink(missing_ok=True)
    write_whole(job_dir.spec_file, dump_values(values), durable=True)
    for name, content in values.job.model.files.items():
        relative = PurePosixPath(name)
        if relative.is_absolute() or ".." in relative.parts:
            raise SpecError(
                f"job.model.files: got {name!r}, expected a file name inside the "
                "model's folder; take `..` and the leading `/` away"
            )
        target = job_dir.model_dir / relative
        with opened(target.parent, root=job_dir.root, make=True):
            write_whole(target, content, durable=False, root=job_dir.root)
