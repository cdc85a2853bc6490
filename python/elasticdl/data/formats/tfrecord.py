"""TFRecord files: writing, and reading ranges through a side-car index.

Owns the format. Called by the reader of many files, by conversion and by the master for
TensorBoard (`framed`). Must not import TensorFlow, nor know what is in a record.

A record is its length (uint64), the masked CRC-32C of these 8 bytes, its bytes, and
their masked CRC-32C, all little-endian. Nothing in the file says where the n-th record
is, so the offsets are found once by walking the lengths, and kept.
"""

from __future__ import annotations

import mmap
import struct
from itertools import pairwise
from pathlib import Path
from types import TracebackType

import numpy as np
from numpy.typing import NDArray

from elasticdl.data.formats import index
from elasticdl.data.formats.crc32c import masked_crc32c
from elasticdl.data.formats.files import FilePool
from elasticdl.data.formats.tfrecord_search import find_head
from elasticdl.data.records import BadRecords, Metadata

_LENGTH = struct.Struct("<Q")
_CRC = struct.Struct("<I")
_HEAD = 12  # length and its CRC
# What is longer is read only if its head says that it is a record.
_LONGEST_UNSEEN = 16 * 1024 * 1024
FRAME_BYTES = 16  # a record's bytes beside its own
INDEX_KIND = "tfrecord"
_RUN = 8  # equal lengths in a row that make more of them likely
_MOST_AT_ONCE = 1 << 16


def framed(record: bytes) -> tuple[bytes, bytes, bytes]:
    """Return a record with the header and the checksum that surround it in a file."""
    length = _LENGTH.pack(len(record))
    head = length + _CRC.pack(masked_crc32c(length))
    return head, record, _CRC.pack(masked_crc32c(record))


class TFRecordWriter:
    """Writes a TFRecord file and its index; use as a context manager."""

    def __init__(self, path: Path) -> None:
        """Begin the file."""
        self._file = path.open("wb")

    def write(self, record: bytes) -> None:
        """Append a record."""
        for part in framed(record):
            self._file.write(part)

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def __enter__(self) -> TFRecordWriter:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class TFRecordReader:
    """Reads ranges of one TFRecord file, each by a single read. Thread-safe.

    A record whose bytes are corrupt is a bad record. A corrupt length hides where its
    record ends: all up to the next record that can be found is one bad record, which is
    not read. So is the rest of a file that ends inside a record.
    """

    def __init__(self, path: Path, pool: FilePool) -> None:
        """Load or make the index. Raises DataError if the file cannot be read."""
        self._path = path
        self._pool = pool
        self._offsets = index.load_or_build(path, INDEX_KIND, scan)

    @property
    def num_records(self) -> int:
        """Records in the file, bad ones included."""
        return len(self._offsets) - 1

    @property
    def metadata(self) -> Metadata:
        """Empty: the format says nothing about its records."""
        return Metadata()

    def read(self, start: int, end: int, bad: BadRecords) -> list[bytes]:
        """Return the good records of [start, end); report the others to `bad`."""
        offsets = self._offsets[start : end + 1].tolist()
        if len(offsets) < 2:
            return []
        values: list[bytes] = []
        number = start
        for run in index.runs(offsets, longest=_LONGEST_UNSEEN):
            values += self._read_run(number, run, bad)
            number += len(run) - 1
        return values

    def _read_run(
        self, number: int, offsets: list[int], bad: BadRecords
    ) -> list[bytes]:
        """Return the good records between offsets, the first being `number`."""
        base, end = offsets[0], offsets[-1]
        if len(offsets) == 2 and end - base > _LONGEST_UNSEEN:
            head = self._pool.pread(self._path, base, _HEAD)
            if _step(head) != end - base:
                bad.add(number, _what_is_wrong(head, end - base, base))
                return []
        data = self._pool.pread(self._path, base, end - base)
        values = []
        for i, (begin, stop) in enumerate(pairwise(offsets)):
            frame = data[begin - base : stop - base]
            record = frame[_HEAD:-4]
            # The length's own CRC was checked when the index was made, and the frame
            # fits the index; so the record's CRC says all.
            if len(frame) >= FRAME_BYTES and (
                _LENGTH.pack(len(record)) == frame[:8]
                and _CRC.pack(masked_crc32c(record)) == frame[-4:]
            ):
                values.append(record)
            else:
                reason = _what_is_wrong(frame[:_HEAD], len(frame), begin)
                bad.add(number + i, reason)
        return values


def _what_is_wrong(head: bytes, num_bytes: int, offset: int) -> str:
    """Return why `num_bytes` from an offset, beginning with `head`, are corrupt."""
    where = f"at byte {offset}"
    if len(head) < _HEAD:
        return f"the file is cut: {num_bytes} bytes of a record {where}"
    expected = _step(head)
    if not expected:
        return (
            f"its length {where} is corrupt (wrong CRC); the next record that can be "
            f"found is {num_bytes} bytes further"
        )
    if num_bytes < expected:
        return f"the file is cut: {num_bytes} of {expected} bytes of a record {where}"
    return f"its bytes {where} are corrupt (wrong CRC)"


def scan(path: Path) -> index.Offsets:
    """Return where each record begins, and the end of the file.

    Walks the lengths; where several in a row are equal, further ones are compared by
    the thousand. Behind a length that is corrupt the next record is looked for; what
    lies between is one record, which reading finds to be bad, and so is the rest of a
    file whose last length leads beyond its end.
    """
    if path.stat().st_size == 0:
        return np.zeros(1, np.int64)
    with (
        path.open("rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data,
    ):
        return _scan(data, len(data))


def _scan(data: mmap.mmap, size: int) -> index.Offsets:
    parts: list[NDArray[np.int64]] = []
    offsets: list[int] = []
    good_heads: dict[bytes, int] = {}
    at = run = 0
    last = b""
    while at < size:
        offsets.append(at)
        head = data[at : at + _HEAD]
        step = good_heads.get(head, 0)
        if not step:
            step = _step(head)
            if not step:
                at = find_head(data, at + 1)
                run, last = 0, b""
                continue
            if len(good_heads) < _MOST_AT_ONCE:
                good_heads[head] = step
        if at + step > size:
            break
        at += step
        run = run + 1 if head == last else 0
        last = head
        if run == _RUN:
            run = 0
            equal = _count_equal(data, at, step, head)
            if equal:
                parts.append(np.asarray(offsets, np.int64))
                parts.append(np.arange(equal, dtype=np.int64) * step + at)
                offsets = []
                at += equal * step
                run = _RUN - 1
    parts.append(np.asarray([*offsets, size], np.int64))
    return np.concatenate(parts)


def _step(head: bytes) -> int:
    """Return the framed length of a record; 0 if the header is corrupt or cut."""
    if len(head) < _HEAD or _CRC.pack(masked_crc32c(head[:8])) != head[8:]:
        return 0
    length: int = _LENGTH.unpack(head[:8])[0]
    return length + FRAME_BYTES


def _count_equal(data: mmap.mmap, at: int, step: int, head: bytes) -> int:
    """Return how many consecutive whole records from `at` have the header `head`."""
    most = min((len(data) - at) // step, _MOST_AT_ONCE)
    if most <= 0:
        return 0
    block = np.frombuffer(data, np.uint8, count=most * step, offset=at)
    heads = block.reshape(most, step)[:, :_HEAD]
    differs = (heads != np.frombuffer(head, np.uint8)).any(axis=1)
    equal = int(differs.argmax()) if differs.any() else most
    # The mapping cannot be closed while arrays look at it.
    del block, heads
    return equal
