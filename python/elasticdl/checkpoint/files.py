"""Files that are there whole or not at all.

Owns writing aside, syncing and renaming. Called by `checkpoint/store.py`. Knows nothing
of what the bytes mean.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import mmap
import os
import shutil
import time
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from elasticdl.beneath import opened
from elasticdl.errors import CheckpointError

# Written and added to the checksum at once, while it is in the cache.
_BLOCK = 4 << 20
# So much is given to the disk before its progress is told again: what the page cache
# holds is no progress, and a last sync of everything would take as long as the writing.
# Less at first, and on a disk that takes longer than these seconds for it: to whoever
# waits for progress one of 1 MB/s would stand still.
_MOST_SYNC_BYTES = 64 << 20
_SYNC_SECONDS = 1.0
Buffer = bytes | bytearray | memoryview


def ignore(_written: int) -> None:
    """Default observer: ignore how much is written."""


@dataclass(frozen=True)
class Written:
    """Size and CRC-32 of a file that was written."""

    bytes: int
    crc32: int


def write_whole(
    path: Path,
    buffers: Iterable[Buffer],
    *,
    before: Callable[[Written], None] = lambda _written: None,
    progress: Callable[[int], None] = ignore,
    root: Path | None = None,
) -> Written:
    """Write a file so that a reader sees all of it or none, even after a power cut.

    `before` is called when all is written, right before the file gets its name;
    `progress` again and again with the bytes that the disk has so far. No link is
    followed below `root`, the file's folder by default.

    Raises CheckpointError if it cannot be written (disk full, no permission); then
    nothing is left behind and a file that was there before stays.
    """
    path = Path(path)
    try:
        with opened(path.parent, root=root or path.parent, make=True) as folder:
            with folder.replacing(path.name) as handle:
                written = _write(handle, buffers, progress)
                os.fsync(handle)
                before(written)
            folder.flush()
    except OSError as error:
        raise CheckpointError(
            f"{path}: cannot be written: {error.strerror or error}; "
            f"{_free(path.parent)} bytes are free there; make room or choose another "
            "folder (job.checkpoint.dir)"
        ) from error
    return written


def _write(
    handle: int, buffers: Iterable[Buffer], progress: Callable[[int], None]
) -> Written:
    """Write by whole blocks, past the page cache where the file system can.

    A copy into the cache costs more than all else here, and training waits for it.
    """
    size = crc = filled = told = 0
    paced = _Paced()
    block = memoryview(mmap.mmap(-1, _BLOCK))  # aligned to a page, as that needs it
    room = np.frombuffer(block, np.uint8)
    _past_cache(handle, wanted=True)
    for buffer in buffers:
        data = np.frombuffer(memoryview(buffer).cast("B"), np.uint8)
        size += data.size
        while data.size:
            part, data = np.split(data, [_BLOCK - filled])
            np.copyto(room[filled : filled + part.size], part)
            crc = zlib.crc32(part.data, crc)
            filled += part.size
            if filled == _BLOCK:
                _write_all(handle, block)
                filled, told = 0, told + _BLOCK
                if paced.is_due(told):
                    _to_disk(handle)
                    paced.synced(told)
                    progress(told)
    _past_cache(handle, wanted=False)
    _write_all(handle, block[:filled])
    return Written(size, crc)


@dataclass
class _Paced:
    """When the disk is to have all that is written: after more bytes if it is fast."""

    step: int = _BLOCK
    synced_bytes: int = 0
    synced_at: float = field(default_factory=time.monotonic)

    def is_due(self, written: int) -> bool:
        """Whether so many bytes are enough, or so much time has gone by."""
        late = time.monotonic() - self.synced_at >= _SYNC_SECONDS
        return late or written - self.synced_bytes >= self.step

    def synced(self, written: int) -> None:
        """Note that the disk has so many bytes now."""
        now = time.monotonic()
        if now - self.synced_at > _SYNC_SECONDS:
            self.step = max(self.step // 2, _BLOCK)
        else:
            self.step = min(self.step * 2, _MOST_SYNC_BYTES)
        self.synced_bytes, self.synced_at = written, now


def _to_disk(handle: int) -> None:
    """Have the disk take what went through the page cache."""
    direct = getattr(os, "O_DIRECT", 0)
    if not fcntl.fcntl(handle, fcntl.F_GETFL) & direct:
        getattr(os, "fdatasync", os.fsync)(handle)  # macOS has but one of them


def _write_all(handle: int, block: memoryview) -> None:
    while block:
        try:
            block = block[os.write(handle, block) :]
        except OSError as error:
            # Not on this file system, or what is left is no whole block any more.
            if error.errno != errno.EINVAL or not _past_cache(handle, wanted=False):
                raise


def _past_cache(handle: int, *, wanted: bool) -> bool:
    """Have writes go past the page cache or not; return whether that changed."""
    if not hasattr(os, "O_DIRECT"):
        return False
    before = fcntl.fcntl(handle, fcntl.F_GETFL)
    after = before | os.O_DIRECT if wanted else before & ~os.O_DIRECT
    if after != before:
        try:
            fcntl.fcntl(handle, fcntl.F_SETFL, after)
        except OSError:
            return False  # the file system has no such writes
    return after != before


def checksum(view: memoryview) -> int:
    """Return the CRC-32 of the bytes."""
    crc = 0
    for start in range(0, len(view), _BLOCK):
        crc = zlib.crc32(view[start : start + _BLOCK], crc)
    return crc


def _free(directory: Path) -> str:
    for place in (directory, *directory.parents):
        with contextlib.suppress(OSError):
            return f"{shutil.disk_usage(place).free:,}"
    return "unknown"
