"""Files that are there whole or not at all.

Owns writing aside, syncing and renaming. Called by `checkpoint/store.py`. Knows nothing
of what the bytes mean.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from elasticdl.errors import CheckpointError

# Written and added to the checksum at once, while it is in the cache.
_BLOCK = 4 << 20
Buffer = bytes | bytearray | memoryview


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
) -> Written:
    """Write a file so that a reader sees all of it or none, even after a power cut.

    `before` is called when all is written, right before the file gets its name.

    Raises CheckpointError if it cannot be written (disk full, no permission); then
    nothing is left behind and a file that was there before stays.
    """
    path = Path(path)
    aside: Path | None = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        aside = Path(name)
        with os.fdopen(handle, "wb", buffering=0) as file:
            written = _write(file.fileno(), buffers)
            os.fsync(file.fileno())
        # mkstemp makes files for the owner alone; other users read checkpoints too.
        aside.chmod(0o644)
        before(written)
        aside.replace(path)
        aside = None
        sync_directory(path.parent)
    except OSError as error:
        raise CheckpointError(
            f"{path}: cannot be written: {error.strerror or error}; "
            f"{_free(path.parent)} bytes are free there; make room or choose another "
            "folder (job.checkpoint.dir)"
        ) from error
    finally:
        if aside is not None:
            with contextlib.suppress(OSError):
                aside.unlink()
    return written


def _write(handle: int, buffers: Iterable[Buffer]) -> Written:
    size = crc = 0
    for buffer in buffers:
        view = memoryview(buffer).cast("B")
        for start in range(0, len(view), _BLOCK):
            block = view[start : start + _BLOCK]
            crc = zlib.crc32(block, crc)
            while block:
                block = block[os.write(handle, block) :]
        size += len(view)
    return Written(size, crc)


def checksum(view: memoryview) -> int:
    """Return the CRC-32 of the bytes."""
    crc = 0
    for start in range(0, len(view), _BLOCK):
        crc = zlib.crc32(view[start : start + _BLOCK], crc)
    return crc


def sync_directory(directory: Path) -> None:
    """Make a rename in the directory durable."""
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _free(directory: Path) -> str:
    for place in (directory, *directory.parents):
        with contextlib.suppress(OSError):
            return f"{shutil.disk_usage(place).free:,}"
    return "unknown"
