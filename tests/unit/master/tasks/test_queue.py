"""The task queue: nothing lost, nothing twice, whatever happens to leases."""

import json
import sys

import pytest
from elasticdl.data.reader import Shard
from elasticdl.errors import JournalError
from elasticdl.master.tasks.permutation import Permutation
from elasticdl.master.tasks.queue import TaskQueue
from elasticdl.master.tasks.queue_plan import QueuePlan
from hypothesis import given
from hypothesis import strategies as st


def plan(**changes):
    settings = {
        "shards": (Shard("a", 0, 25), Shard("b", 5, 12)),
        "batch_size": 2,
        "batches_per_task": 5,
    }
    return QueuePlan(**{**settings, **changes})


def drain(queue, *, first_lease=1):
    tasks = []
    while (
        leased := queue.lease(worker=0, lease_id=first_lease + len(tasks), deadline=9.0)
    ) is not None:
        tasks.append(leased.task)
        assert queue.finish(leased.lease_id) == leased
    return tasks


@given(st.integers(1, 3000), st.integers(0, 2**64))
def test_permutation_is_one_to_one(n, seed):
    order = Permutation(n, seed)
    assert sorted(order[i] for i in range(n)) == list(range(n))


def test_permutation_depends_on_the_seed():
    assert [Permutation(100, 1)[i] for i in range(100)] != [
        Permutation(100, 2)[i] for i in range(100)
    ]
    with pytest.raises(IndexError, match="expected 0 to 99"):
        Permutation(100, 1)[100]


def test_ten_records_by_three_give_3_3_3_1_over_two_files():
    shards = (Shard("a", 0, 10), Shard("b", 0, 10))
    tasks = drain(
        TaskQueue(plan(shards=shards, batch_size=3, batches_per_task=1, epochs=2))
    )
    assert [t.records for t in tasks] == [3, 3, 3, 1] * 4
    assert [t.epoch for t in tasks] == [0] * 8 + [1] * 8
    assert tasks[:8] != tasks[8:]
    assert [(t.source, t.start, t.end) for t in tasks[:8]] == [
        (t.source, t.start, t.end) for t in tasks[8:]
    ]


def test_a_shard_may_start_anywhere():
    tasks = drain(TaskQueue(plan(shards=(Shard("b", 5, 12),))))
    assert [(t.start, t.end) for t in tasks] == [(5, 12)]


@given(
    st.lists(st.integers(0, 40), min_size=1, max_size=6).filter(sum),
    st.integers(1, 7),
    st.integers(1, 4),
    st.booleans(),
    st.integers(1, 3),
)
def test_each_epoch_covers_every_record_once(sizes, batch, per_task, shuffle, epochs):
    shards = tuple(Shard(f"f{i}", 0, n) for i, n in enumerate(sizes))
    queue = TaskQueue(
        plan(
            shards=shards,
            batch_size=batch,
            batches_per_task=per_task,
            shuffle=shuffle,
            epochs=epochs,
        )
    )
    tasks = drain(queue)
    for epoch in range(epochs):
        seen = sorted(
            (t.source, r)
            for t in tasks
            if t.epoch == epoch
            for r in range(t.start, t.end)
        )
        assert seen == sorted((s.source, r) for s in shards for r in range(s.end))
    assert queue.finished
    assert queue.done_records == epochs * sum(sizes)


def test_shuffled_epochs_differ_and_repeat_with_the_seed():
    many = plan(shards=(Shard("a", 0, 1000),), shuffle=True, epochs=2, seed=7)
    first, again = drain(TaskQueue(many)), drain(TaskQueue(many))
    assert first == again
    assert [t.start for t in first[:100]] != [t.start for t in first[100:]]


def test_max_steps_is_exact_and_cuts_the_last_task():
    queue = TaskQueue(plan(max_steps=7, epochs=0))
    tasks = drain(queue)
    assert [t.records for t in tasks] == [10, 4]
    assert queue.done_steps == 7
    assert queue.finished


def test_given_back_task_is_leased_again_before_new_ones():
    queue = TaskQueue(plan())
    first = queue.lease(worker=0, lease_id=1, deadline=9.0)
    queue.give_back(1, cause="preempted")
    again = queue.lease(worker=1, lease_id=2, deadline=9.0)
    assert again.task_id == first.task_id
    assert again.task.replay
    assert again.task.cause == "preempted"
    assert again.task.workers == (0, 1)


def test_a_task_preempted_many_times_is_never_dropped():  # D3
    queue = TaskQueue(plan(shards=(Shard("a", 0, 10),)))
    for lease in range(1, 20):
        assert queue.lease(worker=lease, lease_id=lease, deadline=9.0)
        task = queue.give_back(lease, cause="preempted")
        assert task.failures == 0
    assert not queue.finished
    assert len(drain(queue, first_lease=100)) == 1
    assert queue.finished


def test_only_user_failures_count():
    queue = TaskQueue(plan())
    queue.lease(worker=0, lease_id=1, deadline=9.0)
    assert queue.give_back(1, cause="user code", failed=True).failures == 1


def test_untouched_task_that_comes_back_is_no_replay():
    queue = TaskQueue(plan())
    queue.lease(worker=0, lease_id=1, deadline=9.0)
    queue.give_back(1, cause="drained", untouched=True)
    assert not queue.lease(worker=1, lease_id=2, deadline=9.0).task.replay


def test_a_task_that_was_only_read_ahead_comes_back_to_its_place():
    # Who leads a group is given a task before it has its state, and hands it back.
    queue = TaskQueue(plan(shards=(Shard("a", 0, 50),)))
    for lease in (1, 2, 3):
        queue.lease(worker=0, lease_id=lease, deadline=9.0)
    queue.restore(queue.position())
    first = queue.lease(worker=1, lease_id=4, deadline=9.0)
    queue.give_back(4, cause="handed back", untouched=True, in_order=True)
    assert queue.lease(worker=1, lease_id=5, deadline=9.0).task_id == first.task_id
    # One that nobody can read now lets others go first.
    queue.give_back(5, cause="handed back", untouched=True)
    assert [task.task_id for task in drain(queue, first_lease=6)] == [1, 2, 0, 3, 4]


def test_expired_lease_goes_back_to_the_queue():
    queue = TaskQueue(plan())
    queue.lease(worker=0, lease_id=1, deadline=300.0)
    assert queue.expired(299.0) == []
    assert queue.renew([1], worker=0, deadline=600.0) == []
    assert queue.expired(301.0) == []
    assert queue.expired(600.0) == [1]


def test_report_after_the_lease_moved_on_is_refused():
    queue = TaskQueue(plan())
    queue.lease(worker=0, lease_id=1, deadline=9.0)
    queue.give_back(1, cause="lease expired")
    queue.lease(worker=1, lease_id=2, deadline=9.0)
    assert queue.finish(1) is None
    assert queue.renew([1], worker=0, deadline=9.0) == [1]
    assert queue.finish(2) is not None
    assert queue.finish(2) is None


def test_what_was_reported_is_known_by_its_lease_until_a_rewind_undoes_it():
    queue = TaskQueue(plan())
    begin = queue.position()
    held = [queue.lease(worker=0, lease_id=i, deadline=9.0) for i in (1, 2)]
    queue.finish(1)
    queue.give_back(2, cause="lost")
    again = queue.lease(worker=1, lease_id=3, deadline=9.0)
    assert again.task.task_id == held[1].task.task_id
    after = TaskQueue(plan())
    after.load_state(json.loads(json.dumps(queue.state())))
    for one in (queue, after):
        # One that moved on to another worker is late, whoever reports it.
        assert [one.reported(i) for i in (1, 2, 3)] == [10, None, None]
        one.restore(begin)
        assert one.reported(1) is None


def test_late_report_counts_when_nobody_else_got_the_task():
    queue = TaskQueue(plan())
    first = queue.lease(worker=0, lease_id=1, deadline=9.0)
    queue.give_back(1, cause="lease expired")
    assert queue.finish(1).task_id == first.task_id
    assert not queue.waiting


def test_epochs_overlap_without_a_barrier():
    queue = TaskQueue(plan(epochs=2))
    held = [queue.lease(worker=0, lease_id=i, deadline=9.0) for i in range(1, 6)]
    assert [h.task.epoch for h in held] == [0, 0, 0, 0, 1]
    assert queue.epoch == 0
    for lease in (2, 3, 4):
        queue.finish(lease)
    assert queue.epoch == 0
    queue.finish(1)
    assert queue.epoch == 1


def test_ten_million_tasks_cost_no_memory():
    queue = TaskQueue(
        plan(
            shards=(Shard("a", 0, 100_000_000),),
            batch_size=1,
            batches_per_task=10,
            shuffle=True,
        )
    )
    for lease in range(3000):
        queue.lease(worker=0, lease_id=lease, deadline=9.0)
        queue.finish(lease)
    assert queue.total_tasks == 10_000_000
    # Some of the last reports are remembered.
    assert sum(sys.getsizeof(v) for v in vars(queue).values()) < 150_000
    assert queue.reported(0) is None


def test_empty_plan_is_refused():
    with pytest.raises(JournalError, match="no records"):
        TaskQueue(plan(shards=(Shard("a", 0, 0),)))


def test_restore_leaves_out_what_the_parameters_contain_already():
    queue = TaskQueue(plan(shards=(Shard("a", 0, 30),)))
    for lease in (1, 2, 3):
        queue.lease(worker=0, lease_id=lease, deadline=9.0)
    queue.finish(2)
    position = queue.position()
    queue.finish(1)
    queue.finish(3)
    assert queue.finished
    # Task 0: two whole batches and a half are applied; task 2: all of it.
    queue.restore(position, {0: 5, 2: 10})
    assert [(t.start, t.end, t.credit) for t in queue.waiting] == [(4, 10, 4)]
    drain(queue, first_lease=10)
    assert queue.done_records == 30
    assert queue.done_steps == 15


def test_restore_knows_tasks_given_out_after_the_position_was_noted():
    queue = TaskQueue(plan(shards=(Shard("a", 0, 40),)))
    queue.lease(worker=0, lease_id=1, deadline=9.0)
    position = queue.position()
    for lease in (2, 3):
        queue.lease(worker=0, lease_id=lease, deadline=9.0)
    credited = queue.restore(position, {0: 10, 1: 10, 2: 4})
    assert [(t.start, t.end) for t in credited] == [(0, 10), (10, 20), (20, 24)]
    assert [(t.start, t.end) for t in queue.waiting] == [(24, 30)]
    rest = drain(queue, first_lease=10)
    assert [(t.start, t.end) for t in rest] == [(24, 30), (30, 40)]
    assert queue.done_records == 40


@pytest.mark.parametrize("given_out", [False, True])
@pytest.mark.parametrize("restarted", [False, True])
def test_deaths_and_failures_at_a_task_count_on_after_a_rewind(given_out, restarted):
    queue = TaskQueue(plan(shards=(Shard("a", 0, 40),)))
    before = queue.position()
    queue.lease(worker=0, lease_id=1, deadline=9.0)
    position = queue.position() if given_out else before
    queue.give_back(1, cause="hung", died=True)
    for lease in (2, 3):
        queue.restore(position)
        if restarted:
            state, queue = queue.state(), TaskQueue(queue.plan)
            queue.load_state(state)
        queue.lease(worker=1, lease_id=lease, deadline=9.0)
        task = queue.give_back(lease, cause="killed", failed=True, died=True)
        assert (task.task_id, task.failures, task.deaths) == (0, lease - 1, lease)
    queue.lease(worker=1, lease_id=4, deadline=9.0)
    queue.finish(4)
    queue.restore(before)
    assert queue.lease(worker=1, lease_id=5, deadline=9.0).task.deaths == 0


def test_stop_gives_out_nothing_more():
    queue = TaskQueue(plan())
    queue.lease(worker=0, lease_id=1, deadline=9.0)
    queue.stop()
    assert queue.exhausted
    assert not queue.finished
    queue.finish(1)
    assert queue.finished


def test_state_is_the_same_after_a_round_trip():
    queue = TaskQueue(plan(shuffle=True, epochs=3))
    for lease in range(1, 7):
        queue.lease(worker=lease % 2, lease_id=lease, deadline=9.0)
    queue.finish(3)
    queue.give_back(4, cause="killed", failed=True)
    other = TaskQueue(queue.plan)
    other.load_state(queue.state())
    assert other.state() == queue.state()
    assert other.finish(1) == queue.finish(1)
    assert drain(other, first_lease=20) == drain(queue, first_lease=20)


@pytest.mark.parametrize(
    "limits", [{"epochs": 2}, {"epochs": 0, "max_steps": 23}, {"max_steps": 7}]
)
def test_what_is_left_counts_down_to_nothing_with_each_lease(limits):
    queue = TaskQueue(plan(**limits))
    seen = []
    while (
        leased := queue.lease(worker=0, lease_id=len(seen), deadline=9.0)
    ) is not None:
        seen.append(queue.left)
        if len(seen) == 1:
            queue.give_back(leased.lease_id, cause="handed back")
            assert queue.left == seen[0] + 1
    assert seen == sorted(seen, reverse=True)
    assert seen[-1] == queue.left == 0


def test_a_rewind_gives_no_record_of_an_elastic_step_again_wherever_the_step_ended():
    queue = TaskQueue(plan(shards=(Shard("a", 0, 25),), batch_size=4, elastic=True))
    queue.lease(worker=0, lease_id=1, deadline=9.0)
    position = queue.position()
    credited = queue.restore(position, {0: 3})
    assert [(task.start, task.end) for task in credited] == [(0, 3)]
    assert queue.lease(worker=0, lease_id=2, deadline=9.0).task.start == 3


def test_the_steps_of_an_elastic_plan_are_those_that_were_made():
    queue = TaskQueue(plan(shards=(Shard("a", 0, 12),), batch_size=6, elastic=True))
    queue.lease(worker=0, lease_id=1, deadline=9.0)
    queue.finish(1, steps=5)
    assert queue.steps == 5
    position = queue.position()
    again = TaskQueue(queue.plan)
    again.restore(position)
    assert again.steps == 5
