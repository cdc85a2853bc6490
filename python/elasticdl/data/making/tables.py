"""Columns of text as typed features: what a CSV file becomes when it is converted.

Owns the guess of a column's type. Called by `convert`. Knows no file.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable, Sequence

from elasticdl.data.formats.example import Value, encode_example

# No leading zeros: `007` and `01234` are names or postcodes, not numbers.
_INTEGER = re.compile(r"[+-]?(0|[1-9][0-9]{0,18})", re.ASCII)
_FLOAT = re.compile(
    r"[+-]?((?!0[0-9])[0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]+)?|[+-]?(nan|inf)",
    re.ASCII | re.IGNORECASE,
)
_MOST_INT64 = 2**63 - 1


class ColumnType(enum.IntEnum):
    """Types from narrow to wide; a column has the widest type of its cells."""

    INTEGER = 0
    FLOAT = 1
    TEXT = 2


def cell_type(cell: str) -> ColumnType:
    """Return the narrowest type of a cell; an empty cell is a missing float."""
    cell = cell.strip()
    if _INTEGER.fullmatch(cell) and abs(int(cell)) <= _MOST_INT64:
        return ColumnType.INTEGER
    if not cell or _FLOAT.fullmatch(cell):
        return ColumnType.FLOAT
    return ColumnType.TEXT


def column_types(rows: Iterable[Sequence[str]], num_columns: int) -> list[ColumnType]:
    """Return the type of each column."""
    types = [ColumnType.INTEGER] * num_columns
    for row in rows:
        for i, cell in enumerate(row):
            # A column of text stays one, and most cells are looked at for nothing.
            if types[i] is not ColumnType.TEXT:
                types[i] = max(types[i], cell_type(cell))
    return types


def encode_row(
    names: Sequence[str], types: Sequence[ColumnType], row: Sequence[str]
) -> bytes:
    """Return a row as a serialized tf.train.Example; a missing float is NaN."""
    features: dict[str, Value] = {}
    for name, kind, cell in zip(names, types, row, strict=True):
        if kind is ColumnType.INTEGER:
            features[name] = int(cell)
        elif kind is ColumnType.FLOAT:
            features[name] = float(cell.strip() or "nan")
        else:
            features[name] = cell.encode()
    return encode_example(features)
