"""What people hear of a job: each thing once, many replicas in one line."""

import pytest
from elasticdl.job.status import Relaunch
from elasticdl.job.words import JobState, end_cause_of
from elasticdl.master import happenings
from elasticdl.master.happenings import Happening
from elasticdl.master.telling.notices import notices as told_of
from elasticdl.master.telling.sentences import decisions_of
from elasticdl.runner.publisher import Notice

FULL = "Unschedulable: 0/1 nodes are available: 1 Insufficient cpu."


def notices(*said: Happening, message: str = "") -> list[Notice]:
    """What is told of what happened at one time."""
    return told_of(
        one
        for happened in said
        for one in decisions_of(happened, job="digits", message=message)
    )


def entered(state: JobState) -> Happening:
    return happenings.JobEntered(time=0.0, state=state)


def waits(name: str, reason: str) -> Happening:
    return happenings.ReplicaWaits(time=0.0, replica=name, reason=reason)


def ended(number: int, reason: str = "preempted", **more: str) -> Happening:
    record = Relaunch(
        replica=f"worker-{number}",
        reason=reason,
        cause=end_cause_of(reason),
        replacement=more.get("replacement", f"worker-{number + 40}"),
        time=0.0,
        detail=more.get("detail", ""),
    )
    return happenings.ReplicaEnded(time=0.0, record=record)


def test_states_are_told_as_far_as_people_care() -> None:
    assert notices(entered(JobState.STARTING)) == []
    assert notices(entered(JobState.RUNNING)) == [
        Notice("JobRunning", "job digits is running")
    ]
    assert notices(entered(JobState.FAILED), message="no data") == [
        Notice("JobFailed", "job digits failed: no data", warning=True)
    ]


def test_the_same_end_of_many_replicas_is_one_notice() -> None:
    (told,) = notices(*(ended(number) for number in range(30)))
    assert told.reason == "ReplicaPreempted"
    assert not told.warning
    assert told.message.startswith("worker-0, worker-1, ")
    assert "worker-7 and 22 more ended: preempted; replaced by worker-40" in (
        told.message
    )


@pytest.mark.parametrize(
    ("reason", "word", "warning"),
    [
        ("preempted", "ReplicaPreempted", False),
        ("evicted", "ReplicaEvicted", False),
        ("stopped from outside", "ReplicaDeleted", False),
        ("oomKilled", "ReplicaOOMKilled", True),
        ("hung", "ReplicaHung", True),
        ("exit code 1", "ReplicaFailed", True),
    ],
)
def test_each_end_has_its_word(reason: str, word: str, warning: bool) -> None:
    (told,) = notices(ended(0, reason))
    assert (told.reason, told.warning) == (word, warning)


def test_the_last_words_of_a_crash_are_told() -> None:
    crash = ended(0, "exit code 1", replacement="", detail="ValueError: shape\n")
    (told,) = notices(crash)
    assert told.message == (
        "worker-0 ended: exit code 1; not replaced\nValueError: shape"
    )


def test_many_that_wait_for_the_same_reason_are_one_notice() -> None:
    assert notices(waits("worker-4", FULL), waits("worker-5", FULL)) == [
        Notice("Unschedulable", f"worker-4, worker-5 waits: {FULL}", warning=True)
    ]
    (told,) = notices(waits("worker-4", "waiting for CPU"))
    assert told.reason == "ReplicaPending"


def test_what_is_not_for_the_platform_makes_no_notice() -> None:
    joined = happenings.ReplicaJoined(
        time=0.0, replica="worker-0", role="worker", waited=1.0
    )
    written = happenings.CheckpointWritten(time=0.0, version=3, seconds=1.0)
    assert notices(joined, written) == []


def test_what_a_user_has_to_know_is_a_warning() -> None:
    few = "1 worker runs, fewer than worker.min (2)"
    needed = happenings.AttentionNeeded(time=0.0, message=few)
    assert notices(needed) == [Notice("Attention", few, warning=True)]
