"""Staged rows as the shards that a job reads: NULLs settled, label coded, divided.

Owns what lies in the shards (`sql.plan` has the table) and the size of their row
groups. Called by `sql.running`. Must not know where staged rows came from.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elasticdl.errors import DataError
from elasticdl.sql.data import embedded, places, split
from elasticdl.sql.data.source import (
    BLANKS,
    as_double,
    file_literal,
    identifier,
    literal,
)
from elasticdl.sql.plan import (
    LABEL_FEATURE,
    NULL_INTEGER,
    NULL_TEXT,
    NUMBER,
    Column,
    ColumnPlan,
    Entry,
    Head,
    Kind,
    LabelPlan,
    Schema,
    SplitPlan,
    Stored,
    in_sql,
)

ROW_GROUP = 4096  # The engine makes none below 2,048; a task reads whole ones.
_GROUPS_IN_FILE = 256  # About a million rows, so that footers stay small.
_LARGEST = 3.4028235e38  # Of float32.
_LONGEST_SHOWN = 60  # Characters of a text in a message.
_MOST_CLASSES = 10_000
_EARLY = (
    "as in the first rows; leave them out with a WHERE, or sort the rows so that all "
    "classes come early"
)
_TRAINED = "as the model was trained with; leave them out with a WHERE"
_NULLS = {
    Stored.FLOAT: "'nan'::FLOAT",
    # Made of two numbers, because the smallest integer cannot be written as one.
    Stored.INTEGER: f"({NULL_INTEGER + 1}::BIGINT - 1)",
    Stored.TEXT: literal(NULL_TEXT),
}
_TYPES = {Stored.FLOAT: "FLOAT", Stored.INTEGER: "BIGINT", Stored.TEXT: "VARCHAR"}


@dataclass(frozen=True)
class Staged:
    """Rows of a source on disk, as they came."""

    path: Path
    schema: Schema
    num_rows: int

    @property
    def relation(self) -> str:
        """What stands behind FROM."""
        return f"read_parquet({file_literal(self.path)})"


@dataclass(frozen=True)
class Shards:
    """The shards of a training.

    `classes` are the label's values in the order of their numbers, each with its count
    over training rows; empty where the label is a number.
    """

    folder: Path
    num_training: int
    num_validation: int
    classes: tuple[Entry, ...] = ()

    @property
    def training(self) -> Path:
        """Folder of training shards."""
        return self.folder / "training"

    @property
    def validation(self) -> Path:
        """Folder of validation shards."""
        return self.folder / "validation"


def write_training(
    staged: Staged,
    folder: Path,
    *,
    columns: tuple[ColumnPlan, ...],
    label: LabelPlan,
    division: SplitPlan,
    validation: Staged | None = None,
) -> Shards:
    """Write the shards of a training; what is there already is replaced.

    Args:
        staged: All rows, or with `validation` those for training.
        folder: Where `training` and `validation` are made.
        columns: What goes into the shards beside the label.
        label: The label.
        division: How rows are divided where `validation` does not say it.
        validation: Rows of validation.select.

    Raises DataError for a label that is NULL or of no known class, and for too few
    rows.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with embedded.working(folder) as connection:
        parts = split.divide(connection, staged.relation, staged.schema, division)
        sides = {"training": (parts.rows, staged.schema, parts.training)}
        whole: tuple[Staged, ...] = (staged,)
        if validation is not None:
            whole = (staged, validation)
            sides["validation"] = (validation.relation, validation.schema, split.ALL)
        elif parts.validation != split.NONE:
            sides["validation"] = (parts.rows, staged.schema, parts.validation)
        for one in whole:
            _refuse_null(connection, one, label)
            _refuse_fractions(connection, one, label)
            _refuse_infinite(connection, one, columns, label.column)
            _refuse_texts(connection, one, columns)
        classes = _classes(connection, whole, label)
        coded = _label(label, classes)
        counts = {"training": 0, "validation": 0}
        rows, order = _mixed(connection, parts.rows, staged.schema, label)
        sides["training"] = (rows, staged.schema, f"{parts.training} {order}")
        for side, (rows, schema, condition) in sides.items():
            made = [*(settled(column, schema) for column in columns), coded]
            query = f"SELECT {', '.join(made)} FROM {rows} WHERE {condition}"
            counts[side] = _write(connection, query, folder / side)
        if not counts["training"]:
            raise DataError(
                f"the query has {staged.num_rows} rows, and none of them is left for "
                "training; expected more rows, or a smaller validation.fraction"
            )
        classes = _counted(connection, folder / "training", classes)
        _refuse_one_class(label, classes)
    return Shards(folder, counts["training"], counts["validation"], classes)


def _refuse_one_class(label: LabelPlan, classes: tuple[Entry, ...]) -> None:
    """Raise DataError where training rows have nothing to tell apart."""
    there = [entry for entry in classes if entry.count]
    if len(there) == 1:
        raise DataError(
            f"all {there[0].count:,} training rows have the label `{label.column}` = "
            f"{there[0].value}, and validation rows the others; expected two values "
            "or more: divide the rows otherwise, or select more of them"
        )


def _mixed(
    connection: Any, rows: str, schema: Schema, label: LabelPlan
) -> tuple[str, str]:
    """Return what stands behind FROM, and an order that mixes rows where it must."""
    with_place, place = places.with_place(rows, schema)
    number = f"CAST({identifier(label.column)} AS DOUBLE)"
    if label.head is not Head.NUMBER:
        number = f"CAST(hash({_class_value(label)}) % 1_000_003 AS DOUBLE)"
    if places.are_ordered(connection, with_place, place, number):
        return with_place, f"ORDER BY hash({place})"
    return rows, ""


def write_prediction(
    staged: Staged, file: Path, *, columns: tuple[ColumnPlan, ...]
) -> int:
    """Write the rows for a prediction or an evaluation without a label; how many.

    One file in the order of the staged rows, so that a row's number joins the two.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    with embedded.working(file.parent) as connection:
        _refuse_infinite(connection, staged, columns)
        _refuse_texts(connection, staged, columns)
        made = ", ".join(settled(column, staged.schema) for column in columns)
        connection.execute(
            f"COPY (SELECT {made} FROM {staged.relation}) TO {literal(str(file))} "
            f"(FORMAT parquet, ROW_GROUP_SIZE {ROW_GROUP})"
        )
    return embedded.count_rows(file)


def write_labelled(
    staged: Staged, folder: Path, *, columns: tuple[ColumnPlan, ...], label: LabelPlan
) -> int:
    """Write rows with their label, for an evaluation; how many there are."""
    folder.mkdir(parents=True, exist_ok=True)
    with embedded.working(folder) as connection:
        _refuse_null(connection, staged, label)
        _refuse_fractions(connection, staged, label)
        _refuse_infinite(connection, staged, columns, label.column)
        _refuse_texts(connection, staged, columns)
        classes = tuple(Entry(_plain(value), 0) for value in label.classes)
        if classes:
            _refuse_unknown(connection, staged, label, classes, behind=_TRAINED)
        made = [settled(column, staged.schema) for column in columns]
        query = f"SELECT {', '.join([*made, _label(label, classes)])}"
        return _write(connection, f"{query} FROM {staged.relation}", folder / "rows")


def settled(plan: ColumnPlan, schema: Schema) -> str:
    """Return a column of the staged rows as it lies in the shards."""
    column = schema.find(plan.column)
    name = identifier(column.name if column is not None else plan.column)
    null = _NULLS[plan.stored]
    kind = _TYPES[plan.stored]
    if not plan.longest:
        value = _settled_value(name, plan.stored, column)
        if plan.pair:
            value = _with_weights(name, value, plan)
        return f"{value} AS {identifier(plan.feature)}"
    value = _settled_value("v", plan.stored, column)
    values = f"list_transform(coalesce({name}, []), lambda v: {value})"
    padded = f"list_resize({values}, {plan.longest}, {null})"
    return f"CAST({padded} AS {kind}[{plan.longest}]) AS {identifier(plan.feature)}"


def _with_weights(name: str, value: str, plan: ColumnPlan) -> str:
    """Return a text whose parts have weights; an error where one is no number."""
    sign = literal(plan.pair)
    behind = f"substr(v, instr(v, {sign}) + {len(plan.pair)})"
    wrong = (
        f"list_filter(string_split({name}, {literal(plan.delimiter)}), lambda v: "
        f"instr(v, {sign}) > 0 AND NOT {_is_number(behind)})"
    )
    got = literal(f"column `{plan.column}`: got ")
    expected = literal(f", expected a number behind `{plan.pair}`, as red:0.5")
    return (
        f"CASE WHEN len({wrong}) > 0 THEN error({got} || {wrong}[1] || {expected}) "
        f"ELSE {value} END"
    )


def _is_number(text: str) -> str:
    """Return whether a text is a number that float32 has, as SQL."""
    small = f"abs({as_double(text)}) <= {_LARGEST}"
    return (
        f"(regexp_full_match({text}, {literal(NUMBER)}) AND coalesce({small}, false))"
    )


def _refuse_texts(
    connection: Any, staged: Staged, columns: tuple[ColumnPlan, ...]
) -> None:
    """Raise DataError where a text has others than the numbers that it should."""
    for plan in columns:
        if not plan.numbers:
            continue
        column = staged.schema.find(plan.column)
        text = f"CAST({identifier(column.name if column else plan.column)} AS VARCHAR)"
        parts = f"string_split({text}, {literal(plan.delimiter)})"
        trimmed = f"trim(v, {literal(BLANKS)})"
        odd = (
            f"len({parts}) <> {plan.numbers} OR len(list_filter({parts}, lambda v: "
            f"NOT {_is_number(trimmed)})) > 0"
        )
        number, example = connection.execute(
            f"SELECT count(*), min(t) FROM (SELECT {text} AS t FROM {staged.relation} "
            f"WHERE {text} IS NOT NULL AND ({odd}))"
        ).fetchone()
        if number:
            rows = "1 row" if number == 1 else f"{number:,} rows"
            shown = example[:_LONGEST_SHOWN]
            raise DataError(
                f"column `{plan.column}` is not {plan.numbers} numbers with "
                f"`{plan.delimiter}` between them in {rows} of {staged.num_rows:,}, as "
                f"in {shown!r}; leave them out with a WHERE, or make them NULL"
            )


def _settled_value(name: str, stored: Stored, column: Column | None) -> str:
    """Return a value, also one of an array, without NULL."""
    value = f"CAST({name} AS {_TYPES[stored]})"
    numbers = column is not None and Kind.NUMBER in (column.kind, column.item)
    if column is not None and numbers and stored is Stored.INTEGER:
        got = literal(f"column `{column.name}`: got ")
        expected = literal(", expected whole numbers, as the model was trained with")
        value = (
            f"CASE WHEN {name} IS NULL OR isnan(CAST({name} AS DOUBLE)) THEN NULL "
            f"WHEN TRY_CAST({name} AS BIGINT) IS NULL OR trunc({name}) <> {name} "
            f"THEN error({got} || CAST({name} AS VARCHAR) || {expected}) "
            f"ELSE {value} END"
        )
    return f"coalesce({value}, {_NULLS[stored]})"


def _write(connection: Any, query: str, folder: Path) -> int:
    """Write a query's rows into a folder of files; return how many."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    file = folder / "rows.parquet"
    connection.execute(
        f"COPY ({query}) TO {literal(str(file))} "
        f"(FORMAT parquet, ROW_GROUP_SIZE {ROW_GROUP})"
    )
    number = embedded.count_rows(file)
    if not number:
        shutil.rmtree(folder)
    return number


def _refuse_null(connection: Any, staged: Staged, label: LabelPlan) -> None:
    name = identifier(label.column)
    empty = f"{name} IS NULL"
    if label.kind is Kind.NUMBER:
        empty += f" OR isnan({name})"
    (nulls,) = connection.execute(
        f"SELECT count(*) FROM {staged.relation} WHERE {empty}"
    ).fetchone()
    if nulls:
        rows = "1 row" if nulls == 1 else f"{nulls:,} rows"
        raise DataError(
            f"the label `{label.column}` is NULL in {rows} of {staged.num_rows:,}; "
            f"leave them out: SELECT ... WHERE {in_sql(label.column)} IS NOT NULL"
        )


def _refuse_infinite(
    connection: Any, staged: Staged, columns: tuple[ColumnPlan, ...], label: str = ""
) -> None:
    """Raise DataError for an infinity: no mean has one, and no prediction.

    What float32 has no number for would be one.
    """
    wanted = [c.column for c in columns if c.stored is Stored.FLOAT] + [label]
    known = filter(None, map(staged.schema.find, wanted))
    numbers = [one for one in known if Kind.NUMBER in (one.kind, one.item)]
    if not numbers:
        return
    counts = ", ".join(
        f"count_if({_is_infinite(column)}), count_if({_is_infinite(column, 'FLOAT')})"
        for column in numbers
    )
    found = connection.execute(f"SELECT {counts} FROM {staged.relation}").fetchone()
    for column, infinite, large in zip(numbers, found[::2], found[1::2], strict=True):
        if large:
            name, array = column.name, column.kind is Kind.ARRAY
            rows = "1 row" if large == 1 else f"{large:,} rows"
            has = "is infinite" if infinite else "is beyond 3.4e38 (no float32)"
            if array:
                has = f"has a number that {has} in its array"
            limit = (
                f"isfinite({in_sql(name)})"
                if infinite
                else f"abs({in_sql(name)}) < 3.4e38"
            )
            where = "" if array else f": SELECT ... WHERE {limit}"
            raise DataError(
                f"column `{name}` {has} in {rows}; leave them out{where}, or make "
                "them NULL"
            )


def _is_infinite(column: Column, kind: str = "DOUBLE") -> str:
    """Return whether a number is infinite, or beyond a type; NaN is NULL."""
    name = identifier(column.name)
    value = "v" if column.kind is Kind.ARRAY else name
    odd = (
        f"({value} IS NOT NULL AND NOT isnan(CAST({value} AS DOUBLE)) AND "
        f"coalesce(isinf(TRY_CAST({value} AS {kind})), true))"
    )
    if column.kind is not Kind.ARRAY:
        return odd
    return f"list_bool_or(list_transform({name}, lambda v: {odd}))"


def _refuse_fractions(connection: Any, staged: Staged, label: LabelPlan) -> None:
    """Raise DataError where a class would be rounded: BIGINT takes any number."""
    if label.head is Head.NUMBER or label.kind is Kind.TEXT:
        return
    name = identifier(label.column)
    number = f"TRY_CAST({name} AS DOUBLE)"
    odd = connection.execute(
        f"SELECT {number}, count(*) FROM {staged.relation} WHERE {number} IS DISTINCT "
        f"FROM TRY_CAST({name} AS BIGINT) GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT 1"
    ).fetchone()
    if odd is not None:
        rows = "1 row" if odd[1] == 1 else f"{odd[1]:,} rows"
        raise DataError(
            f"the label `{label.column}` has the value {odd[0]} in {rows}, expected "
            "whole numbers as classes; CAST it to VARCHAR to make a class of each "
            "value, or train a regressor, as DNNRegressor"
        )


def _classes(
    connection: Any, whole: tuple[Staged, ...], label: LabelPlan
) -> tuple[Entry, ...]:
    """Return the label's values in ascending order, not counted yet."""
    if label.head is Head.NUMBER:
        return ()
    value = _class_value(label)
    if label.classes:
        known = tuple(Entry(_plain(one), 0) for one in label.classes)
        for one in whole:
            _refuse_unknown(connection, one, label, known, behind=_EARLY)
        return known
    there: set[Any] = set()
    for one in whole:
        found = connection.execute(
            f"SELECT DISTINCT {value} FROM {one.relation} LIMIT {_MOST_CLASSES + 1}"
        )
        there |= {value for (value,) in found.fetchall()}
    if len(there) > _MOST_CLASSES:
        raise DataError(
            f"the label `{label.column}` has more than {_MOST_CLASSES:,} different "
            "values; expected a class, or a fraction for a regressor: CAST it to DOUBLE"
        )
    if len(there) == 1:
        raise DataError(
            f"the label `{label.column}` has one value alone, there is nothing to "
            "tell apart; expected two or more"
        )
    return tuple(Entry(one, 0) for one in sorted(there))


def _counted(
    connection: Any, training: Path, classes: tuple[Entry, ...]
) -> tuple[Entry, ...]:
    """Return classes with their counts over training rows, as the shards have them."""
    if not classes:
        return ()
    found = connection.execute(
        f"SELECT {LABEL_FEATURE}, count(*) FROM "
        f"read_parquet({file_literal(training, '*.parquet')}) GROUP BY 1"
    )
    counts = dict(found.fetchall())
    return tuple(
        Entry(one.value, counts.get(place, 0)) for place, one in enumerate(classes)
    )


def _refuse_unknown(
    connection: Any,
    staged: Staged,
    label: LabelPlan,
    classes: tuple[Entry, ...],
    *,
    behind: str,
) -> None:
    value = _class_value(label)
    listed = ", ".join(_constant(entry.value) for entry in classes)
    odd = connection.execute(
        f"SELECT {value}, count(*) FROM {staged.relation} WHERE {value} NOT IN "
        f"({listed}) GROUP BY 1 ORDER BY 2 DESC LIMIT 1"
    ).fetchone()
    if odd is not None:
        raise DataError(
            f"the label `{label.column}` has the value {odd[0]!r} in {odd[1]:,} rows, "
            f"expected one of {listed[:200]}, {behind}"
        )


def _plain(value: str | int | float | bool) -> str | int:
    """Return a class as the shards' query has it: a boolean is a number."""
    return value if isinstance(value, str) else int(value)


def _class_value(label: LabelPlan) -> str:
    kind = "VARCHAR" if label.kind is Kind.TEXT else "BIGINT"
    return f"CAST({identifier(label.column)} AS {kind})"


def _constant(value: str | int) -> str:
    return literal(value) if isinstance(value, str) else str(value)


def _label(label: LabelPlan, classes: tuple[Entry, ...]) -> str:
    """Return the label as it lies in the shards."""
    if label.head is Head.NUMBER:
        return f"CAST({identifier(label.column)} AS FLOAT) AS {LABEL_FEATURE}"
    listed = ", ".join(_constant(entry.value) for entry in classes)
    place = f"list_position([{listed}], {_class_value(label)})"
    return f"CAST({place} - 1 AS BIGINT) AS {LABEL_FEATURE}"
