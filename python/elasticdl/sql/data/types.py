"""Which kind of value a column has by the values that a driver returned.

Owns the table of Python's types, and how values become Arrow's. What DuckDB and
PostgreSQL say of their columns is in `types_duckdb` and `types_postgresql`; docs/sql.md
shows all of it. Called by the sources. Must not open anything.

| kind    | values                                                              |
|---------|---------------------------------------------------------------------|
| INTEGER | int within 64 signed bits                                           |
| NUMBER  | float, decimal, larger int                                          |
| BOOLEAN | bool (MySQL's are integers)                                         |
| TEXT    | text, UUID                                                          |
| TIME    | date, time, datetime, interval                                      |
| ARRAY   | list of the above                                                   |
| OTHER   | bytes, JSON, ranges                                                 |
"""

from __future__ import annotations

import contextlib
import datetime
import decimal
import json
import re
import uuid
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any

from elasticdl.errors import DataError
from elasticdl.sql.plan import Column, Kind, in_sql

# By the type of a value that a driver returned; bool comes before int, its parent.
_OF_VALUES: tuple[tuple[type, Kind], ...] = (
    (bool, Kind.BOOLEAN),
    (int, Kind.INTEGER),
    (float, Kind.NUMBER),
    (decimal.Decimal, Kind.NUMBER),
    (str, Kind.TEXT),
    (uuid.UUID, Kind.TEXT),
    (datetime.date, Kind.TIME),
    (datetime.time, Kind.TIME),
    (datetime.timedelta, Kind.TIME),
    (list, Kind.ARRAY),
    (tuple, Kind.ARRAY),
)
_TEXTS = (str, uuid.UUID)
_BYTES = (bytes, bytearray, memoryview)
_MOST_DIGITS = 38  # Of a decimal of Arrow and of DuckDB.
_DECIMAL = re.compile(r"(?:DECIMAL|numeric)\((\d+),(\d+)\)")
# Of MySQL: as what a time span comes back, which Parquet would make a number of; and
# numbers that its protocol gives with so few digits, whatever they have.
SPAN, SIX_DIGITS = "TIME(6)", "FLOAT"
ONLY_NULL = "only NULL"  # What is stated of a column without any value.
_AS_TEXT = "which would come back as text; leave it out, or CAST it in the SELECT"
LARGEST, SMALLEST = 2**63 - 1, -(2**63) + 1  # -2**63 stands for NULL


def of_values(
    name: str, values: Iterable[Any], stated: str = "", *, spans: bool = True
) -> Column:
    """Return the column of the first values; one without any value is text.

    Engines without types (SQLite) may mix them: integers and fractions are numbers, and
    anything beside text is text. `spans` is whether the engine takes a time span back.
    """
    found: dict[type, list[Any]] = {}
    for value in values:
        found.setdefault(type(value), []).append(value)
    found.pop(type(None), None)
    words = {each.__name__ for each in found}
    kinds = {kind for same in found.values() for kind in _kinds_of_same(same)}
    items = {
        kind_of(item)
        for same in found.values()
        if kind_of(same[0]) is Kind.ARRAY
        for value in same
        for item in value
        if item is not None
    }
    stated = stated or "/".join(sorted(words)) or ONLY_NULL
    kind, item = _common(kinds), None
    if kind is Kind.ARRAY:
        item = _common(items)
        if item in (Kind.ARRAY, Kind.OTHER, Kind.TIME):
            kind, item = Kind.OTHER, None
    lost = "" if _comes_back(kind, found, spans=spans) else _AS_TEXT
    rounded = kind is Kind.NUMBER and (
        decimal.Decimal in found or any(map(_is_rounded, found.get(int, ())))
    )
    return Column(name, kind, item=item, stated=stated, lost=lost, rounded=rounded)


def with_zeros(name: str, stated: str, value: str) -> Column:
    """Return a column of MySQL's dates, some of which are none: 0000-00-00."""
    stated = f"{stated} with '{value}'"
    written = f"which is no date: NULLIF({in_sql(name)}, '{value}') makes NULL of it"
    return Column(name, Kind.OTHER, stated=stated, lost=written)


def _is_rounded(value: int) -> bool:
    """Whether a double has not all digits of a whole number."""
    return value != float(value)


def _comes_back(kind: Kind, found: dict[type, list[Any]], *, spans: bool) -> bool:
    """Whether a table that is made for values of these types gives them as they are."""
    if kind is Kind.OTHER:
        return all(issubclass(one, _BYTES) for one in found)
    if kind is Kind.TEXT:
        return all(issubclass(one, _TEXTS) for one in found)
    if datetime.timedelta in found and not spans:
        return False
    times = found.get(datetime.time, ())
    return not any(value.tzinfo is not None for value in times)


def _kinds_of_same(values: Sequence[Any]) -> set[Kind]:
    """Return the kinds of values of one type: only integers of one may differ."""
    if isinstance(values[0], int):
        return {kind_of(min(values)), kind_of(max(values))}
    return {kind_of(values[0])}


def kind_of(value: Any) -> Kind:
    """Return the kind of one value that is not None."""
    if isinstance(value, int) and not isinstance(value, bool):
        return Kind.INTEGER if SMALLEST <= value <= LARGEST else Kind.NUMBER
    return next((kind for of, kind in _OF_VALUES if isinstance(value, of)), Kind.OTHER)


def _common(kinds: set[Kind]) -> Kind:
    """Return the kind that holds all of them."""
    if not kinds:
        return Kind.TEXT
    if len(kinds) == 1:
        return next(iter(kinds))
    if kinds <= {Kind.INTEGER, Kind.NUMBER, Kind.BOOLEAN}:
        return Kind.INTEGER if Kind.NUMBER not in kinds else Kind.NUMBER
    if kinds <= {Kind.INTEGER, Kind.NUMBER, Kind.BOOLEAN, Kind.TEXT}:
        return Kind.TEXT
    return Kind.OTHER


def exact_decimal(digits: Any, scale: Any, name: str = "DECIMAL") -> str:
    """Return the type of decimals that come back with all digits; "" if none does."""
    if digits is None or not 0 <= scale <= digits <= _MOST_DIGITS:
        return ""
    return f"{name}({digits},{scale})"


def is_kept(column: Column) -> bool:
    """Whether values of a server's column come back by the type that it states."""
    return column.stated == SPAN or _DECIMAL.fullmatch(column.stated) is not None


def kept_type(pa: Any, column: Column) -> Any:
    """Return the Arrow type that keeps all of such values; None for other columns."""
    if column.stated == SPAN:
        return pa.string()
    found = _DECIMAL.fullmatch(column.stated)
    return pa.decimal128(int(found[1]), int(found[2])) if found else None


def arrow_type(pa: Any, column: Column, first: Sequence[Any] = ()) -> Any:
    """Return the Arrow type in which rows of a server are staged."""
    if column.kind is Kind.ARRAY and column.item is not None:
        return pa.list_(arrow_type(pa, Column(column.name, column.item)))
    if column.kind is Kind.TIME:
        return _arrow_time(pa, next((v for v in first if v is not None), None))
    there = [v for v in first if v is not None]
    if there and all(isinstance(v, _BYTES) for v in there):
        return pa.binary()
    return {
        Kind.NUMBER: pa.float64(),
        Kind.INTEGER: pa.int64(),
        Kind.BOOLEAN: pa.bool_(),
        Kind.TEXT: pa.string(),
    }.get(column.kind, pa.string())


def _arrow_time(pa: Any, value: Any) -> Any:
    if isinstance(value, datetime.datetime):
        return pa.timestamp("us", tz="UTC" if value.tzinfo is not None else None)
    if isinstance(value, datetime.date):
        return pa.date32()
    if isinstance(value, datetime.timedelta):
        return pa.duration("us")
    return pa.time64("us")


def to_arrow(
    pa: Any, column: Column, values: Sequence[Any], kind: Any, *, kept: bool = False
) -> Any:
    """Return a batch of a server's values as an Arrow array.

    Raises DataError that names the column and a value of another type than the first
    rows had; with `kept`, where values are to come back, also a number among text.
    """
    # As they are first: to look at each value takes as long as all the rest.
    binary = pa.types.is_binary(kind)
    silent = partial(_converted_in_silence, column, kind=kind, kept=kept, pa=pa)
    wrong = silent(values)
    for given in () if wrong else (values, _plain(column, values)):
        with contextlib.suppress(*_refusals(pa)):
            return pa.array(given, kind)
    written = column.kind in (Kind.TEXT, Kind.OTHER) and not binary
    written |= column.stated == SPAN and pa.types.is_string(kind)
    if written and not wrong:
        return pa.array([None if v is None else text_of(v) for v in values], kind)
    odd = next(v for v in values if silent([v]) or not _fits(pa, column, v, kind))
    got = f"column `{column.name}`: got {text_of(odd)[:60]!r} ({type(odd).__name__})"
    if column.stated == ONLY_NULL and kept:
        raise DataError(
            f"{got} behind rows that had only NULL, which says no type; begin with "
            f"rows that have a value: ORDER BY {column.name} IS NULL"
        )
    expected = "bytes" if binary else column.kind
    if column.kind is Kind.ARRAY:
        expected = f"array of {column.item}"
    raise DataError(
        f"{got}, expected {expected} as in the rows before; CAST it in the SELECT"
    )


def _converted_in_silence(
    column: Column, values: Sequence[Any], *, kind: Any, kept: bool, pa: Any
) -> bool:
    """Whether Arrow would take a value for another one: cut off, decoded, split."""
    there = set(map(type, values)) - {type(None)}  # the quickest look at all of them
    if pa.types.is_binary(kind):
        return str in there
    if column.kind is Kind.TEXT:
        refused = kept and not all(issubclass(one, _TEXTS) for one in there)
        return refused or any(issubclass(one, _BYTES) for one in there)
    if column.kind is Kind.NUMBER and kept and int in there and not column.rounded:
        return any(isinstance(v, int) and _is_rounded(v) for v in values)
    if column.kind is Kind.ARRAY and str in there:
        return True  # Arrow takes it for the list of its letters.
    if column.kind is Kind.ARRAY and column.item is Kind.INTEGER:
        values = [item for one in values if one is not None for item in one]
        there = set(map(type, values))
    elif column.kind is not Kind.INTEGER:
        return False
    if float not in there:
        return False
    return any(isinstance(v, float) and not v.is_integer() for v in values)


def _refusals(pa: Any) -> tuple[type[Exception], ...]:
    return pa.ArrowException, OverflowError, TypeError, ValueError


def _plain(column: Column, values: Sequence[Any]) -> Iterator[Any]:
    """Yield values as Arrow takes them: it makes no floats of decimals."""
    if Kind.NUMBER in (column.kind, column.item):
        return map(_float, values)
    return iter(values)


def _float(value: Any) -> Any:
    if isinstance(value, list):
        return [_float(item) for item in value]
    # Not of text: Python reads '1_000' as a number, which no engine does.
    return float(value) if isinstance(value, int | decimal.Decimal) else value


def _fits(pa: Any, column: Column, value: Any, kind: Any) -> bool:
    if column.kind is Kind.TEXT:
        return True  # numbers among text are text
    for given in ([value], _plain(column, [value])):
        with contextlib.suppress(*_refusals(pa)):
            pa.array(given, kind)
            return True
    return False


def plain(value: Any) -> Any:
    """Return a value as previews have it: no decimals, also in lists."""
    if isinstance(value, list):
        return [plain(item) for item in value]
    return float(value) if isinstance(value, decimal.Decimal) else value


def text_of(value: Any) -> str:
    """Return a value of another kind as text: bytes as their digits, JSON as such."""
    if isinstance(value, _BYTES):
        return bytes(value).hex()
    if isinstance(value, datetime.timedelta):
        return _span(value)
    if isinstance(value, dict | list):
        return json.dumps(value, ensure_ascii=False, default=str)
    return str(value)


def _span(value: datetime.timedelta) -> str:
    """Return a time span as MySQL writes it: -100:00:01.000000."""
    sign, rest = ("-", -value) if value < datetime.timedelta() else ("", value)
    seconds, micros = divmod(rest // datetime.timedelta(microseconds=1), 1_000_000)
    hours, seconds = divmod(seconds, 3600)
    minutes, seconds = divmod(seconds, 60)
    return f"{sign}{hours:02}:{minutes:02}:{seconds:02}.{micros:06}"
