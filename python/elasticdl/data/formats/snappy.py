"""The snappy framing format, as RecordIO chunks hold it.

Owns frames; the compression itself is cramjam's. Called by `recordio`. Knows no
records.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

import cramjam

from elasticdl.data.formats.crc32c import masked_crc32c

_STREAM_START = b"\xff\x06\x00\x00sNaPpY"
_COMPRESSED, _PLAIN = 0, 1
_MOST_IN_FRAME = 65536  # The format's limit.
_CRC = struct.Struct("<I")


def compress(pieces: Iterable[bytes]) -> bytes:
    """Return the pieces as one stream, each in frames of its own.

    Writers in the wild (the Go library's unbuffered writer) frame each write, and some
    readers need what was written together to come out together, so this does too.
    """
    frames = [_STREAM_START]
    for piece in pieces:
        frames += [
            _frame(piece[start : start + _MOST_IN_FRAME])
            for start in range(0, len(piece), _MOST_IN_FRAME)
        ]
    return b"".join(frames)


def decompress(stream: bytes) -> bytes:
    """Return the content of a stream. Raises ValueError if it is not snappy."""
    try:
        return bytes(cramjam.snappy.decompress(stream))
    except cramjam.DecompressionError as error:
        raise ValueError(f"snappy: {error}") from error


def _frame(block: bytes) -> bytes:
    compressed = bytes(cramjam.snappy.compress_raw(block))
    # Below an eighth saved it is not worth a reader's time: the Go library's rule.
    if len(compressed) >= len(block) - len(block) // 8:
        kind, body = _PLAIN, block
    else:
        kind, body = _COMPRESSED, compressed
    size = (len(body) + _CRC.size).to_bytes(3, "little")
    return bytes([kind]) + size + _CRC.pack(masked_crc32c(block)) + body
