"""DuckDB's types: which kind each is, how Parquet keeps it, whether it comes back.

Owns that table, which docs/sql.md shows. A value that PREDICT writes back went through
Parquet and a CAST to the type that it had; types that are not in the table, and what
is made of them, are refused there. Called by `embedded`. Must not open anything.

UBIGINT and HUGEINT do not fit 64 signed bits, so they are numbers; as ids they need
a CAST to VARCHAR.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from elasticdl.sql.data.source import identifier
from elasticdl.sql.plan import Column, Kind

UNTYPED = '"NULL"'  # The type of a column without a value.
# By the first word of a type's name.
KINDS: dict[str, Kind] = {
    **dict.fromkeys(("TINYINT", "SMALLINT", "INTEGER", "BIGINT"), Kind.INTEGER),
    **dict.fromkeys(("UTINYINT", "USMALLINT", "UINTEGER"), Kind.INTEGER),
    **dict.fromkeys(("FLOAT", "DOUBLE", "DECIMAL", "UBIGINT"), Kind.NUMBER),
    **dict.fromkeys(("HUGEINT", "UHUGEINT", "BIGNUM"), Kind.NUMBER),
    "BOOLEAN": Kind.BOOLEAN,
    **dict.fromkeys(("VARCHAR", "ENUM", "UUID"), Kind.TEXT),
    **dict.fromkeys(("DATE", "TIME", "INTERVAL"), Kind.TIME),
    **dict.fromkeys(("TIMESTAMP", "TIMESTAMP_S", "TIMESTAMP_MS"), Kind.TIME),
    "TIMESTAMP_NS": Kind.TIME,
    **dict.fromkeys(("BLOB", "BIT", "JSON", "STRUCT", "MAP"), Kind.OTHER),
    UNTYPED: Kind.OTHER,
}
# What Parquet would change: it makes doubles of the first, moves the hour of a time
# with an offset, and has milliseconds, none of them negative, in an interval.
_STAGED = {
    "HUGEINT": "DECIMAL(38,0)",
    "UHUGEINT": "DECIMAL(38,0)",
    "TIME WITH TIME ZONE": "VARCHAR",
    "INTERVAL": "VARCHAR",
}
_NESTED = ("list", "array", "struct", "map", "union")


def column(name: str, kind: Any) -> Column:
    """Return the column of one of DuckDB's own types."""
    stated = str(kind)
    odd = next((one for one in _leaves(kind) if _word(one) not in KINDS), "")
    lost = (
        "which would come back as another type; leave it out, or CAST it to VARCHAR "
        "in the SELECT"
        if odd
        else ""
    )
    if kind.id not in ("list", "array"):
        return Column(name, _kind(stated), stated=stated, lost=lost)
    inner = kind.children[0][1]
    item = Kind.ARRAY if inner.id in _NESTED else _kind(str(inner))
    if item in (Kind.ARRAY, Kind.OTHER, Kind.TIME):
        return Column(name, Kind.OTHER, stated=stated, lost=lost)
    return Column(name, Kind.ARRAY, item=item, stated=stated, lost=lost)


def _kind(stated: str) -> Kind:
    word = _word(stated)
    times = word.startswith(("DATE", "TIME", "INTERVAL"))
    return KINDS.get(word, Kind.TIME if times else Kind.OTHER)


def _word(stated: str) -> str:
    return stated.split("(", maxsplit=1)[0].split(" ", maxsplit=1)[0]


def _leaves(kind: Any) -> Iterator[str]:
    """Yield the names of the types that one is made of."""
    if kind.id not in _NESTED:
        yield str(kind)
        return
    if kind.id == "union":
        yield "UNION"
    for _, inner in _parts(kind):
        yield from _leaves(inner)


def _parts(kind: Any) -> list[tuple[str, Any]]:
    """Return the types inside one, by name; the length of an array is none."""
    return [part for part in kind.children if not isinstance(part[1], int)]


def staged(kind: Any) -> str:
    """Return the type in which Parquet keeps all values of one; "" if it is that."""
    changed = any(one in _STAGED for one in _leaves(kind))
    return _staged(kind) if changed else ""


def _staged(kind: Any) -> str:
    if kind.id not in _NESTED:
        return _STAGED.get(str(kind), str(kind))
    parts = [(name, _staged(inner)) for name, inner in _parts(kind)]
    if kind.id in ("list", "array"):
        sizes = [str(size) for _, size in kind.children if isinstance(size, int)]
        return f"{parts[0][1]}[{''.join(sizes)}]"
    if kind.id == "map":
        return f"MAP({', '.join(inner for _, inner in parts)})"
    named = ", ".join(f"{identifier(name)} {inner}" for name, inner in parts)
    return f"{kind.id.upper()}({named})"
