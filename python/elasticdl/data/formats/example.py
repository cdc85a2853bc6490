"""tf.train.Example without TensorFlow: named lists of bytes, floats and integers.

Owns how they are written and read. Called by data sets, conversion, the NumPy reader
and `data info`. Knows no file.

Reading is protobuf's (proto/example.proto): half the time of reading by hand. Writing
is by hand, for `data.formats.example_rows`, which writes whole columns at once from the
same pieces; and protobuf takes 784 floats one by one, in 48 us instead of 8.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from google.protobuf.message import DecodeError
from google.protobuf.unknown_fields import UnknownFieldSet
from numpy.typing import NDArray

from elasticdl.proto import example_pb2

# What a feature may be given as. Arrays are flattened; floats become float32.
Value = NDArray[np.generic] | Sequence[bytes] | bytes | str | int | float
# What a feature is read as.
Decoded = NDArray[np.float32] | NDArray[np.int64] | list[bytes]

KIND_BYTES, KIND_FLOATS, KIND_INTS = 1, 2, 3
_LENGTH = 2  # wire type of what has its length before it
_WRAP = 1 << 64  # A varint of a negative number is its two's complement in 64 bits.


def encode_example(features: Mapping[str, Value]) -> bytes:
    """Return a serialized tf.train.Example, features sorted by name.

    Floating values become a float list, integers and booleans an int64 list, bytes and
    text (as UTF-8) a bytes list. Raises TypeError for anything else.
    """
    entries = []
    for name in sorted(features):
        entry = field(1, name.encode()) + field(2, encode_feature(features[name]))
        entries.append(field(1, entry))
    return field(1, b"".join(entries))


def decode_example(data: bytes) -> dict[str, Decoded]:
    """Return an Example's features by name. Raises ValueError if it is not one."""
    try:
        example = example_pb2.Example.FromString(data)
    except DecodeError as error:
        raise ValueError(f"not a tf.train.Example: {error}") from error
    found = example.features.feature
    if not found and len(UnknownFieldSet(example)):
        raise ValueError("not a tf.train.Example: it has other fields")
    # A map has no order of its own: by name, as they are written here.
    return {name: _decode_feature(found[name]) for name in sorted(found)}


def varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def field(number: int, body: bytes) -> bytes:
    return bytes([number << 3 | _LENGTH]) + varint(len(body)) + body


def encode_feature(value: Value) -> bytes:
    if isinstance(value, bytes):
        return field(KIND_BYTES, field(1, value))
    if isinstance(value, str):
        return field(KIND_BYTES, field(1, value.encode()))
    if isinstance(value, list | tuple) and all(isinstance(v, bytes) for v in value):
        return field(KIND_BYTES, b"".join(field(1, v) for v in value))
    array = np.asarray(value)
    kind = array.dtype.kind
    if kind == "f":
        packed = np.ascontiguousarray(array, "<f4").tobytes()
        return field(KIND_FLOATS, field(1, packed))
    if kind in "iub":
        packed = b"".join(varint(v % _WRAP) for v in array.ravel().tolist())
        return field(KIND_INTS, field(1, packed))
    if kind in "SU":
        texts = array.ravel().tolist()
        pieces = [v if isinstance(v, bytes) else v.encode() for v in texts]
        return field(KIND_BYTES, b"".join(field(1, piece) for piece in pieces))
    raise TypeError(
        f"got a feature of type {array.dtype}, expected numbers, bytes or text"
    )


def _decode_feature(feature: example_pb2.Feature) -> Decoded:
    kind = feature.WhichOneof("kind")
    if kind == "bytes_list":
        return list(feature.bytes_list.value)
    if kind == "float_list":
        return np.array(feature.float_list.value, np.float32)
    if kind == "int64_list":
        return np.array(feature.int64_list.value, np.int64)
    if len(UnknownFieldSet(feature)):
        raise ValueError("not a tf.train.Example: a feature of another kind")
    return []
