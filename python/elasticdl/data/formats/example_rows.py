"""Rows of columns as tf.train.Examples, a column at a time.

Owns the quick way to what `example.encode_example` gives for single rows. Called by the
readers of column files (NumPy, Parquet, Arrow). Knows no file.

Encoding row by row costs some microseconds per feature in Python. Here NumPy makes a
table of bytes for each column; neighbouring tables become the bytes of all rows at
once. Integers differ in length: their tables have room for the longest, and marks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elasticdl.data.formats.example import (
    KIND_FLOATS,
    KIND_INTS,
    encode_feature,
    field,
    varint,
)


class Distinct:
    """The distinct values of a bytes column, and their encoded entries."""

    def __init__(self, values: list[bytes]) -> None:
        """Take the values; they are encoded on first use."""
        self.values = values
        self._entries: dict[str, list[bytes]] = {}

    def entries(self, name: str) -> list[bytes]:
        """Return each value as an encoded entry of an Example; made once."""
        made = self._entries.get(name)
        if made is None:
            # Two threads may make them at once; both get the same.
            made = self._entries[name] = _text_entries(name, self.values)
        return made


@dataclass(frozen=True)
class Texts:
    """A value of bytes for each row.

    Attributes:
        distinct: The values, each different one once.
        codes: int[rows]: which of them a row has.
    """

    distinct: Distinct
    codes: NDArray[np.integer[Any]]

    def tolist(self) -> list[bytes]:
        """Return the value of each row."""
        return [self.distinct.values[code] for code in self.codes.tolist()]


# Rows along the first axis, or one value (as encode_example takes it) for each row.
Column = NDArray[np.generic] | Sequence[Any] | Texts

_ROWS_AT_ONCE = 1024  # their tables stay in the cache of a core


@dataclass(frozen=True)
class _Table:
    """Bytes of each row, and which rows have any."""

    content: NDArray[np.uint8]  # [rows, width]
    used: NDArray[np.bool_]  # [rows, width]


def encode_rows(columns: Mapping[str, Column], num_rows: int) -> list[bytes]:
    """Return each row as a serialized tf.train.Example, features sorted by name.

    Raises TypeError for a column that is neither numbers, bytes nor text.
    """
    rows: list[bytes] = []
    ready = {name: _ready(name, columns[name]) for name in sorted(columns)}
    for start in range(0, num_rows, _ROWS_AT_ONCE):
        end = min(start + _ROWS_AT_ONCE, num_rows)
        rows += _encode({name: column[start:end] for name, column in ready.items()})
    return rows if columns else [field(1, b"")] * num_rows


@dataclass(frozen=True)
class _Entries:
    """The encoded entries of each row, for columns that are encoded as a whole."""

    of_rows: list[bytes]

    def __getitem__(self, rows: slice) -> _Entries:
        return _Entries(self.of_rows[rows])


def _ready(name: str, column: Column) -> NDArray[np.generic] | Sequence[Any] | _Entries:
    """Return a column that can be sliced: text as encoded entries."""
    if not isinstance(column, Texts):
        return column
    entries = column.distinct.entries(name)
    return _Entries(list(map(entries.__getitem__, column.codes.tolist())))


def _text_entries(name: str, values: Sequence[bytes]) -> list[bytes]:
    """Return the entry of each value; its header depends on its length only."""
    heads: dict[int, bytes] = {}
    entries = []
    for value in values:
        head = heads.get(len(value))
        if head is None:
            whole = _entry(name, encode_feature(value))
            head = heads[len(value)] = whole[: len(whole) - len(value)]
        entries.append(head + value)
    return entries


def _encode(
    columns: Mapping[str, NDArray[np.generic] | Sequence[Any] | _Entries],
) -> list[bytes]:
    """Encode some rows; the columns are in the order of the features."""
    parts: list[list[bytes]] = []
    for kind, group in groupby(columns.items(), lambda item: _kind(item[1])):
        if kind == KIND_FLOATS:
            parts.append(_float_entries(group))
        elif kind == KIND_INTS:
            parts.append(_int_entries(group))
        else:
            parts += [_other_entries(name, column) for name, column in group]
    bodies = (
        parts[0] if len(parts) == 1 else list(map(b"".join, zip(*parts, strict=True)))
    )
    heads = _Heads()
    return [heads[len(body)] + body for body in bodies]


class _Heads(dict[int, bytes]):
    """Headers of entries, by the length of the body."""

    def __missing__(self, length: int) -> bytes:
        head = self[length] = b"\x0a" + varint(length)
        return head


def _other_entries(name: str, column: Any) -> list[bytes]:
    if isinstance(column, _Entries):
        return column.of_rows
    return [_entry(name, encode_feature(value)) for value in column]


def _kind(column: Any) -> int:
    """Return how a column is encoded: as floats, as integers, or value by value."""
    if not isinstance(column, np.ndarray) or column.dtype.kind not in "fiub":
        return 0
    return KIND_FLOATS if column.dtype.kind == "f" else KIND_INTS


def _entry(name: str, feature: bytes) -> bytes:
    return field(1, field(1, name.encode()) + field(2, feature))


def _head(name: str, kind: int, num_bytes: int) -> bytes:
    """Return the header of an entry with `num_bytes` of packed values."""
    nothing = field(kind, b"\x0a" + varint(num_bytes) + bytes(num_bytes))
    whole = _entry(name, nothing)
    return whole[: len(whole) - num_bytes]


def _float_entries(columns: Iterable[tuple[str, Any]]) -> list[bytes]:
    """Return the entries of adjacent float columns, joined by row."""
    tables: list[NDArray[np.uint8]] = []
    for name, column in columns:
        values = np.ascontiguousarray(column.reshape(len(column), -1), "<f4")
        # Flat, as rows without values cannot be viewed as bytes.
        flat = values.ravel().view(np.uint8)
        packed = flat.reshape(len(values), values.shape[1] * 4)
        head = np.frombuffer(_head(name, KIND_FLOATS, packed.shape[1]), np.uint8)
        tables += [np.broadcast_to(head, (len(column), len(head))), packed]
    together = np.concatenate(tables, axis=1)
    # Void items come out as bytes objects, in one call for all rows.
    entries: list[bytes] = together.view(f"V{together.shape[1]}").ravel().tolist()
    return entries


def _int_entries(columns: Iterable[tuple[str, Any]]) -> list[bytes]:
    """Return the entries of adjacent integer columns, joined by row."""
    tables = []
    for name, column in columns:
        packed = _varints(column.reshape(len(column), -1))
        tables += [_int_heads(name, packed), packed]
    content = np.concatenate([table.content for table in tables], axis=1)
    used = np.concatenate([table.used for table in tables], axis=1)
    together = content[used].tobytes()
    ends = np.cumsum(np.count_nonzero(used, axis=1)).tolist()
    return [together[begin:end] for begin, end in pairwise([0, *ends])]


def _int_heads(name: str, packed: _Table) -> _Table:
    """Return the header of each row's packed values, which states their length."""
    sizes = np.count_nonzero(packed.used, axis=1)
    different, which = np.unique(sizes, return_inverse=True)
    heads = [_head(name, KIND_INTS, size) for size in different.tolist()]
    width = max(map(len, heads))
    content = np.frombuffer(b"".join(h.ljust(width) for h in heads), np.uint8)
    used = np.arange(width) < np.asarray([[len(head)] for head in heads])
    return _Table(content.reshape(len(heads), width)[which], used[which])


def _varints(values: NDArray[Any]) -> _Table:
    """Return the varints of [rows, values]."""
    rest = _unsigned(values)
    columns, used = [], [np.ones(rest.shape, np.bool_)]
    while True:
        low = rest.astype(np.uint8) & 0x7F
        rest = rest >> 7
        more = rest != 0
        if not more.any():
            columns.append(low)
            break
        columns.append(low | (more.view(np.uint8) << 7))
        used.append(more)
    shape = len(values), values.shape[1] * len(columns)
    return _Table(
        np.stack(columns, axis=2).reshape(shape), np.stack(used, axis=2).reshape(shape)
    )


def _unsigned(values: NDArray[Any]) -> NDArray[Any]:
    """Return the unsigned values in the smallest type that fits, for speed.

    Negative numbers are coded as their two's complement.
    """
    wide = values.astype(np.uint64 if values.dtype.kind == "u" else np.int64)
    unsigned = wide.view(np.uint64)
    most = int(unsigned.max(initial=0))
    return unsigned.astype(np.min_scalar_type(most), copy=False)
