"""Statistics of training shards: moments, quantiles and vocabularies, in few queries.

Owns how they are computed: by the embedded engine over the shards of training alone.
Called by `sql.running`. Must not know what they are for.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from elasticdl.sql.data import embedded
from elasticdl.sql.data.shards import Shards
from elasticdl.sql.data.source import as_double, file_literal, literal, quoted
from elasticdl.sql.plan import (
    LABEL_FEATURE,
    NULL_INTEGER,
    NULL_TEXT,
    ColumnPlan,
    ColumnStatistics,
    Entry,
    Statistics,
    StatisticsNeeded,
    Stored,
    is_line,
)

INLINE_ENTRIES = 1000  # Larger vocabularies are files: a values file stays legible.
# Of all others together, as a values file is a ConfigMap of at most 1 MiB.
INLINE_BYTES = 2**18
# Quantiles keep their values in memory: above so many rows those of a sample.
_EXACT_ROWS = 1_000_000
# A rank's standard deviation is 0.1 % at the most, and 0.16 % with the fewest.
_SAMPLED_ROWS = 250_000
_FEWEST_SAMPLED = 100_000
_EXACT_VALUES = 2**25  # Of one query, 8 bytes each: well below the engine's memory.
_NAME_CHARACTERS = 40  # Of a column's name in a file's.
# Names that no column of a shard has.
_VALUE = "value behind need "
_CHANCE = '"chance of a row"'
_PLACE = ("file_row_number", "file_index")  # Of a row of Parquet, by the engine.


@dataclass(frozen=True)
class _Asked:
    """A need, its column, and the values behind it as SQL."""

    need: StatisticsNeeded
    column: ColumnPlan
    share: float = 1.0  # Of the rows whose values quantiles are made of.

    @property
    def name(self) -> str:
        return quoted(self.column.feature)

    @property
    def is_null(self) -> str:
        """Whether a row has no value."""
        if self.column.longest:
            return f"len({self.present}) = 0"
        return _is_null(self.name, self.column.stored)

    @property
    def present(self) -> str:
        """An array without what stands for NULL and fills it up."""
        return (
            f"list_filter({self.name}, lambda v: "
            f"NOT {_is_null('v', self.column.stored)})"
        )

    @property
    def is_number(self) -> bool:
        """Whether the values themselves are measured."""
        return self.need.moments or self.need.num_buckets > 1

    @property
    def value(self) -> str:
        """The measured number of a row, NULL where it has none."""
        double = f"CAST({self.name} AS DOUBLE)"
        if self.need.of.log:
            double = f"sign({double}) * ln(1 + abs({double}))"
        return f"CASE WHEN {self.is_null} THEN NULL ELSE {double} END"

    @property
    def parts(self) -> str:
        """The list of a row's values."""
        if self.column.longest:
            return self.present
        split = f"string_split({self.name}, {literal(self.need.of.split)})"
        return f"list_filter({split}, lambda v: v <> '')"


def _is_null(name: str, stored: Stored) -> str:
    if stored is Stored.FLOAT:
        return f"isnan({name})"
    if stored is Stored.INTEGER:
        return f"({name} = {NULL_INTEGER + 1}::BIGINT - 1)"
    return f"({name} = {literal(NULL_TEXT)})"


def measure(
    shards: Shards,
    *,
    columns: tuple[ColumnPlan, ...],
    needs: tuple[StatisticsNeeded, ...],
    label: str = "",
) -> Statistics:
    """Return all statistics of a training; large vocabularies are written as files.

    `label` is the label's column: its vocabulary are the classes, which the shards know
    already.
    """
    by_column = {column.column: column for column in columns}
    by_column[label] = ColumnPlan(label, LABEL_FEATURE, Stored.FLOAT)
    classes = [n for n in needs if n.of.column == label and n.vocabulary]
    asked = [_Asked(n, by_column[n.of.column]) for n in needs if n not in classes]
    with embedded.working(shards.folder) as connection:
        rows = f"read_parquet({file_literal(shards.training, '*.parquet')})"
        drawn = _with_chance(rows, columns)
        numbers = _numbers(connection, drawn, asked, shards.num_training)
        found: list[ColumnStatistics] = []
        room = INLINE_BYTES
        for at, (one, made) in enumerate(zip(asked, numbers, strict=True)):
            place = shards.folder / _file(made, at)
            meant = _with_means(connection, rows, one, made)
            found.append(
                _with_vocabulary(connection, rows, one, meant, place, room=room)
            )
            room -= _num_bytes(found[-1].vocabulary)
    found += [_of_label(n, shards) for n in classes]
    return Statistics(shards.num_training, tuple(found), shards.num_validation)


def _of_label(need: StatisticsNeeded, shards: Shards) -> ColumnStatistics:
    return ColumnStatistics(
        need.of,
        num_rows=shards.num_training,
        null_count=0,
        vocabulary=tuple(
            sorted(shards.classes, key=lambda entry: (-entry.count, entry.value))
        ),
        vocabulary_size=len(shards.classes),
    )


def _with_chance(rows: str, columns: tuple[ColumnPlan, ...]) -> str:
    """Return the rows, each with a number of 64 bits that samples are drawn by."""
    # Of its place, so that every run draws the same; a user's column may hide that.
    hidden = any(column.feature.lower() in _PLACE for column in columns)
    number = (
        "CAST(random() * 2^64 AS UBIGINT)" if hidden else f"hash({', '.join(_PLACE)})"
    )
    return f"(SELECT *, {number} AS {_CHANCE} FROM {rows})"


def _numbers(
    connection: Any, rows: str, asked: list[_Asked], num_rows: int
) -> list[ColumnStatistics]:
    """Compute all but vocabularies, for as many columns in a pass as memory allows."""
    share = 1.0 if num_rows <= _EXACT_ROWS else _SAMPLED_ROWS / num_rows
    drawn = [replace(one, share=share) for one in asked]
    found = _read_all(connection, rows, drawn, num_rows)
    # NULLs are no values: what is seldom there needs a larger share of the rows.
    again: dict[int, _Asked] = {}
    for number, (one, made) in enumerate(zip(asked, found, strict=True)):
        present = num_rows - made.null_count
        if one.need.num_buckets > 1 and share < 1 and present * share < _FEWEST_SAMPLED:
            larger = 1.0 if present <= _EXACT_ROWS else _SAMPLED_ROWS / present
            again[number] = replace(one, share=larger)
    read = _read_all(connection, rows, list(again.values()), num_rows)
    better = dict(zip(again, read, strict=True))
    return [better.get(number, made) for number, made in enumerate(found)]


def _read_all(
    connection: Any, rows: str, asked: list[_Asked], num_rows: int
) -> list[ColumnStatistics]:
    most = max(1, _EXACT_VALUES // max(1, min(num_rows, _EXACT_ROWS)))
    found: list[ColumnStatistics] = []
    while len(found) < len(asked):
        some = asked[len(found) : len(found) + most]
        answer = iter(connection.execute(_query(rows, some)).fetchone())
        found += [_read(one.need, answer, num_rows) for one in some]
    return found


def _query(rows: str, asked: list[_Asked]) -> str:
    """Return a query of one row: for each need what `_read` takes from it."""
    wanted: list[str] = []
    values = ["*"]
    for number, one in enumerate(asked):
        # Made once, with NULL, which aggregates pass over; each computes its FILTER.
        value = quoted(f"{_VALUE}{number}")
        if one.is_number:
            values.append(f"{one.value} AS {value}")
            wanted.append(f"count(*) - count({value})")
        else:
            wanted.append(f"count_if({one.is_null})")
        moments = ("avg", "var_pop", "min", "max") if one.need.moments else ()
        wanted += [f"{name}({value})" for name in moments]
        if one.need.num_buckets > 1:
            shares = [i / one.need.num_buckets for i in range(1, one.need.num_buckets)]
            below = f"{_CHANCE} < {int(one.share * 2**64)}::UBIGINT"
            among = f" FILTER (WHERE {below})" if one.share < 1 else ""
            wanted.append(f"quantile_disc({value}, {shares}){among}")
        if one.need.longest:
            wanted.append(f"max(len({one.parts}))")
    return f"SELECT {', '.join(wanted)} FROM (SELECT {', '.join(values)} FROM {rows})"


def _read(need: StatisticsNeeded, answer: Any, num_rows: int) -> ColumnStatistics:
    nulls = next(answer)
    mean, variance, least, most = (
        [next(answer) for _ in range(4)] if need.moments else [None] * 4
    )
    bounds = (next(answer) or []) if need.num_buckets > 1 else []
    longest = (next(answer) or 0) if need.longest else 0
    return ColumnStatistics(
        need.of,
        num_rows=num_rows,
        null_count=nulls,
        mean=mean,
        variance=variance,
        minimum=least,
        maximum=most,
        boundaries=tuple(sorted(bounds)),
        longest=longest,
    )


def _with_means(
    connection: Any, rows: str, one: _Asked, made: ColumnStatistics
) -> ColumnStatistics:
    """Add the mean of each number of a text; 0 where no row has numbers."""
    if not one.need.means:
        return made
    split = f"string_split({one.name}, {literal(one.need.of.split)})"
    numbers = f"list_transform({split}, lambda v: {as_double('v')})"
    found = connection.execute(
        f"SELECT avg(v) FROM (SELECT unnest(n) AS v, generate_subscripts(n, 1) AS i "
        f"FROM (SELECT {numbers} AS n FROM {rows} WHERE NOT {one.is_null})) "
        "GROUP BY i ORDER BY i"
    ).fetchall()
    means = tuple(mean for (mean,) in found)
    return replace(made, means=means or (0.0,) * one.need.of.numbers)


def _num_bytes(entries: tuple[Entry, ...]) -> int:
    """Return about what a vocabulary takes in a values file."""
    return sum(len(str(entry.value).encode()) + 1 for entry in entries)


def _with_vocabulary(
    connection: Any,
    rows: str,
    one: _Asked,
    made: ColumnStatistics,
    place: Path,
    *,
    room: int,
) -> ColumnStatistics:
    """Add the vocabulary: inside if it has the room, else in a file."""
    need = one.need
    if not need.vocabulary:
        return made
    several = bool(need.of.split or one.column.longest)
    value = f"unnest({one.parts})" if several else one.name
    counted = (
        f"SELECT v, count(*) AS n FROM (SELECT {value} AS v FROM {rows} WHERE NOT "
        f"{one.is_null}) GROUP BY v HAVING count(*) >= {need.min_count}"
    )
    limit = f" LIMIT {need.max_size}" if need.max_size else ""
    found = connection.execute(f"SELECT * FROM ({counted}) ORDER BY n DESC, v{limit}")
    first = found.fetchmany(INLINE_ENTRIES + 1)
    if len(first) <= INLINE_ENTRIES:
        entries = tuple(Entry(v, n) for v, n in first)
        if _num_bytes(entries) <= room:
            return replace(made, vocabulary=entries, vocabulary_size=len(first))
    # What fills an array up is no value of it.
    nulls = 0 if one.column.longest else made.null_count
    written = replace(made, null_count=nulls)
    size, left_out = _write_vocabulary(found, first, written, place)
    return replace(
        made, vocabulary_file=place.name, vocabulary_size=size, no_lines=left_out
    )


def _write_vocabulary(
    found: Any, first: list[Any], made: ColumnStatistics, place: Path
) -> tuple[int, int]:
    """Write a line for each value; return the number of those, and of others."""
    place.parent.mkdir(parents=True, exist_ok=True)
    size = left_out = 0
    with place.open("w", encoding="utf-8", newline="\n") as file:
        block = first
        while block:
            for value, _ in block:
                # A value with a line end in it cannot be a line: it stays unseen.
                if not isinstance(value, str) or is_line(value):
                    file.write(f"{value}\n")
                    size += 1
                else:
                    left_out += 1
            block = found.fetchmany(INLINE_ENTRIES)
        if made.null_count:
            file.write(f"{NULL_TEXT}\n")
    return size, left_out


def _file(made: ColumnStatistics, number: int) -> str:
    """Return where a vocabulary would lie: names of columns may be alike, no number."""
    column = made.of.column.lower()[:_NAME_CHARACTERS]
    plain = "".join(c if c.isalnum() else "-" for c in column)
    return f"vocabularies/{number}-{plain}.txt"
