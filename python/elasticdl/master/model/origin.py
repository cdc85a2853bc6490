"""The checkpoint that a job begins with: what `checkpoint.initFrom` means.

Owns which one of the named folder it is, and the next older one when it turns out that
it cannot be loaded. Made by `master.assembly`; asked by `master.model.ps_group` and
`master.calls.heartbeats`. Reads manifests, no shards; changes nothing on the disk:
these checkpoints belong to another job.

It is found once, before anything starts, and journaled, so that all replicas load the
same one while another job writes newer ones beside it. A path that names a checkpoint
itself means that one alone.
"""

from __future__ import annotations

import logging
from pathlib import Path

from elasticdl.checkpoint import shelf
from elasticdl.checkpoint.layout import Manifest
from elasticdl.errors import CheckpointError
from elasticdl.master.patience import patiently
from elasticdl.master.tasks import model_facts
from elasticdl.master.tasks.ledger import Ledger

log = logging.getLogger(__name__)


class Origin:
    """The checkpoint that a job starts from; `dir` is "" for none.

    `bytes`: of all its shards, and its `version`; 0 where a master before this one
    noted none.
    """

    def __init__(
        self, ledger: Ledger, given: str, *, wait_seconds: float = 0.0
    ) -> None:
        """Resolve the path `given`, which may be on another volume than the job.

        One that is away is waited for. Raises CheckpointError if it is no checkpoint.
        """
        self._ledger = ledger
        self._given = given
        noted = ledger.newest_of(model_facts.InitFromFact)
        same = noted if noted and given and noted.given == given else None
        self._dropped = list(same.dropped) if same else []
        self.dir = same.dir if same else ""
        self.bytes = same.bytes if same else 0
        self.version = same.version if same else 0
        if not given:
            return
        if ledger.all_of(model_facts.BegunFact):
            # Needed for a rewind to the job's beginning at most.
            self.dir = self.dir or given
            return
        found = patiently(lambda: shelf.meant(Path(given)), seconds=wait_seconds)
        there = Path(self.dir).is_dir() if self.dir else False
        if not there:
            self._take(*found[0])

    def gave_up(self, directory: str) -> bool:
        """Whether the checkpoint was given up before."""
        return directory in self._dropped

    def give_up(self, directory: str) -> bool:
        """Take the next older checkpoint, since this one cannot be loaded.

        False if this is not what the job begins with, or there is no older one.
        """
        if not directory or directory != self.dir:
            return False
        try:
            found = shelf.meant(Path(self._given))
        except CheckpointError as error:
            log.error("%s", error)
            return False
        paths, here = [path for path, _ in found], Path(directory)
        if here not in paths:
            return False
        older = found[paths.index(here) + 1 :]
        if not older:
            return False
        self._dropped.append(directory)
        self._take(*older[0])
        log.warning("the job begins with %s instead", self.dir)
        return True

    def _take(self, path: Path, manifest: Manifest) -> None:
        self.dir, self.bytes = str(path), manifest.total_bytes
        self.version = manifest.version
        self._ledger.record(
            model_facts.InitFromFact(
                given=self._given,
                dir=self.dir,
                bytes=self.bytes,
                dropped=tuple(self._dropped),
                version=self.version,
            )
        )

    @property
    def advice(self) -> str:
        """Return the advice when no checkpoint can be loaded."""
        if Path(self.dir) == Path(self._given):
            return (
                "job.checkpoint.initFrom names this checkpoint alone: name another, "
                "or the folder, of which the newest that can be loaded is taken"
            )
        return f"there is no older one in {self._given}: name another folder"
