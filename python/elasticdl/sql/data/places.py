"""Rows by their place: what it is called, and whether they come in the label's order.

Owns both. Called by `split` and `shards`. Must not read anything but staged rows.

A job mixes the records of a task, and the tasks. Where rows are in the order of their
label, as those of two tables one behind the other, a task has one class alone, and each
step forgets what the ones before it learned of the others. Such rows are mixed as a
whole, which takes a sort, and so is not done to others.
"""

from __future__ import annotations

from typing import Any

from elasticdl.sql.data.source import identifier
from elasticdl.sql.plan import Schema

_OF_ENGINE = "file_row_number"  # Of a row of Parquet.
_TOGETHER = 128  # Rows one behind the other whose labels are looked at together.
_FEWEST = 3  # groups
# How much more such groups differ than by chance; 1 where rows come in no order.
_MOST_UNLIKE = 2.0


def with_place(rows: str, schema: Schema) -> tuple[str, str]:
    """Return what stands behind FROM for rows that have a place, and its name."""
    if not any(column.name.lower() == _OF_ENGINE for column in schema.columns):
        return rows, _OF_ENGINE
    # A user's column hides it: one is made, of a name that is none of theirs.
    place = identifier("place of " + max(schema.names, key=len))
    return f"(SELECT *, row_number() OVER () AS {place} FROM {rows})", place


def are_ordered(connection: Any, rows: str, place: str, label: str) -> bool:
    """Whether rows one behind the other have labels that are more alike than others.

    `label` is a number of a row, as SQL.
    """
    mean, variance = connection.execute(
        f"SELECT avg(v), var_pop(v) FROM (SELECT {label} AS v FROM {rows})"
    ).fetchone()
    if not variance:
        return False
    count, unlike = connection.execute(
        f"SELECT count(*), sum(n * (m - ?) ** 2) FROM (SELECT count(*) AS n, avg(v) "
        f"AS m FROM (SELECT {label} AS v, {place} // {_TOGETHER} AS g FROM {rows}) "
        "GROUP BY g)",
        [mean],
    ).fetchone()
    if count < _FEWEST:
        return False
    return bool(unlike / (count - 1) / variance > _MOST_UNLIKE)
