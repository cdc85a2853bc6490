"""The model of a job that only reads one: each worker loads the same checkpoint.

Owns the rules of evaluation and prediction. Made by `master.assembly`; called as a
`ModelHolder`. Must not launch anything or write checkpoints.

Nothing is trained, so nothing can be lost, pinned or go back. It is a holder of its
own, since the worker of strategy local has something to lose.
"""

from __future__ import annotations

from pathlib import Path

from elasticdl.checkpoint import store
from elasticdl.errors import FencedError
from elasticdl.master.members.member import Member
from elasticdl.master.model.holder import Around, Everybody, ModelHolder
from elasticdl.master.tasks.facts import Restore


class FixedModel(ModelHolder):
    """Holder of a checkpoint that all workers load (evaluation, prediction)."""

    known = False

    def __init__(self, around: Around) -> None:
        """Read the checkpoint's version. Raises CheckpointError."""
        super().__init__(around, Everybody())
        if self.origin.dir:
            self._read_version()

    def _read_version(self) -> None:
        self.version = store.read_manifest(Path(self.origin.dir)).version

    def registered(self, member: Member, *, now: float) -> Restore:
        """Return the checkpoint, for each worker and each time."""
        del now
        return member.begin_with(Restore(dir=self.origin.dir))

    def built(self, member: Member) -> None:
        """Refuse a worker with a different checkpoint. Raises FencedError."""
        told = member.restore.dir if member.restore else ""
        if told not in ("", self.origin.dir):
            raise FencedError(
                f"{member.name} has loaded {told}, which others cannot; all take "
                f"{self.origin.dir}: it is replaced"
            )

    def fall_back(self, member: Member, directory: str, *, now: float) -> str:
        """Take an older checkpoint, unless a worker already uses this one."""
        del member, now
        others = [worker for worker in self._table.workers() if worker.ready]
        if others:
            return (
                f"{others[0].name} works with it already, and what a job says is of "
                "one checkpoint: launch it again"
            )
        if not self.origin.give_up(directory):
            return self.origin.advice
        self._read_version()
        return ""

    def lost(self, member: Member, *, now: float) -> None:
        """Do nothing: other workers take over its tasks."""
