"""Which staged rows are for training and which for validation, as SQL conditions.

Owns the rule: a hash of the row or of a key, or the last part by an order. The same
rows give the same split in every run and from every engine. Called by `shards`. Must
not read anything but staged rows.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from elasticdl.errors import DataError
from elasticdl.sql.data.source import identifier
from elasticdl.sql.plan import Column, Kind, Schema, SplitPlan

_PARTS = 1_000_000  # The finest share.
ALL, NONE = "true", "false"


@dataclass(frozen=True)
class Division:
    """Conditions of SQL over the staged rows."""

    training: str
    validation: str


def canonical(column: Column) -> str:
    """Return a value in the one form in which every engine's rows are hashed."""
    name = identifier(column.name)
    if column.kind in (Kind.INTEGER, Kind.BOOLEAN):
        return f"CAST({name} AS BIGINT)"
    if column.kind is Kind.NUMBER:
        return f"CAST({name} AS DOUBLE)"
    return f"CAST({name} AS VARCHAR)"


def hashed(columns: Iterable[Column], fraction: float) -> str:
    """Return the condition that holds for a share of the different values.

    Columns count by name, so that their order in the SELECT does not.
    """
    named = sorted(columns, key=lambda column: column.name)
    values = ", ".join(canonical(column) for column in named)
    return f"hash({values}) % {_PARTS} < {round(fraction * _PARTS)}"


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
        return Division(ALL, NONE)
    if plan.order:
        return _by_order(connection, rows, schema, plan)
    columns = schema.columns
    if plan.key:
        columns = (_column(schema, plan.key),)
    condition = hashed(columns, plan.fraction)
    return Division(f"NOT ({condition})", condition)


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
    return Division(f"({name} IS NULL OR NOT {after})", f"coalesce({after}, false)")
