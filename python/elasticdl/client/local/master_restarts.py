"""What the launcher does when its master ends or says nothing.

Owns the restart rule of the master, as `master.members.relaunch_rules` owns that of PS
and workers. Called by `client.local.launcher`. Pure: must not know processes or clocks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from elasticdl.errors import FINAL_EXITS, ExitCode
from elasticdl.job.status import JobStatus
from elasticdl.job.words import ExitReason, JobState

# A master that never answers three times would not the fourth time.
STARTS_WITHOUT_ANSWER = 3
# Crashes within the window after which the job is given up: a bug, not an accident.
MOST_CRASHES = 10
CRASH_WINDOW_SECONDS = 600.0
FIRST_PAUSE_SECONDS = 0.2  # An accident needs no pause; later pauses grow.

# A master answers in milliseconds; three unanswered calls of two seconds are no pause.
SILENT_SECONDS = 6.0
SILENT_CALLS = 3
# Between two answers passes a part of the master's age: of a job of an hour nobody
# misses the news of two seconds, and each answer takes the two processes milliseconds
# of a CPU that steps need.
_PAUSE_PART = 0.02
_LONGEST_PAUSE_SECONDS = 2.0
STARTING_SECONDS = 120.0  # imports on a cold disk, a long journal


@dataclass(frozen=True)
class MasterEnd:
    """One end of a master process."""

    time: float  # seconds of a clock that never jumps
    exit_code: int
    reason: ExitReason
    message: str  # its last words
    answered: bool  # whether it ever answered a call
    untold: bool = False  # it left a report, and was to tell others of the job's end

    @property
    def how(self) -> str:
        """In words: `was killed (SIGKILL)`, `crashed (exit code 1)`."""
        if self.reason is ExitReason.KILLED:
            return f"was killed ({self.message or self.exit_code})"
        if self.reason is ExitReason.ERROR:
            return f"crashed (exit code {self.exit_code})"
        return f"ended (exit code {self.exit_code})"


@dataclass(frozen=True)
class Finish:
    """Decision: the job is over."""

    exit_code: int
    message: str = ""  # empty: the report says it


@dataclass(frozen=True)
class Restart:
    """Decision: start the master again."""

    after_seconds: float


def after_end(
    ends: Sequence[MasterEnd], *, reported: JobState | None
) -> Finish | Restart:
    """Decide what follows the last of `ends`; `reported`: the report's state.

    A master that wrote its report has ended the job, whatever its exit was; but if it
    was killed before it had told of the end as the job wishes, another one does so. One
    that was killed is always started again once it has answered; crashes are bounded.
    """
    last = ends[-1]
    if reported is not None:
        killed = last.reason is ExitReason.KILLED
        if last.untold and killed and sum(end.untold for end in ends) == 1:
            return Restart(0.0)
        return Finish(exit_code_of(reported, last.exit_code))
    # Another launcher's master has taken the job over: two would fight for it for ever.
    final = (*FINAL_EXITS, ExitCode.FENCED)
    if last.reason is ExitReason.ERROR and last.exit_code in final:
        return Finish(last.exit_code, last.message)
    streak = _unanswered(ends)
    if streak >= STARTS_WITHOUT_ANSWER:
        return Finish(
            _failure(last.exit_code),
            f"the master ended {streak} times before it could answer, and is not "
            f"started again\n{last.message}".rstrip(),
        )
    crashes = sum(
        end.reason is not ExitReason.KILLED
        and end.time > last.time - CRASH_WINDOW_SECONDS
        for end in ends
    )
    if crashes >= MOST_CRASHES:
        return Finish(
            _failure(last.exit_code),
            f"the master crashed {crashes} times within "
            f"{CRASH_WINDOW_SECONDS / 60:.0f} minutes, and is not started again\n"
            f"{last.message}".rstrip(),
        )
    pause = FIRST_PAUSE_SECONDS * 2 ** (streak - 1) if streak else 0.0
    return Restart(pause)


def with_last_status(message: str, status: JobStatus) -> str:
    """Return the message of the end, with the last status of the master before it.

    For a job without a report: what the master did say is then all there is.
    """
    if not status.message:
        return message
    if status.message in message:
        return status.message  # without the log line around it
    return f"{status.message}\n{message}".rstrip()


def pause_after_answer(*, age_seconds: float, least_seconds: float) -> float:
    """Return the seconds until a master is asked again that answered.

    Args:
        age_seconds: Since its first answer.
        least_seconds: The pause at first.
    """
    return max(least_seconds, min(_PAUSE_PART * age_seconds, _LONGEST_PAUSE_SECONDS))


def is_silent(*, seconds: float, bound_seconds: float, failed_calls: int) -> bool:
    """Return whether a living master counts as hung.

    Args:
        seconds: Since its last answer, or since its start.
        bound_seconds: What it may take; more while it starts.
        failed_calls: Unanswered calls since then. Counted too, so that a machine that
            slept for an hour does not lose its master.
    """
    return seconds >= bound_seconds and failed_calls >= SILENT_CALLS


def exit_code_of(state: JobState, master_exit: int) -> int:
    """Return the launcher's exit code for a job that ended with a report."""
    if state is JobState.SUCCEEDED:
        return ExitCode.OK
    if state is JobState.STOPPED:
        return ExitCode.STOPPED
    return _failure(master_exit)


def _failure(exit_code: int) -> int:
    known = [code for code in ExitCode if code not in (ExitCode.OK, ExitCode.STOPPED)]
    return exit_code if exit_code in known else ExitCode.JOB_FAILED


def _unanswered(ends: Sequence[MasterEnd]) -> int:
    """Count the last ends in a row of masters that never answered."""
    streak = 0
    for end in reversed(ends):
        if end.answered:
            break
        streak += 1
    return streak
