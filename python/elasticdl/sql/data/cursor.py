"""Rows of a server's cursor: looked at, then written as batches of Arrow.

Owns the cursor once it is open. Called by `servers`. Must not open anything.
"""

from __future__ import annotations

import errno
import gc
import itertools
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from elasticdl.errors import DataError
from elasticdl.sql.data import tables, types, types_postgresql
from elasticdl.sql.plan import PREVIEW_ROWS, Column, Kind, Preview, Schema

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_BATCH_ROWS = 8192  # Rows on their way: a few MB, whatever the table's size.
# What MySQL's protocol calls types.
_MYSQL_DECIMAL, _MYSQL_FLOAT, _MYSQL_TIME = 246, 4, 11
_MYSQL_DATES = {7: "timestamp", 10: "date", 12: "datetime"}


@dataclass(frozen=True)
class ServerRows:
    """A cursor on the server: its first rows were fetched, the others follow."""

    result: Any
    engine: str
    described: Sequence[Any]  # What the driver says of each column.
    stated: Sequence[types_postgresql.Stated] = ()  # Of each column, or of none.

    @cached_property
    def _first(self) -> list[Sequence[Any]]:
        found: list[Sequence[Any]] = self.result.fetchmany(PREVIEW_ROWS)
        return found

    @cached_property
    def _by_column(self) -> list[tuple[Any, ...]]:
        columns = list(zip(*self._first, strict=True))
        return columns or [() for _ in self.result.keys()]  # noqa: SIM118

    @cached_property
    def schema(self) -> Schema:
        names, values = self.result.keys(), self._by_column
        if self.stated:
            told = zip(names, self.stated, values, strict=True)
            return Schema(tuple(types_postgresql.column(*one) for one in told))
        known = zip(names, values, self.described, strict=True)
        if self.engine in tables.MYSQL:
            return Schema(tuple(_of_mysql(*one) for one in known))
        columns = (types.of_values(name, some, spans=False) for name, some, _ in known)
        return Schema(tuple(columns))

    @cached_property
    def preview(self) -> Preview:
        values = {
            column.name: tuple(map(_shown, found))
            for column, found in zip(self.schema.columns, self._by_column, strict=True)
        }
        number = len(self._first)
        return Preview(self.schema, values, number, number < PREVIEW_ROWS)

    def write(self, path: Path, *, kept: bool = False) -> int:
        import pyarrow as pa
        from pyarrow import parquet

        columns = self.schema.columns
        kinds = [
            (kept and types.kept_type(pa, column))
            or (
                types_postgresql.arrow_type(pa, column)
                if self.stated
                else types.arrow_type(pa, column, first)
            )
            for column, first in zip(columns, self._by_column, strict=True)
        ]
        fields = list(zip(self.schema.names, kinds, strict=True))
        schema = pa.schema(fields)
        written = 0
        fetched = iter(lambda: self.result.fetchmany(_BATCH_ROWS), [])
        texts = [name for name, kind in fields if pa.types.is_string(kind)]
        with (
            _without_collector(),
            _naming(path),
            parquet.ParquetWriter(
                path,
                schema,
                compression="lz4",
                use_dictionary=texts,
                write_statistics=False,
            ) as file,
        ):
            for rows in itertools.chain([self._first], fetched):
                if not rows:
                    continue
                arrays = [
                    types.to_arrow(pa, column, values, kind, kept=kept)
                    for column, values, kind in zip(
                        columns, zip(*rows, strict=True), kinds, strict=True
                    )
                ]
                file.write_batch(pa.record_batch(arrays, schema=schema))
                written += len(rows)
        return written


def _of_mysql(name: str, values: Sequence[Any], described: Sequence[Any]) -> Column:
    """Return a column of MySQL's: some types are told by the server alone."""
    code = described[1]
    decimal = types.exact_decimal(*described[4:6]) if code == _MYSQL_DECIMAL else ""
    if decimal:
        return Column(name, Kind.NUMBER, stated=decimal)
    if code in _MYSQL_DATES and (zeros := [v for v in values if isinstance(v, str)]):
        return types.with_zeros(name, _MYSQL_DATES[code], zeros[0])
    found = types.of_values(name, values)
    if code == _MYSQL_FLOAT and found.kind is Kind.NUMBER:
        return replace(found, stated=types.SIX_DIGITS, rounded=True)
    if code == _MYSQL_TIME and found.kind is Kind.TIME and not found.lost:
        return replace(found, stated=types.SPAN)
    return found


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Name the file that a full disk does not take; the library does not."""
    try:
        yield
    except OSError as error:
        if error.errno not in _FULL:
            raise
        raise DataError(
            f"the query's rows have no room: {path}: {os.strerror(error.errno)}; make "
            "room there"
        ) from error


@contextmanager
def _without_collector() -> Iterator[None]:
    """Look for no garbage: rows have no cycles, and it took half of the time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _shown(value: Any) -> Any:
    """Return a value as the preview has it: plain numbers, text, lists."""
    if value is None or isinstance(value, bool | int | float | str | list):
        return value
    return float(value) if types.kind_of(value) is Kind.NUMBER else value
