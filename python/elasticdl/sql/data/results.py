"""A prediction job's part files, joined to the rows that were asked about.

Owns the columns of the answer: those of the query, then the prediction and its
probability. Called by `sql.running`. Must not know where the answer goes.

A job writes a file for each task, and a task that ran twice has replaced its own; each
file says which rows it has by number. So each row is there exactly once, without a key.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elasticdl.errors import DataError
from elasticdl.sql.data import embedded
from elasticdl.sql.data.shards import Staged
from elasticdl.sql.data.source import file_literal, identifier, literal
from elasticdl.sql.plan import Head, Kind, LabelPlan

_NEAR = 1e-3  # Of sums of float32.
PREDICTION, PROBABILITY = "prediction", "probability"
_OF_BEFORE = re.compile(rf"{PROBABILITY}(_\d+)?")


@dataclass(frozen=True)
class Names:
    """The names of the columns that are added."""

    prediction: str = PREDICTION
    probability: str = PROBABILITY


def names_beside(columns: tuple[str, ...], wanted: str = "") -> Names:
    """Return names that no column of the query has, but those of answers before.

    A column that is `wanted` takes the place of one of that name, and so does its
    probability, which stands behind it.
    """
    there = [name.lower() for name in columns]
    prediction = wanted or _free(PREDICTION, there)
    if prediction.lower() in there:
        behind = there.index(prediction.lower()) + 1
        if behind < len(there) and _OF_BEFORE.fullmatch(there[behind]):
            return Names(prediction, columns[behind])
    return Names(prediction, _free(PROBABILITY, {*there, prediction.lower()}))


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
    files = file_literal(parts, "part-*.parquet")
    new = {names.prediction.lower()}
    if label.head is not Head.NUMBER:
        new.add(names.probability.lower())
    kept = [name for name in staged.schema.names if name.lower() not in new]
    columns = [f"r.{identifier(c)}" for c in kept]
    # Counted here: the file's own count has a name that a column may have, too.
    place = identifier(_free("row", {name.lower() for name in staged.schema.names}))
    rows = f"(SELECT *, row_number() OVER () - 1 AS {place} FROM {staged.relation})"
    with embedded.working(out.parent) as connection:
        _check(connection, files, staged.num_rows)
        columns += _answers(label, names, said(connection, files, label))
        # Side by side, as both are in order: the rows themselves are not sorted, whose
        # texts may be long. That they are the same ones is looked at in each row.
        answers = f"(SELECT * FROM read_parquet({files}) ORDER BY record)"
        same = f"CASE WHEN p.record <> r.{place} THEN error('rows are mixed up') END"
        connection.execute(
            f"COPY (SELECT {', '.join(columns)} FROM {rows} AS r POSITIONAL JOIN "
            f"{answers} AS p WHERE {same} IS NULL) TO {literal(str(out))} "
            f"(FORMAT parquet, {embedded.like_those_of(staged.path)})"
        )
    return embedded.count_rows(out)


def beside(staged: Staged, parts: Path) -> str:
    """Return a query of the embedded engine: rows with what a job wrote for them."""
    answers = f"FROM {file_literal(parts, 'part-*.parquet')} ORDER BY record"
    return f"FROM {file_literal(staged.path)} POSITIONAL JOIN ({answers})"


def count_without(out: Path, names: Names) -> int:
    """Return in how many rows of a joined file the model had no number to say."""
    with embedded.working(out.parent) as connection:
        (found,) = connection.execute(
            f"SELECT count_if({identifier(names.prediction)} IS NULL) FROM "
            f"read_parquet({file_literal(out)})"
        ).fetchone()
    return int(found)


def refuse_unnumbered(connection: Any, files: str) -> None:
    """Raise DataError where answers do not say which rows they are of."""
    found = connection.execute(f"DESCRIBE FROM read_parquet({files})").fetchall()
    if "record" not in {name for name, *_ in found}:
        raise DataError(
            "nobody knows which rows the model's answers are of: its `feed` leaves "
            "rows out or changes their order, as by `filter` and `shuffle`; do so "
            "where its mode is `training` alone"
        )


def _check(connection: Any, files: str, num_rows: int) -> None:
    refuse_unnumbered(connection, files)
    found, different = connection.execute(
        f"SELECT count(*), count(DISTINCT record) FROM read_parquet({files})"
    ).fetchone()
    if found != num_rows or different != num_rows:
        raise DataError(
            f"the job wrote {found:,} predictions for {different:,} of {num_rows:,} "
            "rows; expected one each: run the statement again"
        )


@dataclass(frozen=True)
class Said:
    """A model's answer of a row `p` in SQL: if it is one, which class, how probable.

    Of a label that is a number `value` is that number. `every` is the list of all
    classes' probabilities.
    """

    known: str
    value: str = ""
    place: str = ""
    chance: str = ""
    every: str = ""

    def chance_of(self, label: str) -> str:
        """Return the probability of a class, which is its place from 0."""
        return f"{self.every}[CAST({label} AS BIGINT) + 1]"


def said(connection: Any, files: str, label: LabelPlan) -> Said:
    """Return how the answers of part files are read.

    Raises DataError where a model of one's own answers something else than it should.
    """
    number = f"p.{identifier(PREDICTION)}"
    (kind,) = connection.execute(
        f"SELECT typeof({number}) FROM read_parquet({files}) AS p LIMIT 1"
    ).fetchone()
    several = kind.endswith("]")
    if label.head is Head.NUMBER:
        if several:
            raise DataError("the model answers several numbers a row, expected one")
        return Said(f"NOT isnan({number})", value=number)
    if several:
        _refuse_count(connection, files, number, len(label.classes))
        # The engine takes what is no number for the largest one.
        most = f"list_max({number})"
        known, place, chance = (
            f"NOT isnan({most})",
            f"list_position({number}, {most})",
            most,
        )
        least, every = f"list_min({number})", number
    else:
        if label.head is not Head.BINARY:
            _refuse_count(connection, files, f"[{number}]", len(label.classes))
        known = f"NOT isnan({number})"
        place = f"CASE WHEN {number} >= 0.5 THEN 2 ELSE 1 END"
        chance = f"greatest({number}, 1 - {number})"
        least = most = number
        every = f"[1 - {number}, {number}]"
    low, high = connection.execute(
        f"SELECT min({least}), max({most}) FROM read_parquet({files}) AS p "
        f"WHERE {known}"
    ).fetchone()
    if low is not None and (low < -_NEAR or high > 1 + _NEAR):
        raise DataError(
            f"the model's answers are from {low:.4g} to {high:.4g}, expected "
            "probabilities: its output ends in a sigmoid of two classes, in a softmax "
            "of more"
        )
    return Said(known, place=place, chance=chance, every=every)


def _refuse_count(connection: Any, files: str, numbers: str, wanted: int) -> None:
    (odd,) = connection.execute(
        f"SELECT max(len({numbers})) FROM read_parquet({files}) AS p "
        f"WHERE len({numbers}) <> {wanted}"
    ).fetchone()
    if odd is not None:
        raise DataError(
            f"the model answers {odd} numbers a row, expected {wanted}: a probability "
            "for each class"
        )


def _answers(label: LabelPlan, names: Names, of: Said) -> list[str]:
    """Return the added columns, of a model's numbers as `p.prediction`."""
    if label.head is Head.NUMBER:
        number = f"CASE WHEN {of.known} THEN CAST({of.value} AS DOUBLE) END"
        return [f"{number} AS {identifier(names.prediction)}"]
    classes = f"[{', '.join(_constant(label, one) for one in label.classes)}]"
    return [
        f"CASE WHEN {of.known} THEN ({classes})[{of.place}] END "
        f"AS {identifier(names.prediction)}",
        f"CASE WHEN {of.known} THEN CAST({of.chance} AS DOUBLE) END "
        f"AS {identifier(names.probability)}",
    ]


def _constant(label: LabelPlan, value: str | int | float | bool) -> str:
    if label.kind is Kind.BOOLEAN:
        return "true" if value else "false"
    return literal(value) if isinstance(value, str) else str(value)
