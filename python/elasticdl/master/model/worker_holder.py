"""The one worker that has all of a job's model: its beginning, and what its end costs.

Owns the rules of strategy local. Made by `master.assembly`; called as a `ModelHolder`.
Must not launch anything or write checkpoints.

All state is in the worker: when it is lost, its replacement begins with the newest
checkpoint, and the data go back to its position.
"""

from __future__ import annotations

from elasticdl.job.heartbeats import LocalSnapshot
from elasticdl.master.members.member import Member
from elasticdl.master.model.holder import Around, Everybody, ModelHolder
from elasticdl.master.tasks.facts import Restore


class WorkerHolder(ModelHolder):
    """Holder of a model that one worker has (strategy local)."""

    outlives_workers = False

    def __init__(self, around: Around) -> None:
        """Continue at the state in the journal."""
        super().__init__(around, Everybody())

    @property
    def known(self) -> bool:
        """Whether the worker has reported since it built the model."""
        workers = self._table.workers()
        return any(worker.ready and worker.worker is not None for worker in workers)

    def registered(self, member: Member, *, now: float) -> Restore:
        """Return what the worker restores; a replacement causes a rewind."""
        if member.restore is not None:
            return member.restore
        if self.begun:
            self.go_back("no worker was left", now=now)
        begin = self.rewind_dir if self.begun else self.origin.dir
        return member.begin_with(Restore(dir=begin))

    def fall_back(self, member: Member, directory: str, *, now: float) -> str:
        """Take an older checkpoint, since the worker cannot load this one."""
        advice = super().fall_back(member, directory, now=now)
        if not advice:
            member.begin_with(Restore(dir=self.rewind_dir))
        return advice

    def heard_worker(self, member: Member, *, now: float) -> None:
        """Take the version of the model from the worker's heartbeat."""
        if member.worker and member.worker.model_version:
            self.version = member.worker.model_version
            self.begins(now=now)

    def asks_worker(self, member: Member) -> LocalSnapshot | None:
        """Return the snapshot that the worker has to write, if there is one."""
        del member
        return self._keeper.asks_worker()

    def _counts_steps(self, member: Member) -> bool:
        del member
        return True

    def lost(self, member: Member, *, now: float) -> None:
        """Abort the worker's checkpoint; its replacement goes back."""
        del now
        self.left(member)

    def left(self, member: Member) -> None:
        """Abort the checkpoint that the worker was writing."""
        del member
        self._keeper.abort()
