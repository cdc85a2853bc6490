"""What counts as something that happened: found by comparing statuses, told once."""

from elasticdl.job.history import Decision
from elasticdl.job.status import JobStatus, Relaunch, ReplicaStatus
from elasticdl.job.words import JobState
from elasticdl.master.live_edits import Change
from elasticdl.master.telling import happenings
from elasticdl.master.telling.happenings import Decisions


def replica(name: str, state: str = "running", **more: object) -> ReplicaStatus:
    role, index = name.split("-")
    fields = {"generation": int(index) + 1, **more}
    return ReplicaStatus(name=name, role=role, index=int(index), state=state, **fields)


def status(*replicas: ReplicaStatus, **more: object) -> JobStatus:
    fields = {"state": JobState.RUNNING, "time": 100.0, "master_generation": 1, **more}
    return JobStatus(
        name="digits",
        type="train",
        strategy="parameterServer",
        started=0.0,
        workers_wanted=2,
        replicas=list(replicas),
        **fields,
    )


def lost(name: str, new: str, **more: object) -> Relaunch:
    fields = {"reason": "preempted", "time": 101.0, **more}
    return Relaunch(replica=name, replacement=new, **fields)


def kinds(found: list[Decision]) -> list[tuple[str, str]]:
    return [(one.kind, one.replica) for one in found]


def begun(*replicas: ReplicaStatus) -> Decisions:
    made = Decisions()
    made.of(status(*replicas))
    return made


def test_a_replica_that_runs_tells_how_long_it_waited() -> None:
    made = Decisions()
    made.of(status(replica("worker-0", "launched", since=100.0)))
    made.of(status(replica("worker-0", "pending", since=101.0, reason="Unschedulable")))
    (joined,) = made.of(status(replica("worker-0", since=112.5)))
    assert joined.kind == "joined"
    assert (joined.time, joined.cost_seconds) == (112.5, 12.5)
    assert joined.text == "worker-0 runs after 12.5 s of waiting"
    assert made.of(status(replica("worker-0", since=112.5))) == []


def test_a_lost_replica_is_told_at_once_and_its_replacement_when_it_works() -> None:
    made = begun(replica("worker-0"), replica("worker-1"))
    loss = lost("worker-0", "worker-2", detail="node n1 is drained")
    (ended,) = made.of(status(replica("worker-1"), relaunches=[loss]))
    assert (ended.kind, ended.cause, ended.replacement, ended.time) == (
        "ended",
        "preempted",
        "worker-2",
        101.0,
    )
    assert ended.detail == "node n1 is drained"
    works = loss.model_copy(update={"seconds": 7.5})
    found = made.of(status(replica("worker-1"), relaunches=[works]))
    assert [(one.kind, one.cost_seconds, one.time) for one in found] == [
        ("relaunched", 7.5, 108.5)
    ]
    assert made.of(status(replica("worker-1"), relaunches=[works])) == []


def test_a_replica_that_is_not_replaced_says_why() -> None:
    made = begun(replica("worker-0"))
    loss = lost("worker-0", "", why_not="as many workers as are wanted stay without it")
    found = made.of(status(relaunches=[loss]))
    assert kinds(found) == [("ended", "worker-0"), ("notReplaced", "worker-0")]
    assert "as many workers as are wanted" in found[1].text


def test_a_worker_that_was_told_to_go_has_left_and_was_not_lost() -> None:
    made = begun(replica("worker-0"), replica("worker-1"))
    going = replica("worker-1", "draining", reason="scaled down")
    assert made.of(status(replica("worker-0"), going)) == []
    (left,) = made.of(status(replica("worker-0")))
    assert (left.kind, left.replica, left.cause) == ("left", "worker-1", "scaled down")


def test_one_that_leaves_after_its_loss_is_told_once() -> None:
    """A preempted worker has its grace period left: its loss is booked at once."""
    made = begun(replica("worker-0"))
    loss = lost("worker-0", "worker-1")
    draining = replica("worker-0", "draining")
    assert kinds(made.of(status(draining, relaunches=[loss]))) == [
        ("ended", "worker-0")
    ]
    assert made.of(status(relaunches=[loss])) == []


def test_a_ps_that_comes_back_under_its_name_joins_again() -> None:
    made = begun(replica("ps-0"))
    loss = lost("ps-0", "ps-0", reason="killed")
    found = made.of(status(replica("ps-0", generation=9), relaunches=[loss]))
    assert kinds(found) == [("ended", "ps-0"), ("joined", "ps-0")]


def test_checkpoints_their_failures_and_rewinds_are_told() -> None:
    made = begun()
    written = {"checkpoint_version": 40, "checkpoint_seconds": 0.5}
    (complete,) = made.of(status(**written))
    assert (complete.kind, complete.cost_seconds) == ("checkpoint", 0.5)
    problem = "checkpoint not written: No space left on device"
    full = {"checkpoint_failures": 1, "checkpoint_problem": problem, "message": problem}
    (failed,) = made.of(status(**written, **full))
    assert (failed.kind, failed.text) == ("checkpointFailed", problem)
    loss = lost("ps-1", "ps-1", reason="oomKilled")
    found = made.of(status(**written, relaunches=[loss], rewinds=1))
    rewound = found[-1]
    assert (rewound.kind, rewound.cause) == ("rewound", "ps-1 oomKilled")
    assert rewound.text.endswith("went back to the checkpoint of version 40")


def test_a_restarted_master_tells_only_what_the_one_before_did_not() -> None:
    known = lost("worker-0", "worker-2", time=50.0, seconds=3.0)
    works_since = lost("worker-1", "worker-3", time=50.0, seconds=20.0)
    unknown = lost("worker-2", "worker-4", time=70.0)
    made = Decisions(told_until=60.0)
    found = made.of(
        status(
            replica("worker-3"),
            relaunches=[known, works_since, unknown],
            master_generation=2,
        )
    )
    assert kinds(found) == [
        ("master", ""),
        ("relaunched", "worker-1"),
        ("ended", "worker-2"),
        ("state", ""),
    ]


def test_another_size_is_growth_and_other_edits_are_edits() -> None:
    changes = [
        Change("worker.replicas", 2, 4),
        Change("training.epochs", 3, 5),
        Change("worker.replicas", 4, 1),
    ]
    found = happenings.edited(changes, now=5.0)
    assert [(one.kind, one.cause) for one in found] == [
        ("grown", "worker.replicas: 2 -> 4"),
        ("edited", "training.epochs: 3 -> 5"),
        ("shrunk", "worker.replicas: 4 -> 1"),
    ]
