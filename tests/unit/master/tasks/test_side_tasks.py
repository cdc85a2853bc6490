"""Tasks beside training: given out, taken back, never mixed with the ledger's."""

from elasticdl.job.tasks import Task, TaskType
from elasticdl.master.tasks.side_tasks import SideTasks, is_side

EVALUATION, EXPORT, PREPARE = (
    TaskType.EVALUATION, TaskType.EXPORT, TaskType.PREPARE,
)  # fmt: skip


def lease(
    side: SideTasks, worker: int = 0, types: frozenset[int] | None = None
) -> Task | None:
    return side.lease(worker, types=types, deadline=10.0)


def test_ids_are_negative_and_of_one_master() -> None:
    ids = set()
    for generation in (1, 2):
        side = SideTasks(generation)
        side.add(Task(type=EXPORT))
        task = lease(side)
        assert task is not None
        assert is_side(task.lease_id)
        ids |= {task.task_id, task.lease_id}
    assert len(ids) == 4


def test_evaluation_tasks_are_made_when_they_are_leased() -> None:
    made = []

    def tasks():  # type: ignore[no-untyped-def]
        for number in range(10):
            made.append(number)
            yield Task(type=EVALUATION, start=number)

    side = SideTasks(1)
    side.add_lazily(tasks())
    side.add(Task(type=EXPORT))
    first, second = lease(side), lease(side)
    assert first is not None
    assert second is not None
    assert (first.type, second.type) == (EXPORT, EVALUATION)
    assert made == [0]


def test_a_worker_without_a_model_gets_only_what_needs_none() -> None:
    side = SideTasks(1)
    side.add_lazily([Task(type=EVALUATION)])
    side.add(Task(type=EXPORT))
    only = frozenset({int(PREPARE)})
    assert lease(side, types=only) is None
    side.add(Task(type=PREPARE))
    task = lease(side, types=only)
    assert task is not None
    assert task.type == PREPARE


def test_what_a_lost_worker_held_goes_to_another() -> None:
    side = SideTasks(1)
    side.add(Task(type=EXPORT))
    first = lease(side, worker=0)
    assert first is not None
    old = first.lease_id
    assert side.recover(0) == 1
    second = lease(side, worker=1)
    assert second is not None
    assert second.task_id == first.task_id
    assert second.lease_id != old
    assert side.finish(old) is None
    assert side.give_back(old) is None
    assert side.renew(0, [old, second.lease_id], deadline=20.0) == [
        old,
        second.lease_id,
    ]
    assert side.renew(1, [second.lease_id], deadline=20.0) == []
    assert side.next_deadline() == 10.0  # a look then costs less than exactness
    assert side.expire(10.0) == 0
    assert side.next_deadline() == 20.0
    assert side.leases_of(1) == [second.lease_id]
    assert side.expire(19.0) == 0
    assert side.expire(20.0) == 1
    assert side.next_deadline() is None


def test_failures_are_counted_per_task() -> None:
    side = SideTasks(1)
    side.add(Task(type=EXPORT))
    for count in (1, 2):
        task = lease(side)
        assert task is not None
        assert side.give_back(task.lease_id, failed=True) == count
    task = lease(side)
    assert task is not None
    assert side.finish(task.lease_id) is task


def test_a_round_that_is_given_up_leaves_nothing() -> None:
    side = SideTasks(1)
    side.add_lazily([Task(type=EVALUATION, round=1), Task(type=EVALUATION, round=1)])
    held = lease(side)
    assert held is not None
    side.add(Task(type=EXPORT))
    side.drop_round(1)
    assert side.finish(held.lease_id) is None
    rest = lease(side)
    assert rest is not None
    assert rest.type == EXPORT
    assert lease(side) is None
