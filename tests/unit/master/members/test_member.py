"""Silent or hung: the judgement about one replica."""

import pytest
from elasticdl.job.heartbeats import PsReport, WorkerReport
from elasticdl.job.names import Role
from elasticdl.job.spec.job import WorkerSpec
from elasticdl.job.spec.quantity import format_bytes, parse_bytes
from elasticdl.job.words import ReplicaState
from elasticdl.master.members.goodput import Goodput, share
from elasticdl.master.members.member import Member
from elasticdl.master.tasks.facts import Restore
from elasticdl.master.tasks.speed import Speed
from elasticdl.runner.base import ReplicaKey

SPEC = WorkerSpec(dead_seconds=6.0, hang_seconds=8.0, start_seconds=300.0)


def member(role: Role = Role.WORKER) -> Member:
    return Member(
        ReplicaKey(role, 0), 1, "low", 1, 0.0, state=ReplicaState.RUNNING, since=100.0
    )


def beat(phase: str, stuck: float, **fields: object) -> WorkerReport:
    return WorkerReport(phase=phase, phase_seconds=stuck, **fields)  # type: ignore[arg-type]


def test_silence_counts_from_the_last_word() -> None:
    one = member()
    assert one.silent_at(SPEC) == 400.0
    one.heard_worker(beat("train", 0.0, step=1), now=110.0)
    assert one.silent_at(SPEC) == 116.0
    one.heard_worker(beat("start", 0.0), now=120.0)
    assert one.silent_at(SPEC) == 420.0


def test_a_ps_may_take_its_time_until_its_first_word() -> None:
    one = member(Role.PS)
    assert one.silent_at(SPEC) == 400.0
    one.heard_ps(PsReport(), now=110.0)
    assert one.silent_at(SPEC) == 116.0


def test_a_ps_that_compiles_before_it_has_initial_values_is_not_silent() -> None:
    one = member(Role.PS)
    one.restore = Restore()
    one.heard_ps(PsReport(), now=110.0)
    assert one.silent_at(SPEC) == 410.0
    one.initialized = True  # with the first values
    assert one.silent_at(SPEC) == 116.0


def test_a_ps_that_compiles_a_workers_optimizer_before_it_loads_is_not_silent() -> None:
    one = member(Role.PS)
    one.restore = Restore(dir="version-8")
    one.heard_ps(PsReport(wants_optimizer=True), now=110.0)
    assert one.silent_at(SPEC) == 410.0


def test_a_ps_that_others_wait_for_is_silent_soon() -> None:
    one = member(Role.PS)
    for restore in (Restore(dir="version-8"), Restore(handback=True)):
        one.restore = restore
        one.heard_ps(PsReport(), now=110.0)
        assert one.silent_at(SPEC) == 116.0


def test_one_that_an_earlier_master_knew_at_work_gets_no_time_to_start() -> None:
    one = member()
    one.ready = True  # as the journal says
    assert one.silent_at(SPEC) == 106.0


def test_who_does_not_run_is_not_silent() -> None:
    one = member()
    one.state = ReplicaState.PENDING
    assert one.silent_at(SPEC) is None
    assert not one.is_hung(SPEC)


@pytest.mark.parametrize(
    ("worker", "hung"),
    [
        (beat("train", 7.9, usual_seconds=0.01), False),
        (beat("train", 8.1, usual_seconds=0.01), True),
        (beat("evaluate", 8.1, usual_seconds=0.01), True),
        (beat("evaluate", 30.0, usual_seconds=12.0), False),  # long batches
        (beat("train", 30.0, usual_seconds=2.0), False),
        (beat("train", 41.0, usual_seconds=2.0), True),
        (beat("train", 30.0), False),  # traces its first step
        (beat("train", 30.0, step=9), False),  # another size, or waits for its feed
        (beat("train", 301.0, step=9), True),
        (beat("evaluate", 30.0, step=9), False),  # traces its first batch
        (beat("evaluate", 301.0, step=9), True),
        (beat("read", 30.0, step=9), False),
        (beat("read", 301.0, step=9), True),
        (beat("start", 299.0), False),
        (beat("export", 299.0, step=9), False),
        (beat("idle", 1e6, step=9), False),
        (beat("wait", 1e6, step=9), False),
    ],
)
def test_a_worker_without_a_step_is_hung(worker: WorkerReport, hung: bool) -> None:
    one = member()
    one.heard_worker(worker, now=100.0)
    assert one.is_hung(SPEC) is hung


def test_waiting_for_a_ps_is_not_the_workers_fault() -> None:
    one = member()

    def waits(stuck: float, waited: float) -> WorkerReport:
        return beat(
            "train", stuck, step=3, usual_seconds=0.01, seconds={"waitPs": waited}
        )

    one.heard_worker(waits(0.0, 5.0), now=100.0)
    one.heard_worker(waits(30.0, 34.0), now=130.0)
    assert not one.is_hung(SPEC)
    one.heard_worker(waits(40.0, 34.0), now=140.0)
    assert one.is_hung(SPEC)


def test_patience_grows_up_to_the_bound_of_starting() -> None:
    one = member()
    one.heard_worker(beat("train", 20.0, usual_seconds=0.01), now=100.0)
    assert one.is_hung(SPEC)
    assert not one.is_hung(SPEC, patience=4.0)
    one.heard_worker(beat("train", 301.0, usual_seconds=0.01), now=100.0)
    assert one.is_hung(SPEC, patience=1000.0)


def test_goodput_adds_workers_that_live_and_that_ended() -> None:
    total = Goodput({"train": 1.0})
    total.absent(1, preempted=False, now=0.0)
    total.present(1, now=2.0)
    total.heard(1, {"train": 6.0, "idle": 1.0})
    total.absent(2, preempted=True, now=5.0)
    assert total.seconds(now=10.0) == {
        "idle": 1.0, "pending": 2.0, "preempted": 5.0, "train": 7.0,
    }  # fmt: skip
    total.ended(1, now=10.0)
    total.ended(2, now=11.0)
    ended = total.closed()
    assert ended == {
        "train": 7.0, "idle": 1.0, "pending": 2.0, "preempted": 6.0,
    }  # fmt: skip
    assert share(ended) == pytest.approx(7 / 8)
    assert share({}) == 0.0


def test_the_seconds_of_workers_that_live_are_noted_now_and_then() -> None:
    total = Goodput()
    for generation in range(500):
        total.heard(generation, {"train": 1.0})
    assert total.is_due(now=1e9)
    total.live(now=1e9)
    assert not total.is_due(now=1e9 + 249.0)
    assert total.is_due(now=1e9 + 250.0)


def test_quantities_are_bytes_and_back() -> None:
    assert parse_bytes("") == 0
    assert parse_bytes("512Mi") == 512 << 20
    assert parse_bytes("1.5G") == 1_500_000_000
    assert parse_bytes("1024") == 1024
    assert format_bytes(512 << 20) == "512Mi"
    assert format_bytes((512 << 20) + 1) == "513Mi"


def test_speed_is_a_mean_over_the_last_while_and_forgets_a_rewind() -> None:
    speed = Speed(window_seconds=10.0)
    assert speed.per_second(5, now=0.0) == 0.0
    for second in range(20):
        speed.take(second * 8, now=float(second))
    assert speed.per_second(19 * 8, now=19.0) == pytest.approx(8.0)
    speed.take(8, now=20.0)
    assert speed.per_second(16, now=22.0) == pytest.approx(4.0)
