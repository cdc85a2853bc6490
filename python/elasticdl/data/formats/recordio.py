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

import gzip
import zlib
from bisect import bisect_right
from pathlib import Path
from types import TracebackType

from elasticdl.data.formats import snappy
from elasticdl.data.formats.chunk_cache import ChunkCache
from elasticdl.data.formats.files import FilePool
from elasticdl.data.formats.recordio_chunks import (
    HEADER,
    LENGTH,
    MAGIC,
    Chunk,
    Compressor,
    decompress,
    scan,
    split,
)
from elasticdl.data.records import BadRecords, Metadata

_OBJECT_BYTES = 40  # of a bytes object beside its bytes
# pyrecordio fills 32 MiB, so that a task decodes 32 MiB to read its first record.
DEFAULT_CHUNK_BYTES = 256 * 1024


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
            pieces += (LENGTH.pack(len(record)), record)
        if self._compressor is Compressor.SNAPPY:
            body = snappy.compress(pieces)
        elif self._compressor is Compressor.GZIP:
            body = gzip.compress(b"".join(pieces), mtime=0)
        else:
            body = b"".join(pieces)
        self._file.write(
            HEADER.pack(
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
    record: the format has one checksum for a chunk, and none for a record. A header is
    under no checksum at all. Where it contradicts itself or leads nowhere, the chunk is
    taken if its body's checksum holds; else all up to the next chunk that can be found,
    of which not even the number of records is known, counts as one bad record. Where
    only its count of records is wrong, and could be true, the numbers of records go by
    it; the body, once it is read, tells: records beyond the count are read with the
    last one that is counted, and numbers beyond the body are bad records.
    """

    def __init__(self, path: Path, pool: FilePool, cache: ChunkCache) -> None:
        """Scan the chunk headers. Raises DataError if the file cannot be read."""
        self._path = path
        self._pool = pool
        self._cache = cache
        self._chunks = scan(path, pool)
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
        """Empty: the format says nothing about its records."""
        return Metadata()

    def read(self, start: int, end: int, bad: BadRecords) -> list[bytes]:
        """Return the good records of [start, end); report the others to `bad`."""
        values: list[bytes] = []
        number = bisect_right(self._firsts, start) - 1
        while start < end and number < len(self._chunks):
            chunk = self._chunks[number]
            stop = min(end, chunk.first + chunk.num_records)
            try:
                records = self._records_of(chunk)
                values += _counted(chunk, records, start, stop, bad)
            except ValueError as error:
                for record in range(start, stop):
                    bad.add(record, str(error))
            start = max(start, stop)
            number += 1
        return values

    def _records_of(self, chunk: Chunk) -> list[bytes]:
        kept: list[bytes] | None = self._cache.get(self._path, chunk.offset)
        if kept is not None:
            return kept
        # Two threads may decode the same chunk, but none waits for another.
        records = _decode(self._path, chunk, self._pool)
        size = sum(map(len, records)) + _OBJECT_BYTES * len(records)
        self._cache.put(self._path, chunk.offset, records, size)
        return records


def _counted(
    chunk: Chunk, records: list[bytes], start: int, stop: int, bad: BadRecords
) -> list[bytes]:
    """Return records [start, stop) of the file, and uncounted records.

    The count of a header is under no checksum, the body is: it says how many there are.
    """
    where = f"the chunk at byte {chunk.offset} holds"
    counted = chunk.num_records
    for record in range(max(start, chunk.first + len(records)), stop):
        bad.add(
            record,
            f"{where} only {len(records)} records, of which its header counts "
            f"{counted}; the checksum of its body holds, so that this record was "
            "never in it and nothing is lost",
        )
    if stop < chunk.first + counted or len(records) <= counted:
        return records[start - chunk.first : stop - chunk.first]
    # The others have no number, so they come with the last one that has.
    bad.add_unplanned(len(records) - counted, f"{where} {len(records)} records")
    return records[start - chunk.first :]


def _decode(path: Path, chunk: Chunk, pool: FilePool) -> list[bytes]:
    """Return a chunk's records. Raises ValueError with the reason if it is corrupt."""
    if chunk.problem:
        raise ValueError(chunk.problem)
    body = pool.pread(path, chunk.offset + HEADER.size, chunk.size)
    where = f"the chunk at byte {chunk.offset}"
    crc = zlib.crc32(body)
    try:
        if crc != chunk.crc:
            raise ValueError(f"CRC {crc:#010x}, its header says {chunk.crc:#010x}")
        return split(decompress(body, chunk.compressor))
    except ValueError as error:
        raise ValueError(
            f"{where} is corrupt: {error}; its header counts {chunk.num_records} "
            "records, none of which can be read, and nothing tells whether that "
            "count is right"
        ) from error
