"""Keeps checkpoints: asks for them, completes them, tells which is the newest.

Owns the folder of checkpoints as the master sees it: which of them are this job's, in
the order in which it would go back to them. Called by the loop (ticks) and heartbeats
(parts, and what cannot be loaded). File work is done in a thread; a disk that is full
is logged, shown and tried again, and never takes a good checkpoint away.

PS write into a folder aside, `pending-<run>-<id>`, because the version is known only
when the snapshot is taken. Complete, with its manifest, it gets its name. Whether the
bytes of one are still right is seen by whoever loads it: then the next older one is
taken. Reading 100 GB before a master serves would cost more than it is worth.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from elasticdl.beneath import opened
from elasticdl.checkpoint import shelf, store
from elasticdl.checkpoint.layout import PENDING, Manifest, ShardFile
from elasticdl.errors import CheckpointError, JournalError, SupersededError
from elasticdl.job.heartbeats import LocalSnapshot, SnapshotDone, SnapshotRequest
from elasticdl.job.names import JobDir
from elasticdl.job.spec.job import JobSpec
from elasticdl.master.happenings import CheckpointFailed, CheckpointWritten
from elasticdl.master.model.checkpoint_identity import (
    MOST_REMEMBERED,
    Course,
    Found,
    find,
    note_course,
    point,
)
from elasticdl.master.model.checkpoint_place import place_of
from elasticdl.master.model.checkpoint_requests import (
    STILL_SECONDS,
    CheckpointRequest,
    CheckpointSchedule,
    RequestOutcome,
)
from elasticdl.master.model.holding import Holding
from elasticdl.master.patience import patiently
from elasticdl.master.signals import Signals
from elasticdl.master.tasks import model_facts
from elasticdl.master.tasks.ledger import Ledger

log = logging.getLogger(__name__)

# Of their own: a volume that hangs holds no more than these, and nothing else up.
_THREADS = ThreadPoolExecutor(4, "checkpoints")
THE_END = "the end"  # why the checkpoint after the last record is asked for
T = TypeVar("T")


class Checkpoints:
    """The checkpoints of one job: when they are made, and which one to restore."""

    def __init__(
        self,
        spec: JobSpec,
        job_dir: JobDir,
        ledger: Ledger,
        signals: Signals,
        *,
        holding: Holding,
        course: Course,
        launched: bool = False,
    ) -> None:
        """List the existing checkpoints, before the loop runs. Reads no shards.

        `launched`: somebody has just begun the job, or begun it anew. Raises
        CheckpointError if then the folder holds checkpoints of others and none of
        this job, or if it cannot be read.
        """
        self._spec = spec
        place = place_of(spec.checkpoint.dir, job_dir)
        self.directory, self._root = place.directory, place.root
        directory = place.directory
        self._ledger = ledger
        self._signals = signals
        self._holding = holding
        self._count = 0
        self.request: CheckpointRequest | None = None
        self.problem = ""
        self.failures = 0
        self.refused_end = False  # the newest try was one of THE_END, and failed
        self.newest_seconds: float | None = None  # it took; None if not by us
        self._writing: CheckpointRequest | None = None  # it is getting its name
        self._tasks: set[asyncio.Task[object]] = set()
        self.course = course
        self._dropped: set[str] = set()
        self._gone: set[str] = set()  # were not on the disk when it was last looked at
        self._tidied: Course | None = None  # what was left of others is put aside
        noted = ledger.newest_of(model_facts.CheckpointFact)
        self.had_one = noted is not None  # as far as the journal knows
        patience = spec.master.journal_wait_seconds
        self._shelf = patiently(
            lambda: find(directory, course, root=self._root, launched=launched),
            seconds=patience,
        )
        if noted and Path(noted.dir).parent != directory:
            # checkpoint.dir is another one since: there are older ones here at most.
            before = Path(noted.dir).parent
            newer = patiently(lambda: find(before, course), seconds=patience)
            self._shelf = [*self._shelf, *newer][-MOST_REMEMBERED:]
        shelf.sweep(directory, prefix=f"{course.run}-", root=self._root)
        if course.unnamed:
            shelf.sweep(directory, prefix="ckpt-", root=self._root)
        newest = self.newest
        if noted and (newest is None or newest.dir != noted.dir):
            log.warning(
                "the newest checkpoint in the journal, %s, cannot be used: %s",
                noted.dir,
                f"the job would go back to {newest.dir}" if newest else "nor any other",
            )
        manifest = newest.manifest if newest else None
        self.schedule = CheckpointSchedule(
            spec.checkpoint,
            version=manifest.version if manifest else None,
            time=manifest.time if manifest else 0.0,
        )

    @property
    def newest(self) -> Found | None:
        """The checkpoint to go back to; None if there is none."""
        return self._shelf[-1] if self._shelf else None

    @property
    def newest_there(self) -> Found | None:
        """The newest that is still on the disk, as of the last `look`: to tell of.

        Training goes back to `newest` all the same: where that is gone, too, it must
        not begin anew in silence.
        """
        there = [one for one in self._shelf if one.dir not in self._gone]
        return there[-1] if there else None

    @property
    def resumes_from(self) -> str:
        """Return in words from where the job goes on; "" where all there were are gone.

        Then `nothing_left` says what to do.
        """
        there = self.newest_there
        if there is not None:
            return f"version {there.manifest.version}"
        return "" if self.newest or self.had_one else "its beginning"

    @property
    def busy(self) -> bool:
        """Whether a checkpoint is in progress."""
        return self.request is not None

    @property
    def naming(self) -> bool:
        """Whether a complete checkpoint is getting its final name, in a thread."""
        return self._writing is not None

    @property
    def up_to_date(self) -> bool:
        """Whether the newest checkpoint holds all training of a job at rest."""
        now, newest = point(self._ledger), self.newest
        held = newest.manifest.position.get("point") if newest else None
        return bool(now) and held == now

    @property
    def nothing_left(self) -> str:
        """Return the message for a job whose checkpoints can all not be restored."""
        back = max((version for _, version in self.course.limits), default=None)
        which = ""
        if back is not None:
            which = f" (version {back} or older, or written since it went back to that)"
        return (
            f"{self.directory}: no checkpoint of this job can be loaded any more, "
            f"expected at least one; put one back{which} and launch the job again, or "
            "begin it afresh with --restart"
        )

    def tick(self, *, version: int, now: float) -> None:
        """Request a checkpoint if one is due; give up one that makes no progress."""
        if self.request is not None:
            self.watch(now=now)
            return
        why = self.schedule.due(version=version, now=now)
        if why:
            self.ask(why, now=now)

    def watch(self, *, now: float, still_seconds: float = STILL_SECONDS) -> bool:
        """Give up the checkpoint in progress if nothing moves; return whether so."""
        request = self.request
        if request is None:
            return False
        problem = request.stuck(
            now=now, in_worker=self._holding.in_worker, still_seconds=still_seconds
        )
        if problem:
            self._fail(request, problem, now=now)
        return bool(problem)

    def ask(self, why: str, *, now: float) -> None:
        """Request a checkpoint now."""
        if self.request is not None:
            return
        self._count += 1
        self.refused_end = False
        name = f"{self._name()}{self._count}"
        self.schedule.requested(now=now)
        self.request = CheckpointRequest(
            id=name,
            dir=str(self.directory / f"{PENDING}{self.course.run}-{name}"),
            why=why,
            position={
                "queue": self._ledger.position(),
                "point": point(self._ledger),
            },
            rewind=self._ledger.rewinds,
            since=now,
            num_shards=self._holding.shards,
        )
        self._begin(self._prepare(self.request, now))

    def _name(self) -> str:
        return f"ckpt-{self._ledger.generation}."

    def _begin(self, work: Coroutine[Any, Any, object]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _prepare(self, request: CheckpointRequest, now: float) -> None:
        """Make the folder and remove earlier attempts. The disk may be slow."""
        place, root = Path(request.dir), self._root
        course, tidied = self.course, self._tidied
        self._tidied = course

        def make() -> None:
            with (
                opened(place.parent, root=root, make=True) as above,
                above.made(place.name, durable=False),
            ):
                pass  # it is there now
            # Of this master alone: another one may have taken over meanwhile.
            mine = f"{course.run}-{self._name()}"
            shelf.sweep(self.directory, prefix=mine, keep=place, root=root)
            if course == tidied:
                return
            for path, manifest in shelf.complete(self.directory, root=root):
                # Of a course that was left, as a crash can leave it.
                if course.owns(manifest) and not course.holds(manifest):
                    shelf.abandon(path, root=root)

        problem = ""
        try:
            await _in_thread(make)
        except (OSError, CheckpointError) as error:
            problem = str(error)
            if isinstance(error, OSError):
                problem = f"{request.dir}: {error.strerror}"
            await self.look()  # what refuses a folder may have taken the others away
        request.prepared(problem)
        if self.request is request:
            self._settle(now)
            self._signals.bump_holders()

    async def look(self) -> None:
        """Look which checkpoints are still on the disk."""
        known = [one.dir for one in self._shelf]
        self._gone = await _in_thread(lambda: set(filter(_is_gone, known)))

    def asks_ps(self, index: int) -> list[SnapshotRequest]:
        """Return the requests to a PS."""
        request = self.request
        if request is None or not request.ready or index in request.parts:
            return []
        if not (self._holding.ticketed and index):
            return [SnapshotRequest(request.id, request.dir)]
        if request.ticket is None:
            return []
        return [SnapshotRequest(request.id, request.dir, request.ticket)]

    def asks_worker(self) -> LocalSnapshot | None:
        """Return the request to the worker that holds the model."""
        request = self.request
        if request is None or not request.ready or request.parts:
            return None
        return LocalSnapshot(id=request.id, dir=request.dir)

    def take(self, shard: int, done: SnapshotDone, *, now: float) -> None:
        """Take a replica's answer about its shard."""
        request = self.request
        if request is None or done.id != request.id or self._writing is request:
            return
        before = request.written_bytes
        heard = request.take(shard, done)
        if heard:
            self._signals.bump_holders()
        if heard or request.written_bytes > before:
            request.moves(now)
        self._settle(now)

    def _settle(self, now: float) -> None:
        request = self.request
        if request is None:
            return
        if request.outcome is RequestOutcome.FAILED:
            self._fail(request, request.error, now=now)
        elif request.outcome is RequestOutcome.COMPLETE:
            self._writing = request
            request.moves(now)
            self._begin(self._complete(request, now))

    async def _complete(self, request: CheckpointRequest, now: float) -> None:
        manifest = Manifest(
            job=self._spec.name,
            run=self.course.run,
            strategy=str(self._spec.strategy),
            version=request.version,
            shards=[
                ShardFile(file=p.file, bytes=p.bytes, crc32=p.crc32, version=p.version)
                for _, p in sorted(request.parts.items())
            ],
            position={
                **request.position,
                "applied": {str(k): v for k, v in request.applied().items()},
            },
            rewind=request.rewind,
            time=now,
        )
        aside, root = Path(request.dir), self._root

        def complete() -> None:
            store.write_manifest(aside, manifest, root=root)
            store.read_manifest(aside, root=root)  # looks for the shards, too

        try:
            await _in_thread(complete)
            # One that counts what the journal has not would be ahead of it.
            await self._ledger.commit()
            if self.request is not request:
                return  # a rewind came between: it is of a course that was left
            target = await _in_thread(
                lambda: store.publish(
                    aside, self.directory, manifest.version, root=root
                )
            )
        except (OSError, CheckpointError, JournalError, SupersededError) as error:
            if self.request is request:
                self._fail(request, str(error), now=now)
            return
        finally:
            if self._writing is request:
                self._writing = None
        if self.request is not request:
            await _in_thread(lambda: shelf.abandon(target, root=root))
            return
        self.request = None
        self.problem = ""
        self.had_one = True
        self._dropped.discard(str(target))
        self._shelf = [*self._shelf, Found(str(target), manifest)][-MOST_REMEMBERED:]
        self.newest_seconds = now - request.since
        self.schedule.completed(version=manifest.version, now=now)
        self._ledger.record(
            model_facts.CheckpointFact(version=manifest.version, dir=str(target))
        )
        self._signals.diary.say(
            CheckpointWritten(
                time=now, version=manifest.version, seconds=self.newest_seconds
            )
        )
        log.info(
            "checkpoint of version %d (%s): %s", manifest.version, request.why, target
        )
        self._signals.bump_holders()
        self._signals.wake()
        await self._delete_old(target)

    async def _delete_old(self, target: Path) -> None:
        keep = self._spec.checkpoint.keep
        if not keep:
            return
        self._shelf = self._shelf[-keep:]
        course = self.course
        with contextlib.suppress(CheckpointError):
            await _in_thread(
                lambda: shelf.delete_old(
                    self.directory,
                    keep,
                    mine=course.owns,
                    protect=[target],
                    root=self._root,
                )
            )

    def _fail(self, request: CheckpointRequest, problem: str, *, now: float) -> None:
        self.refused_end = request.why == THE_END
        pause = self.schedule.failed(now=now)
        self.failures += 1
        self.problem = f"checkpoint not written: {problem}"
        self._signals.diary.say(CheckpointFailed(time=now, problem=self.problem))
        log.error("%s; trying again after %.0f s at most", self.problem, pause)
        self._drop(request)

    def _drop(self, request: CheckpointRequest) -> None:
        self.request = None
        self._signals.bump_holders()
        self._signals.wake()
        place, root = Path(request.dir), self._root
        self._begin(_in_thread(lambda: shelf.remove(place, root=root)))

    def abort(self) -> None:
        """Abort the checkpoint in progress: a replica with a shard of it is lost."""
        if self.request is not None and self._writing is not self.request:
            self._drop(self.request)

    def rewound(self, *, version: int) -> None:
        """Abort the checkpoint in progress: training went back."""
        self.abort()
        self.request = None  # also one that is getting its name
        newest = self.newest
        target = newest.manifest if newest else None
        self.course = self.course.after(self._ledger.rewinds, target)
        note_course(self._ledger, self.course)
        self.schedule.rewound(version=version if newest else None)

    def give_up(self, directory: str) -> bool:
        """Never restore this checkpoint again; return whether it was a candidate."""
        found = [one for one in self._shelf if one.dir == directory]
        self._shelf = [one for one in self._shelf if one.dir != directory]
        self._dropped.add(directory)
        place = Path(directory)
        # Where another folder is only noted in the journal, workers may have noted it.
        if found and place.parent == self.directory:
            self._begin(_in_thread(lambda: shelf.abandon(place, root=self._root)))
        return bool(found)

    def offers(self, directory: str) -> bool:
        """Whether the checkpoint is one to go back to."""
        return any(one.dir == directory for one in self._shelf)

    def gave_up(self, directory: str) -> bool:
        """Whether the checkpoint was given up before."""
        return directory in self._dropped


def _is_gone(directory: str) -> bool:
    try:
        Path(directory).lstat()
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:  # the volume is away: it comes back
        return False
    return False


async def _in_thread(work: Callable[[], T]) -> T:
    return await asyncio.get_running_loop().run_in_executor(_THREADS, work)
