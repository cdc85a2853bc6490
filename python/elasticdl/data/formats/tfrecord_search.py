"""Finds the next record of a TFRecord file behind a damaged one.

Owns the search. Called by the scan of `tfrecord`. Knows nothing of indexes.

A record begins with its length (uint64) and the masked CRC-32C of these 8 bytes, so
that its beginning can be told from other bytes. The CRC is linear: that of 8 bytes is
the CRC of zeros with one table entry for each byte added, which NumPy does for every
place of a block at once (some 50 MB/s).
"""

from __future__ import annotations

import mmap
from functools import cache

import google_crc32c
import numpy as np
from numpy.typing import NDArray

_LENGTH_BYTES, _HEAD, _FRAME = 8, 12, 16
_BLOCK_BYTES = 1024 * 1024  # A block is checked for all of its offsets at once.
# Added to a CRC by the format, so that a CRC of data with a CRC is no zero.
_MASK = 0xA282EAD8


def find_head(data: bytes | mmap.mmap, start: int) -> int:
    """Return the offset of the first record from `start`; the end if there is none.

    A beginning counts if its record ends with the data, or where another one begins.
    """
    size = len(data)
    while start + _FRAME <= size:
        block = data[start : start + _BLOCK_BYTES + _HEAD - 1]
        for place in np.flatnonzero(_is_head(block)).tolist():
            end = _end(data, start + place)
            if end == size or _end(data, end):
                return start + place
        start += _BLOCK_BYTES
    return size


def _end(data: bytes | mmap.mmap, at: int) -> int:
    """Return the end of the record at an offset; 0 if no valid record begins there."""
    head = data[at : at + _HEAD]
    if len(head) < _HEAD or not _is_head(head)[0]:
        return 0
    end = at + int.from_bytes(head[:_LENGTH_BYTES], "little") + _FRAME
    return end if end <= len(data) else 0


def _is_head(block: bytes) -> NDArray[np.bool_]:
    """Return for each place whether 8 bytes and their masked CRC-32C begin there."""
    bytes_ = np.frombuffer(block, np.uint8)
    num = len(bytes_) - _HEAD + 1
    of_zeros, tables = _tables()
    crc = np.full(num, of_zeros, np.uint32)
    for place, table in enumerate(tables):
        crc ^= table[bytes_[place : place + num]]
    masked = (crc >> 15 | crc << 17) + np.uint32(_MASK)
    stored = np.zeros(num, np.uint32)
    for place in range(4):
        begin = _LENGTH_BYTES + place
        stored |= bytes_[begin : begin + num].astype(np.uint32) << np.uint32(8 * place)
    same: NDArray[np.bool_] = masked == stored
    return same


@cache
def _tables() -> tuple[int, NDArray[np.uint32]]:
    """Return the CRC of 8 zeros, and by (byte value, place) its change."""
    of_zeros: int = google_crc32c.value(bytes(_LENGTH_BYTES))
    tables = np.zeros((_LENGTH_BYTES, 256), np.uint32)
    for place in range(_LENGTH_BYTES):
        for value in range(256):
            length = (value << 8 * place).to_bytes(_LENGTH_BYTES, "little")
            tables[place, value] = google_crc32c.value(length) ^ of_zeros
    return of_zeros, tables
