"""The journal: events on disk before they are answered, read back after a restart.

Owns the writing of the files, whose format is `master.tasks.journal_files`'. Called by
`master.tasks.ledger` alone. Knows nothing of what events mean.

Each generation of the master, and each snapshot, begins a segment of its own. Who makes
the next one has the journal: its writer creates it under a name that nobody else can
create, then reads what is there, and the old writer looks for that name before each
write and after it, before it answers. So what an old master was able to answer was read
by the new one, and what it writes later counts for nobody.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import math
import os
import time
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from elasticdl.beneath import Folder
from elasticdl.errors import JournalError, SupersededError
from elasticdl.master.tasks import journal_files as files
from elasticdl.master.tasks.journal_files import Event

log = logging.getLogger(__name__)

# A restart reads what the last segment holds, a tenth of a second for each MB or so.
SEGMENT_BYTES = 4 << 20
_RETRY_SECONDS = 0.25
# A write that takes so long is told of: its disk may be away, as a file server is.
_NO_ANSWER_SECONDS = 10.0
_LEAST_SECONDS = 60.0  # that one is waited for, whatever a full disk is
_LOOK_SECONDS = 10.0  # between two looks at the room that is left
# A snapshot for which there was no room is tried again when the segment is that much
# longer: to make one costs the loop time, and takes room that the events need.
_LONGER = 1.25


def ignore(_seconds: float) -> None:
    """Default observer: ignore how long a commit took."""


class Journal:
    """Appends events, many to one write (group commit)."""

    def __init__(
        self,
        directory: Path,
        *,
        wait_seconds: float = 60.0,
        on_commit: Callable[[float], None] = ignore,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Open the folder and take it over from an earlier writer.

        `wait_seconds`: how long a full disk is waited for before JournalError;
        `on_commit`: told of each write how many seconds it took; `clock`: seconds by
        which both are measured. Raises OSError.
        """
        self._directory = directory
        self._wait_seconds = wait_seconds
        self._hurried: tuple[float, float] | None = None  # since when, and how long
        self.refused_seconds = 0.0  # in which the disk took nothing, now over
        self._on_commit = on_commit
        self._clock = clock
        self._buffer: list[bytes] = []
        self._appended = 0
        self._durable = 0
        self._flushing: asyncio.Task[None] | None = None
        self._disk = asyncio.Lock()  # one write or switch of segments at a time
        # Of its own: threads of other storage that hangs must not hold it up.
        self._thread = ThreadPoolExecutor(1, "journal")
        self._failed: JournalError | SupersededError | None = None
        self.blocked_since: float | None = None  # the disk is full since (by `clock`)
        self._problem = ""
        self._way_on = ""  # what ends that
        self._fails_after = wait_seconds
        self._working: asyncio.Future[None] | None = None  # in the thread
        # Free bytes and all bytes of the volume, as of the last write.
        self.volume: tuple[float, float] | None = None
        self._looked = -math.inf
        self._compact_from = 0  # bytes; after a snapshot that failed
        self.writes = 0  # so far; fewer than commits, that is the point of grouping
        self.snapshots_failed = 0
        self._ends: dict[int, int] = {}  # what counts of the segments before
        with files.folder_of(directory, make=True):
            pass  # it is there now
        while not self._begin(_next_number(directory)):
            pass  # another master begins at the same time

    def _begin(self, number: int) -> bool:
        """Create a segment and continue in it; return False if it already existed."""
        path = self._directory / files.segment_name(number)
        try:
            with files.folder_of(self._directory) as folder:
                self._fd = folder.open(path.name, os.O_RDWR | os.O_CREAT | os.O_EXCL)
        except FileExistsError:
            return False
        self._number, self._path, self._size = number, path, 0
        self._identity = _identity(os.fstat(self._fd))
        return True

    # -- what was there before ----------------------------------------------------

    def past(self) -> Iterator[Event]:
        """Yield the newest snapshot, {} without one, then the events after it.

        Raises JournalError where something that was answered cannot be read, OSError
        where what was read cannot be made durable.
        """
        number, state = files.read_snapshot(self._directory)
        yield state or {}
        reader = files.JournalReader(self._directory, first=number, before=self._number)
        for _, event in reader.events():
            yield event
        # A master may have died between a write and its sync. What is gone on from must
        # not be lost with the machine: later segments tell that it was read.
        for path in reader.plain():
            _sync_file(path)
        self._ends = reader.ends

    # -- writing ------------------------------------------------------------------

    @property
    def segment_bytes(self) -> int:
        """Size of the current segment."""
        return self._size

    @property
    def blocked_seconds(self) -> float:
        """Seconds since the journal became unwritable; 0 if it is writable."""
        if self.blocked_since is None:
            return 0.0
        return self._clock() - self.blocked_since

    @property
    def trouble(self) -> str:
        """Advice about a journal that cannot be written now; "" if it can."""
        if self.blocked_since is None:
            return ""
        return (
            f"{self._problem}. The job has stood still for "
            f"{self.blocked_seconds:.0f} s and goes on by itself once "
            f"{self._way_on}; it fails after {self._fails_after:.0f} s "
            "(master.journalWaitSeconds)"
        )

    @property
    def failed(self) -> JournalError | SupersededError | None:
        """Why nothing is written any more, if it is not."""
        return self._failed

    def hurry(self, seconds: float) -> None:
        """Wait for a disk that takes nothing for no more than so long from now on."""
        self._hurried = self._clock(), seconds

    def append(self, event: Event) -> None:
        """Add an event; it is durable only after `commit`."""
        self._buffer.append(files.encoded(event))
        self._appended += 1

    async def commit(self) -> None:
        """Return when everything appended so far is on disk.

        Callers that come while a write is under way share the next one. What was
        appended without an await between comes back whole or not at all. Raises
        JournalError, SupersededError.
        """
        target = self._appended
        while self._failed or self._durable < target:
            if self._failed:
                raise self._failed
            if self._flushing is None or self._flushing.done():
                self._flushing = asyncio.ensure_future(self._flush())
            await asyncio.shield(self._flushing)

    async def hold(self) -> None:
        """Return if this master still owns the journal. Raises as `commit`."""
        async with self._with_disk():
            await self._put([])

    async def _flush(self) -> None:
        async with self._with_disk():
            await self._put(self._take())

    @contextlib.asynccontextmanager
    async def _with_disk(self) -> AsyncIterator[None]:
        """Have the disk alone. Raises as `commit`, also what failed meanwhile."""
        if self._failed:
            raise self._failed
        async with self._disk:
            if self._failed:
                raise self._failed
            yield

    def _take(self) -> list[bytes]:
        lines, self._buffer = self._buffer, []
        return lines

    async def _put(self, lines: list[bytes]) -> None:
        """Write lines, waiting for space if necessary; the caller holds `_disk`."""
        began = self._clock()
        while True:
            try:
                await self._in_thread(lambda: self._write_and_look(lines), began)
                break
            except OSError as error:
                problem = cannot_write(self._path, error)
                self._wait_or_fail(problem, began, "there is room", self._wait_seconds)
                await asyncio.sleep(_RETRY_SECONDS)
        self._taken()
        if lines:
            self._on_commit(self._clock() - began)
        self._durable += len(lines)

    async def _in_thread(self, work: Callable[[], None], began: float) -> None:
        """Do this in a thread. Raises what it raises, and JournalError.

        A disk that does not answer is waited for as one that refuses is.
        """
        loop = asyncio.get_running_loop()
        done = self._working = loop.run_in_executor(self._thread, work)
        patience = max(self._wait_seconds, _LEAST_SECONDS)
        while not (await asyncio.wait([done], timeout=_NO_ANSWER_SECONDS))[0]:
            seconds = self._clock() - began
            problem = JournalError(
                f"cannot write the journal: no answer from its disk for {seconds:.0f} "
                f"s ({self._path}); look after that volume, or its file server"
            )
            try:
                self._wait_or_fail(problem, began, "it answers", patience)
            except JournalError:
                # What it still writes was acknowledged to nobody.
                done.add_done_callback(_forget)
                raise
        try:
            done.result()
        except OSError:
            raise
        except SupersededError as error:
            self._failed = error
            raise
        except Exception as error:
            self._failed = JournalError(f"the journal cannot be written: {error!r}")
            raise self._failed from error

    def _wait_or_fail(
        self, problem: JournalError, began: float, way_on: str, patience: float
    ) -> None:
        """Say what the journal waits for. Raises JournalError when it has waited."""
        self._problem, self._way_on = str(problem), way_on
        if self.blocked_since is None:
            self.blocked_since = began
            log.error(
                "%s; waiting up to %.0f s, nothing is acknowledged meanwhile",
                problem,
                patience,
            )
        until = self._until(began, patience)
        self._fails_after = until - began
        if self._clock() >= until:
            self._failed = problem
            raise problem

    def _taken(self) -> None:
        """Note that the disk takes something."""
        if self.blocked_since is None:
            return
        seconds = self._clock() - self.blocked_since
        log.warning("the journal can be written again after %.1f s", seconds)
        self.refused_seconds += seconds
        self.blocked_since = None

    def _until(self, began: float, patience: float) -> float:
        """Return until when a write that began then is tried."""
        until = began + patience
        if self._hurried is not None:
            since, seconds = self._hurried
            until = min(until, max(began, since) + seconds)
        return until

    def _write_and_look(self, lines: list[bytes]) -> None:
        try:
            self._write(lines)
        finally:
            # Here, where a volume that hangs does not hold the loop.
            if time.monotonic() - self._looked >= _LOOK_SECONDS:
                self._looked = time.monotonic()
                self.volume = files.volume_of(self._fd)

    def _write(self, lines: list[bytes]) -> None:
        self._require_ours()
        if not lines:
            return
        if not self._size:
            lines = [files.encoded(files.first_event(self._ends)), *lines]
        view = memoryview(files.batch(lines))
        # Positioned and cut back first: a write that failed half way must not leave
        # a torn batch in the middle. Nobody else writes into this segment.
        os.ftruncate(self._fd, self._size)
        offset = self._size
        while view:
            written = os.pwrite(self._fd, view, offset)
            view, offset = view[written:], offset + written
        _sync(self._fd)
        if not self._size:
            with files.folder_of(self._directory) as folder:
                folder.flush()
        # Again: if it was lost meanwhile, the next master may have read without this.
        self._require_ours()
        self._size = offset
        self.writes += 1

    def _require_ours(self) -> None:
        """Raise SupersededError if another master has the journal, or nobody has one.

        Where it was removed nothing is left that this master could write into: who
        removed it may have put another job there.
        """
        following = files.segment_name(self._number + 1)
        lost = False
        try:
            with files.folder_of(self._directory) as folder:
                # Packing makes the second name before it takes the first away.
                lost = folder.has(following) or folder.has(f"{following}.gz")
                found = folder.stat(self._path.name)
        except FileNotFoundError:
            raise (self._superseded() if lost else self._removed()) from None
        if lost or _identity(found) != self._identity:
            raise self._superseded()

    def _superseded(self) -> SupersededError:
        return SupersededError(
            f"{self._directory}: another master of this job has taken over after "
            f"{self._path.name}; this one ends and leaves everything to it. If the job "
            "was started twice by hand, stop one of both"
        )

    def _removed(self) -> SupersededError:
        return SupersededError(
            f"{self._path}: this part of the journal was removed while the job ran, "
            "and no other master has begun a later one. What is trained cannot be "
            "recorded any more, so this master ends. Put the folder back and start the "
            "job again, or start it afresh with --restart, from a checkpoint with "
            "checkpoint.initFrom"
        )

    # -- snapshots ----------------------------------------------------------------

    def wants_snapshot(self, limit: int) -> bool:
        """Whether the segment exceeds `limit` and a snapshot may fit on the disk."""
        return self._size > max(limit, self._compact_from)

    async def compact(self, state: Callable[[], Event]) -> None:
        """Write what `state` returns as a snapshot and continue in a new segment.

        `state` has to describe everything appended so far; it is called in the moment
        in which the segments part. Without room for the snapshot the journal goes on
        in the segment it has. Raises as `commit`.
        """
        await asyncio.shield(asyncio.ensure_future(self._compacted(state)))

    async def _compacted(self, state: Callable[[], Event]) -> None:
        async with self._with_disk():
            # No await between these two: events of later moments go to the next
            # segment, which is begun before the lock is given back.
            lines, snapshot = self._take(), state()
            await self._put(lines)
            await self._in_thread(lambda: self._compact(snapshot), self._clock())
            self._taken()

    def _compact(self, state: Event) -> None:
        number = self._number + 1
        path = self._directory / f"snapshot-{number:08d}.json"
        # A name of its own: an old master that still tries must not meet ours.
        aside = path.with_suffix(f".{uuid.uuid4().hex}.tmp")
        try:
            with files.folder_of(self._directory) as folder:
                data = files.with_checksum({"v": files.FORMAT, **state})
                _write_synced(folder, aside.name, data)
                self._go_on_in(number)
                # The number is ours now, and with it the snapshot's name.
                folder.rename(aside.name, path.name)
                folder.flush()
        except OSError as error:
            with (
                contextlib.suppress(OSError),
                files.folder_of(self._directory) as folder,
            ):
                folder.unlink(aside.name)
            log.warning("%s; going on without", cannot_write(path, error))
            self.snapshots_failed += 1
            self._compact_from = int(self._size * _LONGER)
            return
        self._compact_from = 0
        try:
            self._tidy(keep=path)
        except OSError as error:  # what stays does no harm
            log.warning("%s: cannot be tidied: %s", self._directory, error.strerror)

    def _go_on_in(self, number: int) -> None:
        """Continue in the next segment. Raises OSError, SupersededError."""
        old_fd, ends = self._fd, {**self._ends, self._number: self._size}
        if not self._begin(number):
            raise self._superseded()
        self._ends = ends
        os.close(old_fd)

    def _tidy(self, *, keep: Path) -> None:
        """Pack segments that no restart reads any more; remove older snapshots.

        Raises OSError, SupersededError.
        """
        self._require_ours()  # else newer ones are another master's
        for number, segment in files.segments(self._directory).items():
            if number < self._number and segment.suffix != ".gz":
                try:
                    files.pack(segment, self._ends.get(number))
                except OSError as error:
                    # The plain segment is as good; only room is lost.
                    log.warning("%s", cannot_write(segment, error))
        self._ends = {self._number - 1: self._ends[self._number - 1]}
        old = {path.name for path in files.snapshots(self._directory).values()}
        with files.folder_of(self._directory) as folder:
            left = {name for name in folder.names() if name.endswith(".tmp")}
            # Those aside are of a master that was killed.
            for name in sorted(left | (old - {keep.name})):
                with contextlib.suppress(OSError):
                    folder.unlink(name)

    def close(self) -> None:
        """Close the file; uncommitted events are lost."""
        self._thread.shutdown(wait=False)
        # A thread that still writes must not meet another file of that number.
        if self._working is None or self._working.done():
            os.close(self._fd)


def _forget(done: asyncio.Future[None]) -> None:
    """Take what became of a write that nobody waits for any more."""
    if not done.cancelled():
        done.exception()


def _next_number(directory: Path) -> int:
    """Return the number after the highest segment."""
    written = max(files.segments(directory), default=0)
    # A crash may have left a snapshot whose segment was not begun yet.
    return max(written + 1, *files.snapshots(directory), 1)


def _identity(found: os.stat_result) -> tuple[int, int]:
    return found.st_dev, found.st_ino


def _write_synced(folder: Folder, name: str, data: bytes) -> None:
    handle = folder.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    with os.fdopen(handle, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _sync(fd: int) -> None:
    # macOS has no fdatasync.
    getattr(os, "fdatasync", os.fsync)(fd)


def _sync_file(path: Path) -> None:
    with files.folder_of(path.parent) as folder:
        fd = folder.open(path.name)
    try:
        _sync(fd)
    finally:
        os.close(fd)


def cannot_write(path: Path, error: OSError) -> JournalError:
    """Return the error, with advice, for a journal that cannot be written."""
    way_out = (
        "free some room on that disk"
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
        else "make that folder writable"
    )
    return JournalError(
        f"cannot write the journal: {error.strerror} ({path}); {way_out}"
    )
