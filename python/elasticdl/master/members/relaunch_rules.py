"""Relaunch rules: what is done about a replica that ended, and why.

Owns the one function from (ending, history) to a decision. Called by
`master.members.membership`. Pure: knows nothing of runners, clocks or RPC.

| ending                                          | what is done     | counts  |
|-------------------------------------------------|------------------|---------|
| preempted, evicted, node lost, deleted, killed  | relaunched       | no      |
| silent or hung (killed by the master), fenced   | relaunched       | no      |
| left with exit code 0 while there is work       | relaunched       | no      |
| out of memory, and there is more up to the limit| with more memory | no      |
| storage was away as it began, for the container | relaunched       | no      |
| or for the process                              |                  |         |
| its container can never be started as described | the job fails    |         |
| exit codes of deterministic mistakes (3, 4, 5), | the job fails    |         |
| of workers also 6: a checkpoint does not fit    |                  |         |
| hung before its model was built                 | relaunched       | yes     |
| any other exit code, out of memory otherwise    | relaunched       | yes     |

A container killed with SIGKILL by nobody known while it used nearly all the memory it
may have counts as out of memory: some kernels do not tell the platform.

Counted endings of workers fail the job after `maxRestarts` within `FORGIVEN_SECONDS`,
or within the time that so many starts take. A PS fails it when it crashed, or was
silent, `PS_CRASHES` times in a row without having got anywhere: it ended soon after its
start, or no checkpoint was completed between. Replicas that end soon after
their start come back after a growing pause, whatever the reason.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace

from elasticdl.errors import ExitCode, with_records
from elasticdl.job.names import Role
from elasticdl.job.words import EndCause, ExitReason, end_cause
from elasticdl.pauses import growing
from elasticdl.runner.last_words import ERROR_LINE

QUICK_SECONDS = 10.0  # Shorter than any start that got as far as the user's code.
PS_CRASHES = 5  # A PS that fails so often without a checkpoint between fails again.
# Crashes that are hours apart have nothing to do with each other.
FORGIVEN_SECONDS = 3600.0
# A PS that lives so long has got somewhere, in a job that keeps no checkpoints.
PS_LIVED_SECONDS = 600.0
_FIRST_PAUSE_SECONDS = 0.5
_LONGEST_PAUSE_SECONDS = 30.0
_STORAGE_PAUSE_SECONDS = 10.0  # A file server takes minutes to move.
_MEMORY_FACTOR = 1.5
# Of its limit, at the last heartbeat: it grew by the rest in a second.
_OOM_SHARE = 0.8
_SIGKILL_CODE = 128 + 9

# What a runtime says of a volume whose server is away while it mounts it.
_STORAGE_AWAY = re.compile(
    r"stale (nfs )?file handle|(input/output|remote i/o) error|transport endpoint"
    r"|host is down"
    r"|no route to host|connection (timed out|refused|reset)",
    re.IGNORECASE,
)

# Trying again cannot help: the same specification, code and data give the same error.
DETERMINISTIC: dict[int, str] = {
    ExitCode.SPEC: "the specification is wrong",
    ExitCode.USER_CODE: "the model module failed",
    ExitCode.DATA: "the data cannot be read",
}
_NEVER_COUNTED = {
    ExitReason.PREEMPTED,
    ExitReason.EVICTED,
    ExitReason.NODE_LOST,
    ExitReason.DELETED,
    ExitReason.KILLED,
    ExitReason.COMPLETED,
}


@dataclass(frozen=True)
class ReplicaEnding:
    """How a replica ended. `cause` is the master's reason if the master ended it."""

    role: Role
    reason: ExitReason
    exit_code: int = 0
    message: str = ""  # last lines of its log
    cause: EndCause | None = None  # silent or hung; None: the master did not end it
    lived_seconds: float = 0.0
    memory_bytes: int = 0  # it was launched with
    memory_limit: int = 0  # at which the platform kills it; 0: it does not
    used_bytes: int = 0  # of memory, at its last heartbeat
    ready: bool = True  # a worker: has built the model


@dataclass(frozen=True)
class PastEndings:
    """The endings before this one, as far as they count."""

    counted: int = 0  # counted endings of all workers, not forgiven yet
    quick: int = 0  # endings in a row (of this PS, or of workers) without having lived
    nowhere: int = 0  # crashes of this PS in a row without a newer checkpoint
    away_seconds: float = 0.0  # since one was the first that storage kept from starting


@dataclass(frozen=True)
class Limits:
    """Limits from the specification."""

    max_restarts: int
    max_memory_bytes: int = 0  # 0: no more than it has
    away_seconds: float = math.inf  # that storage may be away


@dataclass(frozen=True)
class StartReplacement:
    """Decision: start a replacement after `delay_seconds`, with `memory_bytes`."""

    reason: str
    counted: bool = False
    delay_seconds: float = 0.0
    memory_bytes: int = 0  # 0: as before


@dataclass(frozen=True)
class GiveUp:
    """Decision: end the job with this message."""

    reason: str
    message: str
    exit_code: ExitCode = ExitCode.JOB_FAILED

    def with_records(self, held: str) -> str:
        """Return the message, with the records that the worker was at.

        Not of a checkpoint that cannot be used: records have no part in that.
        """
        if self.exit_code is ExitCode.STORAGE:
            return self.message
        return with_records(self.message, held)


def decide(
    ending: ReplicaEnding, history: PastEndings, limits: Limits, *, name: str
) -> StartReplacement | GiveUp:
    """Return what to do about the needed replica `name` that ended."""
    ending = _with_oom_kill(ending)
    pause = _pause(ending, history)
    reason = ending.cause or _words(ending)
    away = waits_for_storage(ending) and history.away_seconds < limits.away_seconds
    if ending.reason is ExitReason.CANNOT_START and not away:
        what = "its container cannot be started"
        return GiveUp(reason, _last_words(name, what, ending.message))
    if is_counted_kill(ending):
        return _counted(ending, history, limits, name=name)
    if away or ending.cause or ending.reason in _NEVER_COUNTED:
        pause = _STORAGE_PAUSE_SECONDS if away else pause
        return StartReplacement(reason, delay_seconds=pause)
    if ending.exit_code == ExitCode.FENCED:
        return StartReplacement(EndCause.FENCED, delay_seconds=pause)
    if ending.reason is ExitReason.OOM_KILLED:
        had = max(ending.memory_bytes, ending.memory_limit)
        more = min(int(had * _MEMORY_FACTOR), limits.max_memory_bytes)
        if more > had:
            return StartReplacement(reason, delay_seconds=pause, memory_bytes=more)
    elif what := _deterministic(ending):
        code = ExitCode(ending.exit_code)
        return GiveUp(reason, _last_words(name, what, ending.message), code)
    return _counted(ending, history, limits, name=name)


def waits_for_storage(ending: ReplicaEnding) -> bool:
    """Whether it could not begin, since storage is away."""
    if ending.reason is ExitReason.CANNOT_START:
        return _STORAGE_AWAY.search(ending.message) is not None
    return ending.exit_code == ExitCode.STORAGE_AWAY


def cause_of(ending: ReplicaEnding) -> EndCause:
    """Return the cause of an end, without exit code and last words."""
    if ending.cause is not None:
        return ending.cause
    ending = _with_oom_kill(ending)
    crashed = ending.reason is ExitReason.ERROR
    if crashed and ending.exit_code == ExitCode.FENCED:
        return EndCause.FENCED
    return end_cause(ending.reason)


def _with_oom_kill(ending: ReplicaEnding) -> ReplicaEnding:
    """Return the ending as an OOM kill if the platform shows an unexplained SIGKILL."""
    nobody = ending.reason is ExitReason.KILLED and not ending.cause
    killed = nobody and ending.exit_code == _SIGKILL_CODE
    full = ending.used_bytes >= _OOM_SHARE * ending.memory_limit > 0
    return replace(ending, reason=ExitReason.OOM_KILLED) if killed and full else ending


def _deterministic(ending: ReplicaEnding) -> str:
    """Return the problem that a retry cannot solve; "" if a retry may help."""
    if ending.exit_code == ExitCode.STORAGE and ending.role is Role.WORKER:
        # A full disk is reported with a task; only loading ends a worker with it.
        return "the checkpoint cannot be used"
    return DETERMINISTIC.get(ending.exit_code, "")


def _counted(
    ending: ReplicaEnding, history: PastEndings, limits: Limits, *, name: str
) -> StartReplacement | GiveUp:
    reason = ending.cause or _words(ending)
    pause = _pause(ending, history)
    if ending.role is Role.PS:
        crashes = max(history.quick if is_quick(ending) else 0, history.nowhere) + 1
        if crashes >= PS_CRASHES:
            what = f"it crashed {crashes} times in a row ({reason})"
            if not is_quick(ending):
                what += ", and no checkpoint was completed between"
            return GiveUp(reason, _last_words(name, what, ending.message))
        return StartReplacement(reason, counted=True, delay_seconds=pause)
    if history.counted >= limits.max_restarts:
        what = (
            f"{reason}, and worker.maxRestarts ({limits.max_restarts}) crashes are "
            "used up"
        )
        return GiveUp(reason, _last_words(name, what, ending.message))
    return StartReplacement(reason, counted=True, delay_seconds=pause)


def is_counted_kill(ending: ReplicaEnding) -> bool:
    """Whether the master ended the replica for a fault that a replacement may repeat.

    A PS that is silent may be too large for its bounds; a worker that hangs while it
    builds the model held no task, of which that could be counted.
    """
    if ending.role is Role.PS:
        return ending.cause == EndCause.SILENT
    return ending.cause == EndCause.HUNG and not ending.ready


def is_quick(ending: ReplicaEnding) -> bool:
    """Whether it ended so soon after its start that it may do so repeatedly."""
    # What was taken away says nothing about the replica.
    taken = ending.reason in (
        ExitReason.PREEMPTED,
        ExitReason.EVICTED,
        ExitReason.NODE_LOST,
        ExitReason.DELETED,
        ExitReason.KILLED,
    )
    taken = taken or waits_for_storage(ending)
    return not taken and ending.lived_seconds < QUICK_SECONDS


def _pause(ending: ReplicaEnding, history: PastEndings) -> float:
    if not is_quick(ending) or history.quick == 0:
        return 0.0
    first, most = _FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS
    return growing(history.quick - 1, first=first, most=most)


def _words(ending: ReplicaEnding) -> str:
    if ending.reason is ExitReason.ERROR:
        return f"exit code {ending.exit_code}"
    return in_words(ending.reason)


def in_words(reason: ExitReason) -> str:
    """Return the reason in plain words instead of the cluster's term."""
    if reason is ExitReason.DELETED:
        return "stopped from outside"
    return reason.value or "gone"


def _last_words(name: str, what: str, message: str) -> str:
    """Return one line with the error, then the rest of the last output."""
    if not message.strip():
        return f"{name}: {what}; its log says nothing of it"
    return f"{name}: {what}: {error_first(message)}"


def error_first(message: str, *, most_lines: int = 60) -> str:
    """Return a message whose first line is the error; a traceback follows.

    Of a message that is a traceback the last line says it; of the end of a log, which
    is what a pod leaves, the last error does, without the log's own words.
    """
    lines = message.strip().splitlines()
    for at in reversed(range(len(lines))):
        if logged := ERROR_LINE.match(lines[at]):
            lines = [lines[at][logged.end() :], *lines[at + 1 :]]
            break
    if lines and lines[0].startswith("Traceback"):
        lines.insert(0, lines[-1].strip())
    if len(lines) > most_lines:  # the end says what happened
        lines = [lines[0], "  ...", *lines[2 - most_lines :]]
    return "\n".join(lines)
