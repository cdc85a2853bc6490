"""The chunks of a RecordIO file: their headers, what bodies hold, and damaged ones.

Owns the format below records (see `recordio`, its caller). Knows no ranges.

A header is under no checksum. One that contradicts itself or leads nowhere is mended
from the body, whose checksum says whether that worked; else the next chunk is looked
for by its magic number.
"""

from __future__ import annotations

import enum
import gzip
import struct
import zlib
from dataclasses import dataclass, replace
from pathlib import Path

from elasticdl.data.formats import snappy
from elasticdl.data.formats.files import FilePool
from elasticdl.errors import DataError

MAGIC = 0x01020304  # Each chunk begins with it.
MAGIC_BYTES = MAGIC.to_bytes(4, "little")
HEADER = struct.Struct("<5I")
LENGTH = struct.Struct("<I")

# A body is read when the file is opened only to mend its header; none is larger.
_LONGEST_MENDED = 128 * 1024 * 1024
_SEARCH_BYTES = 1024 * 1024
# Snappy and gzip make a body at most so many times smaller.
_MOST_SMALLER = 1100


class Compressor(enum.IntEnum):
    """How a chunk's body is compressed; the number is the header's."""

    NONE = 0
    SNAPPY = 1
    GZIP = 2


_COMPRESSORS = frozenset(Compressor)


@dataclass(frozen=True)
class Chunk:
    """A chunk as its header describes it; one with a `problem` cannot be read."""

    offset: int
    first: int  # number of its first record in the file
    crc: int
    compressor: int
    size: int
    num_records: int
    problem: str = ""


def scan(path: Path, pool: FilePool) -> list[Chunk]:
    """Return the chunks of a file from their headers. Raises DataError."""
    try:
        file_size = path.stat().st_size
    except OSError as error:
        raise DataError(
            f"{path}: cannot be read: {error.strerror}; check that the file is there "
            "and that this user may read it"
        ) from error
    chunks: list[Chunk] = []
    offset = first = 0
    while offset < file_size:
        chunk, offset = _next_chunk(path, pool, offset, first, file_size)
        if chunk.num_records:
            chunks.append(chunk)
        first += chunk.num_records
    return chunks


def _next_chunk(
    path: Path, pool: FilePool, offset: int, first: int, file_size: int
) -> tuple[Chunk, int]:
    """Return the chunk at an offset, and where the next one begins."""
    header = pool.pread(path, offset, HEADER.size)
    body = offset + HEADER.size
    if len(header) < HEADER.size:
        problem = (
            f"the file is cut: {len(header)} bytes of a chunk header at byte {offset}"
        )
        return Chunk(offset, first, 0, 0, 0, 1, problem), file_size
    magic, crc, compressor, size, num_records = HEADER.unpack(header)
    if magic == MAGIC and _fits(compressor, size, num_records):
        end = body + size
        chunk = Chunk(offset, first, crc, compressor, size, num_records)
        if end <= file_size and _holds(path, pool, chunk):
            return chunk, end
        if end > file_size and _search(path, pool, body, file_size) == file_size:
            problem = (
                f"the file is cut: the chunk at byte {offset} has {file_size - body} "
                f"of {size} bytes"
            )
            return replace(chunk, problem=problem), file_size
    return _mended(path, pool, offset, first, file_size)


def _holds(path: Path, pool: FilePool, chunk: Chunk) -> bool:
    """Return whether the end and the count in a header are right.

    The body is read only where the header alone leaves a doubt: nothing begins where
    the chunk ends, or its records would have less than a byte each.
    """
    body = chunk.offset + HEADER.size
    ends = pool.pread(path, body + chunk.size, 4) in (b"", MAGIC_BYTES)
    many = chunk.num_records * LENGTH.size > chunk.size
    if (ends and not many) or chunk.size > _LONGEST_MENDED:
        return ends
    content = pool.pread(path, body, chunk.size)
    if zlib.crc32(content) != chunk.crc:
        return ends and not many
    return not many or _count(content, chunk.compressor) == chunk.num_records


def _mended(
    path: Path, pool: FilePool, offset: int, first: int, file_size: int
) -> tuple[Chunk, int]:
    """Return what can be recovered of a chunk with a damaged header."""
    body = offset + HEADER.size
    end = _search(path, pool, body, file_size)
    header = pool.pread(path, offset, HEADER.size)
    magic, crc, compressor, size, num_records = HEADER.unpack(header)
    # Where one field is wrong, the others and the body tell what it was.
    if end - body <= _LONGEST_MENDED:
        content = pool.pread(path, body, end - body)
        if zlib.crc32(content) == crc:
            for kind in dict.fromkeys([compressor, *Compressor]):
                num = _count(content, kind)
                if num:
                    return Chunk(offset, first, crc, kind, len(content), num), end
    if magic != MAGIC:
        problem = (
            f"no chunk header at byte {offset} (got magic {magic:#010x}, expected "
            f"{MAGIC:#010x})"
        )
    else:
        problem = (
            f"the chunk header at byte {offset} is corrupt (compressor {compressor}, "
            f"{size} bytes, {num_records} records)"
        )
    problem += f"; the records in the {end - offset} bytes from here cannot be found"
    return Chunk(offset, first, 0, 0, 0, 1, problem), end


def _fits(compressor: int, size: int, num_records: int) -> bool:
    """Return whether a header's fields are consistent."""
    if compressor not in _COMPRESSORS or bool(num_records) != bool(size):
        return False
    most = size if compressor == Compressor.NONE else size * _MOST_SMALLER
    return num_records * LENGTH.size <= most


def _search(path: Path, pool: FilePool, offset: int, file_size: int) -> int:
    """Return the offset of the next chunk; the end of the file if there is none."""
    while offset < file_size:
        block = pool.pread(path, offset, _SEARCH_BYTES + HEADER.size - 1)
        at = block.find(MAGIC_BYTES)
        while at >= 0 and at < _SEARCH_BYTES:
            header = block[at : at + HEADER.size]
            if len(header) == HEADER.size:
                _, _, compressor, size, num_records = HEADER.unpack(header)
                end = offset + at + HEADER.size + size
                if (
                    _fits(compressor, size, num_records)
                    and end <= file_size
                    and pool.pread(path, end, 4) in (b"", MAGIC_BYTES)
                ):
                    return offset + at
            at = block.find(MAGIC_BYTES, at + 1)
        offset += _SEARCH_BYTES
    return file_size


def _count(body: bytes, compressor: int) -> int:
    """Return the number of records in a body; 0 if it cannot be split."""
    try:
        return len(split(decompress(body, compressor)))
    except ValueError:
        return 0


def decompress(body: bytes, compressor: int) -> bytes:
    """Return the decompressed body. Raises ValueError if it is corrupt."""
    if compressor == Compressor.NONE:
        return body
    if compressor == Compressor.SNAPPY:
        return snappy.decompress(body)
    if compressor == Compressor.GZIP:
        try:
            return gzip.decompress(body)
        except (OSError, EOFError, zlib.error) as error:
            raise ValueError(f"gzip: {error}") from error
    raise ValueError(
        f"compressor {compressor} is not known (0 none, 1 snappy, 2 gzip are)"
    )


def split(data: bytes) -> list[bytes]:
    """Return the records of a body. Raises ValueError with the place of the error."""
    records = []
    at, size = 0, len(data)
    unpack_from = LENGTH.unpack_from
    try:
        while at < size:
            begin = at + 4
            at = begin + unpack_from(data, at)[0]
            records.append(data[begin:at])
    except struct.error as error:
        raise ValueError(f"it ends inside record {len(records)}") from error
    if at != size:
        raise ValueError(f"{len(records)} records take {at} bytes, it holds {size}")
    return records
