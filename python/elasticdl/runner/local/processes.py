"""One child process: started, signalled, waited for, its end explained.

Owns process groups, the thread that waits for a child, and the words for how it ended.
Called by `runner.local.platform` alone. Must not know roles' duties, capacity or gRPC.
"""

from __future__ import annotations

import enum
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from elasticdl.job.words import ExitReason
from elasticdl.runner.base import Phase
from elasticdl.runner.last_words import signal_name
from elasticdl.runner.local.temporary import remove_folder

_TAIL_BYTES = 64 * 1024  # A traceback is a few KiB; a log may be gigabytes.

# Signals a process brings upon itself: a crash of its code, not a kill by somebody.
_CRASHES = frozenset(
    {
        signal.SIGSEGV,
        signal.SIGABRT,
        signal.SIGBUS,
        signal.SIGFPE,
        signal.SIGILL,
        signal.SIGTRAP,
        signal.SIGSYS,
    }
)
# These concern the whole group: helpers that a role started must not outlive it, nor
# go on computing while it is stopped. A role ends its helpers itself on SIGTERM.
_GROUP_SIGNALS = frozenset({signal.SIGKILL, signal.SIGSTOP, signal.SIGCONT})


class Intent(enum.Enum):
    """Why the platform ended a process, if it did."""

    NONE = ""
    PREEMPTED = "preempted"
    DELETED = "deleted"


@dataclass(frozen=True)
class ProcessEnding:
    """How a process ended."""

    phase: Phase
    reason: ExitReason
    exit_code: int  # of a signal: 128 + its number, as a shell and a kubelet say it
    signal_name: str = ""


def explain(returncode: int, intent: Intent) -> ProcessEnding:
    """Return what an exit means; `returncode` as in `subprocess` (-9 is SIGKILL)."""
    exit_code = 128 - returncode if returncode < 0 else returncode
    name = signal_name(-returncode) if returncode < 0 else ""
    if intent is Intent.PREEMPTED:
        return ProcessEnding(Phase.FAILED, ExitReason.PREEMPTED, exit_code, name)
    if intent is Intent.DELETED:
        phase = Phase.FAILED if returncode else Phase.SUCCEEDED
        return ProcessEnding(phase, ExitReason.DELETED, exit_code, name)
    if returncode == 0:
        return ProcessEnding(Phase.SUCCEEDED, ExitReason.COMPLETED, 0)
    if returncode < 0 and -returncode not in _CRASHES:
        return ProcessEnding(Phase.FAILED, ExitReason.KILLED, exit_code, name)
    return ProcessEnding(Phase.FAILED, ExitReason.ERROR, exit_code, name)


def by_nobody_known(ending: ProcessEnding) -> bool:
    """Whether the process got a SIGKILL that the platform did not send."""
    killed = ending.exit_code == 128 + signal.SIGKILL
    return killed and ending.reason is ExitReason.KILLED


def out_of_memory(ending: ProcessEnding) -> ProcessEnding:
    """Return the ending as an OOM kill."""
    words = f"{ending.signal_name}: the machine had no memory left"
    return replace(ending, reason=ExitReason.OOM_KILLED, signal_name=words)


class ChildProcess:
    """A running child in its own group; `on_exit` is called once, from a thread."""

    def __init__(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str],
        log_file: Path,
        pass_fds: Sequence[int],
        temporary: Path | None,
        on_exit: Callable[[int], None],
    ) -> None:
        """Start the process. Raises OSError when the system refuses.

        The folder `temporary` is removed when it has ended.
        """
        log_file.parent.mkdir(parents=True, exist_ok=True)
        self._log_file = log_file
        with log_file.open("ab") as log:
            self._log_start = log.tell()
            # A process group of its own: Ctrl-C in the terminal reaches the launcher
            # alone, which decides what it means. But no session: Linux shares a CPU
            # out among sessions first, so that a worker's ten threads would get as
            # much of it as the two of a PS, and a step waits for the slowest.
            self._popen = subprocess.Popen(
                list(argv),
                env=dict(env),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                pass_fds=tuple(pass_fds),
                process_group=0,
            )
        self._temporary = temporary
        self._ended = threading.Event()
        self._on_exit = on_exit
        threading.Thread(
            target=self._wait, name=f"wait-{self._popen.pid}", daemon=True
        ).start()

    @property
    def pid(self) -> int:
        """The process's number, also that of its group."""
        return self._popen.pid

    def send(self, number: int) -> bool:
        """Send a signal; whether the process was still there."""
        if self._ended.is_set():
            return False
        return self._send(number, group=number in _GROUP_SIGNALS)

    def wait_ended(self, timeout_seconds: float) -> bool:
        """Wait for the end and for `on_exit`; whether it came in time."""
        return self._ended.wait(timeout_seconds)

    def end_of_log(self) -> str:
        """Return its last output."""
        return end_of_log(self._log_file, self._log_start)

    def _send(self, number: int, *, group: bool) -> bool:
        try:
            if group:
                os.killpg(self.pid, number)
            else:
                os.kill(self.pid, number)
        except (ProcessLookupError, PermissionError):
            # macOS answers EPERM for a group of zombies.
            return False
        return True

    def _wait(self) -> None:
        returncode = self._popen.wait()
        self._send(signal.SIGKILL, group=True)  # helpers it left behind
        try:
            self._on_exit(returncode)
            if self._temporary is not None:
                remove_folder(self._temporary)
        finally:
            self._ended.set()


def end_of_log(log_file: Path, start: int = 0) -> str:
    """Return the last output of a process, from byte `start` of its log."""
    try:
        with log_file.open("rb") as log:
            end = log.seek(0, os.SEEK_END)
            log.seek(max(start, end - _TAIL_BYTES))
            return log.read().decode("utf-8", errors="replace")
    except OSError:
        return ""
