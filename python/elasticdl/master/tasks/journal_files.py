"""The journal's files: their names and format, and reading them back.

Owns the format. Called by `master.tasks.journal`, which writes them, and by whoever
only reads (`master.tasks.audit`). Must not know what events mean, nor change anything
but the form of a segment that is over.

    <dir>/00000002.jsonl         a segment: batches of events
    <dir>/00000001.jsonl.gz      older segments, packed; kept for `elasticdl audit`
    <dir>/snapshot-00000002.json state before the first event of that segment

A batch is what one write brought: a line `+length CRC-32` in hex, then so many bytes
with an event as JSON in each line. The first event of a segment says in which format it
is, and up to which byte of each segment before it its writer had read. What stands
after that byte was written by a master that had lost the journal already: it does not
count. Format 1 had no batches, but a CRC-32 before each line, and all masters wrote
into the same segment.

A batch is begun when the one before it is on disk. So only the last batch of a segment
may be torn, at any place; it was never answered, and is dropped. Damage before a whole
batch is an error.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import logging
import os
import re
import shutil
import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any, cast

from elasticdl.beneath import Folder, opened
from elasticdl.errors import JournalError

log = logging.getLogger(__name__)

FORMAT = 2  # Raised when an older version could not read the files.
SEGMENT = "segment"  # kind of the event that a segment begins with

Event = dict[str, Any]

# Kept: `json.dumps` makes a new one for each event, a third of what an event costs.
_ENCODER = json.JSONEncoder(separators=(",", ":"))

_HEAD_BYTES = 19  # Length in 8 hexadecimal digits, CRC-32 in 8, and three separators.
_SEGMENT = re.compile(r"\d+\.jsonl(\.gz)?", re.ASCII)
_SNAPSHOT = re.compile(r"snapshot-\d+\.json", re.ASCII)
_HEAD = re.compile(rb"\+([0-9a-f]{8}) ([0-9a-f]{8})\n")
_AFRESH = (
    "move the job's folder aside and start the job from a checkpoint with "
    "checkpoint.initFrom"
)


def encoded(event: Event) -> bytes:
    """Return an event encoded as a line of a batch."""
    return _ENCODER.encode(event).encode() + b"\n"


def batch(lines: Iterable[bytes]) -> bytes:
    """Return the lines as one batch."""
    payload = b"".join(lines)
    return b"+%08x %08x\n%s" % (len(payload), zlib.crc32(payload), payload)


def first_event(read: Mapping[int, int]) -> Event:
    """Return a segment's first event: its format, and what was `read` before it."""
    return {"k": SEGMENT, "v": FORMAT, "read": sorted(read.items())}


def with_checksum(event: Event) -> bytes:
    """Return a line with its own checksum: a snapshot, or an event of format 1."""
    raw = json.dumps(event, separators=(",", ":")).encode()
    return b"%08x %s\n" % (zlib.crc32(raw), raw)


def checked(line: bytes) -> Event | None:
    """Return what `with_checksum` wrote; None if the line is damaged."""
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


def segment_name(number: int) -> str:
    """Return the name of a writable segment."""
    return f"{number:08d}.jsonl"


def folder_of(directory: Path, *, make: bool = False) -> Folder:
    """Open a journal's folder: workers can write into it, and into that above it."""
    return opened(directory, root=directory.parent, make=make)


def segments(directory: Path) -> dict[int, Path]:
    """Return the segment files by number; the unpacked one if both exist."""
    found: dict[int, Path] = {}
    for name in sorted(_names(directory), reverse=True):
        # A file server may add names of its own, as `._00000001.jsonl`.
        if _SEGMENT.fullmatch(name):
            found[int(name.split(".")[0])] = directory / name
    return dict(sorted(found.items()))


def snapshots(directory: Path) -> dict[int, Path]:
    """Return the snapshots by the number of their segment."""
    found = (name for name in _names(directory) if _SNAPSHOT.fullmatch(name))
    return {int(name[9:-5]): directory / name for name in found}


def _names(directory: Path) -> list[str]:
    try:
        with folder_of(directory) as folder:
            return folder.names()
    except FileNotFoundError:
        return []


def read_snapshot(directory: Path) -> tuple[int, Event | None]:
    """Return the newest valid snapshot and its number; (0, None) without one."""
    for number, path in sorted(snapshots(directory).items(), reverse=True):
        with folder_of(directory) as folder, folder.reader(path.name) as file:
            state = checked(file.read())
        if state is not None:
            require_format(path, state.get("v", 1))
            return number, state
        log.warning("%s is damaged; using what is older", path)
    return 0, None


def require_format(path: Path, found: int) -> None:
    """Raise JournalError for a format of a later version."""
    if not 1 <= found <= FORMAT:
        raise JournalError(
            f"{path}: got a journal of format {found}, expected at most {FORMAT}: a "
            "later version of ElasticDL wrote it. Go on with that version, or "
            f"{_AFRESH}"
        )


def read_events(directory: Path, first: int = 0) -> Iterator[tuple[int, Event]]:
    """Yield (segment, event) of all segments from number `first` on, in order."""
    return JournalReader(directory, first=first).events()


class JournalReader:
    """Reads the segments from a number on, up to the first unreadable one."""

    def __init__(
        self, directory: Path, *, first: int = 0, before: int | None = None
    ) -> None:
        """List the segments. Raises JournalError if one is missing."""
        self._segments = {
            number: path
            for number, path in segments(directory).items()
            if number >= first and (before is None or number < before)
        }
        # Bytes of each segment that counted, once it was read.
        self.ends: dict[int, int] = {}
        expected = first
        for number, path in self._segments.items():
            if number > max(expected, 1):
                missing = path.with_name(segment_name(max(expected, 1)))
                raise JournalError(
                    f"{missing}: this part of the journal is missing. What came after "
                    f"it cannot be trusted; put the file back, or {_AFRESH}"
                )
            expected = number + 1
        self._last_begun = 0  # number of the last one that holds something whole
        self._bounds = self._find_bounds()

    def _find_bounds(self) -> dict[int, int]:
        """Return the valid length of segments, as later segments state it."""
        bounds: dict[int, int] = {}
        for number, path in sorted(self._segments.items(), reverse=True):
            with _reading(path) as file:
                old = _is_old(file)
                found = None if old else _batch(file, bounds.get(number))
            if old or found:
                self._last_begun = max(self._last_begun, number)
            if found:
                begin = json.loads(found.split(b"\n", 1)[0])
                require_format(path, begin["v"])
                for other, end in begin["read"]:
                    bounds.setdefault(other, end)
        return bounds

    def plain(self) -> list[Path]:
        """Return the segments that were read and are not packed yet."""
        return [path for path in self._segments.values() if path.suffix != ".gz"]

    def events(self) -> Iterator[tuple[int, Event]]:
        """Yield (segment, event). Raises JournalError for damage."""
        for number, path in self._segments.items():
            bound = self._bounds.get(number)
            self.ends[number] = 0
            with _reading(path) as file:
                read = self._lines if _is_old(file) else self._batches
                for event in read(number, file, bound):
                    yield number, event

    def _batches(
        self, number: int, file: IO[bytes], bound: int | None
    ) -> Iterator[Event]:
        while True:
            found = _batch(file, bound)
            if found is None:
                if bound is not None or _has_whole_batch(file):
                    self._damaged(number, f"after byte {self.ends[number]} it")
                log.warning(
                    "%s: dropped what was torn after byte %d",
                    self._segments[number],
                    self.ends[number],
                )
                return
            if not found:
                return
            self.ends[number] = file.tell()
            # At once: a call for each line takes twice as long.
            events: list[Event] = json.loads(b"[%s]" % found[:-1].replace(b"\n", b","))
            yield from (event for event in events if event["k"] != SEGMENT)

    def _lines(
        self, number: int, file: IO[bytes], bound: int | None
    ) -> Iterator[Event]:
        """Yield the events of a segment in format 1."""
        for count, line in enumerate(file, 1):
            if bound is not None and self.ends[number] >= bound:
                return
            event = checked(line)
            if event is not None:
                self.ends[number] += len(line)
                yield event
                continue
            last = bound is None and number >= self._last_begun
            if last and not file.read(1):
                log.warning(
                    "%s: dropped the torn last line %d", self._segments[number], count
                )
                return
            self._damaged(number, f"line {count}")

    def _damaged(self, number: int, where: str) -> None:
        raise JournalError(
            f"{self._segments[number]}: {where} is damaged (checksum). Lines after it "
            f"cannot be trusted; {_AFRESH}"
        )


@contextlib.contextmanager
def _reading(path: Path) -> Iterator[IO[bytes]]:
    try:
        with folder_of(path.parent) as folder, folder.reader(path.name) as file:
            if path.suffix == ".gz":
                with gzip.open(file) as unpacked:
                    yield cast("IO[bytes]", unpacked)
            else:
                yield file
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise JournalError(
            f"{path}: this packed part of the journal is damaged ({error}). Lines "
            f"after it cannot be trusted; {_AFRESH}"
        ) from error


def _is_old(file: IO[bytes]) -> bool:
    """Whether a segment has format 1; the file position is reset."""
    start = file.read(1)
    file.seek(0)
    return start != b"" and start in b"0123456789abcdef"


def _batch(file: IO[bytes], bound: int | None) -> bytes | None:
    """Return the next batch, b"" at the end, None for an incomplete one.

    The file stands after the batch, or where the broken one begins.
    """
    start = file.tell()
    if bound is not None and start >= bound:
        return b""
    head = file.read(_HEAD_BYTES)
    if not head:
        return b""
    found = _payload(head, file)
    if found is None or (bound is not None and file.tell() > bound):
        file.seek(start)
        return None
    return found


def _payload(head: bytes, file: IO[bytes]) -> bytes | None:
    found = _HEAD.fullmatch(head)
    if found is None:
        return None
    size, crc = int(found[1], 16), int(found[2], 16)
    payload = file.read(size)
    return payload if len(payload) == size and zlib.crc32(payload) == crc else None


def _has_whole_batch(file: IO[bytes]) -> bool:
    """Whether a valid batch follows: then the broken one was acknowledged."""
    start, rest = file.tell(), file.read()
    place = rest.find(b"+")
    while place >= 0:
        file.seek(start + place)
        if _batch(file, None):
            return True
        place = rest.find(b"+", place + 1)
    return False


def pack(path: Path, end: int | None) -> None:
    """Replace a segment by a packed one, without what is behind `end`. Raises OSError.

    None: all of it counts.
    """
    packed = path.with_name(path.name + ".gz")
    with folder_of(path.parent) as folder:
        with (
            folder.reader(path.name) as source,
            folder.replacing(packed.name) as handle,
            os.fdopen(handle, "wb", closefd=False) as target,
        ):
            with gzip.open(target, "wb", compresslevel=3) as zipped:
                _copy(source, zipped, end)
            target.flush()
            os.fsync(target.fileno())
        folder.flush()
        folder.unlink(path.name)


def _copy(source: IO[bytes], target: gzip.GzipFile, end: int | None) -> None:
    if end is None:
        shutil.copyfileobj(source, target, 1 << 20)
        return
    while end > 0 and (data := source.read(min(end, 1 << 20))):
        target.write(data)
        end -= len(data)


def volume_of(fd: int) -> tuple[float, float] | None:
    """Return free and total bytes; None if the volume does not report them."""
    try:
        told = os.fstatvfs(fd)
    except OSError as error:
        log.info("the volume's room is not known: %s", error.strerror)
        return None
    return float(told.f_bavail * told.f_frsize), float(told.f_blocks * told.f_frsize)
