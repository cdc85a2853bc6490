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

HANG_STEPS = 20  # A batch may be slow by chance; 20 times the usual is not chance.
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
    joined: float = 0.0  # when it began to run, under an earlier master maybe
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
    unanswered: int = 0  # its heartbeats that wait for the journal
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
        """Set an attribute and tell the table, which need not search for changes."""
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
        """Whether the replica runs, as far as is known, and is meant to."""
        return self.state is ReplicaState.RUNNING and not (
            self.told_why or self.lost_by
        )

    @property
    def why_it_goes(self) -> str:
        """Why the master ends the replica or told it to leave; "" if it did neither."""
        return self.lost_by or self.told_why

    @property
    def came_through(self) -> bool:
        """Whether a worker has completed its start."""
        return self.ready or self.phase not in _NOT_AT_WORK

    @property
    def fell_at_work(self) -> bool:
        """Whether the replica hung or crashed, so that its tasks may be the cause."""
        crashed = self.ended in (ExitReason.ERROR, ExitReason.OOM_KILLED)
        return crashed or self.lost_by == EndCause.HUNG

    @property
    def was_killed(self) -> bool:
        """Whether a signal ended the replica that the master has not sent."""
        return self.ended is ExitReason.KILLED and not self.why_it_goes

    @property
    def unsettled(self) -> bool:
        """Whether an earlier master started it and nothing was heard of it since."""
        return self.seen and self.state is ReplicaState.LAUNCHED

    @property
    def at_work(self) -> bool:
        """Whether a worker is training, evaluating or predicting, or ready to."""
        return self.alive and self.phase not in _NOT_AT_WORK

    @property
    def phase(self) -> str:
        """The worker's phase."""
        return self.worker.phase if self.worker else ""

    @property
    def used_bytes(self) -> int:
        """Memory in use at the last heartbeat; 0 if never reported."""
        told = self.worker or self.ps
        return told.memory_bytes if told else 0

    def version(self) -> int:
        """The last reported model version."""
        if self.ps is not None:
            return self.ps.version
        return self.worker.model_version if self.worker else 0

    # -- what becomes of it ---------------------------------------------------------

    def enter(self, state: ReplicaState, *, now: float) -> None:
        """Enter another state."""
        self.state, self.since = state, now

    def show(self, *, pid: int, reason: str) -> None:
        """Note the platform's view; `reason`: why the replica is pending."""
        self.seen = True
        self.pid = pid or self.pid
        self.reason = reason

    def launch_again(self, at: float | None = None) -> None:
        """Undo a launch that failed; the next one is not before `at` (Unix seconds)."""
        self.state = ReplicaState.SCHEDULED
        if at is not None:
            self.launch_at = at

    def end(self, reason: ExitReason, *, now: float) -> None:
        """Note that the platform reports the end."""
        self.enter(ReplicaState.ENDED, now=now)
        self.ended = reason

    def explain(self, reason: str) -> None:
        """Set the sentence that says how the replica ended."""
        self.reason = reason

    def dismiss(self, why: str) -> None:
        """Mark the replica to leave, with the reason."""
        self.drain, self.told_why = True, why

    def kill_at(self, time: float) -> None:
        """Set when to kill the replica if it has not left; 0 is at once."""
        self.stop_at = time

    def take_away(self) -> None:
        """Note that the platform is removing it; its end is recorded already."""
        self.drain = self.end_said = True

    def give_up(self, cause: EndCause) -> None:
        """Mark a silent or hanging replica to be ended."""
        self.lost_by = cause

    def begin_with(self, restore: Restore) -> Restore:
        """Note and return what the replica restores."""
        self.restore = restore
        return restore

    def go_back(self, restore: Restore) -> None:
        """Replace the replica's values by those of a checkpoint."""
        self.initialized, self.restore = False, restore

    def have_values(self) -> None:
        """Note that the replica has parameters."""
        self.initialized = True

    def watch(self, on_change: Callable[[Member, str], None] | None) -> None:
        """Call `on_change` at each change of an attribute that members are found by."""
        self.on_change = on_change

    # -- what it says ---------------------------------------------------------------

    def up(self, *, address: str, metrics_port: int, pid: int, now: float) -> None:
        """Note the address and ports of the replica."""
        self.last_heard, self.address = now, address
        self.metrics_port, self.pid = metrics_port, pid or self.pid

    def join(self, *, now: float) -> bool:
        """Note that the replica runs; return whether that is new."""
        first, self.joined = not self.joined, self.joined or now
        return first

    def register(self) -> bool:
        """Note the registration; return whether it is the first."""
        first, self.registered = not self.registered, True
        return first

    def model_built(self) -> bool:
        """Note that the worker has built the model; return whether that is new."""
        first = not self.ready
        if first:
            self.ready = True
        return first

    def heard(self, *, now: float) -> None:
        """Note that a call of the replica arrived."""
        self.last_heard = now

    def know_leases(
        self, held: Iterable[int], named: Collection[int], *, now: float
    ) -> None:
        """Note since when the worker does not name leases that it holds."""
        before = self.unnamed
        self.unnamed = {i: before.get(i, now) for i in held if i not in named}

    def heard_worker(self, worker: WorkerReport, *, now: float) -> None:
        """Apply a worker's heartbeat."""
        self.last_heard = now
        self.worker = worker
        mark = (worker.phase, worker.step)
        if mark != self._step:
            self._step = mark
            self._waited_at_step = worker.seconds.get(_OTHERS_FAULT, 0.0)

    def heard_ps(self, status: PsReport, *, now: float) -> None:
        """Apply a PS's heartbeat."""
        self.last_heard = now
        self.ps = status

    def silent_at(self, spec: WorkerSpec) -> float | None:
        """Return when the replica counts as dead if silent; None if it cannot yet."""
        if not self.alive or self.unanswered:
            return None
        # One that a restarted master takes over has begun long ago.
        begun = self.worker or self.ps or self.ready or self.initialized
        # With the initial values a PS gets its optimizer, whose kernels are compiled if
        # no earlier process did: on a busy machine no heartbeat comes through then.
        empty = self.ps is not None and not self.initialized
        bare = self.restore == Restore() or (self.ps and self.ps.wants_optimizer)
        starting = not begun or (empty and bool(bare))
        starting = starting or self.phase == WorkerPhase.START
        bound = spec.start_seconds if starting else spec.dead_seconds
        return max(self.last_heard, self.since) + bound

    def is_hung(self, spec: WorkerSpec, *, patience: float = 1.0) -> bool:
        """Whether the worker's own figures show a hang that no PS has caused.

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
