"""A whole job under test: `elasticdl train` as a user starts it, and faults on it.

Owns starting the command, waiting for what the job shows, faults at a chosen step, and
the proof afterwards: report, audit, no process left. Used by tests and benchmarks, and
by users who want to see how their own job bears a loss. Must not reach into a role:
everything goes through the client, the platform's signals and the job's folder.

    with JobUnderTest(values, jobs_dir) as job:
        job.fault("worker", signal.SIGKILL, at_step=30)
        report = job.finish()
        assert job.audit().ok
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import IO

import psutil

from elasticdl import client
from elasticdl.client import LocalJob
from elasticdl.errors import JobError, NotFoundError, RpcError
from elasticdl.job.names import JobDir, Role
from elasticdl.job.status import JobReport, JobStatus, ReplicaStatus
from elasticdl.job.values.document import ValuesFile
from elasticdl.job.values.file import edit_values, write_values
from elasticdl.job.words import ReplicaState, WorkerPhase
from elasticdl.master.tasks.audit import AuditReport, audit

# Members of a group wait for each other in each step.
_AT_STEPS = (WorkerPhase.TRAIN, WorkerPhase.WAIT)
# A look costs its master as much as some steps.
_LOOK_SECONDS = 0.1


@dataclass
class JobUnderTest:
    """One job in its own `elasticdl` process; a context manager that leaves nothing."""

    values: ValuesFile
    jobs_dir: Path
    cwd: Path
    verb: str = "train"
    options: Sequence[str] = ()
    environ: Mapping[str, str] = field(default_factory=dict)  # beside this process's
    limit_seconds: float = 150.0  # for every wait; a bound for hung tests, no claim
    output: str = ""
    shortened: bool = False  # ends earlier than its values say
    _process: subprocess.Popen[bytes] | None = None
    _outfile: IO[bytes] | None = None
    _hit: set[int] = field(default_factory=set)  # process ids that got a fault

    @property
    def job_dir(self) -> JobDir:
        """The job's folder."""
        return JobDir(self.jobs_dir / self.values.job.name)

    @property
    def handle(self) -> LocalJob:
        """The job as the CLI's verbs see it."""
        return client.find(self.values.job.name, self.jobs_dir)

    @property
    def launcher_pid(self) -> int:
        """Process id of the `elasticdl` command."""
        if self._process is None:
            raise JobError("the job was not started; call start() or use `with`")
        return self._process.pid

    def start(self) -> JobUnderTest:
        """Run the command in the background."""
        self.jobs_dir.mkdir(parents=True, exist_ok=True)
        file = self.jobs_dir / f"{self.values.job.name}.yaml"
        write_values(file, self.values)
        self._outfile = (self.jobs_dir / f"{self.values.job.name}.out").open("ab")
        self._process = subprocess.Popen(
            [
                "env", *(f"{name}={value}" for name, value in self.environ.items()),
                sys.executable, "-m", "elasticdl.cli.main", self.verb,
                "-f", str(file), "--jobs-dir", str(self.jobs_dir), *self.options,
            ],
            cwd=self.cwd,
            stdin=subprocess.DEVNULL,
            stdout=self._outfile,
            stderr=subprocess.STDOUT,
        )  # fmt: skip
        return self

    def __enter__(self) -> JobUnderTest:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._process and self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        for line in self.processes():
            # A stopped process does not notice that its launcher is gone.
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(line.split()[0]), signal.SIGKILL)
        if self._outfile:
            self._outfile.close()

    # -- looking ------------------------------------------------------------------

    def status(self) -> JobStatus | None:
        """Return the master's status; None while it is away or not up yet."""
        if not self.job_dir.run_file.exists():
            return None
        try:
            return self.handle.view().status
        except RpcError:
            return None

    def status_now(self) -> JobStatus:
        """Return the status; wait for a master that is away."""
        return self.wait_until(lambda _: True, "an answer of the master")

    def wait_until(
        self, condition: Callable[[JobStatus], bool], what: str
    ) -> JobStatus:
        """Wait until the status meets a condition. Raises JobError if it cannot."""
        end = time.monotonic() + self.limit_seconds
        last: JobStatus | None = None
        while time.monotonic() < end:
            status = self.status()
            if status is not None:
                last = status
                if condition(status):
                    return status
            if self._process is not None and self._process.poll() is not None:
                raise JobError(f"the job ended before {what}\n{self.shown()}")
            time.sleep(_LOOK_SECONDS)
        raise JobError(
            f"not within {self.limit_seconds:.0f} s: {what}\nlast status: "
            f"{last.model_dump_json(indent=1) if last else None}\n{self.shown()}"
        )

    def wait_for_step(self, step: int) -> JobStatus:
        """Wait until the whole job has made this many steps."""
        return self.wait_until(
            lambda s: max(s.progress.steps, s.progress.version) >= step,
            f"step {step}",
        )

    def shown(self) -> str:
        """Return the command's output, and the end of every log."""
        parts = [(self.jobs_dir / f"{self.values.job.name}.out").read_text()[-3000:]]
        for log in sorted(self.job_dir.logs_dir.glob("*.log")):
            tail = log.read_text(errors="replace").splitlines()[-25:]
            parts.append(f"--- {log.name}\n" + "\n".join(tail))
        return "\n".join(parts)

    def log_text(self, role: Role | str, index: int) -> str:
        """Return a replica's whole log."""
        return self.job_dir.log_file(role, index).read_text(errors="replace")

    # -- faults -------------------------------------------------------------------

    def victim(self, role: str, *, skip: int = 0) -> ReplicaStatus:
        """Return a running replica of a role; for workers one that is training.

        One that already got a fault is passed over: the master may not know of it yet.
        """

        def ready(status: JobStatus) -> list[ReplicaStatus]:
            return [
                r
                for r in status.replicas
                if r.role == role
                and r.state == ReplicaState.RUNNING
                and r.pid not in self._hit
                and (role != Role.WORKER or r.phase in _AT_STEPS)
            ]

        status = self.wait_until(lambda s: len(ready(s)) > skip, f"a running {role}")
        return ready(status)[skip]

    def fault(
        self, role: str, signal_number: int = signal.SIGKILL, *, at_step: int = 0
    ) -> str:
        """Signal a replica of the role once a step is reached; return its name."""
        self.wait_for_step(at_step)
        end = time.monotonic() + self.limit_seconds
        while True:
            name = "master" if role == Role.MASTER else self.victim(role).name
            try:
                self._hit.add(self.handle.kill(name, signal_number))
            except NotFoundError:
                # It ended by itself since the status was made: take another.
                if time.monotonic() >= end:
                    raise
            else:
                return name
            time.sleep(_LOOK_SECONDS)

    @contextlib.contextmanager
    def frozen(self) -> Iterator[None]:
        """Have the whole job stand still within a block, its launcher too."""
        launcher = psutil.Process(self.launcher_pid)
        processes = [launcher, *launcher.children(recursive=True)]
        for process in processes:
            process.suspend()
        try:
            yield
        finally:
            for process in processes:
                process.resume()

    def interrupt(self) -> None:
        """Press Ctrl-C."""
        if self._process is not None:
            self._process.send_signal(signal.SIGINT)

    # -- the end ------------------------------------------------------------------

    def end_after_this_epoch(self, *, least_epochs: int = 8) -> None:
        """End the job with the present epoch, after at least `least_epochs`.

        For a job of many epochs, so that faults meet it at work however fast it is. A
        rewind under way may take the job back before its first epochs; they count.
        """
        self.shortened = True
        edit_values(self.job_dir.spec_file, {"job.training.epochs": least_epochs})

    def wait_for_exit(self) -> int:
        """Wait for the command to end; return its exit code."""
        if self._process is None:
            raise JobError("the job was not started; call start() or use `with`")
        try:
            code = self._process.wait(self.limit_seconds)
        except subprocess.TimeoutExpired:
            raise JobError(
                f"the job did not end within {self.limit_seconds:.0f} s\n{self.shown()}"
            ) from None
        self.output = (self.jobs_dir / f"{self.values.job.name}.out").read_text()
        return code

    def finish(self, *, expected: int = 0) -> JobReport:
        """Wait for the end; return the report. Raises JobError on another exit code."""
        code = self.wait_for_exit()
        if code != expected:
            raise JobError(f"exit code {code}, expected {expected}\n{self.shown()}")
        left = self.processes()
        if left:
            raise JobError(f"processes left behind: {left}")
        return JobReport.model_validate_json(self.job_dir.report_file.read_text())

    def audit(self) -> AuditReport:
        """Count from the journal how often each record was trained."""
        return audit(self.job_dir.journal_dir, list_trained=True)

    def processes(self) -> list[str]:
        """Return the living processes that belong to the job's folder."""
        found = []
        for process in psutil.process_iter():
            try:
                if process.environ().get("ELASTICDL_JOB_DIR") == str(self.job_dir.root):
                    found.append(f"{process.pid} {' '.join(process.cmdline())}")
            except psutil.Error:
                continue
        return found
