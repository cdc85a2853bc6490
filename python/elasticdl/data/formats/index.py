"""Side-car indexes: where each record of a file begins, found once and kept beside it.

Owns the `.edlidx` file. Called by the readers whose format has no index of its own
(TFRecord, CSV, Arrow). Knows no format: it keeps offsets that a reader's scan found.

An index file is a 48-byte header (magic, kind, size and modification time of the data
file, number of offsets, CRC-32 of the offsets) and the offsets as little-endian int64.
It holds for one size, modification time and kind; otherwise it is made again.
"""

from __future__ import annotations

import logging
import os
import struct
import zlib
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from elasticdl.errors import DataError
from elasticdl.files import write_whole

Offsets = NDArray[np.int64]

SUFFIX = ".edlidx"
_MAGIC = b"EDLIDX1\n"
_HEADER = struct.Struct("<8sIIqqqI4x")  # magic, kind, 0, size, mtime, count, crc

log = logging.getLogger(__name__)


def index_path(path: Path) -> Path:
    """Return where the index of a data file is kept: beside it."""
    return path.with_name(path.name + SUFFIX)


def load_or_build(path: Path, kind: str, scan: Callable[[Path], Offsets]) -> Offsets:
    """Return the offsets of a file's records, from its index if that is current.

    Args:
        path: The data file.
        kind: What the offsets mean, with every option that changes them.
        scan: Finds the offsets: int64[number of records + 1], ascending; record i
            lies in [offsets[i], offsets[i + 1]).

    A new index is written beside the file; where that cannot be done (a read-only
    folder) it is kept in memory alone. Raises DataError if the file cannot be read.
    """
    try:
        stat = path.stat()
        offsets = _load(path, kind, stat)
        if offsets is None:
            offsets = scan(path)
            _write(path, kind, stat, offsets)
    except OSError as error:
        raise DataError(
            f"{path}: cannot be read: {error.strerror or error}; check that the file "
            "is there and that this user may read it"
        ) from error
    return offsets


def runs(offsets: list[int], *, longest: int) -> Iterator[list[int]]:
    """Split a range of records; each of over `longest` bytes is read alone.

    Gives the offsets of each part, its end included, so that a reader can read a part
    at once and look at the head of what is too long before it reads that.
    """
    begin = 0
    for i, (start, end) in enumerate(pairwise(offsets)):
        if end - start > longest:
            if begin < i:
                yield offsets[begin : i + 1]
            yield offsets[i : i + 2]
            begin = i + 1
    if begin < len(offsets) - 1:
        yield offsets[begin:]


def _header(kind: str, stat: os.stat_result, offsets: Offsets) -> bytes:
    return _HEADER.pack(
        _MAGIC,
        zlib.crc32(kind.encode()),
        0,
        stat.st_size,
        stat.st_mtime_ns,
        len(offsets),
        zlib.crc32(offsets.tobytes()),
    )


def _load(path: Path, kind: str, stat: os.stat_result) -> Offsets | None:
    try:
        data = index_path(path).read_bytes()
    except OSError:
        return None
    if len(data) <= _HEADER.size or (len(data) - _HEADER.size) % 8:
        return None
    offsets = np.frombuffer(data, "<i8", offset=_HEADER.size)
    # Comparing whole headers checks magic, kind, size, time, count and CRC at once.
    if data[: _HEADER.size] != _header(kind, stat, offsets):
        return None
    return offsets.astype(np.int64, copy=False)


def _write(path: Path, kind: str, stat: os.stat_result, offsets: Offsets) -> None:
    offsets = offsets.astype("<i8", copy=False)
    data = _header(kind, stat, offsets) + offsets.tobytes()
    try:
        write_whole(index_path(path), data, durable=False)
    except OSError as error:
        log.info("%s: index is kept in memory: %s", path, error.strerror)
