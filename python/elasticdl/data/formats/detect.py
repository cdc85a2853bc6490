"""Which format a file has, by its ending and then by its content.

Owns that decision. Called by the reader of many files, conversion and `data info`.
Knows what files look like, not how to read their records.
"""

from __future__ import annotations

import re
import struct
from pathlib import Path

from elasticdl.data.formats import index
from elasticdl.data.formats.crc32c import masked_crc32c
from elasticdl.data.formats.recordio_chunks import MAGIC_BYTES
from elasticdl.errors import DataError
from elasticdl.job.spec.job import DataFormat

# `name.tfrecord`, and `name.tfrecord-00000-of-00010` as TensorFlow's tools write it.
_SHARD_NUMBER = re.compile(r"-\d+-of-\d+$")
_ENDINGS = {
    ".recordio": DataFormat.RECORDIO,
    ".rio": DataFormat.RECORDIO,
    ".tfrecord": DataFormat.TFRECORD,
    ".tfrecords": DataFormat.TFRECORD,
    ".csv": DataFormat.CSV,
    ".npy": DataFormat.NUMPY,
    ".npz": DataFormat.NUMPY,
    ".parquet": DataFormat.PARQUET,
    ".pq": DataFormat.PARQUET,
    ".arrow": DataFormat.ARROW,
    ".feather": DataFormat.ARROW,
}
_GZIP = b"\x1f\x8b"
_ZLIB = (b"\x78\x01", b"\x78\x5e", b"\x78\x9c", b"\x78\xda")
_NUMPY = (b"\x93NUMPY", b"PK\x03\x04")
_PARQUET = b"PAR1"
_ARROW = b"ARROW1"
_HEAD_BYTES = 12


def is_data_file(path: Path) -> bool:
    """Return whether a file is data; hidden files, markers and indexes are not."""
    return not path.name.startswith((".", "_")) and path.suffix != index.SUFFIX


def format_of(path: Path) -> DataFormat:
    """Return a file's format. Raises DataError for an unknown one."""
    head = _head(path)
    refuse_compressed(path, head)
    by_name = _ENDINGS.get(Path(_SHARD_NUMBER.sub("", path.name)).suffix.lower())
    found = by_name or _by_content(head)
    if found is None:
        raise DataError(
            f"{path}: its format cannot be told from its ending or content; set "
            f"data.format to one of {', '.join(sorted(DataFormat))}, or name only the "
            "data files, as `folder/*.csv`"
        )
    return found


def compression_of(path: Path) -> str:
    """Return `gzip` or `zlib` if the whole file is compressed with it, else ""."""
    return _compression(_head(path))


def refuse_compressed(path: Path, head: bytes | None = None) -> None:
    """Raise DataError if the whole file is compressed: a range of it cannot be read."""
    kind = _compression(_head(path) if head is None else head)
    if kind:
        raise DataError(
            f"{path}: is compressed as a whole ({kind}), so a range in its middle "
            "cannot be read; write shards that can be with `elasticdl data convert "
            f"{path.name} FOLDER`"
        )


def _head(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(_HEAD_BYTES)
    except OSError as error:
        raise DataError(
            f"{path}: cannot be read: {error.strerror}; check that the file is there "
            "and that this user may read it"
        ) from error


def _compression(head: bytes) -> str:
    if head.startswith(_GZIP):
        return "gzip"
    # A text or a TFRecord of that length may begin so as well; the latter tells by
    # the CRC of its length.
    if head.startswith(_ZLIB) and not _is_tfrecord(head) and not head.isascii():
        return "zlib"
    return ""


def _is_tfrecord(head: bytes) -> bool:
    return len(head) == _HEAD_BYTES and head[8:] == struct.pack(
        "<I", masked_crc32c(head[:8])
    )


def _by_content(head: bytes) -> DataFormat | None:
    if head.startswith(MAGIC_BYTES):
        return DataFormat.RECORDIO
    if head.startswith(_NUMPY):
        return DataFormat.NUMPY
    if head.startswith(_PARQUET):
        return DataFormat.PARQUET
    if head.startswith(_ARROW):
        return DataFormat.ARROW
    if _is_tfrecord(head):
        return DataFormat.TFRECORD
    return None
