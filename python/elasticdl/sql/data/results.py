"""A prediction job's part files, joined to the rows that were asked about.

Owns the columns of the answer: those of the query, then the prediction and its
probability. Called by `sql.running`. Must not know where the answer goes.

A job writes a file for each task, and a task that ran twice has replaced its own; each
file says which rows it has by number. So each row is there exactly once, without a key.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elasticdl.errors import DataError
from elasticdl.sql.data import embedded
from elasticdl.sql.data.shards import Staged
from elasticdl.sql.data.source import identifier, literal
from elasticdl.sql.plan import Head, Kind, LabelPlan

PREDICTION, PROBABILITY = "prediction", "probability"


@dataclass(frozen=True)
class Names:
    """The names of the columns that are added."""

    prediction: str = PREDICTION
    probability: str = PROBABILITY


def names_beside(columns: tuple[str, ...], wanted: str = "") -> Names:
    """Return names that no column of the query has."""
    there = {name.lower() for name in columns}

    prediction = wanted or _free(PREDICTION, there)
    return Names(prediction, _free(PROBABILITY, there | {prediction.lower()}))


def _free(name: str, there: Collection[str]) -> str:
    """Return a name that is not there yet."""
    chosen, number = name, 1
    while chosen.lower() in there:
        number += 1
        chosen = f"{name}_{number}"
    return chosen


def join(
    staged: Staged, parts: Path, out: Path, *, label: LabelPlan, names: Names
) -> int:
    """Write the staged rows with their predictions to a Parquet file; how many.

    What the model has no number for is NULL. Raises DataError unless each row has
    exactly one prediction.
    """
    files = literal(str(parts / "part-*.parquet"))
    kept = [c for c in staged.schema.names if c.lower() != names.prediction.lower()]
    columns = [f"r.{identifier(c)}" for c in kept] + _answers(label, names)
    # Counted here: the file's own count has a name that a column may have, too.
    place = identifier(_free("row", {name.lower() for name in staged.schema.names}))
    rows = f"(SELECT *, row_number() OVER () - 1 AS {place} FROM {staged.relation})"
    with embedded.working(out.parent) as connection:
        _check(connection, files, staged.num_rows)
        connection.execute(
            f"COPY (SELECT {', '.join(columns)} FROM {rows} AS r JOIN "
            f"read_parquet({files}) AS p ON p.record = r.{place} "
            f"ORDER BY r.{place}) TO {literal(str(out))} (FORMAT parquet)"
        )
    return embedded.count_rows(out)


def count_without(out: Path, names: Names) -> int:
    """Return in how many rows of a joined file the model had no number to say."""
    with embedded.working(out.parent) as connection:
        (found,) = connection.execute(
            f"SELECT count_if({identifier(names.prediction)} IS NULL) FROM "
            f"read_parquet({literal(str(out))})"
        ).fetchone()
    return int(found)


def _check(connection: Any, files: str, num_rows: int) -> None:
    found, different = connection.execute(
        f"SELECT count(*), count(DISTINCT record) FROM read_parquet({files})"
    ).fetchone()
    if found != num_rows or different != num_rows:
        raise DataError(
            f"the job wrote {found:,} predictions for {different:,} of {num_rows:,} "
            "rows; expected one each: run the statement again"
        )


def _answers(label: LabelPlan, names: Names) -> list[str]:
    """Return the added columns, of a model's numbers as `p.prediction`."""
    number = f"p.{identifier(PREDICTION)}"
    if label.head is Head.NUMBER:
        number = f"CASE WHEN NOT isnan({number}) THEN CAST({number} AS DOUBLE) END"
        return [f"{number} AS {identifier(names.prediction)}"]
    if label.head is Head.BINARY:
        known = f"NOT isnan({number})"
        place = f"CASE WHEN {number} >= 0.5 THEN 2 ELSE 1 END"
        chance = f"greatest({number}, 1 - {number})"
    else:
        # The engine takes what is no number for the largest one.
        known = f"NOT isnan(list_max({number}))"
        place = f"list_position({number}, list_max({number}))"
        chance = f"list_max({number})"
    classes = f"[{', '.join(_constant(label, one) for one in label.classes)}]"
    return [
        f"CASE WHEN {known} THEN ({classes})[{place}] END "
        f"AS {identifier(names.prediction)}",
        f"CASE WHEN {known} THEN CAST({chance} AS DOUBLE) END "
        f"AS {identifier(names.probability)}",
    ]


def _constant(label: LabelPlan, value: str | int | float | bool) -> str:
    if label.kind is Kind.BOOLEAN:
        return "true" if value else "false"
    return literal(value) if isinstance(value, str) else str(value)
