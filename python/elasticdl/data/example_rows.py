"""Rows of columns as tf.train.Examples, a column at a time.

Owns the quick way to what `example.encode_example` gives for single rows. Called by the
readers of column files (NumPy, Parquet, Arrow). Knows no file.

Encoding row by row costs some microseconds per feature in Python; here NumPy makes the
bytes of a whole column at once, and only joining them is done by row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elasticdl.data.example import (
    KIND_FLOATS,
    KIND_INTS,
    encode_feature,
    field,
    varint,
)

# Rows along the first axis, or one value (as encode_example takes it) for each row.
Column = NDArray[np.generic] | Sequence[Any]


def encode_rows(columns: Mapping[str, Column], num_rows: int) -> list[bytes]:
    """Return each row as a serialized tf.train.Example, features sorted by name.

    Raises TypeError for a column that is neither numbers, bytes nor text.
    """
    entries = [_entries(name, columns[name]) for name in sorted(columns)]
    if not entries:
        return [field(1, b"")] * num_rows
    heads: dict[int, bytes] = {}
    rows = []
    for parts in zip(*entries, strict=True):
        body = b"".join(parts)
        head = heads.get(len(body))
        if head is None:
            head = heads[len(body)] = b"\x0a" + varint(len(body))
        rows.append(head + body)
    return rows


def _entries(name: str, column: Column) -> list[bytes]:
    """Return the map entry of each row's feature."""
    if isinstance(column, np.ndarray):
        if column.dtype.kind == "f":
            return _float_entries(name, column)
        if column.dtype.kind in "iub":
            return _int_entries(name, column)
    return [_entry(name, encode_feature(value)) for value in column]


def _entry(name: str, feature: bytes) -> bytes:
    return field(1, field(1, name.encode()) + field(2, feature))


def _head(name: str, kind: int, num_bytes: int) -> bytes:
    """Return what an entry holds before its `num_bytes` of packed values."""
    nothing = field(kind, b"\x0a" + varint(num_bytes) + bytes(num_bytes))
    whole = _entry(name, nothing)
    return whole[: len(whole) - num_bytes]


def _float_entries(name: str, column: NDArray[Any]) -> list[bytes]:
    num_rows = len(column)
    if not num_rows:
        return []
    values = np.ascontiguousarray(column.reshape(num_rows, -1), "<f4")
    packed = values.view(np.uint8).reshape(num_rows, -1)
    head = np.frombuffer(_head(name, KIND_FLOATS, packed.shape[1]), np.uint8)
    whole = np.empty((num_rows, len(head) + packed.shape[1]), np.uint8)
    whole[:, : len(head)] = head
    whole[:, len(head) :] = packed
    # Void items come out as bytes objects, in one call for all rows.
    entries: list[bytes] = whole.view(f"V{whole.shape[1]}").ravel().tolist()
    return entries


def _int_entries(name: str, column: NDArray[Any]) -> list[bytes]:
    num_rows = len(column)
    if not num_rows:
        return []
    values = column.reshape(num_rows, -1)
    packed, ends = _varints(values)
    heads: dict[int, bytes] = {}
    entries = []
    for begin, end in pairwise([0, *ends]):
        size = end - begin
        head = heads.get(size)
        if head is None:
            head = heads[size] = _head(name, KIND_INTS, size)
        entries.append(head + packed[begin:end])
    return entries


def _varints(values: NDArray[Any]) -> tuple[bytes, list[int]]:
    """Return the varints of [rows, values], and where each row's end."""
    num_rows, per_row = values.shape
    if not per_row:
        return b"", [0] * num_rows
    rest = _unsigned(values).ravel()
    columns, used = [], [np.ones(len(rest), np.bool_)]
    while True:
        low = rest.astype(np.uint8) & 0x7F
        rest = rest >> 7
        more = rest != 0
        if not more.any():
            columns.append(low)
            break
        columns.append(low | (more.view(np.uint8) << 7))
        used.append(more)
    table, is_used = np.stack(columns, axis=1), np.stack(used, axis=1)
    sizes = is_used.reshape(num_rows, -1).sum(axis=1, dtype=np.int64).tolist()
    return table[is_used].tobytes(), list(accumulate(sizes))


def _unsigned(values: NDArray[Any]) -> NDArray[Any]:
    """Return what the varints say, in as few bytes as hold the largest: it is quicker.

    Negative numbers are coded as their two's complement.
    """
    wide = values.astype(
        np.uint64 if values.dtype.kind == "u" else np.int64, copy=False
    )
    most = wide.view(np.uint64).max(initial=0)
    return wide.view(np.uint64).astype(np.min_scalar_type(int(most)), copy=False)
