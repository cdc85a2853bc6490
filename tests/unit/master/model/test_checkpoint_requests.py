"""When checkpoints are due, and when one is complete."""

from dataclasses import replace

from elasticdl.job.heartbeats import SnapshotDone
from elasticdl.job.spec.job import CheckpointSpec
from elasticdl.job.tasks import Ticket
from elasticdl.master.model.checkpoint_requests import (
    CheckpointRequest,
    CheckpointSchedule,
    RequestOutcome,
    least_applied,
)


def schedule(version: int | None = 0, **fields: object) -> CheckpointSchedule:
    spec = CheckpointSpec.model_validate({"every_seconds": 0, **fields})
    return CheckpointSchedule(spec, version=version, time=0.0)


def test_the_first_is_due_at_once_so_that_there_is_something_to_go_back_to() -> None:
    plan = schedule(None)
    assert plan.due(version=0, now=0.0) == "first"
    plan.completed(version=0, now=1.0)
    assert plan.due(version=0, now=1e9) is None


def test_steps_and_time_make_one_due() -> None:
    plan = schedule(every_steps=10)
    assert plan.due(version=9, now=0.0) is None
    assert plan.due(version=10, now=0.0) == "steps"
    plan = schedule(every_seconds=60.0)
    assert plan.due(version=1, now=59.0) is None
    assert plan.due(version=1, now=60.0) == "time"
    assert plan.due(version=0, now=60.0) is None
    assert plan.next_time() == 60.0


def test_one_that_comes_late_does_not_shift_the_next_ones() -> None:
    plan = schedule(every_steps=100)
    plan.completed(version=107, now=1.0)
    assert plan.due(version=199, now=1.0) is None
    assert plan.due(version=200, now=1.0) == "steps"
    plan.completed(version=431, now=2.0)  # one may be passed over, not two made of it
    assert plan.due(version=499, now=2.0) is None
    assert plan.due(version=500, now=2.0) == "steps"


def test_a_failure_is_tried_again_after_growing_pauses() -> None:
    plan = schedule(every_steps=1)
    assert [plan.failed(now=100.0) for _ in range(5)] == [5.0, 10.0, 20.0, 30.0, 30.0]
    assert plan.due(version=9, now=129.0) is None
    assert plan.due(version=9, now=130.0) == "steps"
    plan.completed(version=9, now=131.0)
    assert plan.failed(now=140.0) == 5.0


def test_after_a_rewind_steps_count_from_there() -> None:
    plan = schedule(version=50, every_steps=10)
    plan.rewound(version=20)
    assert plan.due(version=30, now=0.0) == "steps"


def request(shards: int = 2) -> CheckpointRequest:
    return CheckpointRequest("ckpt-1", "/d", "steps", {}, 0, 0.0, shards)


def done(version: int, **applied: int) -> SnapshotDone:
    return SnapshotDone(
        id="ckpt-1",
        version=version,
        file="f",
        file_bytes=1,
        crc32=2,
        applied={int(k[1:]): v for k, v in applied.items()},
    )


def test_a_checkpoint_is_complete_when_every_shard_is_written() -> None:
    one = request()
    pinned = SnapshotDone(id="ckpt-1", version=4, ticket=Ticket(4), pinned_only=True)
    assert one.take(0, pinned)
    assert not one.take(0, pinned)
    assert one.ticket is not None
    assert one.outcome is RequestOutcome.WAITING
    one.take(0, done(4, t1=8, t2=3))
    assert one.outcome is RequestOutcome.WAITING
    one.take(1, done(5, t1=6))
    assert one.outcome is RequestOutcome.COMPLETE
    assert one.version == 4
    assert one.applied() == {1: 6}


def test_one_failed_shard_fails_the_checkpoint() -> None:
    one = request()
    one.take(0, done(4))
    one.take(1, SnapshotDone(id="ckpt-1", error="disk full"))
    assert one.outcome is RequestOutcome.FAILED
    assert one.error == "disk full"


def test_a_replica_has_its_master_look_at_no_file_elsewhere() -> None:
    one = request()
    one.take(0, replace(done(4), file="/etc/elasticdl-ca/tls.key"))
    assert one.outcome is RequestOutcome.FAILED
    assert "shard 0: got the file '/etc/elasticdl-ca/tls.key'" in one.error


def test_a_record_counts_as_applied_only_where_all_shards_have_it() -> None:
    assert least_applied([]) == {}
    assert least_applied([{1: 5, 2: 9}, {1: 7}]) == {1: 5}


def test_checkpoints_stay_due_when_the_clock_was_set_back_between_masters() -> None:
    spec = CheckpointSpec.model_validate({"every_seconds": 60.0})
    one = CheckpointSchedule(spec, version=10, time=10_000.0)
    assert one.due(version=11, now=6_400.0) is None
    assert one.due(version=11, now=6_460.0) == "time"
