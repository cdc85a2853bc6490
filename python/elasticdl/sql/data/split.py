"""Which staged rows are for training and which for validation, as SQL conditions.

Owns the rule: a hash of the row or of a key, or the last part by an order. The same
rows give the same split in every run and from every engine, in whatever order they
came. Called by `shards`. Must not read anything but staged rows.

Rows that are equal in all columns, the label too, have one hash. Where they are many,
as in a table of a few categories, each of them would be on one side as a whole: of
those who died there all, and of those who lived none, would be training rows. So each
is hashed with its number among its equals.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from elasticdl.errors import DataError
from elasticdl.sql.data.places import with_place
from elasticdl.sql.data.source import identifier
from elasticdl.sql.plan import Column, Kind, Schema, SplitPlan

_PARTS = 1_000_000  # The finest share.
ALL, NONE = "true", "false"
# Hashes are counted in so many groups, which is far quicker than to count each one.
_GROUPS = 65_536
# How many rows are equal to a row, itself with them, on the average: 1.00 with a
# deviation of 0.006 where all differ. A few copies stay together.
_MOST_EQUAL = 1.1
_SPLIT_ELSEWISE = "split_elsewise"  # Table of the places of such rows.


@dataclass(frozen=True)
class Division:
    """Conditions of SQL over the staged rows, and what stands behind FROM for them."""

    training: str
    validation: str
    rows: str


def canonical(column: Column) -> str:
    """Return a value in the one form in which every engine's rows are hashed."""
    name = identifier(column.name)
    if column.kind in (Kind.INTEGER, Kind.BOOLEAN):
        return f"CAST({name} AS BIGINT)"
    if column.kind is Kind.NUMBER:
        # As other engines' drivers read the digits that it is written with.
        single = column.stated == "FLOAT"
        return f"CAST({f'CAST({name} AS VARCHAR)' if single else name} AS DOUBLE)"
    return f"CAST({name} AS VARCHAR)"


def _hash(columns: Iterable[Column]) -> str:
    """Return the hash of values.

    Columns count by name, so that their order in the SELECT does not.
    """
    named = sorted(columns, key=lambda column: column.name)
    return f"hash({', '.join(canonical(column) for column in named)})"


def _share(number: str, fraction: float) -> str:
    """Return the condition that holds for a share of hashes."""
    return f"{number} % {_PARTS} < {round(fraction * _PARTS)}"


def divide(connection: Any, rows: str, schema: Schema, plan: SplitPlan) -> Division:
    """Return the conditions of a split.

    Args:
        connection: Of the embedded engine.
        rows: What stands behind FROM for the staged rows.
        schema: Their columns.
        plan: The split.

    Raises DataError where an order does not divide the rows.
    """
    if plan.select or plan.fraction <= 0:
        return Division(ALL, NONE, rows)
    # Times with a zone are hashed as text, which is another one on each machine.
    connection.execute("SET TimeZone = 'UTC'")
    if plan.order:
        return _by_order(connection, rows, schema, plan)
    if plan.key:
        condition = _share(_hash([_column(schema, plan.key)]), plan.fraction)
        return Division(f"NOT ({condition})", condition, rows)
    return _by_hash(connection, rows, schema, plan.fraction)


def _by_hash(connection: Any, rows: str, schema: Schema, fraction: float) -> Division:
    """Divide by a hash of the row, and of its number where many are equal."""
    number = _hash(schema.columns)
    condition = _share(number, fraction)
    if not _are_many_equal(connection, rows, number):
        return Division(f"NOT ({condition})", condition, rows)
    rows, place = with_place(rows, schema)
    counted = (
        f"SELECT place, h, row_number() OVER (PARTITION BY h ORDER BY place) AS k "
        f"FROM (SELECT {place} AS place, {number} AS h FROM {rows})"
    )
    connection.execute(
        f"CREATE OR REPLACE TEMP TABLE {_SPLIT_ELSEWISE} AS SELECT place FROM "
        f"({counted}) WHERE k > 1 AND ({_share('hash(h, k)', fraction)}) <> "
        f"({_share('h', fraction)})"
    )
    elsewise = f"{place} IN (SELECT place FROM {_SPLIT_ELSEWISE})"
    condition = f"(({condition}) <> ({elsewise}))"
    return Division(f"NOT {condition}", condition, rows)


def _are_many_equal(connection: Any, rows: str, number: str) -> bool:
    """Whether rows have many equal ones: by how unlike in size groups of hashes are.

    Of n rows a group has some by chance, which makes n + n^2 / groups of the sum of
    squares; rows that are equal are in one group.
    """
    total, squares = connection.execute(
        f"SELECT sum(n), sum(n * n) FROM (SELECT count(*) AS n FROM {rows} "
        f"GROUP BY CAST({number} % {_GROUPS} AS USMALLINT))"
    ).fetchone()
    if not total:
        return False
    return bool((squares - total * total / _GROUPS) / total > _MOST_EQUAL)


def _column(schema: Schema, name: str) -> Column:
    column = schema.find(name)
    if column is None:
        raise DataError(f"the split needs the column `{name}`, which the query has not")
    return column


def _by_order(connection: Any, rows: str, schema: Schema, plan: SplitPlan) -> Division:
    """Divide at a value; rows of the same value are on one side."""
    column = _column(schema, plan.order)
    name = identifier(column.name)
    if column.kind is Kind.NUMBER:  # What is no number would be the last, not NULL.
        name = f"CASE WHEN NOT isnan(CAST({name} AS DOUBLE)) THEN {name} END"
    (total,) = connection.execute(f"SELECT count({name}) FROM {rows}").fetchone()
    wanted = max(1, round(total * (1 - plan.fraction)))
    # Counted by value: a sort of all rows would not fit the memory.
    found = connection.execute(
        f"SELECT CAST(v AS VARCHAR) FROM (SELECT v, sum(n) OVER (ORDER BY v) AS upto "
        f"FROM (SELECT {name} AS v, count(*) AS n FROM {rows} WHERE {name} IS NOT NULL "
        f"GROUP BY 1)) WHERE upto >= {wanted} ORDER BY v LIMIT 1"
    ).fetchone()
    if found is None:
        raise DataError(
            f"validation.order: `{plan.order}` has no value in any row; take another "
            "column, or validation.fraction"
        )
    text = found[0].replace("'", "''")
    (last,) = connection.execute(
        f"SELECT count(*) FROM {rows} WHERE {name} > '{text}'"
    ).fetchone()
    if not last:
        raise DataError(
            f"validation.order: the last {plan.fraction:.0%} of the rows have one and "
            f"the same `{plan.order}`, {found[0]}; take a finer column, or another "
            "validation.fraction"
        )
    after = f"({name} > '{text}')"
    training = f"({name} IS NULL OR NOT {after})"
    return Division(training, f"coalesce({after}, false)", rows)
