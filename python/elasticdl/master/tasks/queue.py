"""Which range of records is done, leased, or waiting: the data contract in one place.

Owns the cursor, the tasks to be given out again and the leases. Called by
`master.tasks.ledger`, which makes it durable. Pure: time and ids are arguments; knows
nothing of replicas, RPC or disks.

The queue is lazy: a task is computed from its number when it is leased, so its state is
O(tasks outstanding) however many there are. Everything before the cursor is done,
except what is leased or waiting. What calls ask for is kept by what they ask with (a
worker, a deadline, an epoch), so that no call looks at all that is outstanding.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from itertools import accumulate
from typing import Any

from elasticdl.errors import JournalError
from elasticdl.master.tasks.leases import Leases, Outstanding
from elasticdl.master.tasks.permutation import Permutation
from elasticdl.master.tasks.queue_plan import QueuePlan
from elasticdl.master.tasks.queued import LeasedTask, QueuedTask, task_from_json

# More than the reports that can be on their way as a master dies.
_REMEMBERED = 1024


class TaskQueue:
    """Leases every record of every epoch, and again what comes back."""

    def __init__(self, plan: QueuePlan) -> None:
        """Prepare the first epoch. Raises JournalError if the plan has no records."""
        self.plan = plan
        self.records_per_task = plan.batch_size * plan.batches_per_task
        counts = [-(-s.num_records // self.records_per_task) for s in plan.shards]
        self._first_task = [0, *accumulate(counts)]  # of each shard, within an epoch
        self.tasks_per_epoch = self._first_task[-1]
        if not self.tasks_per_epoch:
            raise JournalError("the plan has no records; expected at least one")
        self._order: tuple[int, Permutation] | None = None
        self._cursor = 0
        self._issued_steps = 0
        self._waiting: OrderedDict[int, QueuedTask] = OrderedDict()  # by number
        self._waiting_by_lease: dict[int, int] = {}  # the number, by its last lease
        self._leases: Leases[LeasedTask] = Leases()
        self._outstanding = Outstanding()
        # Failures and deaths at tasks that are not done, by number: no rewind takes
        # them back, else what kills each worker would kill them for ever.
        self._blamed: dict[int, tuple[int, int]] = {}
        # Records of the tasks that were finished last, by lease: a report is repeated
        # when its answer was lost with a master.
        self._finished: OrderedDict[int, int] = OrderedDict()
        self._stopped = False
        self.done_tasks = 0
        self.done_records = 0
        self.done_steps = 0  # of `batch_size` records
        self.told_steps = 0  # as workers said
        self.new_steps = 0  # of them, those of reports since the last `restore`

    @property
    def steps(self) -> int:
        """Return the steps made; of records that a rewind credits, those planned."""
        return self.told_steps if self.plan.elastic else self.done_steps

    @property
    def deaths(self) -> int:
        """Number of workers that hung or crashed at tasks that are not done."""
        return sum(deaths for _, deaths in self._blamed.values())

    def set_epochs(self, epochs: int) -> None:
        """Set the number of epochs, at least those that have begun; 0 is endless."""
        begun = -(-self._cursor // self.tasks_per_epoch)
        self.plan = replace(self.plan, epochs=epochs and max(epochs, begun))

    # -- giving out ---------------------------------------------------------------

    def lease(
        self, *, worker: int, lease_id: int, deadline: float
    ) -> LeasedTask | None:
        """Lease a returned task, else the next in order; None if nothing is left."""
        if self._stopped:
            return None
        task = self._take_waiting() if self._waiting else self._next()
        if task is None:
            return None
        task = replace(task, last_lease=lease_id, workers=(*task.workers, worker)[-8:])
        leased = LeasedTask(task, lease_id, worker)
        self._leases.add(lease_id, leased, worker=worker, deadline=deadline)
        return leased

    def _take_waiting(self, number: int | None = None) -> QueuedTask:
        """Remove and return a waiting task: the first, or the one with a number."""
        if number is None:
            number, task = self._waiting.popitem(last=False)
        else:
            task = self._waiting.pop(number)
        self._waiting_by_lease.pop(task.last_lease, None)
        return task

    def _let_wait(self, task: QueuedTask, *, in_order: bool = False) -> None:
        """Put a task behind all that wait; `in_order`: but before those of later."""
        self._waiting[task.task_id] = task
        if in_order:
            for number in [n for n in self._waiting if n > task.task_id]:
                self._waiting.move_to_end(number)
        if task.last_lease >= 0:
            self._waiting_by_lease[task.last_lease] = task.task_id

    def _next(self) -> QueuedTask | None:
        if not self._has_next():
            return None
        epoch, ordinal = divmod(self._cursor, self.tasks_per_epoch)
        source, start, end = self._range(epoch, ordinal)
        if self.plan.max_steps:
            left = (self.plan.max_steps - self._issued_steps) * self.plan.batch_size
            end = min(end, start + left)
        task = self._with_blame(QueuedTask(self._cursor, source, start, end, epoch))
        self._cursor += 1
        self._outstanding.add(task.task_id)
        self._issued_steps += self._steps(task.records)
        return task

    def _with_blame(self, task: QueuedTask) -> QueuedTask:
        if task.task_id not in self._blamed:
            return task
        failures, deaths = self._blamed[task.task_id]
        return replace(
            task,
            failures=max(task.failures, failures),
            deaths=max(task.deaths, deaths),
        )

    def _has_next(self) -> bool:
        if self.plan.epochs and self._cursor >= self.plan.epochs * self.tasks_per_epoch:
            return False
        return not (self.plan.max_steps and self._issued_steps >= self.plan.max_steps)

    def _range(self, epoch: int, ordinal: int) -> tuple[str, int, int]:
        if self.plan.shuffle:
            if self._order is None or self._order[0] != epoch:
                # Two epochs may alternate while one runs out; making the order again
                # costs a few microseconds.
                seed = self.plan.seed * 1_000_003 + epoch
                self._order = (epoch, Permutation(self.tasks_per_epoch, seed))
            ordinal = self._order[1][ordinal]
        index = bisect_right(self._first_task, ordinal) - 1
        shard = self.plan.shards[index]
        start = (
            shard.start + (ordinal - self._first_task[index]) * self.records_per_task
        )
        return shard.source, start, min(start + self.records_per_task, shard.end)

    def _steps(self, records: int) -> int:
        return -(-records // self.plan.batch_size)

    # -- coming back --------------------------------------------------------------

    def finish(self, lease_id: int, steps: int = 0) -> LeasedTask | None:
        """Remove a finished task of so many steps; None if the lease has moved on.

        A task whose lease was lost but that nobody else has been given yet is taken
        as finished too: its records have been applied, and not twice.
        """
        leased = self._leases.pop(lease_id)
        if leased is None:
            number = self._waiting_by_lease.get(lease_id)
            if number is None:
                return None
            task = self._take_waiting(number)
            leased = LeasedTask(task, lease_id, task.workers[-1])
        self._count(leased.task)
        self.told_steps += steps + self._steps(leased.task.credit)
        self.new_steps += steps
        self._finished[lease_id] = leased.task.records
        if len(self._finished) > _REMEMBERED:
            self._finished.popitem(last=False)
        return leased

    def reported(self, lease_id: int) -> int | None:
        """Return the records of a lease whose report was taken, and not undone since.

        Who reports it now trained nothing more: it is the same worker, or the next
        leader of a group, which has made the same steps. None: it was not taken, since
        the lease had moved on, say.
        """
        return self._finished.get(lease_id)

    def _count(self, task: QueuedTask) -> None:
        self._outstanding.discard(task.task_id)
        self._blamed.pop(task.task_id, None)
        self.done_tasks += 1
        self.done_records += task.records + task.credit
        self.done_steps += self._steps(task.records + task.credit)

    def give_back(
        self,
        lease_id: int,
        *,
        cause: str,
        failed: bool = False,
        died: bool = False,
        untouched: bool = False,
        in_order: bool = False,
    ) -> QueuedTask | None:
        """Put a leased task back for another worker; None if the lease has moved on.

        `untouched` says that no record of it was trained, so it is no replay.
        `in_order`: it comes before later ones again, so that the order of a run does
        not depend on who had it a moment. Not what could not be read: others go first.
        """
        leased = self._leases.pop(lease_id)
        if leased is None:
            return None
        task = leased.task
        task = replace(
            task,
            failures=task.failures + failed,
            deaths=task.deaths + died,
            replay=task.replay or not untouched,
            cause=cause,
        )
        self._blame(task)
        self._let_wait(task, in_order=in_order)
        return task

    def _blame(self, task: QueuedTask) -> None:
        if task.failures or task.deaths:
            self._blamed[task.task_id] = (task.failures, task.deaths)

    def hand_over(self, lease_id: int, *, worker: int, died: bool = False) -> None:
        """Give a leased task to another worker, who goes on where it stands.

        It is no replay: nothing of it is trained twice (strategy allReduce). `died`: a
        worker hung or crashed at it.
        """
        leased = self._leases.all.get(lease_id)
        if leased is None:
            return
        task = leased.task
        if leased.worker != worker:
            task = replace(task, workers=(*task.workers, worker)[-8:])
        task = replace(task, deaths=task.deaths + died)
        self._blame(task)
        moved = LeasedTask(task, lease_id, worker)
        self._leases.hand_over(lease_id, moved, worker=worker)

    def renew(
        self, lease_ids: Iterable[int], *, worker: int, deadline: float
    ) -> list[int]:
        """Move the deadlines of a worker's leases; return those it does not hold."""
        return self._leases.renew(lease_ids, worker=worker, deadline=deadline)

    def renew_all(self, *, deadline: float) -> None:
        """Move the deadlines of all leases."""
        self._leases.renew_all(deadline)

    def expired(self, now: float) -> list[int]:
        """Return the expired leases."""
        return self._leases.expired(now)

    def next_deadline(self) -> float | None:
        """Return a time before which no lease expires."""
        return self._leases.next_deadline()

    def leases_of(self, worker: int) -> list[int]:
        """Return a worker's leases, the oldest first."""
        return self._leases.of(worker)

    @property
    def holders(self) -> Collection[int]:
        """The workers that hold leases."""
        return self._leases.holders

    def stop(self) -> None:
        """Lease nothing any more (early stopping); leased tasks may still finish."""
        self._stopped = True

    # -- what is seen of it -------------------------------------------------------

    @property
    def stopped(self) -> bool:
        """Whether `stop` was called."""
        return self._stopped

    @property
    def exhausted(self) -> bool:
        """Whether nothing can be leased unless a task comes back."""
        return self._stopped or not (self._waiting or self._has_next())

    @property
    def left(self) -> float:
        """Number of tasks that can still be leased; infinite if endless."""
        if self._stopped:
            return 0
        left = math.inf
        if self.plan.epochs:
            left = self.total_tasks - self._cursor
        if self.plan.max_steps:
            steps = self.plan.max_steps - self._issued_steps
            left = min(left, -(-steps // self.plan.batches_per_task))
        return max(0, left) + len(self._waiting)

    @property
    def finished(self) -> bool:
        """Whether everything has been trained."""
        return self.exhausted and not self._leases.all

    @property
    def epoch(self) -> int:
        """The oldest unfinished epoch, from 0."""
        oldest = self._outstanding.oldest()
        return (self._cursor if oldest is None else oldest) // self.tasks_per_epoch

    @property
    def epoch_behind(self) -> int:
        """The oldest epoch with a task that is not leased or done."""
        behind = (task.epoch for task in self._waiting.values())
        return min(behind, default=self._cursor // self.tasks_per_epoch)

    @property
    def cursor(self) -> int:
        """Number of the next task that was never leased."""
        return self._cursor

    @property
    def leased(self) -> Mapping[int, LeasedTask]:
        """The leases by id."""
        return self._leases.all

    @property
    def leased_records(self) -> int:
        """Records that workers hold now; a task at a source's end counts as whole."""
        return len(self._leases.all) * self.plan.batch_size * self.plan.batches_per_task

    @property
    def waiting(self) -> Collection[QueuedTask]:
        """Tasks that came back and wait for a worker, in the order they will go."""
        return self._waiting.values()

    @property
    def total_tasks(self) -> int:
        """Tasks of all epochs; 0 if endless. An upper bound with `max_steps`."""
        return self.plan.epochs * self.tasks_per_epoch

    # -- being kept ---------------------------------------------------------------

    def position(self) -> dict[str, Any]:
        """Return the queue's position; leased tasks count as waiting."""
        held = (leased.task for leased in self._leases.all.values())
        waiting = [*held, *self._waiting.values()]
        return {**self._counts(), "waiting": [task.tree() for task in waiting]}

    def _counts(self) -> dict[str, Any]:
        return {
            "cursor": self._cursor,
            "issued_steps": self._issued_steps,
            "done_tasks": self.done_tasks,
            "done_records": self.done_records,
            "done_steps": self.done_steps,
            "told_steps": self.told_steps,
            "stopped": self._stopped,
        }

    def restore(
        self, position: Mapping[str, Any], applied: Mapping[int, int] | None = None
    ) -> list[QueuedTask]:
        """Set the position, backwards or forwards; all leases are void.

        `applied` gives, by task, the leading records that the parameters of that
        position contain already; they are not given out again, and are returned. Tasks
        beyond the position may be among them: a snapshot is taken a moment after the
        position was noted. No report of a lease from before counts any more, also not
        where nobody else got the task: what it trained was undone. Failures and deaths
        at a task count on.
        """
        self._cursor = position["cursor"]
        self._issued_steps = position["issued_steps"]
        self.done_tasks = position["done_tasks"]
        self.done_records = position["done_records"]
        self.done_steps = position["done_steps"]
        self.told_steps = position.get("told_steps", 0)
        self.new_steps = 0
        self._stopped = position["stopped"]
        self._leases.clear()
        self._waiting.clear()
        self._waiting_by_lease.clear()
        self._finished.clear()
        applied = applied or {}
        waiting = (task_from_json(tree) for tree in position["waiting"])
        tasks = [self._with_blame(task) for task in waiting]
        self._outstanding = Outstanding(task.task_id for task in tasks)
        while self._cursor <= max(applied, default=-1):
            task = self._next()
            if task is None:
                break
            tasks.append(task)
        credited = []
        for task in tasks:
            records = self.plan.credit(applied.get(task.task_id, 0), task.records)
            if records:
                credited.append(replace(task, end=task.start + records))
            rest = replace(
                task,
                start=task.start + records,
                credit=task.credit + records,
                last_lease=-1,
            )
            if rest.records:
                self._let_wait(rest)
            else:
                self._count(rest)
                self.told_steps += self._steps(rest.credit)
        return credited

    def state(self) -> dict[str, Any]:
        """Return the whole state, leases included, for a snapshot of the journal."""
        return {
            **self._counts(),
            "waiting": [task.tree() for task in self._waiting.values()],
            "leases": [self._lease_tree(i) for i in self._leases.all],
            "blamed": [[i, *counts] for i, counts in self._blamed.items()],
            "new_steps": self.new_steps,
            "finished": [[i, records] for i, records in self._finished.items()],
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Restore what `state` returned."""
        self._blamed.clear()
        self.restore(state)
        self._waiting.clear()
        for tree in state["waiting"]:
            task = task_from_json(tree)
            self._let_wait(task)
            self._blame(task)
        for tree in state["leases"]:
            task, worker = task_from_json(tree["task"]), tree["worker"]
            self._outstanding.add(task.task_id)
            self._blame(task)
            self._leases.add(
                tree["lease_id"],
                LeasedTask(task, tree["lease_id"], worker),
                worker=worker,
                deadline=tree["deadline"],
            )

        self.new_steps = state.get("new_steps", 0)
        # A snapshot of an older version has those of waiting and leased tasks alone.
        for task_id, failures, deaths in state.get("blamed", ()):
            self._blamed[task_id] = (failures, deaths)
        self._finished.update(dict(state.get("finished", ())))

    def _lease_tree(self, lease_id: int) -> dict[str, Any]:
        leased = self._leases.all[lease_id]
        return {
            "task": leased.task.tree(),
            "lease_id": lease_id,
            "worker": leased.worker,
            "deadline": self._leases.deadline_of(lease_id),
        }
