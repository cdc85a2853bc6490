"""Frames: a small protobuf message and raw tensors in one run of bytes.

Owns the layout on the wire. Used by `rpc` (PS calls), metric states and checkpoints.
Knows nothing of what the tensors mean.

    header   64 bytes: magic, format version, meta length, tensor count, table length
    meta     protobuf bytes of the caller's message
    table    per tensor: dtype code, ndim, shape, offset, name
    payloads each starting at a multiple of 64 bytes from the frame's start

Reading gives NumPy views into the received buffer, so nothing is copied twice.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

ALIGNMENT = 64  # Cache lines, and what dlpack and AVX-512 want.
CHUNK_BYTES = 4 << 20  # gRPC copies a chunk: large ones cost memory, small ones calls.
_MAGIC = b"EDLF"
_FORMAT = 1  # Raised when an older version could not read a frame.
_HEADER = struct.Struct("<4sHHQQQQ24x")  # magic, format, -, meta, count, table, total
_ENTRY = struct.Struct("<BBHQ")  # dtype code, ndim, length of the name, offset
# The types of tensors that can be sent, and kept in checkpoints.
DTYPES = (
    "float32", "float64", "float16", "int64", "int32", "int16", "int8", "uint64",
    "uint32", "uint16", "uint8", "bool", "bfloat16",
)  # fmt: skip
_CODE = {name: code for code, name in enumerate(DTYPES)}

Array = NDArray[np.generic]
Buffer = bytes | bytearray | memoryview


class FrameError(ValueError):
    """The bytes are not a frame of this format."""


@dataclass(frozen=True)
class Frame:
    """A received frame: `meta` bytes and named views of its tensors, in order."""

    meta: bytes
    tensors: Mapping[str, Array]


def _numpy_dtype(name: str) -> np.dtype[np.generic]:
    # NumPy has no bfloat16; its bits travel as uint16.
    return np.dtype("uint16" if name == "bfloat16" else name)


def _aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


def encode(
    meta: bytes, tensors: Mapping[str, Array] | Iterable[tuple[str, Array]] = ()
) -> list[Buffer]:
    """Return the frame as buffers to send one after another.

    Contiguous tensors are not copied: their buffers are views, so they must not
    change before the buffers have been sent. Raises FrameError for a dtype that has
    no code.
    """
    items = list(tensors.items() if isinstance(tensors, Mapping) else tensors)
    table = bytearray()
    arrays: list[tuple[int, Array]] = []
    # The table's size does not depend on the offsets in it, so it is made twice:
    # once for its length, once for good.
    base = 0
    for _ in range(2):
        table.clear()
        arrays.clear()
        offset = base
        for name, tensor in items:
            array = np.ascontiguousarray(tensor).reshape(np.shape(tensor))
            code = _CODE.get(array.dtype.name)
            if code is None:
                raise FrameError(
                    f"tensor {name!r}: dtype {array.dtype} cannot be sent; expected "
                    f"one of {', '.join(DTYPES)}"
                )
            raw = name.encode()
            table += _ENTRY.pack(code, array.ndim, len(raw), offset)
            table += struct.pack(f"<{array.ndim}Q", *array.shape)
            table += raw
            arrays.append((offset, array))
            offset = _aligned(offset + array.nbytes)
        base = _aligned(_HEADER.size + len(meta) + len(table))
    head = _HEADER.pack(
        _MAGIC, _FORMAT, 0, len(meta), len(items), len(table), max(offset, base)
    )
    first = head + meta + bytes(table)
    buffers: list[Buffer] = [first + b"\0" * (base - len(first))]
    position = base
    for start, array in arrays:
        if start > position:
            buffers.append(b"\0" * (start - position))
        if array.nbytes:
            buffers.append(array.reshape(-1).view(np.uint8).data)
        position = start + array.nbytes
    if max(offset, base) > position:
        buffers.append(b"\0" * (max(offset, base) - position))
    return buffers


def frame_bytes(head: Buffer) -> int:
    """Return the size of the whole frame from its first 64 bytes. Raises FrameError."""
    if len(head) < _HEADER.size:
        raise FrameError(f"got {len(head)} bytes, expected a frame of at least 64")
    magic, version, _, _, _, _, total = _HEADER.unpack_from(head)
    if magic != _MAGIC or version != _FORMAT:
        raise FrameError(
            f"got magic {magic!r} format {version}, expected {_MAGIC!r} {_FORMAT}; the "
            "peer runs another version of ElasticDL"
        )
    return int(total)


def decode(data: Buffer) -> Frame:
    """Return the frame whose tensors are views of `data`.

    Raises FrameError for whatever is not a whole frame of this format.
    """
    total = frame_bytes(data)
    view = memoryview(data)
    _, _, _, meta_size, count, table_size, _ = _HEADER.unpack_from(view)
    base = _HEADER.size + meta_size + table_size
    if total > len(view) or base > total:
        raise FrameError(
            f"the frame says {total} bytes, {base} of them before its tensors; got "
            f"{len(view)}: it was cut"
        )
    meta = bytes(view[_HEADER.size : _HEADER.size + meta_size])
    tensors: dict[str, Array] = {}
    try:
        entries = _entries(view[_HEADER.size + meta_size : base], count)
        for name, dtype, shape, offset in entries:
            size = math.prod(shape)
            if (
                offset % ALIGNMENT
                or not base <= offset <= total - size * dtype.itemsize
            ):
                raise FrameError(f"tensor {name!r} is outside the frame: it was cut")
            tensors[name] = np.frombuffer(
                view, dtype=dtype, count=size, offset=offset
            ).reshape(shape)
    except FrameError:
        raise
    except (ValueError, OverflowError, IndexError, struct.error) as error:
        raise FrameError(f"the frame's table cannot be read: {error}") from error
    if len(tensors) != count:
        raise FrameError(f"the frame says {count} tensors, but some have one name")
    return Frame(meta, tensors)


_Entry = tuple[str, np.dtype[np.generic], tuple[int, ...], int]


def _entries(table: memoryview, count: int) -> Iterator[_Entry]:
    """Yield name, dtype, shape and offset of each tensor."""
    position = 0
    for _ in range(count):
        code, ndim, name_size, offset = _ENTRY.unpack_from(table, position)
        position += _ENTRY.size
        shape = struct.unpack_from(f"<{ndim}Q", table, position)
        position += 8 * ndim
        if position + name_size > len(table):
            raise FrameError("the frame's table ends within a name: it was cut")
        name = bytes(table[position : position + name_size]).decode()
        position += name_size
        yield name, _numpy_dtype(DTYPES[code]), shape, offset
    if position != len(table):
        raise FrameError(f"the frame's table has more than {count} tensors")


def join(buffers: Sequence[Buffer]) -> bytes:
    """Return one `bytes` of the buffers (small frames, files)."""
    return b"".join(buffers)


def chunks(
    buffers: Sequence[Buffer], chunk_bytes: int = CHUNK_BYTES
) -> Iterable[bytes]:
    """Yield the buffers as `bytes` of at most `chunk_bytes`, for a stream."""
    pending: list[memoryview] = []
    size = 0
    for buffer in buffers:
        view = memoryview(buffer)
        while view:
            part = view[: chunk_bytes - size]
            pending.append(part)
            size += len(part)
            view = view[len(part) :]
            if size == chunk_bytes:
                yield b"".join(pending)
                pending, size = [], 0
    if pending:
        yield b"".join(pending)
