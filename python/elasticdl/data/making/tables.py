"""Columns of text as typed features: what a CSV file becomes when it is converted.

Owns the guess of a column's type. Called by `convert`. Knows no file.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable, Sequence

import numpy as np

from elasticdl.data.formats.example import Value, encode_example
from elasticdl.errors import DataError

# No leading zeros: `007` and `01234` are names or postcodes, not numbers.
_INTEGER = re.compile(r"[+-]?(0|[1-9][0-9]{0,37})", re.ASCII)
_FLOAT = re.compile(
    r"[+-]?((?!0[0-9])[0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]+)?|[+-]?(nan|inf)",
    re.ASCII | re.IGNORECASE,
)
_MOST_IN_FLOAT = 2**24  # Up to this a 32-bit float holds each whole number.
_LEAST, _MOST_SIGNED, _MOST_UNSIGNED = -(2**63), 2**63 - 1, 2**64 - 1


class ColumnType(enum.IntEnum):
    """Types from narrow to wide; a column has the widest type of its cells."""

    INTEGER = 0
    FLOAT = 1
    TEXT = 2


def cell_type(cell: str) -> ColumnType:
    """Return the narrowest type of a cell; an empty cell is a missing float."""
    cell = cell.strip()
    if _INTEGER.fullmatch(cell) and _LEAST <= int(cell) <= _MOST_UNSIGNED:
        return ColumnType.INTEGER
    if not cell or _FLOAT.fullmatch(cell):
        return ColumnType.FLOAT
    return ColumnType.TEXT


def column_types(
    rows: Iterable[Sequence[str]], names: Sequence[str]
) -> list[ColumnType]:
    """Return the type of each column.

    Raises DataError if a column of whole numbers could only be one of floats, as it has
    empty cells or both signs and more than 63 bits, and floats would round them: they
    may be ids, and different ones would become one.
    """
    columns = [_Column(name) for name in names]
    for row in rows:
        for column, cell in zip(columns, row, strict=True):
            # A column of text stays one, and most cells are looked at for nothing.
            if column.kind is not ColumnType.TEXT:
                column.take(cell)
    return [column.checked() for column in columns]


class _Column:
    """What is known of a column's cells."""

    def __init__(self, name: str) -> None:
        self.kind = ColumnType.INTEGER
        self._name = name
        self._least = self._most = 0
        self._is_whole = True  # but for its empty cells
        self._rounded = ""

    def take(self, cell: str) -> None:
        """Look at one more cell."""
        cell = cell.strip()
        self.kind = max(self.kind, cell_type(cell))
        if not self._is_whole or not cell:
            return
        if not _INTEGER.fullmatch(cell):
            self._is_whole = False
            return
        number = int(cell)
        self._least, self._most = min(self._least, number), max(self._most, number)
        if abs(number) > _MOST_IN_FLOAT and not self._rounded:
            nearest = int(np.float32(number))
            self._rounded = f"{number} as {nearest}" if nearest != number else ""

    def checked(self) -> ColumnType:
        """Return the column's type. Raises DataError if it would round."""
        kind = self.kind
        if self._least < 0 and self._most > _MOST_SIGNED:
            kind = max(kind, ColumnType.FLOAT)  # no type of 64 bits holds both
        if kind is ColumnType.FLOAT and self._is_whole and self._rounded:
            raise DataError(
                f"column {self._name!r} is of whole numbers with empty cells among "
                "them, or too large for 64 bits, so it can only be one of 32-bit "
                f"floats, which hold {self._rounded}; fill or remove these lines, or "
                "put a letter before each number to make it text"
            )
        return kind


def encode_row(
    names: Sequence[str], types: Sequence[ColumnType], row: Sequence[str]
) -> bytes:
    """Return a row as a serialized tf.train.Example; a missing float is NaN."""
    features: dict[str, Value] = {}
    for name, kind, cell in zip(names, types, row, strict=True):
        if kind is ColumnType.INTEGER:
            # Beyond 63 bits as their bits, as an unsigned array is stored.
            number = int(cell)
            features[name] = number if number <= _MOST_SIGNED else number - 2**64
        elif kind is ColumnType.FLOAT:
            features[name] = float(cell.strip() or "nan")
        else:
            features[name] = cell.encode()
    return encode_example(features)
