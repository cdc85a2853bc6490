"""PostgreSQL's types: which kind each is, and how its values travel.

Owns that table, which docs/sql.md shows: a type in it comes as values of the driver,
any other one as the text that the server writes, and goes back into a column of its
own type. So everything comes back as it was that the server reads as it writes it.
Called by `servers`, with psycopg alone: other drivers have no loaders to choose.

Types are asked by number, as the server tells them of every column: a column that is
NULL in the first rows has one, and so has an array that is empty.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from elasticdl.sql.data import types
from elasticdl.sql.data.source import failed
from elasticdl.sql.plan import Column, Kind, Schema

DRIVER = "psycopg"
# By the server's own name; of the first group arrays are several values, too.
_SEVERAL = {
    "smallint": Kind.INTEGER,
    "integer": Kind.INTEGER,
    "bigint": Kind.INTEGER,
    "real": Kind.NUMBER,
    "double precision": Kind.NUMBER,
    "numeric": Kind.NUMBER,
    "boolean": Kind.BOOLEAN,
    "text": Kind.TEXT,
    "character varying": Kind.TEXT,
    "bpchar": Kind.TEXT,
}
_TIMES = {
    "date": "date32",
    "time without time zone": "time64",
    "timestamp without time zone": "timestamp",
    "timestamp with time zone": "timestamptz",
}
# These travel as text: enums, which have names of their own, are text as well.
_AS_TEXT = {
    "uuid": Kind.TEXT,
    "name": Kind.TEXT,
    "time with time zone": Kind.TIME,
    "interval": Kind.TIME,
}
KINDS: dict[str, Kind] = {**_SEVERAL, **dict.fromkeys(_TIMES, Kind.TIME), **_AS_TEXT}
_ENUM, _PSEUDO = "e", "p"  # What pg_type calls them.
_NUMERIC = "numeric"


@dataclass(frozen=True)
class Stated:
    """What the server says of a type: its name, and `typtype` of pg_type.

    `decimal` is the name with the digits, where they are declared and all are kept.
    """

    name: str
    sort: str
    decimal: str = ""


@dataclass(frozen=True)
class _Described:
    """A column of which the type's number is known; not how many digits it has."""

    type_code: int
    precision: int | None = None
    scale: int | None = None


def load_as_text(adapters: Any) -> None:
    """Let a connection give as text what is in no table here."""
    from psycopg.types.string import TextLoader

    for info in list(adapters.types):
        name = "bpchar" if info.name == "bpchar" else info.regtype
        if info.oid and name not in (*_SEVERAL, *_TIMES, "oid"):
            adapters.register_loader(info.oid, TextLoader)
        if info.array_oid:
            several = name in _SEVERAL
            loader = _flat_arrays(info.oid) if several else TextLoader
            adapters.register_loader(info.array_oid, loader)


@cache
def _flat_arrays(of: int) -> Any:
    """Return a loader of arrays; one with a shape of its own it gives as text.

    A list has no shape: {{1},{2}} would come back with nothing but its values, and
    [0:1]={1,2} with other places for them.
    """
    from psycopg.types.array import ArrayLoader

    class FlatArrays(ArrayLoader):
        base_oid = of

        def load(self, data: Any) -> Any:
            if bytes(data[:1]) == b"[" or bytes(data[:2]) == b"{{":
                return bytes(data).decode(errors="replace")
            return super().load(data)

    return FlatArrays


def ask(connection: Any, description: Sequence[Any]) -> list[Stated]:
    """Return what the server says of the types of a cursor's columns."""
    listed = ", ".join({str(one.type_code) for one in description}) or "0"
    found = connection.exec_driver_sql(
        "SELECT oid::int8, format_type(oid, -1), typtype::text FROM pg_type "
        f"WHERE oid IN ({listed})",
        execution_options={"stream_results": False},
    ).fetchall()
    known = {number: (name, sort) for number, name, sort in found}
    return [
        _stated(*known.get(one.type_code, ("type of no name", _PSEUDO)), one)
        for one in description
    ]


def describe(connection: Any, select: str) -> Schema | None:
    """Return the columns of a query that the server reads, and does not run.

    None where it has no columns, or parameters, which nobody gives. Raises DataError
    where the server refuses it.
    """
    from psycopg import errors, pq

    connection.exec_driver_sql("SELECT 1")  # Both of what follows in one transaction.
    driver = connection.connection.driver_connection
    encoding = driver.info.encoding
    read = driver.pgconn.prepare(b"", select.encode(encoding))
    if read.status != pq.ExecStatus.COMMAND_OK:
        refused = errors.error_from_result(read, encoding=encoding)
        raise failed(refused, doing="the query failed")
    found = driver.pgconn.describe_prepared(b"")
    if found.status != pq.ExecStatus.COMMAND_OK or found.nparams or not found.nfields:
        return None
    places = range(found.nfields)
    names = [(found.fname(place) or b"").decode(encoding) for place in places]
    stated = ask(connection, [_Described(found.ftype(place)) for place in places])
    told = zip(names, stated, strict=True)
    return Schema(tuple(column(*one, ()) for one in told))


def _stated(name: str, sort: str, one: Any) -> Stated:
    exact = (
        types.exact_decimal(one.precision, one.scale, name) if name == _NUMERIC else ""
    )
    return Stated(name, sort, exact)


def column(name: str, stated: Stated, values: Sequence[Any]) -> Column:
    """Return a column of a type; `values` are the first ones."""
    if stated.sort == _PSEUDO:
        lost = "which no table can have; leave it out, or CAST it to text in the SELECT"
        return Column(name, Kind.OTHER, stated=stated.name, lost=lost)
    if stated.decimal:
        return Column(name, Kind.NUMBER, stated=stated.decimal)
    rounded = stated.name.removesuffix("[]") == _NUMERIC
    item = _SEVERAL.get(stated.name.removesuffix("[]"))
    if stated.name.endswith("[]") and item is not None:
        shaped = next((one for one in values if isinstance(one, str)), "")
        if shaped:
            lost = (
                f"with values as {shaped[:40]}, whose shape would be lost; leave it "
                "out, or CAST it to text in the SELECT"
            )
            return Column(name, Kind.OTHER, stated=f"{stated.name}[]", lost=lost)
        return Column(name, Kind.ARRAY, item=item, stated=stated.name, rounded=rounded)
    other = Kind.TEXT if stated.sort == _ENUM else Kind.OTHER
    kind = KINDS.get(stated.name, other)
    return Column(name, kind, stated=stated.name, rounded=rounded)


def arrow_type(pa: Any, column: Column) -> Any:
    """Return the Arrow type in which a column is staged."""
    times = {
        "date32": pa.date32(),
        "time64": pa.time64("us"),
        "timestamp": pa.timestamp("us"),
        "timestamptz": pa.timestamp("us", tz="UTC"),
    }
    of_kinds = {
        Kind.NUMBER: pa.float64(),
        Kind.INTEGER: pa.int64(),
        Kind.BOOLEAN: pa.bool_(),
    }
    if column.kind is Kind.ARRAY:
        return pa.list_(of_kinds.get(column.item or Kind.TEXT, pa.string()))
    if column.stated in _TIMES:
        return times[_TIMES[column.stated]]
    return of_kinds.get(column.kind, pa.string())
