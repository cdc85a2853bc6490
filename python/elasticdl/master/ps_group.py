"""The parameter servers as one: where they are, what they restore, when all go back.

Owns the PsView, the quorum of sync mode, and the rules of recovery. Called by
`master.heartbeats` and the loop. Must not launch anything or write checkpoints.

| lost                               | what the new PS begins with                     |
|------------------------------------|-------------------------------------------------|
| before anything was trained        | `checkpoint.initFrom`, else a worker's values   |
| one PS, recovery continue          | newest checkpoint if it is past version 0, else |
|                                    | the values that a worker last pulled            |
| one PS, recovery rewind; all PS    | all go back to the newest checkpoint, and the   |
|                                    | queue to its position                           |
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from elasticdl.checkpoint.layout import Manifest
from elasticdl.job.spec import JobSpec, Recovery, UpdateMode
from elasticdl.master.ledger import Ledger
from elasticdl.master.member import Member, Restore
from elasticdl.master.member_table import MemberTable
from elasticdl.master.signals import Signals
from elasticdl.proto import master_pb2

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Found:
    """A complete checkpoint."""

    dir: str
    manifest: Manifest


def rewinds_on_loss(spec: JobSpec) -> bool:
    """Whether the loss of one PS takes all of them back."""
    if spec.ps.recovery is Recovery.AUTO:
        return spec.ps.mode is UpdateMode.SYNC
    return spec.ps.recovery is Recovery.REWIND


class PsGroup:
    """The PS of one job; empty where the job has none."""

    def __init__(
        self,
        table: MemberTable,
        ledger: Ledger,
        signals: Signals,
        *,
        newest: Callable[[], Found | None],
        on_rewind: Callable[[int], None],
    ) -> None:
        """`newest`: the checkpoint to go back to. `on_rewind(version)`: tell."""
        self._table = table
        self._ledger = ledger
        self._signals = signals
        self._newest = newest
        self._on_rewind = on_rewind
        self._quorum = 1
        self._between: set[int] = set()  # workers that are about to get a next task
        self._versions: dict[int, int] = {}
        self._handed: set[int] = set()  # generations that got values handed back
        self.begun = bool(ledger.notes("begun"))
        self.lost_updates = sum(n["count"] for n in ledger.notes("lostUpdates"))
        rewinds = ledger.notes("rewind")
        self._rewind_dir: str = rewinds[-1]["dir"] if rewinds else ""
        # Leases wait until all PS have gone back; a restarted master waits on.
        over = [note["number"] for note in ledger.notes("rewound")]
        adopted = any(member is not None for member in table.ps())
        self.rewinding = adopted and max(over, default=0) < self.rewind

    @property
    def rewind(self) -> int:
        """Number of rewinds so far; every request to a PS carries it."""
        return self._ledger.rewinds

    @property
    def rewind_dir(self) -> str:
        """Checkpoint of the last rewind."""
        return self._rewind_dir

    @property
    def initialized(self) -> bool:
        """Whether every PS is there, has parameters and has told this master so."""
        return self._all(lambda m: m.initialized and m.alive and m.ps is not None)

    def version(self) -> int:
        """Return the newest known version of PS 0."""
        return self._versions.get(0, 0)

    def _all(self, test: Callable[[Member], bool]) -> bool:
        return all(m is not None and test(m) for m in self._table.ps())

    # -- what replicas are told ---------------------------------------------------

    def view(self) -> master_pb2.PsView:
        """Return where the PS are; "" while one is away or not to be talked to."""
        members = self._table.ps()
        return master_pb2.PsView(
            revision=self._signals.revision,
            addresses=[m.address if m and self._open(m) else "" for m in members],
            generations=[m.generation if m else 0 for m in members],
            rewind=self.rewind,
        )

    def _open(self, member: Member) -> bool:
        if not (member.registered and member.alive):
            return False
        # Until it has loaded its checkpoint nobody may hand it values.
        if member.restore and member.restore.dir and not member.initialized:
            return False
        return not (self.rewinding and not self._has_rewound(member))

    def _has_rewound(self, member: Member) -> bool:
        if member.ps is None or not member.ps.initialized:
            return False
        restored = member.restore.rewind if member.restore else 0
        return max(member.ps.rewind, restored) >= self.rewind

    def quorum(self) -> int:
        """Return how many gradients make a version now (sync mode)."""
        return self._quorum

    def finished_task(self, worker: int) -> None:
        """A worker reported a task done: it counts on until it asked for another.

        Otherwise a version would be made of the others' gradients alone in the moment
        between its report and its next lease.
        """
        self._between.add(worker)

    def has_asked(self, worker: int) -> None:
        """A worker was answered, or is gone: it counts if it holds a training task."""
        self._between.discard(worker)
        self.count_quorum()

    def count_quorum(self) -> None:
        """Count again after leases changed; tell the PS if the quorum did."""
        spec = self._table.spec
        if spec.ps.mode is not UpdateMode.SYNC or not self._table.num_ps:
            return
        holding = self._ledger.queue.holders if self._ledger.queue else ()
        holders = len(holding) + sum(w not in holding for w in self._between)
        wanted = spec.ps.grads_to_wait or spec.worker.replicas
        quorum = max(1, min(wanted, holders))
        if quorum != self._quorum:
            self._quorum = quorum
            self._signals.bump_ps()

    # -- what PS say --------------------------------------------------------------

    def registered(self, member: Member, *, now: float) -> Restore:
        """Return what a new PS begins with; the same again if it asks again."""
        if member.restore is None:
            member.restore = self._restore(member, now=now)
            log.info("%s begins with %s", member.name, _in_words(member.restore))
        return member.restore

    def _restore(self, member: Member, *, now: float) -> Restore:
        spec = self._table.spec
        index = member.key.index
        lost_at = self._versions.get(index, 0)
        if not self.begun:
            return Restore(dir=spec.checkpoint.init_from)
        if not self.rewinding:
            others = [m for m in self._table.ps() if m is not None and m is not member]
            alive = any(m.initialized and m.alive for m in others)
            if not alive or rewinds_on_loss(spec):
                # After a stop, or when all went down together, nobody was lost alone.
                cause = f"{member.name} was lost" if alive else "no PS was left"
                self.go_back(cause, now=now)
        if self.rewinding:
            return Restore(dir=self._rewind_dir, rewind=self.rewind)
        found = self._newest()
        if found is not None and found.manifest.version > 0:
            shards = found.manifest.shards
            same = len(shards) == self._table.num_ps
            version = shards[index].version if same else found.manifest.version
            self._count_lost(member, lost_at - version)
            return Restore(dir=found.dir, min_version=lost_at, version=version)
        self._handed.add(member.generation)
        return Restore(handback=True, min_version=lost_at)

    def heard(self, member: Member, status: master_pb2.PsStatus, *, now: float) -> bool:
        """Take a heartbeat; return whether the PS has just got its parameters."""
        first = status.initialized and not member.initialized
        member.heard_ps(status, now=now)
        if status.initialized:
            index = member.key.index
            if first and member.generation in self._handed:
                self._handed.discard(member.generation)
                self._count_lost(member, self._versions.get(index, 0) - status.version)
            self._versions[index] = status.version
        if first:
            member.initialized = True
            self._signals.bump()
        if not self.begun and self.initialized:
            self.begun = True
            self._ledger.note("begun", time=now)
        if self.rewinding and self._all(self._has_rewound):
            self.rewinding = False
            self._ledger.note("rewound", number=self.rewind)
            log.info("all PS are at rewind %d", self.rewind)
            self._signals.bump()
            self._signals.work()
        return first

    def lost(self, member: Member, *, now: float) -> None:
        """A PS is gone; its replacement registers later."""
        if self.begun and not self.rewinding and rewinds_on_loss(self._table.spec):
            self.go_back(f"{member.name} was lost", now=now)
        self._signals.bump()

    def go_back(self, cause: str, *, now: float) -> None:
        """Rewind queue and PS to the newest checkpoint, or the job's beginning."""
        found = self._newest()
        if found is None:
            begin = self._ledger.notes("start")
            position, applied, version = (begin[-1]["position"] if begin else {}), {}, 0
        else:
            position = found.manifest.position.get("queue", {})
            applied = {
                int(k): v for k, v in found.manifest.position.get("applied", {}).items()
            }
            version = found.manifest.version
        self._rewind_dir = found.dir if found else ""
        if position:
            self._ledger.rewind(position, applied=applied, cause=cause, now=now)
        self._ledger.note(
            "rewind", dir=self._rewind_dir, version=version, cause=cause, time=now
        )
        # With nothing to load the workers bring values with their next task.
        self.rewinding = bool(found and self._table.num_ps)
        self._versions = dict.fromkeys(self._versions, version)
        log.warning("%s: training goes back to version %d", cause, version)
        self._on_rewind(version)
        self._signals.bump()
        self._signals.work()

    def _count_lost(self, member: Member, count: int) -> None:
        if count > 0:
            self.lost_updates += count
            self._ledger.note("lostUpdates", ps=member.name, count=count)
            log.warning("%s lost %d updates", member.name, count)


def _in_words(restore: Restore) -> str:
    if restore.dir:
        return restore.dir
    return "values handed back by a worker" if restore.handback else "initial values"
