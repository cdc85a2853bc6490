"""RecordIO files, byte for byte as the PyPI package pyrecordio writes and reads them.

Owns the format. Called by the reader of many files, by data sets and by conversion.
Must not know what is in a record.

A file is a row of chunks. A chunk is a 20-byte header of little-endian uint32 (magic,
CRC-32 of the body as stored, compressor, size of the body as stored, number of
records) and a body: for each record its length as uint32 and its bytes, compressed as
a whole by none (0), snappy framing (1) or gzip (2). The headers are the index: finding
a record reads headers alone, and a range reads only the chunks it touches.
"""

from __future__ import annotations

import enum
import gzip
import struct
import zlib
from bisect import bisect_right
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from elasticdl.data import snappy
from elasticdl.data.chunk_cache import ChunkCache
from elasticdl.data.files import FilePool
from elasticdl.data.records import BadRecords, Metadata
from elasticdl.errors import DataError

_OBJECT_BYTES = 40  # of a bytes object beside its bytes
MAGIC = 0x01020304
MAGIC_BYTES = MAGIC.to_bytes(4, "little")
_HEADER = struct.Struct("<5I")
_LENGTH = struct.Struct("<I")

# pyrecordio fills 32 MiB, so that a task decodes 32 MiB to read its first record.
DEFAULT_CHUNK_BYTES = 256 * 1024
PYRECORDIO_CHUNK_BYTES = 32 * 1024 * 1024


class Compressor(enum.IntEnum):
    """How a chunk's body is stored; the number is what the header holds."""

    NONE = 0
    SNAPPY = 1
    GZIP = 2


@dataclass(frozen=True)
class _Chunk:
    offset: int
    first: int  # number of its first record in the file
    crc: int
    compressor: int
    size: int
    num_records: int
    problem: str = ""


class RecordIOWriter:
    """Writes a RecordIO file; use as a context manager."""

    def __init__(
        self,
        path: Path,
        *,
        compressor: Compressor = Compressor.SNAPPY,
        chunk_bytes: int = DEFAULT_CHUNK_BYTES,
    ) -> None:
        """Begin the file; a chunk ends before its records exceed `chunk_bytes`."""
        self._file = path.open("wb")
        self._compressor = compressor
        self._chunk_bytes = chunk_bytes
        self._records: list[bytes] = []
        self._num_bytes = 0

    def write(self, record: bytes) -> None:
        """Append a record."""
        # A record as big as a chunk, which pyrecordio refuses to write but can read,
        # gets a chunk of its own.
        if self._records and self._num_bytes + len(record) > self._chunk_bytes:
            self._end_chunk()
        self._records.append(record)
        self._num_bytes += len(record)

    def close(self) -> None:
        """Write what is left and close the file."""
        try:
            self._end_chunk()
        finally:
            self._file.close()

    def __enter__(self) -> RecordIOWriter:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _end_chunk(self) -> None:
        if not self._records:
            return
        pieces: list[bytes] = []
        for record in self._records:
            pieces += (_LENGTH.pack(len(record)), record)
        if self._compressor is Compressor.SNAPPY:
            body = snappy.compress(pieces)
        elif self._compressor is Compressor.GZIP:
            body = gzip.compress(b"".join(pieces), mtime=0)
        else:
            body = b"".join(pieces)
        self._file.write(
            _HEADER.pack(
                MAGIC,
                zlib.crc32(body),
                self._compressor,
                len(body),
                len(self._records),
            )
        )
        self._file.write(body)
        self._records = []
        self._num_bytes = 0


class RecordIOReader:
    """Reads ranges of one RecordIO file. Thread-safe.

    A chunk whose body is corrupt loses all its records, each of which is then a bad
    record. A header that is cut or corrupt hides everything behind it, of which not
    even the number is known: that counts as one bad record at the end of the file.
    """

    def __init__(self, path: Path, pool: FilePool, cache: ChunkCache) -> None:
        """Scan the chunk headers. Raises DataError if the file cannot be read."""
        self._path = path
        self._pool = pool
        self._cache = cache
        self._chunks = _scan(path, pool)
        self._firsts = [chunk.first for chunk in self._chunks]

    @property
    def num_records(self) -> int:
        """Records in the file, bad ones included."""
        if not self._chunks:
            return 0
        return self._chunks[-1].first + self._chunks[-1].num_records

    @property
    def num_chunks(self) -> int:
        """Chunks in the file."""
        return len(self._chunks)

    @property
    def metadata(self) -> Metadata:
        """Nothing is known of the records."""
        return Metadata()

    def read(self, start: int, end: int, bad: BadRecords) -> list[bytes]:
        """Return the good records of [start, end); tell `bad` of the others."""
        values: list[bytes] = []
        number = bisect_right(self._firsts, start) - 1
        while start < end and number < len(self._chunks):
            chunk = self._chunks[number]
            stop = min(end, chunk.first + chunk.num_records)
            try:
                records = self._records_of(chunk)
                values += records[start - chunk.first : stop - chunk.first]
            except ValueError as error:
                for record in range(start, stop):
                    bad.add(record, str(error))
            start = max(start, stop)
            number += 1
        return values

    def _records_of(self, chunk: _Chunk) -> list[bytes]:
        kept: list[bytes] | None = self._cache.get(self._path, chunk.offset)
        if kept is not None:
            return kept
        # Two threads may decode the same chunk, but none waits for another.
        records = _decode(self._path, chunk, self._pool)
        size = sum(map(len, records)) + _OBJECT_BYTES * len(records)
        self._cache.put(self._path, chunk.offset, records, size)
        return records


def _scan(path: Path, pool: FilePool) -> list[_Chunk]:
    try:
        file_size = path.stat().st_size
    except OSError as error:
        raise DataError(
            f"{path}: cannot be read: {error.strerror}; check that the file is there "
            "and that this user may read it"
        ) from error
    chunks: list[_Chunk] = []
    offset = first = 0
    while offset < file_size:
        header = pool.pread(path, offset, _HEADER.size)
        chunk = _parse_header(header, offset, first, file_size)
        if chunk.num_records:
            chunks.append(chunk)
        if len(header) < _HEADER.size or header[:4] != MAGIC_BYTES:
            break
        offset += _HEADER.size + chunk.size
        first += chunk.num_records
    return chunks


def _parse_header(header: bytes, offset: int, first: int, file_size: int) -> _Chunk:
    rest = file_size - offset
    if len(header) < _HEADER.size:
        reason = f"the file is cut: {rest} bytes of a chunk header at byte {offset}"
        return _Chunk(offset, first, 0, 0, 0, 1, reason)
    magic, crc, compressor, size, num_records = _HEADER.unpack(header)
    if magic != MAGIC:
        reason = (
            f"no chunk header at byte {offset} (got magic {magic:#010x}, expected "
            f"{MAGIC:#010x}); the records in the last {rest} bytes cannot be found"
        )
        return _Chunk(offset, first, 0, 0, 0, 1, reason)
    problem = ""
    if _HEADER.size + size > rest:
        problem = (
            f"the file is cut: the chunk at byte {offset} has {rest - _HEADER.size} of "
            f"{size} bytes"
        )
    return _Chunk(offset, first, crc, compressor, size, num_records, problem)


def _decode(path: Path, chunk: _Chunk, pool: FilePool) -> list[bytes]:
    """Return a chunk's records. Raises ValueError, saying why it is corrupt."""
    if chunk.problem:
        raise ValueError(chunk.problem)
    body = pool.pread(path, chunk.offset + _HEADER.size, chunk.size)
    where = f"the chunk at byte {chunk.offset}"
    crc = zlib.crc32(body)
    if crc != chunk.crc:
        raise ValueError(
            f"{where} is corrupt: CRC {crc:#010x}, its header says {chunk.crc:#010x}"
        )
    try:
        return _split(_decompress(body, chunk.compressor), chunk.num_records)
    except ValueError as error:
        raise ValueError(f"{where} is corrupt: {error}") from error


def _decompress(body: bytes, compressor: int) -> bytes:
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


def _split(data: bytes, num_records: int) -> list[bytes]:
    records = []
    at = 0
    unpack_from = _LENGTH.unpack_from
    try:
        for _ in range(num_records):
            begin = at + 4
            at = begin + unpack_from(data, at)[0]
            records.append(data[begin:at])
    except struct.error as error:
        raise ValueError(
            f"it ends after {len(records)} of {num_records} records"
        ) from error
    if at != len(data):
        raise ValueError(
            f"{num_records} records take {at} bytes, but it holds {len(data)}"
        )
    return records
