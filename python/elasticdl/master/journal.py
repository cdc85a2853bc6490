"""The journal: events on disk before they are answered, read back after a restart.

Owns the files. Called by `master.ledger` alone. Knows nothing of what events mean.

    <dir>/00000001.jsonl         events, one a line: CRC-32 in hex, a space, JSON
    <dir>/00000000.jsonl.gz      older segments, packed; kept for `elasticdl audit`
    <dir>/snapshot-00000001.json state before the first event of that segment

A restart reads the newest whole snapshot and the segments from its number on. The last
line of the last segment may be torn (the machine went down while it was written): it
was never answered, so it is dropped.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import gzip
import json
import logging
import os
import shutil
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from elasticdl.errors import JournalError

log = logging.getLogger(__name__)

# A restart reads what the last segment holds, a tenth of a second for each MB or so.
SEGMENT_BYTES = 4 << 20
_RETRY_SECONDS = 0.25

Event = dict[str, Any]


def ignore(_seconds: float) -> None:
    """Tell nobody how long a commit took."""


def _line(text: str) -> bytes:
    raw = text.encode()
    return b"%08x %s\n" % (zlib.crc32(raw), raw)


def _parse(line: bytes) -> Event | None:
    if len(line) < 10 or not line.endswith(b"\n"):
        return None
    raw = line[9:-1]
    try:
        if int(line[:8], 16) != zlib.crc32(raw):
            return None
        event: Event = json.loads(raw)
    except ValueError:
        return None
    return event


def _segments(directory: Path) -> dict[int, Path]:
    """Return the segment files by number; the plain one where both forms exist."""
    found: dict[int, Path] = {}
    for path in sorted(directory.glob("*.jsonl*"), reverse=True):
        if path.name.endswith((".jsonl", ".jsonl.gz")):
            found[int(path.name.split(".")[0])] = path
    return dict(sorted(found.items()))


def _snapshots(directory: Path) -> dict[int, Path]:
    found = directory.glob("snapshot-*.json")
    return {int(path.stem.split("-")[1]): path for path in found}


def read_events(directory: Path, first: int = 0) -> Iterator[tuple[int, Event]]:
    """Yield (segment, event) of all segments from number `first` on, in order.

    Raises JournalError where anything but the very last line is damaged.
    """
    segments = {n: p for n, p in _segments(directory).items() if n >= first}
    last = max(segments, default=-1)
    for number, path in segments.items():
        opener = gzip.open if path.suffix == ".gz" else open
        with opener(path, "rb") as file:
            for count, line in enumerate(file, 1):
                event = _parse(line)
                if event is not None:
                    yield number, event
                    continue
                if number == last and not file.read(1):
                    log.warning("%s: dropped the torn last line %d", path, count)
                    return
                raise JournalError(
                    f"{path}: line {count} is damaged (checksum). Lines after it "
                    "cannot be trusted; move the job's folder aside and start the job "
                    "from a checkpoint with checkpoint.initFrom"
                )


class Journal:
    """Appends events, many to one write (group commit)."""

    def __init__(
        self,
        directory: Path,
        *,
        wait_seconds: float = 60.0,
        on_commit: Callable[[float], None] = ignore,
    ) -> None:
        """Open the directory for appending after what is there.

        `wait_seconds`: how long a full disk is waited for before JournalError;
        `on_commit`: told of each write how many seconds it took.
        """
        self._directory = directory
        self._wait_seconds = wait_seconds
        self._on_commit = on_commit
        self._buffer: list[bytes] = []
        self._appended = 0
        self._durable = 0
        self._flushing: asyncio.Task[None] | None = None
        self._disk = asyncio.Lock()  # one write or switch of segments at a time
        self._failed: JournalError | None = None
        self.blocked_since: float | None = None  # the disk is full since (monotonic)
        self._problem = ""
        self.writes = 0  # so far; fewer than commits, that is the point of grouping
        try:
            directory.mkdir(parents=True, exist_ok=True)
            # A crash may leave a snapshot whose segment was not begun yet.
            self._number = max([1, *_segments(directory), *_snapshots(directory)])
            self._open(self._number)
        except OSError as error:
            raise _cannot_write(directory, error) from error

    def _open(self, number: int) -> None:
        path = self._directory / f"{number:08d}.jsonl"
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        self._path = path
        self._size = _whole_lines(self._fd)
        os.ftruncate(self._fd, self._size)

    @property
    def segment_bytes(self) -> int:
        """Size of the segment that is being written."""
        return self._size

    @property
    def trouble(self) -> str:
        """What to do about a journal that cannot be written now; empty if it can."""
        if self.blocked_since is None:
            return ""
        return (
            f"{self._problem}. The job has stood still for "
            f"{time.monotonic() - self.blocked_since:.0f} s and goes on by itself once "
            f"there is room; it fails after {self._wait_seconds:.0f} s "
            "(master.journalWaitSeconds)"
        )

    def append(self, event: Event) -> None:
        """Add an event; it is durable only after `commit`."""
        self._buffer.append(_line(json.dumps(event, separators=(",", ":"))))
        self._appended += 1

    async def commit(self) -> None:
        """Return when everything appended so far is on disk. Raises JournalError.

        Callers that come while a write is under way share the next one.
        """
        target = self._appended
        while self._durable < target:
            if self._failed:
                raise self._failed
            if self._flushing is None or self._flushing.done():
                self._flushing = asyncio.ensure_future(self._flush())
            await asyncio.shield(self._flushing)

    async def _flush(self) -> None:
        async with self._disk:
            await self._put(self._take())

    def _take(self) -> list[bytes]:
        lines, self._buffer = self._buffer, []
        return lines

    async def _put(self, lines: list[bytes]) -> None:
        """Write lines, waiting for room if need be; the caller holds `_disk`."""
        data = b"".join(lines)
        loop = asyncio.get_running_loop()
        began = time.monotonic()
        while True:
            try:
                await loop.run_in_executor(None, self._write, data)
                break
            except OSError as error:
                problem = _cannot_write(self._path, error)
                self._problem = str(problem)
                if self.blocked_since is None:
                    self.blocked_since = began
                    log.error(
                        "%s; waiting up to %.0f s, nothing is acknowledged meanwhile",
                        problem,
                        self._wait_seconds,
                    )
                if time.monotonic() - began >= self._wait_seconds:
                    self._failed = problem
                    raise problem from error
                await asyncio.sleep(_RETRY_SECONDS)
        if self.blocked_since is not None:
            log.warning(
                "the journal can be written again after %.1f s",
                time.monotonic() - self.blocked_since,
            )
            self.blocked_since = None
        self._on_commit(time.monotonic() - began)
        self._durable += len(lines)

    def _write(self, data: bytes) -> None:
        # Positioned and cut back first: a write that failed half way must not leave
        # a torn line in the middle.
        os.ftruncate(self._fd, self._size)
        view = memoryview(data)
        offset = self._size
        while view:
            written = os.pwrite(self._fd, view, offset)
            view, offset = view[written:], offset + written
        _sync(self._fd)
        self._size = offset
        self.writes += 1

    async def compact(self, state: Callable[[], Event]) -> None:
        """Write what `state` returns as a snapshot and go on in a new segment.

        `state` has to describe everything appended so far; it is called in the moment
        in which the segments part. Without room for the snapshot the journal goes on
        in the segment it has.
        """
        async with self._disk:
            # No await between these two: events of later moments go to the next
            # segment, which is begun before the lock is given back.
            lines, snapshot = self._take(), state()
            await self._put(lines)
            loop = asyncio.get_running_loop()
            await loop.run_in_executor(None, self._compact, snapshot)

    def _compact(self, state: Event) -> None:
        number = self._number + 1
        path = self._directory / f"snapshot-{number:08d}.json"
        aside = path.with_suffix(".tmp")
        try:
            with aside.open("wb") as file:
                file.write(_line(json.dumps(state, separators=(",", ":"))))
                file.flush()
                os.fsync(file.fileno())
            aside.rename(path)
        except OSError as error:
            with contextlib.suppress(OSError):
                aside.unlink(missing_ok=True)
            log.warning("%s; going on without", _cannot_write(path, error))
            return
        old_fd, old_path = self._fd, self._path
        self._open(number)
        self._number = number
        os.close(old_fd)
        _pack(old_path)
        for other in _snapshots(self._directory).values():
            if other != path:
                other.unlink()

    def close(self) -> None:
        """Close the file; what was not committed is lost."""
        os.close(self._fd)


def read_snapshot(directory: Path) -> tuple[int, Event | None]:
    """Return the newest whole snapshot and its number; (0, None) without one."""
    for number, path in sorted(_snapshots(directory).items(), reverse=True):
        state = _parse(path.read_bytes())
        if state is not None:
            return number, state
        log.warning("%s is damaged; using an older one", path)
    return 0, None


def _whole_lines(fd: int) -> int:
    """Return the size without a torn last line."""
    size = os.fstat(fd).st_size
    step = 1 << 16
    end = size
    while end > 0:
        start = max(0, end - step)
        cut = os.pread(fd, end - start, start).rfind(b"\n")
        if cut >= 0:
            return start + cut + 1
        end = start
    return 0


def _pack(path: Path) -> None:
    packed = path.with_name(path.name + ".gz")
    aside = packed.with_suffix(".tmp")
    try:
        with (
            path.open("rb") as source,
            gzip.open(aside, "wb", compresslevel=3) as target,
        ):
            shutil.copyfileobj(source, target, 1 << 20)
        aside.rename(packed)
        path.unlink()
    except OSError as error:
        # The plain segment is as good; only room is lost.
        log.warning("%s", _cannot_write(packed, error))
        with contextlib.suppress(OSError):
            aside.unlink(missing_ok=True)


def _sync(fd: int) -> None:
    # macOS has no fdatasync.
    getattr(os, "fdatasync", os.fsync)(fd)


def _cannot_write(path: Path, error: OSError) -> JournalError:
    way_out = (
        "free some room on that disk"
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
        else "make that folder writable"
    )
    return JournalError(
        f"{path}: cannot write the journal: {error.strerror}; {way_out}"
    )
