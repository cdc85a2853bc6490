"""Rows of columns that become Examples only where somebody wants one.

Owns a sequence of records that also shows its columns. Made by the readers of column
files; the default feed takes the columns as they are, everybody else sees serialized
tf.train.Examples. Knows no file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from elasticdl.data.formats.example_rows import Column, Distinct, Texts, encode_rows


class RowTable(Sequence[bytes]):
    """Records [0, n) as columns."""

    def __init__(self, columns: Mapping[str, Column], num_rows: int) -> None:
        """Take the columns; each has a value for each row."""
        self.columns = columns
        self._num_rows = num_rows

    def __len__(self) -> int:
        return self._num_rows

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._records)

    # Equal to lists, which have no hash either.
    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Sequence):
            return self._records == list(other)
        return NotImplemented

    @overload
    def __getitem__(self, index: int) -> bytes: ...

    @overload
    def __getitem__(self, index: slice) -> RowTable: ...

    def __getitem__(self, index: int | slice) -> bytes | RowTable:
        if not isinstance(index, slice):
            return self._records[index]
        start, stop, step = index.indices(self._num_rows)
        columns = {
            name: _sliced(column, slice(start, stop, step))
            for name, column in self.columns.items()
        }
        return RowTable(columns, len(range(start, stop, step)))

    @cached_property
    def _records(self) -> list[bytes]:
        return encode_rows(self.columns, self._num_rows)

    def take(self, order: NDArray[np.int64]) -> RowTable:
        """Return the rows of these numbers, in that order."""
        return RowTable(
            {name: _taken(column, order) for name, column in self.columns.items()},
            len(order),
        )


def joined(tables: Sequence[RowTable]) -> RowTable:
    """Return the rows of several tables with the same columns."""
    if len(tables) == 1:
        return tables[0]
    names = tables[0].columns
    return RowTable(
        {name: _joined([table.columns[name] for table in tables]) for name in names},
        sum(map(len, tables)),
    )


def _sliced(column: Column, rows: slice) -> Column:
    if isinstance(column, Texts):
        return Texts(column.distinct, column.codes[rows])
    return column[rows]


def _taken(column: Column, order: NDArray[np.int64]) -> Column:
    if isinstance(column, Texts):
        return Texts(column.distinct, column.codes[order])
    if isinstance(column, np.ndarray):
        return column[order]
    return [column[row] for row in order.tolist()]


def _joined(columns: Sequence[Column]) -> Column:
    if all(isinstance(column, Texts) for column in columns):
        return _joined_texts([c for c in columns if isinstance(c, Texts)])
    shapes = {getattr(column, "shape", (0, None))[1:] for column in columns}
    if all(isinstance(c, np.ndarray) for c in columns) and len(shapes) == 1:
        arrays: list[Any] = list(columns)
        whole: NDArray[Any] = np.concatenate(arrays)
        return whole
    return [value for column in columns for value in _values(column)]


def _joined_texts(columns: Sequence[Texts]) -> Texts:
    if all(column.distinct is columns[0].distinct for column in columns):
        codes = np.concatenate([column.codes for column in columns])
        return Texts(columns[0].distinct, codes)
    values: list[bytes] = []
    codes_of: list[NDArray[np.int64]] = []
    for column in columns:
        codes_of.append(column.codes.astype(np.int64) + len(values))
        values += column.distinct.values
    return Texts(Distinct(values), np.concatenate(codes_of))


def _values(column: Column) -> Sequence[Any]:
    return column.tolist() if isinstance(column, Texts) else list(column)
