"""Jobs of this machine by name: found, read, changed and stopped.

Owns what the CLI's verbs do to a local job, whoever launched it. Called by the CLI and
by notebooks. Must not print, nor start processes.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from elasticdl.client.handle import JobView, parse_replica
from elasticdl.client.local import folder
from elasticdl.client.local.calls import MasterCalls, PlatformCalls
from elasticdl.client.local.folder import RunFile
from elasticdl.client.local.logs import read_log
from elasticdl.client.scaling import Scaled, Scaling
from elasticdl.client.usage import Capacity
from elasticdl.errors import JobError, NotFoundError, RpcError
from elasticdl.job import history
from elasticdl.job.folder import ASIDE_MARK, Condition, read_report
from elasticdl.job.history import History
from elasticdl.job.names import JobDir, replica_name
from elasticdl.job.spec.problems import nearest
from elasticdl.job.status import JobReport
from elasticdl.job.values.file import edit_values, load_values

_STATUS_SECONDS = 2.0  # A master that does not answer for so long is away.
_LOOK_SECONDS = 0.2  # How often a waiting command looks at the folder.


@dataclass(frozen=True)
class LocalJob:
    """A job on this machine: its folder and the process that runs it."""

    job_dir: JobDir

    @property
    def name(self) -> str:
        """The job's name."""
        return self.job_dir.root.name

    @property
    def place(self) -> str:
        """Where the job is: "", since it is on this machine."""
        return ""

    @property
    def condition(self) -> Condition:
        """What the folder shows."""
        return folder.inspect(self.job_dir)

    def view(self) -> JobView:
        """Return status or report; an unreachable master is noted, not an error."""
        condition = self.condition
        run = folder.read_run(self.job_dir)
        if condition is not Condition.RUNNING or run is None:
            report = read_report(self.job_dir)
            return JobView(self.name, condition, report=report)
        try:
            with MasterCalls(run.master, run.token) as master:
                status = master.status(timeout_seconds=_STATUS_SECONDS)
        except RpcError:
            away = "its master does not answer now; the launcher starts it again"
            note = folder.awaited_storage(self.job_dir, tries=False) or away
            return JobView(self.name, condition, note=note)
        return JobView(self.name, condition, status=status)

    def history(self) -> History:
        """Return samples and decisions so far; empty if the master has not begun."""
        return history.read(self.job_dir.history_file)

    def stop(
        self, reason: str = "elasticdl stop", *, wait_seconds: float = 20.0
    ) -> None:
        """Ask for a clean end; tries again while the master is being restarted."""
        run = self._run()
        end = time.monotonic() + wait_seconds
        with MasterCalls(run.master, run.token) as master:
            while True:
                try:
                    return master.stop(reason)
                except RpcError:
                    if self.condition is not Condition.RUNNING:
                        return None  # it ended meanwhile
                    if time.monotonic() > end:
                        raise
                    time.sleep(_LOOK_SECONDS)

    def scale(self, wanted: Scaling) -> Scaled:
        """Change the number of workers, or pause or resume the job.

        Nothing is written if the result would not be valid. Raises JobError when the
        job does not run, SpecError when it cannot have that.
        """
        before = load_values(self.job_dir.spec_file).job
        edits = wanted.edits(before)
        self._run()  # a launch brings a file of its own
        if not edits:
            return Scaled(before, before)
        return Scaled(before, edit_values(self.job_dir.spec_file, edits).job)

    def kill(self, replica: str, signal_number: int) -> int:
        """Send a signal to a running replica; return its pid."""
        run = self._run()
        with PlatformCalls(run.platform, run.token) as platform:
            key = parse_replica(replica)
            pid = platform.signal(key, signal_number) if key else 0
            if pid:
                return pid
            there = [replica_name(k.role, k.index) for k in platform.running()]
        raise NotFoundError(
            f"job {self.name} runs no {replica!r}; running now: "
            f"{', '.join(there) or 'nothing'}"
        )

    def set_capacity(self, cpus: float | None) -> tuple[int, int, int]:
        """Set the CPUs of all workers (None: no limit).

        Returns the numbers of workers that run, that are preempted now, and that wait.
        """
        run = self._run()
        with PlatformCalls(run.platform, run.token) as platform:
            return platform.set_capacity(cpus)

    def capacity(self) -> Capacity:
        """Return the CPUs in use by the job's workers, and their limit.

        Raises JobError when the job does not run, PlatformError for no answer.
        """
        run = self._run()
        with PlatformCalls(run.platform, run.token) as platform:
            workers, limit = platform.capacity()
        each = load_values(self.job_dir.spec_file).job.worker.resources.cpu
        return Capacity(workers * each, limit)

    def logs(
        self,
        replica: str,
        *,
        tail: int | None = None,
        follow: bool = False,
        previous: bool = False,
    ) -> Iterator[str]:
        """Yield lines of a replica's log; with `follow` until the job has ended."""
        if previous:
            raise JobError(
                f"job {self.name} runs on this machine, where one log holds all that "
                f"{replica} ever wrote; leave --previous out"
            )
        key = parse_replica(replica)
        file = self.job_dir.log_file(key.role, key.index) if key else None
        if file is None or not file.exists():
            there = sorted(path.stem for path in self.job_dir.logs_dir.glob("*.log"))
            raise NotFoundError(
                f"job {self.name} has no log of {replica!r}; there are: "
                f"{', '.join(there) or 'none'}"
            )
        return read_log(
            file,
            tail=tail,
            more=(lambda: self.condition is Condition.RUNNING) if follow else None,
        )

    def wait(self, timeout_seconds: float | None = None) -> JobReport | None:
        """Wait until the job no longer runs; return its report, None if it left none.

        Raises JobError when it still runs after `timeout_seconds`.
        """
        end = None if timeout_seconds is None else time.monotonic() + timeout_seconds
        while self.condition is Condition.RUNNING:
            if end is not None and time.monotonic() > end:
                raise JobError(
                    f"job {self.name} still runs after {timeout_seconds:g} seconds"
                )
            time.sleep(_LOOK_SECONDS)
        return read_report(self.job_dir)

    def _run(self) -> RunFile:
        run = folder.read_run(self.job_dir)
        condition = self.condition
        if run is None or condition is not Condition.RUNNING:
            raise JobError(
                f"job {self.name} is not running ({condition}); start it with its "
                "values file, as `elasticdl train -f FILE`"
            )
        return run


def list_jobs(jobs_dir: Path, *, aside: bool = False) -> list[LocalJob]:
    """Return all jobs by name; with `aside` also earlier ones that were moved aside."""
    if not jobs_dir.is_dir():
        return []
    return [
        LocalJob(JobDir(path))
        for path in sorted(jobs_dir.iterdir())
        if (aside or ASIDE_MARK not in path.name) and JobDir(path).spec_file.exists()
    ]


def find(name: str, jobs_dir: Path) -> LocalJob:
    """Return the job of that name. Raises NotFoundError with names that are near."""
    handle = LocalJob(JobDir(jobs_dir / name))
    if "/" not in name and handle.job_dir.spec_file.exists():
        return handle
    near = nearest(name, [job.name for job in list_jobs(jobs_dir, aside=True)])
    known = [job.name for job in list_jobs(jobs_dir)]
    if near:
        hint = f"did you mean {near!r}?"
    elif known:
        hint = f"there are: {', '.join(known)}"
    else:
        hint = "no job was started there yet"
    raise NotFoundError(f"no job {name!r} in {jobs_dir}; {hint}")
