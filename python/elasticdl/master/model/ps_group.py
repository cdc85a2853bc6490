"""The parameter servers as one: where they are, what they restore, when all go back.

Owns the PsView and the rules of recovery; holds the quorum of sync mode. Made by
`master.assembly`; called as a `ModelHolder`, and by `master.calls.ps_heartbeats`. Must
not launch anything or write checkpoints.

| lost                               | what the new PS begins with                     |
|------------------------------------|-------------------------------------------------|
| before there was data to train on  | `checkpoint.initFrom`, else initial values      |
| one PS, recovery continue          | newest checkpoint if it is past version 0, else |
|                                    | the values that a worker last pulled            |
| one PS, recovery rewind; all PS;   | all go back to the newest checkpoint, or to the |
| one whose values nobody has;       | job's beginning, and the queue to its position  |
| one before all had told of values  |                                                 |

Initial values are taken at the job's beginning alone, and after a rewind to it: with
another `rewind` every PS drops what it has, so trained and initial values never meet.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator

from elasticdl.errors import RpcError
from elasticdl.job.heartbeats import PsReport, PsView
from elasticdl.job.names import Role, replica_name
from elasticdl.job.spec.job import JobSpec, Recovery, UpdateMode
from elasticdl.master.members.member import Member
from elasticdl.master.model.holder import Around, ModelHolder
from elasticdl.master.model.missing import Range, after_loss, after_rewind
from elasticdl.master.model.quorum import Quorum
from elasticdl.master.tasks import model_facts
from elasticdl.master.tasks.facts import Restore

log = logging.getLogger(__name__)

# A worker that has the values of a PS hands them over between two heartbeats; if none
# has come for so long, and for what its bytes take at the slowest, all go back.
HANDBACK_SECONDS = 60.0
# The slowest that a PS may load a checkpoint, or values of a worker come over.
SLOWEST_BYTES_PER_SECOND = 10e6


def rewinds_on_loss(spec: JobSpec) -> bool:
    """Whether the loss of one PS rewinds all PS."""
    if spec.ps.recovery is Recovery.AUTO:
        return spec.ps.mode is UpdateMode.SYNC
    return spec.ps.recovery is Recovery.REWIND


class PsGroup(ModelHolder):
    """Holder of a model that is sharded over parameter servers."""

    can_go_back = True

    def __init__(self, around: Around) -> None:
        """Continue at the state in the journal."""
        table, ledger = around.table, around.ledger
        quorum = Quorum(table, ledger, around.signals, around.side)
        super().__init__(around, quorum)
        self.quorum = quorum
        self.answers_are_durable = quorum.counts
        # By PS: the newest that it, or a worker that it answered, told of.
        self._versions: dict[int, int] = {}
        self._asked_at: dict[int, float] = {}  # when values were asked for, by PS
        self._bytes: dict[int, int] = {}  # the most that each PS told it holds
        # By the name of a PS: the updates that its values lack.
        self._missing: dict[str, list[Range]] = {
            fact.name: list(fact.ranges)
            for fact in ledger.all_of(model_facts.MissingFact)
        }
        # Leases wait until all PS have gone back; a restarted master waits on.
        over = ledger.newest_of(model_facts.RewoundFact)
        adopted = any(member is not None for member in table.ps())
        self.rewinding = adopted and (over.number if over else 0) < self.rewind

    @property
    def known(self) -> bool:
        """Whether all PS have values and none is being replaced."""
        return self.initialized and not self.rewinding

    @property
    def initialized(self) -> bool:
        """Whether every PS runs, has parameters and has reported so to this master."""
        return self._all(self._has_values)

    def _has_values(self, member: Member) -> bool:
        told = member.ps
        if told is None or not (member.initialized and member.alive):
            return False
        return told.initialized and told.rewind >= self.rewind

    def _all(self, test: Callable[[Member], bool]) -> bool:
        return all(m is not None and test(m) for m in self._table.ps())

    # -- what replicas are told ---------------------------------------------------

    def view(self) -> PsView:
        """Return the addresses of the PS; "" for one that is not to be called."""
        members = self._table.ps()
        return PsView(
            revision=self._signals.revision,
            addresses=tuple(m.address if m and self._open(m) else "" for m in members),
            generations=tuple(m.generation if m else 0 for m in members),
            rewind=self.rewind,
            wants_values=tuple(m is not None and self._wants(m) for m in members),
        )

    def _wants(self, member: Member) -> bool:
        restore = member.restore
        asked = restore is not None and restore.handback
        return asked and not member.initialized and self._open(member)

    def _open(self, member: Member) -> bool:
        if not (member.registered and member.alive):
            return False
        # Until it has loaded its checkpoint nobody may hand it values.
        loads = member.restore is not None and bool(member.restore.dir)
        if loads and not (member.initialized or self._wants_optimizer(member)):
            return False
        return not (self.rewinding and not self._has_rewound(member))

    def _has_rewound(self, member: Member) -> bool:
        told = member.ps
        if told is None or told.rewind < self.rewind:
            return False
        return told.initialized or told.wants_optimizer

    def _wants_optimizer(self, member: Member) -> bool:
        told = member.ps
        return told is not None and told.wants_optimizer and self._has_rewound(member)

    # -- what PS say --------------------------------------------------------------

    def registered(self, member: Member, *, now: float) -> Restore:
        """Return what a new PS restores; the same answer if it asks again.

        Workers pull. Raises RpcError while that cannot be known yet.
        """
        if member.is_worker:
            return Restore()
        if member.restore is None:
            restore = member.begin_with(self._restore(member, now=now))
            log.info("%s begins with %s", member.name, _in_words(restore))
            return restore
        return member.restore

    def _restore(self, member: Member, *, now: float) -> Restore:
        if not self.begun:
            return Restore(dir=self.origin.dir)
        if self.rewinding:
            return self._restore_of_rewind()
        rewinds = rewinds_on_loss(self._table.spec)
        others = [m for m in self._table.ps() if m is not None and m is not member]
        if not rewinds and (unheard := next(self._unheard(others), None)):
            raise RpcError(
                f"{unheard.name} has not told this master yet which versions it knows "
                f"of; until then nobody can say what {member.name} had: try again"
            )
        alive = any(m.initialized and m.alive for m in others)
        if not alive or rewinds:
            # After a stop, or when all went down together, nobody was lost alone.
            all_gone = self._why_all_are_gone("no PS was left")
            cause = f"{member.name} was lost" if alive else all_gone
            self.go_back(cause, now=now)
            return self._restore_of_rewind()
        found = self._keeper.newest
        lost_at = self._newest_version(member.key.index)
        if found is not None and found.manifest.version > 0:
            return Restore(
                dir=found.dir,
                min_version=lost_at,
                version=found.manifest.version,
                alone=True,
            )
        if not self._somebody_has_values():
            self.go_back(f"nobody has the values of {member.name}", now=now)
            return self._restore_of_rewind()
        self._asked_at[member.key.index] = now
        return Restore(handback=True, min_version=lost_at, alone=True)

    def _restore_of_rewind(self) -> Restore:
        return Restore(dir=self._rewind_dir, rewind=self.rewind)

    def _newest_version(self, index: int) -> int:
        """Return the newest version that anybody has reported of a PS.

        To this master, or to one before it in whose time the PS was lost. Where nobody
        who lives knows, that of the others: all get each gradient.
        """
        most = max(self._versions.values(), default=0)
        name = replica_name(Role.PS, index)
        lost = self._ledger.newest_of(model_facts.ReachedFact, name)
        had = lost.version if lost is not None and lost.rewind == self.rewind else 0
        return max(self._versions.get(index, most), self._least_version(index), had)

    def _least_version(self, index: int) -> int:
        """Return a version that a PS has had: it took what counts as trained.

        Whoever was told of more may be gone, a worker and a master together.
        """
        queue, spec = self._ledger.queue, self._table.spec
        if queue is None or spec.ps.mode is UpdateMode.SYNC:
            return 0
        last = self._ledger.newest_of(model_facts.RewindFact)
        rewound = self._ledger.newest_of(model_facts.RewoundFact)
        began = last.version if last else 0
        if rewound is not None and rewound.number == self.rewind:
            began = dict(enumerate(rewound.versions)).get(index, began)
        return began + queue.new_steps

    def _unheard(self, others: Iterable[Member]) -> Iterator[Member]:
        """Yield the members of an earlier master that have not reported to this one.

        Each of them is heard soon, or found to be gone.
        """
        for one in (*others, *self._table.workers()):
            told = one.worker or one.ps
            was_at_work = one.ready or one.initialized
            if one.unsettled or (one.alive and was_at_work and not told):
                yield one

    def _somebody_has_values(self) -> bool:
        """Whether a living worker has pulled values, as far as is known."""
        if any(self._unheard(())):
            return True
        return any(m.alive and self._answered(m) for m in self._table.workers())

    def _answered(self, member: Member) -> Iterable[int]:
        """Return the versions by PS that a worker knows of in this rewind."""
        told = member.worker
        return told.ps_versions if told and told.ps_rewind == self.rewind else ()

    def heard_worker(self, member: Member, *, now: float) -> None:
        """Take the versions that a worker was answered with: those were applied."""
        del now
        self.answered(self._answered(member), rewind=self.rewind)

    def answered(self, versions: Iterable[int], *, rewind: int) -> None:
        """Note the versions by PS that a worker was answered with in a rewind."""
        for index, version in enumerate(versions if rewind == self.rewind else ()):
            self._versions[index] = max(self._versions.get(index, 0), version)

    def put_off(self, seconds: float, *, now: float) -> None:
        """Leave out seconds in which nobody could hear that values are wanted."""
        for index, asked in self._asked_at.items():
            self._asked_at[index] = min(now, asked + seconds)

    def tick(self, *, now: float) -> None:
        """Rewind if a PS waits for values that no worker has or hands over."""
        waiting = [m for m in self._table.ps() if m is not None and self._wants(m)]
        for member in waiting:
            since = self._asked_at.setdefault(member.key.index, now)
            cause = ""
            if not self._somebody_has_values():
                cause = f"nobody has the values of {member.name}"
            elif now - since >= (bound := self._handback_seconds(member)):
                cause = f"no worker handed values to {member.name} in {bound:.0f} s"
            if cause:
                self.go_back(cause, now=now)
                return

    def _handback_seconds(self, member: Member) -> float:
        """Return how long a worker's values for a PS may still be in transit.

        Nobody tells how many of them have come: it goes by what the lost PS held, or
        has in the newest checkpoint, or else by the largest of the others.
        """
        index, found = member.key.index, self._keeper.newest
        size = self._bytes.get(index, max(self._bytes.values(), default=0))
        shards = found.manifest.shards if found else []
        if index < len(shards):
            size = max(size, shards[index].bytes)
        return HANDBACK_SECONDS + size / SLOWEST_BYTES_PER_SECOND

    def waits_for_values(self) -> float:
        """Return how long values may still be in transit to a PS; 0 if none are."""
        waiting = (m for m in self._table.ps() if m is not None and self._wants(m))
        return max((self._handback_seconds(member) for member in waiting), default=0.0)

    def heard(self, member: Member, status: PsReport, *, now: float) -> bool:
        """Apply a heartbeat; return whether the PS has just got its parameters."""
        current = status.initialized and status.rewind >= self.rewind
        first = current and not member.initialized
        was_open = self._open(member)
        member.heard_ps(status, now=now)
        index = member.key.index
        if index == 0:
            self.version = status.version
        self._bytes[index] = max(self._bytes.get(index, 0), status.bytes)
        self.quorum.heard()
        if first:
            member.have_values()
            self._count_lost(member, began_at=status.began_at)
            self._signals.bump()
        elif self._open(member) and not was_open:
            self._signals.bump()  # workers are to bring it an optimizer
        if current:
            self._versions[member.key.index] = status.version
        if not self.begun and self.initialized:
            self.begins(now=now)
        if self.rewinding and self._all(self._has_rewound):
            self.rewinding = False
            last = self._ledger.newest_of(model_facts.RewindFact)
            usual = last.version if last else 0
            versions = tuple(
                m.ps.began_at if m and m.ps and m.ps.initialized else usual
                for m in self._table.ps()
            )
            self._ledger.record(
                model_facts.RewoundFact(number=self.rewind, versions=versions)
            )
            log.info("all PS are at rewind %d", self.rewind)
            self._signals.bump()
            self._signals.work()
        return first

    def _counts_steps(self, member: Member) -> bool:
        return not member.is_worker and member.key.index == 0

    def lost(self, member: Member, *, now: float) -> None:
        """Handle a lost PS; its replacement registers later. Workers hold nothing."""
        if member.is_worker:
            return
        self._keeper.abort()
        self._rounds.abort()
        spec = self._table.spec
        if not self.rewinding and (
            self._had_first_values(member) or (self.begun and rewinds_on_loss(spec))
        ):
            cause = f"{member.name} was lost"
            self.go_back(cause, now=now, why=f"{member.name} {member.reason}")
        elif self.begun and not self.rewinding:
            # The next master may be asked what it had, and never have heard of it.
            version = self._newest_version(member.key.index)
            self._ledger.record(
                model_facts.ReachedFact(
                    name=member.name, version=version, rewind=self.rewind
                )
            )
        self._signals.bump()

    def _had_first_values(self, member: Member) -> bool:
        """Whether the PS may have had initial values that it never reported.

        Workers may train already before all PS have told: what another PS would be
        given does not fit what these have applied meanwhile.
        """
        if self._ledger.plan is None or not member.registered:
            return False
        alone = member.restore is not None and member.restore.alone
        return not alone and not (self.begun and member.initialized)

    def _take_back(self, version: int, *, loads: bool, now: float) -> None:
        self.rewinding = loads
        if not loads:
            # Nothing to wait for: workers bring values with their next task.
            self._ledger.record(model_facts.RewoundFact(number=self.rewind))
        self._versions = dict.fromkeys(self._versions, version)
        for name, missing in list(self._missing.items()):
            self._lacks(name, after_rewind(missing, version=version))
        self._asked_at.clear()
        # Those that are yet to come, too: their loss is behind all now.
        for member in self._table.ps():
            if member is not None:
                member.go_back(self._restore_of_rewind())
                self._table.note(member, now=now)
        self.quorum.count()

    def _count_lost(self, member: Member, *, began_at: int) -> None:
        restore = member.restore
        if restore is None or not restore.alone:
            return
        # As it was when the PS came back: workers may have gone on since.
        lost_at = restore.min_version or self._newest_version(member.key.index)
        missing, count = after_loss(
            self._missing.get(member.name, []), began_at=began_at, lost_at=lost_at
        )
        self._lacks(member.name, missing)
        if count > 0:
            self.lost_updates += count
            self._ledger.record(
                model_facts.LostUpdatesFact(ps=member.name, count=count)
            )
            log.warning("%s lost %d updates", member.name, count)

    def _lacks(self, name: str, missing: list[Range]) -> None:
        if missing != self._missing.get(name, []):
            self._missing[name] = missing
            self._ledger.record(
                model_facts.MissingFact(name=name, ranges=tuple(missing))
            )


def _in_words(restore: Restore) -> str:
    if restore.dir:
        return restore.dir
    return "values that a worker pulled" if restore.handback else "initial values"
