"""Relaunch rules, line by line of the table."""

from dataclasses import replace

import pytest
from elasticdl.errors import ExitCode
from elasticdl.job.names import Role
from elasticdl.job.words import ExitReason
from elasticdl.master.members.relaunch_rules import (
    PS_CRASHES,
    GiveUp,
    Limits,
    PastEndings,
    ReplicaEnding,
    StartReplacement,
    decide,
    is_quick,
)

STRICT = Limits(max_restarts=0)
GI = 1 << 30


def ended(
    reason: ExitReason,
    *,
    role: Role = Role.WORKER,
    code: int = 0,
    lived: float = 100.0,
    cause: str = "",
    memory: int = GI,
    message: str = "",
) -> ReplicaEnding:
    return ReplicaEnding(role, reason, code, message, cause, lived, memory)


@pytest.mark.parametrize(
    "reason",
    [
        ExitReason.PREEMPTED,
        ExitReason.EVICTED,
        ExitReason.NODE_LOST,
        ExitReason.DELETED,
        ExitReason.KILLED,
        ExitReason.COMPLETED,
    ],
)
@pytest.mark.parametrize("role", [Role.WORKER, Role.PS])
def test_what_was_taken_away_is_relaunched_and_never_counts(
    reason: ExitReason, role: Role
) -> None:
    decision = decide(
        ended(reason, role=role), PastEndings(counted=99), STRICT, name="worker-0"
    )
    assert isinstance(decision, StartReplacement)
    assert not decision.counted


def test_the_reason_of_an_ending_is_in_our_words_not_a_clusters() -> None:
    decision = decide(
        ended(ExitReason.DELETED), PastEndings(), Limits(0), name="worker-0"
    )
    assert decision == StartReplacement("stopped from outside")
    killed = decide(ended(ExitReason.KILLED), PastEndings(), Limits(0), name="worker-0")
    assert killed == StartReplacement("killed")


def test_a_checkpoint_that_a_worker_cannot_use_fails_the_job_at_once() -> None:
    ending = ended(
        ExitReason.ERROR, code=int(ExitCode.STORAGE), message="old/v-3: no kernel"
    )
    decision = decide(ending, PastEndings(), Limits(max_restarts=9), name="worker-0")
    assert isinstance(decision, GiveUp)
    assert decision.exit_code is ExitCode.STORAGE
    assert decision.message == (
        "worker-0: the checkpoint cannot be used: old/v-3: no kernel"
    )
    # Tasks that it was given early have no part in it.
    assert decision.with_records("a.csv records 0 to 64") == decision.message


@pytest.mark.parametrize("cause", ["silent", "hung"])
def test_what_the_master_killed_is_relaunched_under_its_own_reason(cause: str) -> None:
    decision = decide(
        ended(ExitReason.KILLED, cause=cause), PastEndings(), STRICT, name="worker-0"
    )
    assert decision == StartReplacement(cause)


def test_a_fenced_replica_does_not_count() -> None:
    decision = decide(
        ended(ExitReason.ERROR, code=int(ExitCode.FENCED)),
        PastEndings(),
        STRICT,
        name="worker-0",
    )
    assert decision == StartReplacement("fenced")


def test_a_crash_counts_until_the_budget_is_used_up() -> None:
    crash = ended(ExitReason.ERROR, code=1, message="ValueError: boom\n")
    limits = Limits(max_restarts=2)
    first = decide(crash, PastEndings(counted=1), limits, name="worker-7")
    assert first == StartReplacement("exit code 1", counted=True)
    last = decide(crash, PastEndings(counted=2), limits, name="worker-7")
    assert isinstance(last, GiveUp)
    assert last.message.startswith("worker-7: exit code 1, and worker.maxRestarts (2)")
    assert last.message.endswith("ValueError: boom")


@pytest.mark.parametrize("code", [ExitCode.SPEC, ExitCode.USER_CODE, ExitCode.DATA])
def test_a_mistake_that_stays_a_mistake_fails_the_job_at_once(code: ExitCode) -> None:
    decision = decide(
        ended(ExitReason.ERROR, code=int(code), message="m.py:3: no f"),
        PastEndings(),
        Limits(max_restarts=9),
        name="worker-0",
    )
    assert isinstance(decision, GiveUp)
    assert decision.exit_code is code
    # In the first line: that is what a terminal shows.
    assert decision.message.splitlines()[0].endswith(": m.py:3: no f")


def test_the_error_of_a_traceback_is_in_the_first_line_too() -> None:
    trace = "Traceback (most recent call last):\n  File m.py\nValueError: odd"
    decision = decide(
        ended(ExitReason.ERROR, code=1, message=trace),
        PastEndings(counted=3),
        Limits(max_restarts=3),
        name="worker-0",
    )
    assert isinstance(decision, GiveUp)
    first, *rest = decision.message.splitlines()
    assert first.endswith("are used up: ValueError: odd")
    assert "\n".join(rest) == trace


def test_of_the_end_of_a_log_the_error_is_in_the_first_line() -> None:
    log = (
        "2026-11-21 11:45:47.782 INFO worker-0 prepare: made the data set digits\n"
        "2026-11-21 11:45:51.349 ERROR worker-0 main: importing net.py: no nosuch\n"
        "    Traceback (most recent call last):\n"
        "    ModuleNotFoundError: no nosuch"
    )
    decision = decide(
        ended(ExitReason.ERROR, code=ExitCode.USER_CODE, message=log),
        PastEndings(),
        Limits(max_restarts=3),
        name="worker-0",
    )
    assert isinstance(decision, GiveUp)
    assert decision.message.splitlines() == [
        "worker-0: the model module failed: importing net.py: no nosuch",
        "    Traceback (most recent call last):",
        "    ModuleNotFoundError: no nosuch",
    ]


def test_a_job_that_fails_by_crashes_names_the_records_that_the_worker_was_at() -> None:
    stack = '  File "/zoo/ads.py", line 31 in feed'
    message = f"SIGSEGV; Segmentation fault in feed, /zoo/ads.py:31\n{stack}"
    decision = decide(
        ended(ExitReason.ERROR, code=139, message=message),
        PastEndings(),
        Limits(max_restarts=0),
        name="worker-0",
    )
    assert isinstance(decision, GiveUp)
    first, *rest = decision.with_records("a.csv records 0 to 64").splitlines()
    assert first.endswith("feed, /zoo/ads.py:31 (it was at a.csv records 0 to 64)")
    assert rest == [stack]
    assert decision.with_records("") == decision.message


def test_a_crash_without_a_word_says_so() -> None:
    decision = decide(
        ended(ExitReason.ERROR, code=4), PastEndings(), Limits(0), name="worker-0"
    )
    assert isinstance(decision, GiveUp)
    assert decision.message == (
        "worker-0: the model module failed; its log says nothing of it"
    )


def test_out_of_memory_gets_half_as_much_again_up_to_the_limit() -> None:
    oom = ended(ExitReason.OOM_KILLED)
    more = decide(oom, PastEndings(), Limits(0, 4 * GI), name="worker-0")
    assert more == StartReplacement("oomKilled", memory_bytes=GI * 3 // 2)
    rest = decide(oom, PastEndings(), Limits(0, GI + 5), name="worker-0")
    assert rest == StartReplacement("oomKilled", memory_bytes=GI + 5)


def test_out_of_memory_at_the_limit_counts() -> None:
    oom = ended(ExitReason.OOM_KILLED)
    decision = decide(oom, PastEndings(), Limits(1, GI), name="worker-0")
    assert decision == StartReplacement("oomKilled", counted=True)
    decision = decide(oom, PastEndings(counted=1), Limits(1), name="worker-0")
    assert isinstance(decision, GiveUp)


def test_a_ps_is_relaunched_until_it_crashes_over_and_over_without_living() -> None:
    crash = ended(ExitReason.ERROR, role=Role.PS, code=1, lived=1.0, message="boom")
    for quick in range(PS_CRASHES - 1):
        decision = decide(crash, PastEndings(quick=quick), STRICT, name="ps-0")
        assert isinstance(decision, StartReplacement)
    decision = decide(crash, PastEndings(quick=PS_CRASHES - 1), STRICT, name="ps-0")
    assert isinstance(decision, GiveUp)
    assert "boom" in decision.message
    lived = ended(ExitReason.ERROR, role=Role.PS, code=1, lived=60.0)
    decision = decide(lived, PastEndings(quick=99), STRICT, name="ps-0")
    assert isinstance(decision, StartReplacement)


def test_replicas_that_end_at_once_come_back_after_a_growing_pause() -> None:
    quick = ended(ExitReason.COMPLETED, lived=0.1)
    pauses = []
    for count in (0, 1, 2, 3, 20):
        decision = decide(quick, PastEndings(quick=count), STRICT, name="worker-0")
        assert isinstance(decision, StartReplacement)
        pauses.append(decision.delay_seconds)
    assert pauses == [0.0, 0.5, 1.0, 2.0, 30.0]


def test_a_preempted_replica_never_waits() -> None:
    taken = ended(ExitReason.PREEMPTED, lived=0.1)
    decision = decide(taken, PastEndings(quick=10), STRICT, name="worker-0")
    assert isinstance(decision, StartReplacement)
    assert decision.delay_seconds == 0.0


@pytest.mark.parametrize("role", [Role.WORKER, Role.PS])
def test_a_container_that_can_never_start_fails_the_job_with_its_reason(
    role: Role,
) -> None:
    ending = ended(
        ExitReason.CANNOT_START, role=role, message="InvalidImageName: 'X Y'"
    )
    decision = decide(ending, PastEndings(), Limits(max_restarts=9), name="worker-0")
    assert decision == GiveUp(
        "cannotStart",
        "worker-0: its container cannot be started: InvalidImageName: 'X Y'",
    )


@pytest.mark.parametrize(
    "words",
    ["stale NFS file handle", "Input/output error", "remote I/O error", "host is down"],
)
@pytest.mark.parametrize("role", [Role.WORKER, Role.PS])
def test_a_container_whose_volume_is_away_as_it_starts_is_tried_again(
    role: Role, words: str
) -> None:
    """For as long as the volume is away: nothing of it counts, then or later."""
    message = (
        "failed to create containerd task: failed to create shim task: OCI runtime "
        "create failed: error during container init: error mounting "
        '"/var/lib/kubelet/pods/u/volume-subpaths/claim/main/2" to rootfs at '
        f'"/data/.elasticdl/jobs/ml/digits": {words}: unknown'
    )
    ending = ended(ExitReason.CANNOT_START, role=role, message=message, lived=0.1)
    decision = decide(ending, PastEndings(), STRICT, name="ps-0")
    assert decision == StartReplacement("cannotStart", delay_seconds=10.0)
    assert not is_quick(ending)


@pytest.mark.parametrize(
    ("code", "limit", "used", "reason"),
    [
        (137, GI, int(0.9 * GI), "oomKilled"),
        (137, GI, GI, "oomKilled"),
        (137, GI, GI // 2, "killed"),
        (137, GI, 0, "killed"),  # it never said
        (137, 0, GI, "killed"),  # nobody kills it for its memory here
        (143, GI, GI, "killed"),
    ],
)
def test_a_kill_by_nobody_known_at_full_memory_is_an_oom_kill(
    code: int, limit: int, used: int, reason: str
) -> None:
    ending = replace(
        ended(ExitReason.KILLED, code=code), memory_limit=limit, used_bytes=used
    )
    limits = Limits(max_restarts=0, max_memory_bytes=2 * GI)
    decision = decide(ending, PastEndings(), limits, name="worker-0")
    assert isinstance(decision, StartReplacement)
    assert decision.reason == reason
    assert decision.memory_bytes == (int(1.5 * GI) if reason == "oomKilled" else 0)


def test_what_the_master_killed_itself_is_no_oom_kill() -> None:
    ending = replace(
        ended(ExitReason.KILLED, code=137, cause="hung"),
        memory_limit=GI,
        used_bytes=GI,
    )
    limits = Limits(max_restarts=0, max_memory_bytes=2 * GI)
    assert decide(ending, PastEndings(), limits, name="worker-0") == StartReplacement(
        "hung"
    )


def test_more_memory_is_more_than_the_limit_that_killed_it() -> None:
    ending = replace(ended(ExitReason.OOM_KILLED, code=137), memory_limit=2 * GI)
    limits = Limits(max_restarts=0, max_memory_bytes=8 * GI)
    decision = decide(ending, PastEndings(), limits, name="worker-0")
    assert isinstance(decision, StartReplacement)
    assert decision.memory_bytes == 3 * GI
