"""A local platform whose roles are a few lines of Python each.

Owns the scripts, and waiting for what the platform shows. Used by tests of the
platform, the runner and the launcher in place of the real roles. Must not know what
the real roles do.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import psutil

from elasticdl.errors import PlatformError
from elasticdl.job.names import JobDir, Role
from elasticdl.runner.base import Launch, ObservedReplica, Phase, ReplicaKey
from elasticdl.runner.local.platform import LocalPlatform
from elasticdl.runner.local.table import JobPlace

# -S: a bare interpreter starts in a fraction of the time.
PYTHON = (sys.executable, "-S", "-c")
SLEEP = "import signal; signal.pause()"
STUBBORN = (
    "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    "print('deaf', flush=True)\n"
    "while True: signal.pause()"
)
POLITE = (
    "import signal, sys; signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))\n"
    "print('ready', flush=True)\n"
    "signal.pause()"
)
BOUND_SECONDS = 20.0
TOKEN = "of a job under test"


def launch(
    index: int = 0,
    generation: int = 1,
    *,
    role: Role = Role.WORKER,
    priority: str = "low",
    grace_seconds: float = 0.1,
    env: dict[str, str] | None = None,
) -> Launch:
    return Launch(
        key=ReplicaKey(role, index),
        generation=generation,
        cpu=1.0,
        memory="1Gi",
        priority=priority,
        grace_seconds=grace_seconds,
        env=env or {},
    )


@dataclass(frozen=True)
class ScriptedStage:
    """A platform under test, with the operations of its tests."""

    platform: LocalPlatform
    job_dir: JobDir
    scripts: dict[Role, str]

    def state(self, index: int = 0, *, role: Role = Role.WORKER) -> ObservedReplica:
        """The newest generation of a replica."""
        found = [
            s for s in self.platform.states().states if s.key == ReplicaKey(role, index)
        ]
        return max(found, key=lambda s: s.generation)

    def until(
        self,
        condition: Callable[[ObservedReplica], bool],
        index: int = 0,
        *,
        role: Role = Role.WORKER,
    ) -> ObservedReplica:
        """Wait for a state, woken by changes."""
        end = time.monotonic() + BOUND_SECONDS
        while True:
            seen = self.platform.states().revision
            state = self.state(index, role=role)
            if condition(state):
                return state
            if time.monotonic() >= end:
                raise PlatformError(f"{state.key} never came so far, last: {state}")
            self.platform.next_change(seen, timeout_seconds=BOUND_SECONDS)

    def until_ended(
        self, index: int = 0, *, role: Role = Role.WORKER
    ) -> ObservedReplica:
        return self.until(
            lambda s: s.phase in (Phase.SUCCEEDED, Phase.FAILED), index, role=role
        )

    def until_said(
        self, word: str, index: int = 0, *, role: Role = Role.WORKER
    ) -> None:
        """Wait until a replica has written a word to its log."""
        log = self.job_dir.log_file(role, index)
        end = time.monotonic() + BOUND_SECONDS
        while not (log.exists() and word in log.read_text()):
            if time.monotonic() >= end:
                raise PlatformError(f"{log} never said {word!r}")
            time.sleep(0.005)


@contextmanager
def staged(job_dir: JobDir, environ: Mapping[str, str]) -> Iterator[ScriptedStage]:
    """Yield a platform in which every role sleeps unless `scripts` says otherwise."""
    scripts = dict.fromkeys(Role, SLEEP)

    def command(role: Role) -> Sequence[str]:
        return (*PYTHON, scripts[role])

    platform = LocalPlatform(JobPlace(job_dir, "127.0.0.1:1", TOKEN, environ, command))
    try:
        yield ScriptedStage(platform, job_dir, scripts)
    finally:
        platform.close(grace_seconds=0.0)


def gone(pid: int) -> bool:
    """Wait for the end of a process; an orphan may stay a zombie if nobody reaps."""
    try:
        process = psutil.Process(pid)
        process.wait(BOUND_SECONDS)
    except psutil.NoSuchProcess:
        return True
    except psutil.TimeoutExpired:
        return bool(process.status() == psutil.STATUS_ZOMBIE)
    return True
