"""One replica as the master sees it: launched, heard of, or ended.

Owns what is known of it, and the judgement whether it is silent or hung. Held by
`master.members.membership`. Pure: `now` is an argument.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import Any

from elasticdl.job.heartbeats import PsReport, WorkerReport
from elasticdl.job.names import Role, replica_name
from elasticdl.job.spec.job import WorkerSpec
from elasticdl.job.words import (
    EndCause,
    ExitReason,
    GoodputCause,
    ReplicaState,
    WorkerPhase,
)
from elasticdl.master.tasks.facts import Restore
from elasticdl.runner.base import ReplicaKey

HANG_STEPS = 20
_WAITING_PHASES = ("", WorkerPhase.IDLE, WorkerPhase.WAIT)
_OTHERS_FAULT = GoodputCause.WAIT_PS
# A worker in any other phase brings the job on, or is kept from it for a moment.
_NOT_AT_WORK = ("", WorkerPhase.START, WorkerPhase.PREPARE)
# By these a member is found in its table, which is told when one of them changes.
_FOUND_BY = frozenset({"state", "told_why", "lost_by", "ready", "drain", "worker"})


@dataclass
class Member:
    """A replica of one generation."""

    key: ReplicaKey
    generation: int
    priority: str
    memory_bytes: int
    launch_at: float
    state: ReplicaState = ReplicaState.SCHEDULED
    reason: str = ""  # why it is pending, or how it ended
    ended: ExitReason = ExitReason.NONE
    since: float = 0.0  # of `state`
    pid: int = 0
    seen: bool = False  # by the platform, in this master's life
    adopted: bool = False  # an earlier master had it
    after_preemption: bool = False  # it replaces one that was taken away
    wanted_since: float = 0.0  # when it was asked for, or this master took it over
    # What was said of it already.
    waits_said: set[str] = field(default_factory=set)  # why it waits
    end_said: bool = False  # it was lost, and has its grace period left
    # What it said of itself.
    address: str = ""
    metrics_port: int = 0
    registered: bool = False
    ready: bool = False  # a worker: has built the model
    initialized: bool = False  # a PS: has parameters
    last_heard: float = 0.0
    worker: WorkerReport | None = None
    ps: PsReport | None = None
    restore: Restore | None = None
    # What the master wants of it.
    drain: bool = False
    stop_at: float = 0.0  # when draining: killed then
    told_why: str = ""  # why it was told to leave: scaled down, paused ...
    lost_by: EndCause | None = None  # the master ends it: it is silent, or hung
    _step: tuple[str, int] = ("", -1)
    _waited_at_step: float = 0.0
    unnamed: dict[int, float] = field(default_factory=dict)  # see leasing.py
    on_change: Callable[[Member, str], None] | None = field(
        default=None, repr=False, compare=False
    )

    def __setattr__(self, name: str, value: Any) -> None:
        """Set; the table must hear of it whoever does it, and never look for it."""
        object.__setattr__(self, name, value)
        if name in _FOUND_BY and (on_change := self.__dict__.get("on_change")):
            on_change(self, name)

    @property
    def name(self) -> str:
        """`worker-3`."""
        return replica_name(self.key.role, self.key.index)

    @property
    def is_worker(self) -> bool:
        """Whether it is a worker; else a PS."""
        return self.key.role is Role.WORKER

    @property
    def alive(self) -> bool:
        """Whether it runs as far as is known, and is meant to."""
        return self.state is ReplicaState.RUNNING and not (
            self.told_why or self.lost_by
        )

    @property
    def why_it_goes(self) -> str:
        """Why the master ends it, or told it to leave; "" if it did neither."""
        return self.lost_by or self.told_why

    @property
    def came_through(self) -> bool:
        """Whether a worker has its start behind it."""
        return self.ready or self.phase not in _NOT_AT_WORK

    @property
    def fell_at_work(self) -> bool:
        """Whether it hung or crashed, so that what it held may be the cause."""
        crashed = self.ended in (ExitReason.ERROR, ExitReason.OOM_KILLED)
        return crashed or self.lost_by == EndCause.HUNG

    @property
    def unsettled(self) -> bool:
        """Whether an earlier master had it, and nobody said yet that it still runs."""
        return self.seen and self.state is ReplicaState.LAUNCHED

    @property
    def at_work(self) -> bool:
        """Whether it is a worker that trains, evaluates, predicts, or could."""
        return self.alive and self.phase not in _NOT_AT_WORK

    @property
    def phase(self) -> str:
        """What a worker does now."""
        return self.worker.phase if self.worker else ""

    @property
    def used_bytes(self) -> int:
        """Memory that it used at its last heartbeat; 0 if it never said."""
        told = self.worker or self.ps
        return told.memory_bytes if told else 0

    def version(self) -> int:
        """Return the model version that it last told."""
        if self.ps is not None:
            return self.ps.version
        return self.worker.model_version if self.worker else 0

    # -- what becomes of it ---------------------------------------------------------

    def enter(self, state: ReplicaState, *, now: float) -> None:
        """Be in another state from now on."""
        self.state, self.since = state, now

    def show(self, *, pid: int, reason: str) -> None:
        """Take what the platform shows of it; `reason`: why it is pending."""
        self.seen = True
        self.pid = pid or self.pid
        self.reason = reason

    def launch_again(self, at: float | None = None) -> None:
        """Take a launch back that led to nothing; `at`: not before (Unix seconds)."""
        self.state = ReplicaState.SCHEDULED
        if at is not None:
            self.launch_at = at

    def end(self, reason: ExitReason, *, now: float) -> None:
        """The platform says that it has ended."""
        self.enter(ReplicaState.ENDED, now=now)
        self.ended = reason

    def explain(self, reason: str) -> None:
        """Say in words how it ended."""
        self.reason = reason

    def dismiss(self, why: str) -> None:
        """Want it to leave, and say why."""
        self.drain, self.told_why = True, why

    def kill_at(self, time: float) -> None:
        """Give it until then to leave by itself; 0 is no more time."""
        self.stop_at = time

    def take_away(self) -> None:
        """It has only its grace period left; its end is booked already."""
        self.drain = self.end_said = True

    def give_up(self, cause: EndCause) -> None:
        """The master ends it, since it is silent or hangs."""
        self.lost_by = cause

    def begin_with(self, restore: Restore) -> Restore:
        """Note what it begins with, and return that."""
        self.restore = restore
        return restore

    def go_back(self, restore: Restore) -> None:
        """Drop its values for others."""
        self.initialized, self.restore = False, restore

    def have_values(self) -> None:
        """It has parameters."""
        self.initialized = True

    def watch(self, on_change: Callable[[Member, str], None] | None) -> None:
        """Call this with each change of what members are looked for by."""
        self.on_change = on_change

    # -- what it says ---------------------------------------------------------------

    def up(self, *, address: str, metrics_port: int, pid: int, now: float) -> None:
        """Take where it can be reached."""
        self.last_heard, self.address = now, address
        self.metrics_port, self.pid = metrics_port, pid or self.pid

    def register(self) -> bool:
        """It is known to be up; whether it was not before."""
        first, self.registered = not self.registered, True
        return first

    def model_built(self) -> bool:
        """A worker has built the model; whether that is new."""
        first = not self.ready
        if first:
            self.ready = True
        return first

    def heard(self, *, now: float) -> None:
        """It was heard."""
        self.last_heard = now

    def know_leases(
        self, held: Iterable[int], named: Collection[int], *, now: float
    ) -> None:
        """Note since when it does not name leases that it holds."""
        before = self.unnamed
        self.unnamed = {i: before.get(i, now) for i in held if i not in named}

    def heard_worker(self, worker: WorkerReport, *, now: float) -> None:
        """Take a heartbeat."""
        self.last_heard = now
        self.worker = worker
        mark = (worker.phase, worker.step)
        if mark != self._step:
            self._step = mark
            self._waited_at_step = worker.seconds.get(_OTHERS_FAULT, 0.0)

    def heard_ps(self, status: PsReport, *, now: float) -> None:
        """Take a heartbeat."""
        self.last_heard = now
        self.ps = status

    def silent_at(self, spec: WorkerSpec) -> float | None:
        """Return when it counts as dead if nothing is heard; None if it cannot yet."""
        if not self.alive:
            return None
        # One that a restarted master takes over has begun long ago.
        begun = self.worker or self.ps or self.ready or self.initialized
        # With the initial values a PS gets its optimizer, whose kernels are compiled if
        # no earlier process did: on a busy machine no heartbeat comes through then.
        empty = self.ps is not None and not self.initialized
        starting = not begun or (empty and self.restore == Restore())
        starting = starting or self.phase == WorkerPhase.START
        bound = spec.start_seconds if starting else spec.dead_seconds
        return max(self.last_heard, self.since) + bound

    def is_hung(self, spec: WorkerSpec, *, patience: float = 1.0) -> bool:
        """Whether it says itself that it comes no further, and no PS is to blame.

        A batch has as long as others of its kind usually take, many times over. What
        nobody knows the length of has as long as a worker has to start, since its last
        sign of life: the first batch of a kind (it may be traced), the next batch out
        of the feed, the records of a task, an export. `patience` stretches the bound:
        it grows when replacements hang as well, so that a step that is slow everywhere
        is not killed for ever.
        """
        worker = self.worker
        if worker is None or not self.alive or worker.phase in _WAITING_PHASES:
            return False
        waited = worker.seconds.get(_OTHERS_FAULT, 0.0) - self._waited_at_step
        stuck = worker.phase_seconds - max(0.0, waited)
        if not worker.usual_seconds:
            return stuck > spec.start_seconds
        bound = max(spec.hang_seconds, HANG_STEPS * worker.usual_seconds)
        return stuck > max(bound, min(bound * patience, spec.start_seconds))
