"""Who holds the model of a job: what the rest of the master may know of it.

Owns what all holders have in common: whether training has begun, how often it went back
and to what. The kinds are `PsGroup`, `WorkerHolder` and `FixedModel`; `master.assembly`
chooses. Called by the loop, heartbeats, leasing, lost leases and the watchdog, which
know this class alone. Must not launch anything or write checkpoints.
"""

from __future__ import annotations

import abc
import logging
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from elasticdl.job.heartbeats import GroupRound, LocalSnapshot, PsView
from elasticdl.job.status import GroupStatus
from elasticdl.master.happenings import WentBack
from elasticdl.master.members.member import Member
from elasticdl.master.members.table import MemberTable
from elasticdl.master.model.checkpointing import Checkpoints
from elasticdl.master.model.evaluation_rounds import Rounds
from elasticdl.master.model.origin import Origin
from elasticdl.master.signals import Signals
from elasticdl.master.tasks import facts, model_facts
from elasticdl.master.tasks.facts import Restore
from elasticdl.master.tasks.ledger import Ledger
from elasticdl.master.tasks.side_tasks import SideTasks

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Around:
    """The parts that a holder works with."""

    table: MemberTable
    ledger: Ledger
    signals: Signals
    side: SideTasks
    checkpoints: Checkpoints
    rounds: Rounds
    origin: Origin  # what the job begins with


class Admission(Protocol):
    """Decides which workers may begin to train."""

    def may_begin(self, worker: int) -> bool:
        """Whether a worker may be given a training task."""

    def may_evaluate(self, worker: int) -> bool:
        """Whether a worker may be given tasks that need the model's values."""

    def may_look_for_data(self, worker: int) -> bool:
        """Whether a worker that has the model does what comes before training."""

    def finished(self, worker: int) -> None:
        """Note that a worker reported a training task done."""

    def side_done(self) -> None:
        """Note that a worker reported a task other than training done."""

    def asked(self, worker: int) -> None:
        """Note that a worker's request for tasks was answered."""

    def gone(self, worker: int) -> None:
        """Note that a worker will be given nothing."""

    def count(self, workers: Iterable[int] | None = None) -> None:
        """Note that leases of these workers (None: of any) changed."""


class Everybody:
    """Admission of every worker, where workers do not depend on each other."""

    def may_begin(self, worker: int) -> bool:
        """Return True."""
        del worker
        return True

    def may_evaluate(self, worker: int) -> bool:
        """Return True."""
        del worker
        return True

    def may_look_for_data(self, worker: int) -> bool:
        """Return True."""
        del worker
        return True

    def finished(self, worker: int) -> None:
        """Do nothing."""

    def side_done(self) -> None:
        """Do nothing."""

    def asked(self, worker: int) -> None:
        """Do nothing."""

    def gone(self, worker: int) -> None:
        """Do nothing."""

    def count(self, workers: Iterable[int] | None = None) -> None:
        """Do nothing."""


class Leading(Everybody):
    """Admission of the worker that leads: it plans the steps of all."""

    def __init__(self) -> None:
        """Begin without a leader."""
        self.leader = -1

    def led_by(self, worker: int) -> None:
        """Note which worker leads now."""
        self.leader = worker

    def may_begin(self, worker: int) -> bool:
        """Whether this worker leads."""
        return worker == self.leader

    def may_evaluate(self, worker: int) -> bool:
        """Whether this worker leads: what it has, all have at its next step."""
        return worker == self.leader

    def may_look_for_data(self, worker: int) -> bool:
        """Whether this worker leads: any other one hands each task back.

        It would ask for the next one in the same call, get it again, and so keep it
        from the leader for ever.
        """
        return worker == self.leader


class ModelHolder(abc.ABC):
    """Which replicas hold the model of a job, and what their loss costs."""

    # Whether the model is still there when all workers are gone.
    outlives_workers = True
    # Whether training may go back for another reason than a loss: to get unstuck.
    can_go_back = False
    # Whether fewer workers than `worker.min` make no step.
    waits_for_minimum = False
    # Whether a heartbeat is answered only when the journal has what led to the answer.
    answers_are_durable = False
    # Whether a worker goes on with another one's tasks where they stand.
    hands_over = False

    def __init__(self, around: Around, admission: Admission) -> None:
        """Continue at the state in the journal."""
        self.origin = around.origin
        self.admission = admission
        self._table = around.table
        self._ledger = around.ledger
        self._signals = around.signals
        self._keeper = around.checkpoints
        self.is_over = False
        self._rounds = around.rounds
        self.version = 0  # the newest that is known
        self.rewinding = False  # no training task is given out until that is over
        self.begun = bool(self._ledger.all_of(model_facts.BegunFact))
        lost = self._ledger.all_of(model_facts.LostUpdatesFact)
        self.lost_updates = sum(fact.count for fact in lost)
        last = self._ledger.newest_of(model_facts.RewindFact)
        self._rewind_dir = last.dir if last else ""
        self._on_rewind: list[Callable[[], None]] = []

    def holds(self, member: Member) -> bool:
        """Whether the member has the model, or a part of it."""
        return member.is_worker is not self.outlives_workers

    @property
    def can_regroup(self) -> bool:
        """Whether workers are left who have the model when another one is lost."""
        return False

    @property
    def num_waiting(self) -> int | None:
        """Workers that make no step: fewer than `worker.min`. None: enough do."""
        return None

    @property
    def rewind(self) -> int:
        """Number of rewinds so far; every request about the model carries it."""
        return self._ledger.rewinds

    @property
    def decided(self) -> tuple[int, ...]:
        """What nobody may hear of before the journal has it; another one each time.

        The next master goes by the journal: it would know nothing of it.
        """
        return (self.rewind,)

    @property
    def rewind_dir(self) -> str:
        """Checkpoint of the last rewind."""
        return self._rewind_dir

    @property
    @abc.abstractmethod
    def known(self) -> bool:
        """Whether the model's present state is known and can be pinned or written."""

    # -- what replicas begin with, and are told --------------------------------------

    @abc.abstractmethod
    def registered(self, member: Member, *, now: float) -> Restore:
        """Return what a replica restores; the same answer if it asks again.

        Raises RpcError while that cannot be known yet.
        """

    def built(self, member: Member) -> None:
        """Note that a worker has built the model. Raises FencedError if it differs."""
        del member

    def view(self) -> PsView:
        """Return where the model can be pulled from."""
        return PsView(revision=self._signals.revision, rewind=self.rewind)

    def job_is_over(self) -> None:
        """Note that the workers leave since nothing is left to do, or to save."""
        self.is_over = True

    def asks_worker(self, member: Member) -> LocalSnapshot | None:
        """Return the snapshot that a worker has to write, if there is one."""
        del member
        return None

    def awaited_version(self, member: Member) -> int:
        """Return the version at which a replica is to beat at once; 0: it need not.

        That of which something is made every so many steps; it is known from
        heartbeats, and many short steps pass between two of them.
        """
        if not self._counts_steps(member):
            return 0
        spec = self._table.spec
        every = (spec.evaluation.every_steps, spec.checkpoint.every_steps)
        multiples = (self.version // n * n + n for n in every if n)
        return min(multiples, default=0)

    def _counts_steps(self, member: Member) -> bool:
        """Whether the job's version is what this replica says."""
        del member
        return False

    def round_of(self, member: Member) -> GroupRound | None:
        """Return the round that a worker is in, where workers make steps together."""
        del member
        return None

    @property
    def group(self) -> GroupStatus | None:
        """Who makes steps together now, where workers do."""
        return None

    def heir(self, member: Member) -> int | None:
        """Return the worker that goes on where a lost one stood in its tasks.

        None: its tasks are given out again.
        """
        del member
        return None

    # -- what replicas say -------------------------------------------------------------

    def heard_worker(self, member: Member, *, now: float) -> None:
        """Apply the model figures in a worker's heartbeat."""
        del member, now

    def answered(self, versions: Iterable[int], *, rewind: int) -> None:
        """Note the versions by PS that a worker was answered with in a rewind."""
        del versions, rewind

    def trained(self, *, version: int, now: float) -> None:
        """Note that a task counts as trained.

        In one write with its report: who took initial values after it would lack what
        counts as trained.
        """
        self.begins(now=now)
        self.version = max(self.version, version)

    def begins(self, *, now: float) -> None:
        """Note that training has begun: from now on a loss costs something."""
        if not self.begun:
            self.begun = True
            self._ledger.record(model_facts.BegunFact(time=now))

    # -- losses ------------------------------------------------------------------------

    @abc.abstractmethod
    def lost(self, member: Member, *, now: float) -> None:
        """Handle the loss of a replica."""

    def left(self, member: Member) -> None:
        """Handle the end of a replica that was told to leave."""
        del member

    def tick(self, *, now: float) -> None:
        """Do what is due by time."""
        del now

    def put_off(self, seconds: float, *, now: float) -> None:
        """Leave out of its limits seconds in which the master did not answer."""
        del seconds, now

    def waits_for_values(self) -> float:
        """Return how long values may still be in transit; 0 if none are."""
        return 0.0

    def gave_up(self, directory: str) -> bool:
        """Whether a checkpoint was given up before the replica heard of it.

        Also by a master before this one, whose list is gone.
        """
        if self._keeper.gave_up(directory) or self.origin.gave_up(directory):
            return True
        wanted = directory in (self._rewind_dir, self.origin.dir)
        return not (wanted or self._keeper.offers(directory))

    def fall_back(self, member: Member, directory: str, *, now: float) -> str:
        """Take an older checkpoint, since a replica cannot load this one.

        Returns why the job cannot go on, "" if it can.
        """
        older = self._keeper.give_up(directory) or self.origin.give_up(directory)
        # One of its own that an earlier master put away has older ones, too.
        if not older and directory == self.origin.dir:
            return self.origin.advice
        if self._keeper.newest is None and self._keeper.had_one:
            return self._keeper.nothing_left
        self.go_back(f"{member.name} could not load {directory}", now=now)
        return ""

    def tell_rewinds(self, listener: Callable[[], None]) -> None:
        """Call `listener` after each rewind."""
        self._on_rewind.append(listener)

    def go_back(self, cause: str, *, now: float, why: str = "") -> None:
        """Rewind queue and model to the newest checkpoint, or to the job's beginning.

        `why`: the cause in the words that the job's history has for it.
        """
        found = self._keeper.newest
        if found is None and self._keeper.had_one:
            # The job fails (`stages.rewound`). Nothing is undone in the journal: where
            # a checkpoint is put back, it goes on from there.
            self._tell_rewound()
            return
        if found is None:
            begin = self._ledger.newest_of(facts.StartFact)
            position, applied, version = (begin.position if begin else {}), {}, 0
            self._rewind_dir = self.origin.dir
        else:
            position = found.manifest.position.get("queue", {})
            applied = {
                int(k): v for k, v in found.manifest.position.get("applied", {}).items()
            }
            version = found.manifest.version
            self._rewind_dir = found.dir
        if position or self._ledger.queue is None:
            self._ledger.rewind(position, applied=applied, cause=cause, now=now)
        self._ledger.record(
            model_facts.RewindFact(
                dir=self._rewind_dir, version=version, cause=cause, time=now
            )
        )
        at = version if found else None
        self._signals.diary.say(WentBack(time=now, cause=why or cause, version=at))
        self.version = version
        self._take_back(version, loads=found is not None, now=now)
        log.warning("%s: training goes back to version %d", cause, version)
        queue = self._ledger.queue
        self._keeper.rewound(version=version)
        self._rounds.rewound(version=version, epochs_done=queue.epoch if queue else 0)
        self._tell_rewound()

    def _tell_rewound(self) -> None:
        for tell in self._on_rewind:
            tell()
        self._signals.bump()
        self._signals.work()

    def _why_all_are_gone(self, lost: str) -> str:
        """Return why nobody has the model's state; `lost`: if it was lost."""
        run = self._ledger.newest_of(facts.RunFact)
        begun = self._ledger.newest_of(model_facts.BegunFact)
        back = self._ledger.newest_of(model_facts.RewindFact)
        since = max((noted.time for noted in (begun, back) if noted), default=math.inf)
        anew = run is not None and run.time > since
        return "the job was launched again" if anew else lost

    def say_since(self, time: float) -> None:
        """Report a rewind after `time` (Unix seconds) under an earlier master."""
        fact = self._ledger.newest_of(model_facts.RewindFact)
        if fact is None or fact.time <= time:
            return
        at = fact.version if fact.dir != self.origin.dir else None
        self._signals.diary.say(WentBack(time=fact.time, cause=fact.cause, version=at))

    def _take_back(self, version: int, *, loads: bool, now: float) -> None:
        """Let the replicas go back; `loads`: a checkpoint, else initial values."""
        del version, loads, now
        self._ledger.record(model_facts.RewoundFact(number=self.rewind))
