"""The ledger: the task queue and every other fact that must outlive the master.

Owns the events: each change is one event, applied here and appended to the journal, so
that a restart, which applies the same events again, ends in the same state. Called by
the master's loop and servicer. Knows nothing of replicas' processes or of RPC.

Wherever `now` is asked for it is Unix seconds: deadlines survive a restart.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from elasticdl.errors import JournalError
from elasticdl.job.names import Role, replica_name
from elasticdl.job.status import Replay
from elasticdl.master.tasks import facts
from elasticdl.master.tasks import journal as journals
from elasticdl.master.tasks.fact import Fact
from elasticdl.master.tasks.journal import Journal
from elasticdl.master.tasks.journal_files import Event
from elasticdl.master.tasks.notes import Notes
from elasticdl.master.tasks.queue import TaskQueue
from elasticdl.master.tasks.queue_plan import QueuePlan, differences
from elasticdl.master.tasks.queued import LeasedTask, QueuedTask

F = TypeVar("F", bound=Fact)

# Of tasks that were given out again the newest are listed; the journal has all.
_KEPT_REPLAYS = 1_000


@dataclass(frozen=True)
class Made:
    """What a worker made of a task's records."""

    rows: int  # that `feed` made of them, and that were trained
    bad: int = 0  # records that could not be read or parsed
    skipped_rows: int = 0  # of batches whose loss was not finite
    shares: tuple[tuple[int, int], ...] = ()  # of a group: generation, records


class Ledger:
    """Durable facts of a job. Not thread-safe: the master's loop owns it."""

    def __init__(self, journal: Journal) -> None:
        """Begin empty; `open` is how a master gets one."""
        self._journal = journal
        self.generation = 0
        self.plan: QueuePlan | None = None
        self.queue: TaskQueue | None = None
        self.replays: deque[Replay] = deque(maxlen=_KEPT_REPLAYS)
        self.replayed_records = 0
        self.rewinds = 0
        self.started = 0.0
        self.workers_so_far = 0  # also the next one's index
        self._replica_generation = 0
        self._lease_id = 0
        self._notes = Notes()
        self._apply: dict[str, Callable[[Event], Any]] = {
            "open": self._on_open,
            "plan": self._on_plan,
            "ids": self._on_ids,
            "lease": self._on_lease,
            "epochs": self._on_epochs,
            "done": self._on_done,
            "back": self._on_back,
            "over": self._on_over,
            "stop": self._on_stop,
            "rewind": self._on_rewind,
            "note": self._on_note,
        }

    @staticmethod
    def open(
        directory: Path,
        *,
        now: float,
        wait_seconds: float = 60.0,
        on_commit: Callable[[float], None] = journals.ignore,
        clock: Callable[[], float] = time.monotonic,
    ) -> Ledger:
        """Read the journal, if there is one, and begin a new generation of the master.

        A master that has the journal open loses it. `on_commit` is told of each write
        how many seconds it took, by `clock`, as `wait_seconds` are. Raises JournalError
        if the journal cannot be read or written, or was written by other rules than
        these.
        """
        try:
            journal = Journal(
                directory, wait_seconds=wait_seconds, on_commit=on_commit, clock=clock
            )
            ledger = Ledger(journal)
            past = journal.past()
            state = next(past)
            if state:
                ledger._load(state)
            for event in past:
                ledger._replay(event)
        except OSError as error:
            raise journals.cannot_write(directory, error) from error
        ledger._do({"k": "open", "t": now})
        return ledger

    # -- tasks --------------------------------------------------------------------

    def open_plan(self, plan: QueuePlan) -> None:
        """Set the plan, once. Raises JournalError if it differs from the journal's."""
        if self.plan is None:
            self._do({"k": "plan", "plan": plan.to_json()})
        elif self.plan != replace(plan, epochs=self.plan.epochs):
            raise JournalError(
                f"the journal was begun with {differences(self.plan, plan)}; put the "
                "old data and settings back, or start afresh with --restart"
            )
        elif self.plan.epochs != plan.epochs:
            self.set_epochs(plan.epochs)

    def set_epochs(self, epochs: int) -> None:
        """Set the number of epochs, at least those that have begun; 0 is endless."""
        if self.plan is not None:
            self._do({"k": "epochs", "n": epochs})

    @property
    def can_lease(self) -> bool:
        """Whether a task can be leased now."""
        return self.queue is not None and not self.queue.exhausted

    def lease(
        self, worker: int, *, now: float, lease_seconds: float
    ) -> LeasedTask | None:
        """Lease the next task to a worker; None if there is none now."""
        if not self.can_lease:
            return None
        until = now + lease_seconds
        event = {"k": "lease", "w": worker, "l": self._lease_id + 1, "d": until}
        leased: LeasedTask | None = self._do(event)
        return leased

    def finish(
        self,
        lease_id: int,
        *,
        records: int,
        steps: int,
        now: float,
        made: Made | None = None,
    ) -> LeasedTask | None:
        """Record a finished task; None if its lease has moved on (a late report).

        `records`, `steps` and `made` are what the worker says; `audit` compares it.
        """
        event: Event = {"k": "done", "l": lease_id, "n": records, "st": steps}
        if made is not None:
            event["r"] = made.rows
            event.update({"b": made.bad} if made.bad else {})
            event.update({"sk": made.skipped_rows} if made.skipped_rows else {})
            event.update({"sh": made.shares} if made.shares else {})
        event["t"] = round(now, 3)
        done: LeasedTask | None = self._do(event)
        return done

    def give_back(
        self,
        lease_id: int,
        *,
        cause: str,
        now: float,
        failed: bool = False,
        died: bool = False,
        untouched: bool = False,
        in_order: bool = False,
    ) -> QueuedTask | None:
        """Put a task back; None if its lease has moved on. See TaskQueue.give_back."""
        if self.queue is None or lease_id not in self.queue.leased:
            return None
        event: Event = {"k": "back", "l": lease_id, "c": cause, "t": round(now, 3)}
        said = {"f": failed, "x": died, "u": untouched, "o": in_order}
        event |= {key: 1 for key, holds in said.items() if holds}
        task: QueuedTask | None = self._do(event)
        return task

    def recover(
        self, worker: int, *, cause: str, now: float, died: bool = False
    ) -> list[QueuedTask]:
        """Put back all tasks of a lost worker; `died`: while working on them."""
        leases = self.queue.leases_of(worker) if self.queue else []
        tasks = (self.give_back(i, cause=cause, now=now, died=died) for i in leases)
        return [task for task in tasks if task]

    def hand_over(self, worker: int, *, now: float, died: bool = False) -> None:
        """Give all leased tasks to one worker, who goes on where they stand.

        `died`: one of those that share them hung or crashed.
        """
        told = {"w": worker, "t": round(now, 3), **({"x": 1} if died else {})}
        for lease_id, task in dict(self.queue.leased if self.queue else {}).items():
            if died or task.worker != worker:
                self._do({"k": "over", "l": lease_id, **told})

    def expire(self, now: float) -> list[QueuedTask]:
        """Put back all tasks whose leases expired."""
        leases = self.queue.expired(now) if self.queue else []
        tasks = (self.give_back(i, cause="lease expired", now=now) for i in leases)
        return [task for task in tasks if task]

    def renew(
        self, worker: int, lease_ids: Iterable[int], *, now: float, lease_seconds: float
    ) -> list[int]:
        """Move the deadlines of a worker's leases; return those that it lost.

        Not journaled: a restarted master renews at the first heartbeat anyway.
        """
        if self.queue is None:
            return list(lease_ids)
        return self.queue.renew(lease_ids, worker=worker, deadline=now + lease_seconds)

    def stop_leasing(self, *, now: float) -> None:
        """Lease no more training tasks (early stopping)."""
        self._do({"k": "stop", "t": round(now, 3)})

    def position(self) -> dict[str, Any]:
        """Return the queue's position, for a checkpoint's manifest."""
        return self.queue.position() if self.queue else {}

    def rewind(
        self,
        position: Mapping[str, Any],
        *,
        applied: Mapping[int, int],
        cause: str,
        now: float,
    ) -> None:
        """Return to a checkpoint's position; all leases are void."""
        self._do(
            {
                "k": "rewind",
                "p": dict(position),
                "a": sorted(applied.items()),
                "c": cause,
                "t": round(now, 3),
            }
        )

    # -- everything else ----------------------------------------------------------

    def next_worker_index(self) -> int:
        """Return an index that no worker of this job has had."""
        self._do({"k": "ids", "worker": self.workers_so_far + 1})
        return self.workers_so_far - 1

    def next_generation(self) -> int:
        """Return a generation that no replica of this job has had; from 1."""
        self._do({"k": "ids", "generation": self._replica_generation + 1})
        return self._replica_generation

    def record(self, fact: Fact) -> None:
        """Journal a fact; its class determines which facts are kept."""
        self._notes.add(fact)
        self._journal.append({"k": "note", "kind": fact.KIND, "data": fact.tree()})

    def all_of(self, kind: type[F]) -> list[F]:
        """Return the kept facts of a kind, including those from before a restart."""
        return self._notes.of(kind)

    def newest_of(self, kind: type[F], name: str | None = None) -> F | None:
        """Return the newest fact of a kind, and of a name for kinds kept by name."""
        return self._notes.newest(kind, name)

    def count_of(self, kind: type[Fact]) -> int:
        """Return how many facts of a kind were recorded, including those not kept."""
        return self._notes.count(kind)

    async def commit(self) -> None:
        """Return when everything so far is on disk.

        What was done without an await between comes back whole or not at all. Raises
        JournalError, SupersededError.
        """
        await self._journal.commit()

    async def hold(self) -> None:
        """Return if no other master has taken over. Raises as `commit`."""
        await self._journal.hold()

    def wants_compaction(self, limit: int = journals.SEGMENT_BYTES) -> bool:
        """Whether the journal's segment exceeds `limit` bytes."""
        return self._journal.wants_snapshot(limit)

    async def compact(self) -> None:
        """Write a snapshot and begin a new segment."""
        await self._journal.compact(self._state)

    def hurry(self, seconds: float) -> None:
        """Wait for a disk that takes nothing for no more than so long from now on."""
        self._journal.hurry(seconds)

    @property
    def last_lease(self) -> int:
        """Id of the newest lease of a task; 0 if there was none."""
        return self._lease_id

    @property
    def journal_bytes(self) -> int:
        """Size of the journal's current segment."""
        return self._journal.segment_bytes

    @property
    def blocked_seconds(self) -> float:
        """Seconds since the journal became unwritable; 0 if it is writable."""
        return self._journal.blocked_seconds

    @property
    def refused_seconds(self) -> float:
        """Seconds so far in which the journal's disk took nothing, now over."""
        return self._journal.refused_seconds

    @property
    def failed(self) -> str:
        """Why the journal takes nothing any more; "" if it may."""
        return str(self._journal.failed or "")

    @property
    def volume(self) -> tuple[float, float] | None:
        """Free and total bytes of the journal's volume, if it reports them."""
        return self._journal.volume

    @property
    def trouble(self) -> str:
        """Why the journal cannot be written now and what to do; "" if it can."""
        return self._journal.trouble

    def close(self) -> None:
        """Close the journal's file."""
        self._journal.close()

    # -- events -------------------------------------------------------------------

    def _do(self, event: Event) -> Any:
        result = self._apply[event["k"]](event)
        self._journal.append(event)
        return result

    def _replay(self, event: Event) -> None:
        """Apply an earlier event and compare its outcome with the recorded one."""
        apply = self._apply.get(event["k"])
        if apply is None:
            raise JournalError(
                f"the journal has an event of the unknown kind {event['k']!r}: another "
                "version of ElasticDL wrote it; go on with that version"
            )
        apply(event)

    def _found(self, event: Event, **fields: Any) -> None:
        """Record the outcome in a new event; compare it in an earlier one.

        A record would be trained twice or never if this version gave out the tasks of
        a job that another one began in another order, or of another length.
        """
        for name, value in fields.items():
            before = event.setdefault(name, value)
            if before != value:
                raise JournalError(
                    f"the journal was written by other rules: event {event['k']!r} of "
                    f"lease {event.get('l', '-')} says {name} = {before}, expected "
                    f"{value}. Go on with the version of ElasticDL that began the job, "
                    "or start afresh with --restart, from a checkpoint with "
                    "checkpoint.initFrom"
                )

    def _on_open(self, event: Event) -> None:
        self.generation += 1
        self.started = self.started or event["t"]

    def _on_plan(self, event: Event) -> None:
        self.plan = QueuePlan.from_json(event["plan"])
        self.queue = TaskQueue(self.plan)

    def _on_epochs(self, event: Event) -> None:
        self._tasks.set_epochs(event["n"])
        self.plan = self._tasks.plan
        event["n"] = self.plan.epochs  # what audit needs; the same when replayed

    def _on_ids(self, event: Event) -> None:
        self.workers_so_far = event.get("worker", self.workers_so_far)
        self._replica_generation = event.get("generation", self._replica_generation)

    def _on_lease(self, event: Event) -> LeasedTask | None:
        self._lease_id = event["l"]
        leased = self._tasks.lease(
            worker=event["w"], lease_id=event["l"], deadline=event["d"]
        )
        if leased is None:
            return None
        task = leased.task
        # What audit needs; the queue has to find the same again.
        self._found(
            event,
            i=task.task_id,
            s=task.source,
            a=task.start,
            b=task.end,
            e=task.epoch,
        )
        if task.replay:
            event["c"] = task.cause
            self._count_replay(task)
        return leased

    def _on_done(self, event: Event) -> LeasedTask | None:
        done = self._tasks.finish(event["l"], event["st"])
        if done is None:
            event["late"] = 1
        return done

    def _on_back(self, event: Event) -> QueuedTask | None:
        return self._tasks.give_back(
            event["l"],
            cause=event["c"],
            failed="f" in event,
            died="x" in event,
            untouched="u" in event,
            in_order="o" in event,
        )

    def _on_over(self, event: Event) -> None:
        self._tasks.hand_over(event["l"], worker=event["w"], died="x" in event)

    def _on_stop(self, event: Event) -> None:
        del event
        self._tasks.stop()

    def _on_rewind(self, event: Event) -> None:
        self.rewinds += 1
        if self.queue is None:
            return
        credited = self.queue.restore(event["p"], dict(event["a"]))
        # What audit needs: the ranges that stay trained, and where leasing goes on.
        self._found(
            event,
            cr=[[t.task_id, t.source, t.start, t.end, t.epoch] for t in credited],
            cu=self.queue.cursor,
            wt=[[t.task_id, t.epoch] for t in self.queue.waiting],
        )

    def _on_note(self, event: Event) -> None:
        self._notes.add(facts.read(event["kind"], event["data"]))

    def _count_replay(self, task: QueuedTask) -> None:
        self.replayed_records += task.records
        self.replays.append(
            Replay(
                source=task.source,
                start=task.start,
                end=task.end,
                epoch=task.epoch,
                workers=[replica_name(Role.WORKER, w) for w in task.workers],
                cause=task.cause,
            )
        )

    @property
    def _tasks(self) -> TaskQueue:
        if self.queue is None:
            raise JournalError("a task event before the plan: the journal is damaged")
        return self.queue

    # -- snapshots ----------------------------------------------------------------

    def _state(self) -> Event:
        return {
            "generation": self.generation,
            "started": self.started,
            "ids": [self.workers_so_far, self._replica_generation, self._lease_id],
            "plan": self.plan.to_json() if self.plan else None,
            "queue": self.queue.state() if self.queue else None,
            "replays": [r.model_dump() for r in self.replays],
            "replayed_records": self.replayed_records,
            "rewinds": self.rewinds,
            "notes": self._notes.state(),
        }

    def _load(self, state: Event) -> None:
        self.generation = state["generation"]
        self.started = state["started"]
        self.workers_so_far, self._replica_generation, self._lease_id = state["ids"]
        self.replays.extend(Replay(**r) for r in state["replays"])
        self.replayed_records = state["replayed_records"]
        self.rewinds = state["rewinds"]
        self._notes.load(state["notes"])
        if state["plan"]:
            self._on_plan(state)
            self._tasks.load_state(state["queue"])
