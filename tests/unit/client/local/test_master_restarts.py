"""What happens after a master ended."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest
from elasticdl.client.local.launcher import _end_of
from elasticdl.client.local.master_restarts import (
    CRASH_WINDOW_SECONDS,
    MOST_CRASHES,
    STARTS_WITHOUT_ANSWER,
    Finish,
    MasterEnd,
    Restart,
    after_end,
    is_silent,
    pause_after_answer,
    with_last_status,
)
from elasticdl.errors import ExitCode
from elasticdl.job.names import Role
from elasticdl.job.status import JobStatus
from elasticdl.job.words import ExitReason, JobState
from elasticdl.runner.base import ObservedReplica, Phase, ReplicaKey
from hypothesis import given
from hypothesis import strategies as st


def end(
    *,
    time: float = 0.0,
    exit_code: int = 1,
    reason: ExitReason = ExitReason.ERROR,
    answered: bool = True,
    message: str = "",
) -> MasterEnd:
    return MasterEnd(time, exit_code, reason, message, answered)


KILLED = end(exit_code=137, reason=ExitReason.KILLED, message="SIGKILL")


def test_a_killed_master_is_started_again_at_once_however_often() -> None:
    assert after_end([KILLED] * 50, reported=None) == Restart(0.0)


def test_a_crashed_master_is_started_again() -> None:
    assert after_end([end()], reported=None) == Restart(0.0)


@pytest.mark.parametrize(
    ("state", "exit_code", "expected"),
    [
        (JobState.SUCCEEDED, 0, ExitCode.OK),
        (JobState.SUCCEEDED, 137, ExitCode.OK),
        (JobState.STOPPED, 130, ExitCode.STOPPED),
        (JobState.FAILED, 4, ExitCode.USER_CODE),
        (JobState.FAILED, 137, ExitCode.JOB_FAILED),
        (JobState.FAILED, 0, ExitCode.JOB_FAILED),
    ],
)
def test_a_written_report_ends_the_job(
    state: JobState, exit_code: int, expected: int
) -> None:
    decision = after_end([end(exit_code=exit_code)], reported=state)
    assert decision == Finish(expected)


def test_a_master_that_was_killed_before_it_told_of_the_end_is_followed_by_one() -> (
    None
):
    killed = replace(KILLED, untold=True)
    assert after_end([killed], reported=JobState.SUCCEEDED) == Restart(0.0)
    # ... which tells, or is killed as well: then it is enough.
    told = end(exit_code=0, reason=ExitReason.COMPLETED)
    for last in (told, killed):
        decision = after_end([killed, last], reported=JobState.SUCCEEDED)
        assert decision == Finish(ExitCode.OK)


def test_a_master_that_lost_its_journal_to_another_is_not_started_again() -> None:
    last = end(exit_code=ExitCode.FENCED, message="another master has taken over")
    decision = after_end([last], reported=None)
    assert decision == Finish(ExitCode.FENCED, "another master has taken over")


@pytest.mark.parametrize("exit_code", [2, 3, 4, 5, 6])
def test_a_master_that_says_what_is_wrong_is_not_started_again(exit_code: int) -> None:
    last = end(exit_code=exit_code, answered=False, message="error: no such data")
    assert after_end([last], reported=None) == Finish(exit_code, "error: no such data")


def test_a_master_that_never_answers_is_given_up() -> None:
    ends = [end(answered=False, message="boom")] * STARTS_WITHOUT_ANSWER
    for tries in range(1, STARTS_WITHOUT_ANSWER):
        assert isinstance(after_end(ends[:tries], reported=None), Restart)
    decision = after_end(ends, reported=None)
    assert isinstance(decision, Finish)
    assert "ended 3 times before it could answer" in decision.message
    assert "boom" in decision.message


def test_pauses_grow_while_it_does_not_come_up() -> None:
    one, two = end(answered=False), end(answered=False)
    first = after_end([KILLED, one], reported=None)
    second = after_end([KILLED, one, two], reported=None)
    assert isinstance(first, Restart)
    assert isinstance(second, Restart)
    assert 0 < first.after_seconds < second.after_seconds


def test_a_crash_loop_ends_and_old_crashes_are_forgotten() -> None:
    crashes = [end(time=float(number)) for number in range(MOST_CRASHES)]
    assert isinstance(after_end(crashes, reported=None), Finish)
    apart = CRASH_WINDOW_SECONDS / 2
    slow = [end(time=number * apart) for number in range(MOST_CRASHES)]
    assert after_end(slow, reported=None) == Restart(0.0)


def test_crashes_are_as_far_apart_as_they_are_though_the_clock_is_set(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    crashed = ObservedReplica(
        ReplicaKey(Role.MASTER, 0), 1, Phase.FAILED, ExitReason.ERROR, 1
    )
    ends = []
    for number in range(MOST_CRASHES):
        # An hour ahead from one crash to the next.
        monkeypatch.setattr(time, "time", lambda hours=number: 3600.0 * hours)
        ends.append(_end_of(crashed, answered=True))
    assert isinstance(after_end(ends, reported=None), Finish)


@given(st.lists(st.booleans(), min_size=1, max_size=20))
def test_kills_alone_never_end_a_job_that_answers_in_between(kills: list[bool]) -> None:
    ends = [KILLED if kill else end(time=1e4 * n) for n, kill in enumerate(kills)]
    assert isinstance(after_end(ends, reported=None), Restart)


def test_silence_needs_time_and_unanswered_calls() -> None:
    assert is_silent(seconds=6.0, bound_seconds=6.0, failed_calls=3)
    assert not is_silent(seconds=5.0, bound_seconds=6.0, failed_calls=9)
    # A machine that slept: much time, one failed call.
    assert not is_silent(seconds=3600.0, bound_seconds=6.0, failed_calls=1)


def test_how_a_master_ended_is_said_in_words() -> None:
    assert KILLED.how == "was killed (SIGKILL)"
    assert end(exit_code=1).how == "crashed (exit code 1)"
    assert end(exit_code=0, reason=ExitReason.COMPLETED).how == "ended (exit code 0)"


@pytest.mark.parametrize(
    ("said", "words", "expected"),
    [
        ("no room", "", "no room"),
        ("no room", "its log's end", "no room\nits log's end"),
        ("no room", "job digits failed: no room", "no room"),
        ("", "its log's end", "its log's end"),
    ],
)
def test_without_a_report_the_last_status_says_why(
    said: str, words: str, expected: str
) -> None:
    status = JobStatus(
        name="digits",
        type="train",
        strategy="local",
        state=JobState.FAILED,
        message=said,
        started=0.0,
        time=1.0,
        master_generation=1,
        workers_wanted=1,
    )
    assert with_last_status(words, status) == expected


def test_a_crash_loop_ends_with_the_exceptions_last_line() -> None:
    words = "KeyError: 'digits'"
    decision = after_end([end(message=words)] * MOST_CRASHES, reported=None)
    assert isinstance(decision, Finish)
    assert decision.message.splitlines()[-1] == words


@pytest.mark.parametrize(
    ("age", "pause"), [(0.0, 0.5), (20.0, 0.5), (60.0, 1.2), (100.0, 2.0), (1e6, 2.0)]
)
def test_a_master_is_asked_less_often_the_longer_it_runs(
    age: float, pause: float
) -> None:
    asked = pause_after_answer(age_seconds=age, least_seconds=0.5)
    assert asked == pytest.approx(pause)
