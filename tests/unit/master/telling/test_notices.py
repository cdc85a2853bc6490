"""What people hear of a job: each thing once, many replicas in one line."""

import pytest
from elasticdl.job.status import JobStatus, Relaunch, ReplicaStatus
from elasticdl.job.words import JobState
from elasticdl.master.telling.happenings import Decisions
from elasticdl.master.telling.notices import notices as told_of
from elasticdl.runner.publisher import Notice

FULL = "Unschedulable: 0/1 nodes are available: 1 Insufficient cpu."


def status(
    *,
    state: JobState = JobState.RUNNING,
    message: str = "",
    ending: str = "",
    relaunches: tuple[Relaunch, ...] = (),
    waiting: dict[str, str] | None = None,
    generation: int = 1,
) -> JobStatus:
    replicas = [
        ReplicaStatus(
            name=name,
            role="worker",
            index=number,
            generation=number,
            state="pending",
            reason=reason,
        )
        for number, (name, reason) in enumerate((waiting or {}).items())
    ]
    return JobStatus(
        name="digits",
        type="train",
        strategy="parameterServer",
        state=state,
        ending=ending,
        message=message,
        started=0.0,
        time=0.0,
        master_generation=generation,
        workers_wanted=2,
        replicas=replicas,
        relaunches=list(relaunches),
    )


def relaunch(number: int, reason: str = "preempted", **more: str) -> Relaunch:
    return Relaunch(
        replica=f"worker-{number}",
        reason=reason,
        replacement=more.get("replacement", f"worker-{number + 40}"),
        time=0.0,
        detail=more.get("detail", ""),
    )


class Notices:
    """What is told of one status after the other."""

    def __init__(self) -> None:
        self.decisions = Decisions()

    def of(self, shown: JobStatus) -> list[Notice]:
        return told_of(self.decisions.of(shown))


@pytest.fixture
def notices() -> Notices:
    one = Notices()
    one.of(status())
    return one


def test_states_are_told_when_they_change() -> None:
    notices = Notices()
    assert notices.of(status(state=JobState.STARTING)) == []
    assert notices.of(status()) == [Notice("JobRunning", "job digits is running")]
    assert notices.of(status()) == []
    failed = status(state=JobState.FAILED, message="no data", ending="failed")
    assert notices.of(failed) == [
        Notice("JobFailed", "job digits failed: no data", warning=True)
    ]


def test_the_same_end_of_many_replicas_is_one_notice(notices: Notices) -> None:
    relaunches = tuple(relaunch(number) for number in range(30))
    (told,) = notices.of(status(relaunches=relaunches))
    assert told.reason == "ReplicaPreempted"
    assert not told.warning
    assert told.message.startswith("worker-0, worker-1, ")
    assert "worker-7 and 22 more ended: preempted; replaced by worker-40" in (
        told.message
    )
    assert notices.of(status(relaunches=relaunches)) == []


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
def test_each_end_has_its_word(
    notices: Notices, reason: str, word: str, warning: bool
) -> None:
    (told,) = notices.of(status(relaunches=(relaunch(0, reason),)))
    assert (told.reason, told.warning) == (word, warning)


def test_the_last_words_of_a_crash_are_told(notices: Notices) -> None:
    crash = relaunch(0, "exit code 1", replacement="", detail="ValueError: shape\n")
    (told,) = notices.of(status(relaunches=(crash,)))
    assert told.message == (
        "worker-0 ended: exit code 1; not replaced\nValueError: shape"
    )


def test_why_replicas_wait_is_told_once_for_each_kind_of_reason(
    notices: Notices,
) -> None:
    both = {"worker-4": FULL, "worker-5": FULL}
    assert notices.of(status(waiting=both)) == [
        Notice("Unschedulable", f"worker-4, worker-5 waits: {FULL}", warning=True)
    ]
    busier = FULL.replace("1 Insufficient", "2 Insufficient")
    assert notices.of(status(waiting=dict.fromkeys(both, busier))) == []
    pull = {"worker-4": "ImagePullBackOff: Back-off pulling image", "worker-5": FULL}
    (told,) = notices.of(status(waiting=pull))
    assert told.reason == "ImagePullBackOff"
    assert notices.of(status()) == []
    (again,) = notices.of(status(waiting={"worker-4": "waiting for CPU"}))
    assert again.reason == "ReplicaPending"


def test_what_every_pod_goes_through_is_not_told(notices: Notices) -> None:
    assert notices.of(status(waiting={"worker-4": "ContainerCreating"})) == []


def test_a_master_that_takes_over_tells_that_and_nothing_old() -> None:
    old = (relaunch(0), relaunch(1))
    told = Notices().of(status(generation=2, relaunches=old))
    assert [one.reason for one in told] == ["MasterStarted", "JobRunning"]


def test_what_a_user_has_to_know_is_told_when_it_changes(notices: Notices) -> None:
    few = status(message="1 workers run, fewer than worker.min (2)")
    assert [one.reason for one in notices.of(few)] == ["Attention"]
    assert notices.of(few) == []
    assert notices.of(status()) == []
    assert [one.reason for one in notices.of(few)] == ["Attention"]
