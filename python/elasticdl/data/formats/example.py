"""tf.train.Example without TensorFlow: named lists of bytes, floats and integers.

Owns the few lines of protobuf's wire format that an Example needs. Called by data
sets, conversion, the NumPy reader and `data info`. Knows no file.

    Example { Features features = 1; }
    Features { map<string, Feature> feature = 1; }
    Feature { BytesList bytes_list = 1; FloatList float_list = 2;
              Int64List int64_list = 3; }
    BytesList { repeated bytes value = 1; }      FloatList, Int64List: packed
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

# What a feature may be given as. Arrays are flattened; floats become float32.
Value = NDArray[np.generic] | Sequence[bytes] | bytes | str | int | float
# What a feature is read as.
Decoded = NDArray[np.float32] | NDArray[np.int64] | list[bytes]

KIND_BYTES, KIND_FLOATS, KIND_INTS = 1, 2, 3
_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5
_SIGN = 1 << 63
_WRAP = 1 << 64


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
    features: dict[str, Decoded] = {}
    try:
        for body in _messages(data, 1):
            for entry in _messages(body, 1):
                name = b"".join(_messages(entry, 1)).decode()
                features[name] = _decode_feature(b"".join(_messages(entry, 2)))
    except (IndexError, struct.error, UnicodeDecodeError) as error:
        raise ValueError(f"not a tf.train.Example: {error}") from error
    return features


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


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
        if shift > 63:
            raise ValueError("not a tf.train.Example: a number is too long")


def _fields(data: bytes) -> Iterator[tuple[int, int, bytes]]:
    """Give (field number, wire type, bytes); a varint's bytes are its own coding."""
    at = 0
    while at < len(data):
        tag, at = _read_varint(data, at)
        kind = tag & 7
        begin = at
        if kind == _VARINT:
            _, at = _read_varint(data, at)
        elif kind == _LENGTH:
            size, begin = _read_varint(data, at)
            at = begin + size
        elif kind in (_FIXED32, _FIXED64):
            at += 4 if kind == _FIXED32 else 8
        else:
            raise ValueError(f"not a tf.train.Example: wire type {kind}")
        if at > len(data):
            raise ValueError("not a tf.train.Example: it is cut")
        yield tag >> 3, kind, data[begin:at]


def _messages(data: bytes, number: int) -> Iterator[bytes]:
    for found, kind, body in _fields(data):
        if found == number:
            if kind != _LENGTH:
                raise ValueError(
                    f"not a tf.train.Example: field {number} has wire type {kind}"
                )
            yield body


def _decode_feature(data: bytes) -> Decoded:
    decoded: Decoded = []
    for number, kind, body in _fields(data):
        if number not in (KIND_BYTES, KIND_FLOATS, KIND_INTS) or kind != _LENGTH:
            raise ValueError(f"not a tf.train.Example: feature kind {number}")
        if number == KIND_BYTES:
            decoded = list(_messages(body, 1))
        elif number == KIND_FLOATS:
            # Packed or one by one, the values' bytes are the same.
            packed = b"".join(value for _, _, value in _fields(body))
            if len(packed) % 4:
                raise ValueError("not a tf.train.Example: a float list is cut")
            decoded = np.frombuffer(packed, "<f4").astype(np.float32)
        else:
            packed = b"".join(value for _, _, value in _fields(body))
            decoded = np.asarray(list(_integers(packed)), np.int64)
    return decoded


def _integers(packed: bytes) -> Iterator[int]:
    at = 0
    while at < len(packed):
        value, at = _read_varint(packed, at)
        value %= _WRAP
        yield value - _WRAP if value >= _SIGN else value
