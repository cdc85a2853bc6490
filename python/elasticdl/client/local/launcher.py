"""The launcher: holds a job's platform, and keeps its master alive until it ended.

Owns the life of one job on this machine, from the folder to the last process. Called
by `elasticdl train` and by notebooks through `launch`. Must not train, nor decide
about PS and workers: the master does.

A thread of its own supervises; the caller's thread shows progress and catches signals.
"""

from __future__ import annotations

import collections
import secrets
import signal
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from elasticdl.client.local import folder, master_restarts
from elasticdl.client.local.calls import MasterCalls
from elasticdl.client.local.folder import PreparedJob, RunFile
from elasticdl.client.local.master_restarts import Finish, MasterEnd
from elasticdl.client.local.ports import master_port
from elasticdl.errors import FINAL_EXITS, ExitCode, RpcError
from elasticdl.job.folder import read_report
from elasticdl.job.names import NAMESPACE_LOCAL, JobDir, Role
from elasticdl.job.spec.job import JobSpec
from elasticdl.job.status import JobReport, JobStatus
from elasticdl.job.values.document import ValuesFile
from elasticdl.job.words import JobState
from elasticdl.runner.base import Launch, ObservedReplica, Phase, ReplicaKey
from elasticdl.runner.local.platform import LocalPlatform
from elasticdl.runner.local.platform_server import PlatformServer
from elasticdl.runner.local.table import CommandOf, JobPlace, role_command

_MASTER = ReplicaKey(Role.MASTER, 0)
_LOOK_SECONDS = 0.2  # A change of the master's state is seen at once.
_TRIAL_SECONDS = 5.0  # of silence, and between two; see folder.awaited_storage
_CLOSE_GRACE_SECONDS = 5.0  # As at the end of a job: workers have been told before.


@dataclass(frozen=True)
class LaunchOutcome:
    """How a job ended here."""

    exit_code: int
    report: JobReport | None
    message: str  # why, when there is no report


@dataclass(frozen=True)
class Timing:
    """Time limits of the launcher for its master, in seconds."""

    probe: float = 0.5  # at first; later it asks less often
    answer: float = 2.0
    silent: float = master_restarts.SILENT_SECONDS
    starting: float = master_restarts.STARTING_SECONDS
    # A master that wrote its report has to end, beside what `onEnd` takes. It waits for
    # the history to be written for a minute (`master.patience`), if that has to be.
    after_report: float = 120.0


def launch(
    values: ValuesFile,
    *,
    environ: Mapping[str, str],
    jobs_dir: Path | None = None,
    restart: bool = False,
    free_name: bool = False,
    command: CommandOf = role_command,
    timing: Timing | None = None,
) -> Launcher:
    """Start a job on this machine; its processes end with this process.

    Args:
        values: The job.
        environ: Environment that all processes inherit, as `os.environ`.
        jobs_dir: Where jobs have their folders; default `~/.elasticdl/jobs`.
        restart: Move an unfinished job of that name aside instead of going on.
        free_name: Put a number behind the job's name where one of that name runs, for
            jobs whose names nobody chose.
        command: Command line of each role.
        timing: Patience with the master.

    Raises:
        JobError: A job of that name runs already, unless it may have another one.
        PlatformError: The master's port is in use.
    """
    place = jobs_dir or Path(folder.DEFAULT_JOBS_DIR)
    prepare = folder.prepare_free if free_name else folder.prepare
    job = prepare(values, place.expanduser().absolute(), restart=restart)
    try:
        return Launcher(job, environ=environ, command=command, timing=timing)
    except BaseException:
        job.lock.release()
        raise


class Launcher:
    """A running job. `stop`, `kill` and the readers may be called from any thread."""

    def __init__(
        self,
        job: PreparedJob,
        *,
        environ: Mapping[str, str],
        command: CommandOf = role_command,
        timing: Timing | None = None,
    ) -> None:
        """Start platform, master and the thread that keeps them."""
        self.spec: JobSpec = job.spec
        self.job_dir: JobDir = job.job_dir
        self._lock = job.lock
        self._timing = timing or Timing()
        port = master_port(self.spec.master.port, secrets.randbelow)
        self.master_address = f"127.0.0.1:{port}"
        self._token = secrets.token_urlsafe(32)
        self._environ = environ
        self._platform = LocalPlatform(
            JobPlace(
                self.job_dir,
                self.master_address,
                self._token,
                environ,
                command,
                launch=secrets.token_hex(8),
            )
        )
        self._server = PlatformServer(self._platform, token=self._token)
        self._calls = MasterCalls(self.master_address, self._token)
        self._stop_reason = ""
        self._stop_sent = False
        self._killed = threading.Event()
        self._status: JobStatus | None = None
        self._notices: collections.deque[str] = collections.deque()
        if job.notice:
            self._notices.append(job.notice)
        self._ends: list[MasterEnd] = []
        self._outcome: LaunchOutcome | None = None
        self._done = threading.Event()
        try:
            self._announce()
        except OSError:
            self._server.close()
            self._platform.close(grace_seconds=0.0)
            raise
        self._thread = threading.Thread(target=self._run, name="launcher", daemon=True)
        self._thread.start()

    # For the caller's thread.

    @property
    def status(self) -> JobStatus | None:
        """The newest status from the master."""
        return self._status

    @property
    def stopping(self) -> bool:
        """Whether a clean end was asked for."""
        return bool(self._stop_reason)

    def take_notices(self) -> list[str]:
        """Return the launcher's own events since the last call."""
        taken = []
        while self._notices:
            taken.append(self._notices.popleft())
        return taken

    def stop(self, reason: str = "stopped by hand") -> None:
        """Ask for a clean end with a last checkpoint. Does not wait."""
        self._stop_reason = self._stop_reason or reason

    def kill(self) -> None:
        """End all processes at once; what follows the last checkpoint is repeated."""
        self._killed.set()
        self._platform.wake()

    def wait(self, timeout_seconds: float | None = None) -> LaunchOutcome | None:
        """Wait for the end; return None if it does not come in time."""
        self._done.wait(timeout_seconds)
        return self._outcome

    # The supervising thread.

    def _announce(self) -> None:
        pid, started = folder.own_start()
        run = RunFile(
            launcher_pid=pid,
            platform=self._server.address,
            master=self.master_address,
            started=time.time(),
            launcher_started=started,
            token=self._token,
            launcher_mark=folder.start_mark(pid),
        )
        folder.write_run(self.job_dir, run)

    def _run(self) -> None:
        outcome = LaunchOutcome(ExitCode.JOB_FAILED, None, "the launcher itself failed")
        try:
            finish = self._keep_master()
            report = read_report(self.job_dir)
            message = finish.message
            if report is None and self._status is not None:
                # The disk that took no report has taken no log either.
                message = master_restarts.with_last_status(message, self._status)
            outcome = LaunchOutcome(finish.exit_code, report, message)
            if not (report or self._killed.is_set() or finish.exit_code in FINAL_EXITS):
                self._tell_of_crashes(message)
        except Exception as error:  # noqa: BLE001 - top of the thread
            outcome = LaunchOutcome(
                ExitCode.JOB_FAILED, None, f"the launcher failed: {error!r}"
            )
        finally:
            grace = 0.0 if self._killed.is_set() else _CLOSE_GRACE_SECONDS
            self._platform.close(grace_seconds=grace)
            self._server.close()
            self._calls.close()
            folder.remove_run(self.job_dir)
            self._lock.release()
            self._outcome = outcome
            self._done.set()

    def _tell_of_crashes(self, message: str) -> None:
        """Tell `onEnd` of a job that ended because its masters crashed."""
        if self._status is not None and self._status.ending:
            return  # the last one did, and could write no report
        from elasticdl.master.telling import on_end

        end = on_end.End(
            self.spec.name,
            NAMESPACE_LOCAL,
            JobState.FAILED,
            message,
            self.job_dir.report_file,
            environ=self._environ,
        )
        on_end.tell(self.spec.on_end, end)

    def _keep_master(self) -> Finish:
        """Start masters until one of them has ended the job."""
        generation = 0
        while True:
            generation += 1
            self._start_master(generation)
            end = self._watch_master(generation)
            if self._killed.is_set():
                return Finish(ExitCode.STOPPED, "stopped at once")
            report = read_report(self.job_dir)
            untold = report is not None and self.spec.on_end.most_seconds > 0
            self._ends.append(replace(end, untold=untold))
            decision = master_restarts.after_end(
                self._ends, reported=report.status if report else None
            )
            if isinstance(decision, Finish):
                return decision
            self._notices.append(f"the master {end.how}; it is started again")
            if self._killed.wait(decision.after_seconds):
                return Finish(ExitCode.STOPPED, "stopped at once")

    def _start_master(self, generation: int) -> None:
        spec = self.spec
        self._stop_sent = False
        self._platform.start(
            Launch(
                key=_MASTER,
                generation=generation,
                cpu=spec.master.resources.cpu,
                memory=spec.master.resources.memory,
                priority="high",
                grace_seconds=spec.worker.grace_seconds,
                env=spec.env_of(Role.MASTER),
            )
        )

    def _watch_master(self, generation: int) -> MasterEnd:
        """Watch one master until it has ended."""
        probe = _Probe(time.monotonic())
        seen = 0
        while True:
            change = self._platform.next_change(seen, timeout_seconds=_LOOK_SECONDS)
            seen = change.revision
            for state in change.states:
                ours = state.key == _MASTER and state.generation == generation
                if ours and state.phase in (Phase.SUCCEEDED, Phase.FAILED):
                    return _end_of(state, answered=probe.answered)
            if self._killed.is_set():
                self._platform.stop(
                    _MASTER, grace_seconds=0.0, reason="stopped at once"
                )
            elif self._stop_pending or time.monotonic() >= probe.next_time:
                self._ask(probe)

    @property
    def _stop_pending(self) -> bool:
        return self.stopping and not self._stop_sent

    def _ask(self, probe: _Probe) -> None:
        """Fetch the status, pass on a request to stop, kill a silent master."""
        timing = self._timing
        try:
            self._status = self._calls.status(timeout_seconds=timing.answer)
            probe.succeeded(time.monotonic(), timing.probe)
            if self._stop_pending:
                self._calls.stop(self._stop_reason)
                self._stop_sent = True
        except RpcError:
            probe.failed(time.monotonic())  # it took its time, or a look ago
            self._look_at_storage(probe)
        silent_seconds = time.monotonic() - probe.last_time
        if master_restarts.is_silent(
            seconds=silent_seconds,
            bound_seconds=timing.silent
            if probe.answered
            else timing.starting + probe.storage_seconds,
            failed_calls=probe.failures,
        ):
            self._replace_silent(probe, silent_seconds)
        elif self.job_dir.report_file.exists():
            probe.reported_time = probe.reported_time or time.monotonic()
            # With its report written it tells others of the end, as the job wishes.
            patience = timing.after_report + self.spec.on_end.most_seconds
            if time.monotonic() - probe.reported_time > patience:
                self._replace_silent(probe, patience)

    def _look_at_storage(self, probe: _Probe) -> None:
        """Give a master that was started the time that it may wait for its journal."""
        if probe.answered:
            return
        # To write there takes a while, and most masters answer within a second.
        now = time.monotonic()
        tries = now >= max(probe.trial_time, probe.last_time + _TRIAL_SECONDS)
        if tries:
            probe.trial_time = now + _TRIAL_SECONDS
        why = folder.awaited_storage(self.job_dir, tries=tries)
        if not why:
            if tries:  # what was slow, or refused, is not any more
                probe.storage_seconds = 0.0
            return
        if not probe.storage_seconds:
            self._notices.append(why)
        probe.storage_seconds = self.spec.master.journal_wait_seconds

    def _replace_silent(self, probe: _Probe, seconds: float) -> None:
        self._notices.append(f"the master was silent for {seconds:.0f} s and is killed")
        # Not through `stop`: it ends like any killed process, and is started again.
        self._platform.signal(_MASTER, signal.SIGKILL)
        probe.failed(time.monotonic() + seconds)


class _Probe:
    """What the launcher knows of one master's answers; times are monotonic."""

    def __init__(self, now: float) -> None:
        self._first_time: float | None = None  # that it answered
        self.storage_seconds = 0.0  # that it may wait for its storage
        self.trial_time = now  # of the next file that is written there
        self.failures = 0
        self.last_time = now
        self.next_time = now
        self.reported_time: float | None = None

    @property
    def answered(self) -> bool:
        return self._first_time is not None

    def succeeded(self, now: float, least_pause: float) -> None:
        if self._first_time is None:
            self._first_time = now
        self.failures = 0
        self.last_time = now
        self.next_time = now + master_restarts.pause_after_answer(
            age_seconds=now - self._first_time, least_seconds=least_pause
        )

    def failed(self, next_time: float) -> None:
        self.failures += 1
        self.next_time = next_time


def _end_of(state: ObservedReplica, *, answered: bool) -> MasterEnd:
    return MasterEnd(
        time=time.monotonic(),  # not `since`: crashes are counted within a time
        exit_code=state.exit_code,
        reason=state.reason,
        message=state.message,
        answered=answered,
    )
