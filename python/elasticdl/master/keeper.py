"""Keeps checkpoints: asks for them, completes them, tells which is the newest.

Owns the folder of checkpoints as the master sees it. Called by the loop (ticks) and
heartbeats (parts). File work is done in a thread; a disk that is full is logged, shown
and tried again, and never takes a good checkpoint away.

PS write into a folder aside, `pending-<id>`, because the version is known only when
the snapshot is taken; complete, it is renamed to `version-<V>`, and the manifest comes
last.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import shutil
from pathlib import Path

from elasticdl.checkpoint import store
from elasticdl.checkpoint.layout import (
    MANIFEST,
    Manifest,
    ShardFile,
    version_dir,
)
from elasticdl.errors import CheckpointError
from elasticdl.job.spec import JobSpec
from elasticdl.master.checkpoints import CheckpointSchedule, Outcome, Request
from elasticdl.master.ledger import Ledger
from elasticdl.master.ps_group import Found
from elasticdl.master.signals import Signals
from elasticdl.proto import master_pb2

log = logging.getLogger(__name__)

_PENDING = "pending-"
_SLOWEST_SECONDS = 120.0  # a part that takes longer will not come


class Keeper:
    """Checkpoints of one job."""

    def __init__(
        self,
        spec: JobSpec,
        directory: Path,
        ledger: Ledger,
        signals: Signals,
        *,
        num_shards: int,
    ) -> None:
        """Look at what is there. Blocks for a moment; called before the loop runs."""
        self._spec = spec
        self.directory = directory
        self._ledger = ledger
        self._signals = signals
        self._num_shards = num_shards
        self._count = 0
        self.request: Request | None = None
        self.problem = ""
        self.failures = 0
        self.newest_seconds: float | None = None  # it took; None if not by us
        self._writing: asyncio.Task[None] | None = None
        for path in directory.glob(f"{_PENDING}*"):
            shutil.rmtree(path, ignore_errors=True)
        self.newest = _newest(directory)
        manifest = self.newest.manifest if self.newest else None
        self.schedule = CheckpointSchedule(
            spec.checkpoint,
            version=manifest.version if manifest else None,
            time=manifest.time if manifest else 0.0,
        )

    @property
    def busy(self) -> bool:
        """Whether one is being made."""
        return self.request is not None

    def tick(self, *, version: int, now: float) -> None:
        """Ask for a checkpoint if one is due; give up one that does not come."""
        request = self.request
        if request is not None:
            if self._writing is None and now - request.since > _SLOWEST_SECONDS:
                request.error = f"not complete after {_SLOWEST_SECONDS:.0f} s"
                self._settle(now)
            return
        why = self.schedule.due(version=version, now=now)
        if why:
            self.ask(why, now=now)

    def ask(self, why: str, *, now: float) -> None:
        """Ask for a checkpoint now."""
        if self.request is not None:
            return
        self._count += 1
        name = f"ckpt-{self._ledger.generation}.{self._count}"
        self.schedule.requested(now=now)
        self.request = Request(
            id=name,
            dir=str(self.directory / f"{_PENDING}{name}"),
            why=why,
            position=self._ledger.position(),
            rewind=self._ledger.rewinds,
            since=now,
            num_shards=self._num_shards,
        )
        try:
            Path(self.request.dir).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            self.request.error = f"{self.request.dir}: {error.strerror}"
            self._settle(now)
            return
        self._signals.bump_holders()

    def ps_request(self, index: int, *, sync: bool) -> list[master_pb2.SnapshotRequest]:
        """Return what a PS is asked for."""
        request = self.request
        if request is None or index in request.parts:
            return []
        message = master_pb2.SnapshotRequest(id=request.id, dir=request.dir)
        if sync and index:
            if request.ticket is None:
                return []
            message.ticket.SetInParent()  # that of version 0 is empty
            message.ticket.MergeFromString(request.ticket)
        return [message]

    def local_request(self) -> master_pb2.LocalSnapshot | None:
        """Return what the worker of strategy local is asked for."""
        request = self.request
        if request is None or request.parts:
            return None
        return master_pb2.LocalSnapshot(id=request.id, dir=request.dir)

    def take(self, shard: int, done: master_pb2.SnapshotDone, *, now: float) -> None:
        """Take a replica's word about its shard."""
        request = self.request
        if request is None or done.id != request.id or self._writing is not None:
            return
        if request.take(shard, done):
            self._signals.bump_holders()
        self._settle(now)

    def _settle(self, now: float) -> None:
        request = self.request
        if request is None:
            return
        if request.outcome is Outcome.FAILED:
            self._fail(request, request.error, now=now)
        elif request.outcome is Outcome.COMPLETE:
            self._writing = asyncio.ensure_future(self._complete(request, now))

    async def _complete(self, request: Request, now: float) -> None:
        manifest = Manifest(
            job=self._spec.name,
            strategy=str(self._spec.strategy),
            version=request.version,
            shards=[
                ShardFile(file=p.file, bytes=p.bytes, crc32=p.crc32, version=p.version)
                for _, p in sorted(request.parts.items())
            ],
            position={
                "queue": request.position,
                "applied": {str(k): v for k, v in request.applied().items()},
            },
            rewind=request.rewind,
            time=now,
        )
        target = self.directory / version_dir(manifest.version)
        loop = asyncio.get_running_loop()
        try:
            await loop.run_in_executor(
                None, _publish, Path(request.dir), target, manifest
            )
        except (OSError, CheckpointError) as error:
            self._writing = None
            if self.request is request:
                self._fail(request, str(error), now=now)
            return
        self._writing = None
        if self.request is not request:
            return  # a rewind came between: the checkpoint is of another course
        self.request = None
        self.problem = ""
        self.newest = Found(str(target), manifest)
        self.newest_seconds = now - request.since
        self.schedule.completed(version=manifest.version, now=now)
        self._ledger.note(
            "checkpoint", name="newest", version=manifest.version, dir=str(target)
        )
        log.info(
            "checkpoint of version %d (%s): %s", manifest.version, request.why, target
        )
        self._signals.bump_holders()
        keep = self._spec.checkpoint.keep
        if keep:
            with contextlib.suppress(OSError):
                await loop.run_in_executor(
                    None,
                    lambda: store.delete_old(self.directory, keep, protect=[target]),
                )

    def _fail(self, request: Request, problem: str, *, now: float) -> None:
        pause = self.schedule.failed(now=now)
        self.failures += 1
        self.problem = f"checkpoint not written: {problem}"
        log.error("%s; trying again in %.0f s, training goes on", self.problem, pause)
        self._drop(request)

    def _drop(self, request: Request) -> None:
        self.request = None
        self._signals.bump_holders()
        loop = asyncio.get_running_loop()
        loop.run_in_executor(
            None, lambda: shutil.rmtree(request.dir, ignore_errors=True)
        )

    def abort(self) -> None:
        """A replica that had a part of it is lost."""
        if self.request is not None and self._writing is None:
            self._drop(self.request)

    def rewound(self, *, version: int) -> None:
        """Training went back: what is under way belongs to no course any more."""
        if self.request is not None:
            if self._writing is None:
                self._drop(self.request)
            self.request = None
        self.schedule.rewound(version=version)


def _publish(aside: Path, target: Path, manifest: Manifest) -> None:
    """Give the folder its name, then write the manifest. Runs in a thread."""
    if (target / MANIFEST).exists():
        # The same version of the same course: nothing is newer about this one.
        shutil.rmtree(aside, ignore_errors=True)
        return
    if target.exists():
        shutil.rmtree(target)  # torn: it has no manifest
    aside.rename(target)
    store.write_manifest(target, manifest)


def _newest(directory: Path) -> Found | None:
    found = store.newest(directory, deep=True)
    return Found(str(found[0]), found[1]) if found else None
