"""What is remembered of endings: which crashes count, and for how long."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from elasticdl.errors import ExitCode
from elasticdl.job.names import Role
from elasticdl.job.spec.job import JobSpec
from elasticdl.job.words import EndCause, ExitReason
from elasticdl.master.happenings import Diary
from elasticdl.master.members.member import Member
from elasticdl.master.members.relaunch_rules import (
    PS_CRASHES,
    GiveUp,
    ReplicaEnding,
    StartReplacement,
)
from elasticdl.master.members.relaunches import Relaunches
from elasticdl.master.tasks import model_facts
from elasticdl.master.tasks.ledger import Ledger
from elasticdl.runner.base import ReplicaKey
from elasticdl.views.formatting import first_line

HOUR = 3600.0


def spec(**checkpoint: float) -> JobSpec:
    return JobSpec.model_validate(
        {
            "name": "x",
            "model": {"definition": "m.f"},
            "data": {"training": "t.csv"},
            "worker": {"max_restarts": 3},
            "checkpoint": checkpoint,
        }
    )


class Past:
    """The endings of one job."""

    def __init__(self, ledger: Ledger, job: JobSpec) -> None:
        self.relaunches = Relaunches(ledger, Diary())
        self.job = job

    def ends(
        self,
        role: Role,
        *,
        at: float,
        reason: ExitReason = ExitReason.ERROR,
        lived: float = 100.0,
        cause: str = "",
        ready: bool = True,
        code: int = 1,
    ) -> StartReplacement | GiveUp:
        member = Member(ReplicaKey(role, 0), 1, "", 1, 0.0)
        code = code if reason is ExitReason.ERROR else 0
        ending = ReplicaEnding(role, reason, code, "", cause, lived, ready=ready)
        return self.relaunches.decide(member, ending, spec=self.job, now=at)


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    opened = Ledger.open(tmp_path, now=0.0)
    yield opened
    opened.close()


def test_the_error_of_a_long_traceback_is_kept(ledger) -> None:
    past = Past(ledger, spec())
    frames = "".join(f'  File "m.py", line {n}, in f\n    f()\n' for n in range(200))
    trace = f"Traceback (most recent call last):\n{frames}ValueError: too deep"
    decision = past.ends(Role.WORKER, at=1.0)
    past.relaunches.book(
        Member(ReplicaKey(Role.WORKER, 0), 1, "", 1, 0.0),
        decision,
        cause=EndCause.CRASHED,
        replacement=None,
        detail=trace,
        now=1.0,
    )
    (kept,) = past.relaunches.records
    assert first_line(kept.detail) == "ValueError: too deep"
    assert len(kept.detail) <= 2000


def test_crashes_of_long_ago_are_forgiven(ledger) -> None:
    past = Past(ledger, spec())
    for day in range(10):
        assert isinstance(past.ends(Role.WORKER, at=day * 24 * HOUR), StartReplacement)
    rest = [past.ends(Role.WORKER, at=9 * 24 * HOUR + n) for n in (1, 2, 3)]
    assert [isinstance(one, GiveUp) for one in rest] == [False, False, True]


@pytest.mark.parametrize("role", [Role.WORKER, Role.PS])
def test_storage_that_is_away_as_replicas_start_fails_the_job_after_half_an_hour(
    ledger, role
) -> None:
    past = Past(ledger, spec())

    def ends(at: float) -> StartReplacement | GiveUp:
        return past.ends(role, at=at, lived=3.0, code=ExitCode.STORAGE_AWAY)

    # Ten minutes, and ten more an hour later.
    for began in (0.0, HOUR):
        for n in range(40):
            assert ends(began + 15.0 * n) == StartReplacement(
                "exit code 75", delay_seconds=10.0
            )
    until = [ends(HOUR + 15.0 * n) for n in range(40, 130)]
    assert isinstance(until[-1], GiveUp)
    assert [isinstance(one, GiveUp) for one in until].index(True) >= 80


def test_workers_that_hang_while_they_build_the_model_fail_the_job(ledger) -> None:
    past = Past(ledger, spec())
    ended = [
        past.ends(
            Role.WORKER,
            at=300.0 * n,
            reason=ExitReason.KILLED,
            cause="hung",
            ready=False,
        )
        for n in range(4)
    ]
    assert [isinstance(one, GiveUp) for one in ended] == [False, False, False, True]
    assert "hung, and worker.maxRestarts (3)" in ended[-1].message


@pytest.mark.parametrize("cause", ["", "silent"])
def test_a_ps_that_is_lost_before_each_checkpoint_fails_the_job(ledger, cause) -> None:
    """It lives long each time: an OOM kill at the copy for a checkpoint, say."""
    past = Past(ledger, spec(everySeconds=60.0))
    reason = ExitReason.KILLED if cause else ExitReason.OOM_KILLED
    ended = [
        past.ends(Role.PS, at=100.0 * n, reason=reason, cause=cause)
        for n in range(PS_CRASHES)
    ]
    assert [isinstance(one, GiveUp) for one in ended] == [False] * 4 + [True]
    assert "no checkpoint was completed between" in ended[-1].message


def test_a_ps_that_got_to_a_checkpoint_between_is_forgiven(ledger) -> None:
    past = Past(ledger, spec(everySeconds=60.0))
    for n in range(4 * PS_CRASHES):
        ledger.record(model_facts.CheckpointFact(version=n + 1, dir=""))
        ended = past.ends(Role.PS, at=100.0 * n, reason=ExitReason.OOM_KILLED)
        assert isinstance(ended, StartReplacement)


def test_a_ps_that_was_taken_away_never_counts(ledger) -> None:
    past = Past(ledger, spec(everySeconds=60.0))
    for n in range(4 * PS_CRASHES):
        ended = past.ends(Role.PS, at=100.0 * n, reason=ExitReason.PREEMPTED)
        assert isinstance(ended, StartReplacement)
