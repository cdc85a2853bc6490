"""The rows of a query on disk, and whether a model can take them.

Owns what PREDICT, EVALUATE and EXPLAIN have in common: the query is read once, its
columns are compared with those of the model. Called by these.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from elasticdl.errors import SpecError
from elasticdl.files import write_whole
from elasticdl.job.spec.problems import did_you_mean, spec_error
from elasticdl.job.values.document import ValuesFile
from elasticdl.job.values.file import parse_values
from elasticdl.job.words import OTHER_OUTPUT
from elasticdl.sql import planning, registry
from elasticdl.sql.data import types, types_duckdb
from elasticdl.sql.data.shards import Staged
from elasticdl.sql.generate import OWN_ROWS, spread
from elasticdl.sql.plan import Column, ColumnPlan, Kind, LabelPlan, Schema, Stored
from elasticdl.sql.registry import Description
from elasticdl.sql.running.session import Session
from elasticdl.sql.statements import Evaluate, Explain, Predict

_ROWS, _STAGED = "rows.parquet", "staged.json"
_FITS = {
    Stored.FLOAT: (Kind.NUMBER, Kind.INTEGER, Kind.BOOLEAN),
    Stored.INTEGER: (Kind.INTEGER, Kind.BOOLEAN, Kind.NUMBER),
    Stored.TEXT: (Kind.TEXT,),
}
_EMPTY = (types.ONLY_NULL, types_duckdb.UNTYPED)  # What is stated of NULLs alone.


class UnfitError(SpecError):
    """Columns of a query are none that a model takes; `problems` has each one."""

    def __init__(self, problems: Sequence[str]) -> None:
        """Take what is wrong, column by column."""
        super().__init__("; ".join(problems))
        self.problems = tuple(problems)


def stage(
    session: Session,
    select: str,
    about: Description,
    folder: Path,
    label: str = "",
    *,
    kept: bool = False,
) -> Staged:
    """Read the rows of a query that a model is to see.

    With `kept` all columns are to come back as they are.

    Raises UnfitError that lists all columns that are missing or of another kind, before
    anything is read.
    """
    with session.source.rows(select) as rows:
        problems = list(problems_of(rows.schema, about, label, kept=kept))
        if problems:
            raise UnfitError(problems)
        for line in _rounded(rows.schema) if kept else ():
            session.say(line)
        path = folder / _ROWS
        staged = Staged(path, rows.schema, rows.write(path, kept=kept))
    tree = {**asdict(staged), "path": ""}
    write_whole(folder / _STAGED, json.dumps(tree), durable=False)
    return staged


def staged_in(folder: Path) -> Staged:
    """Return what `stage` wrote there, perhaps in another process."""
    tree = json.loads((folder / _STAGED).read_text(encoding="utf-8"))
    schema = registry.schema_of(tree["schema"])
    return Staged(folder / _ROWS, schema, tree["num_rows"])


def problems_of(
    schema: Schema, about: Description, label: str, *, kept: bool = False
) -> Iterator[str]:
    """Yield why a model cannot take the rows of a query, or they cannot come back."""
    yield from planning.duplicates(schema)
    yield from missing(schema, about)
    for plan in about.columns:
        column = schema.find(plan.column)
        if column is not None and (wrong := misfit(column, plan)):
            yield wrong
    if label:
        yield from _wrong_label(schema, label, about.label)
    if kept:
        yield from _lost(schema)


def missing(schema: Schema, about: Description, label: str = "") -> Iterator[str]:
    """Yield which columns of a model a query has not, whatever kinds it has."""
    away = [p.column for p in about.columns if schema.find(p.column) is None]
    if len(away) == 1:
        (name,) = away
        hint = did_you_mean(name, list(schema.names))
        yield f"the model needs the column `{name}`, which the query has not: {hint}"
    elif away:
        listed = ", ".join(f"`{name}`" for name in away)
        there = ", ".join(f"`{name}`" for name in schema.names)
        yield (
            f"the model needs the columns {listed}, which the query has not; it has "
            f"{there}"
        )
    if label and schema.named(label) is None:
        yield _no_label(schema, label)


def misfit(column: Column, plan: ColumnPlan) -> str:
    """Return why a model cannot take a column as it was trained with, or ""."""
    fits = _FITS[plan.stored]
    array = column.kind is Kind.ARRAY
    kind = column.item if array else column.kind
    if column.stated in _EMPTY or (kind in fits and array == bool(plan.longest)):
        return ""
    what = "text" if plan.stored is Stored.TEXT else "numbers"
    trained = f"arrays of {what}" if plan.longest else what
    return (
        f"column `{plan.column}` is {column.kind} ({column.stated}), the model was "
        f"trained with {trained}; CAST it in the SELECT"
    )


def _wrong_label(schema: Schema, name: str, label: LabelPlan) -> Iterator[str]:
    column = schema.named(name)
    if column is None:
        yield _no_label(schema, name)
    elif wrong := label_misfit(column, label):
        yield wrong


def _no_label(schema: Schema, name: str) -> str:
    hint = did_you_mean(name, list(schema.names))
    return f"the label `{name}` is no column of the query; {hint}"


def label_misfit(column: Column, label: LabelPlan) -> str:
    """Return why a column is no label of a model, or ""."""
    text = label.kind is Kind.TEXT
    fits = (Kind.TEXT,) if text else _FITS[Stored.FLOAT]
    if column.kind in fits or column.stated in _EMPTY:
        return ""
    what = "text" if text else "numbers"
    return (
        f"the label `{column.name}` is {column.kind} ({column.stated}), the model "
        f"learned {what}; CAST it in the SELECT"
    )


def _lost(schema: Schema) -> Iterator[str]:
    """Yield the columns that would not come back as they are."""
    for column in schema.columns:
        if column.lost:
            yield f"column `{column.name}` is a {column.stated}, {column.lost}"


def _rounded(schema: Schema) -> Iterator[str]:
    """Yield what is to be said of columns that come back with fewer digits."""
    for column in schema.columns:
        if column.rounded and column.stated == types.SIX_DIGITS:
            yield (
                f"{column.name}: {column.stated}, of which the server gives 6 digits: "
                "CAST it to DOUBLE to keep every digit"
            )
        elif column.rounded:
            yield (
                f"{column.name}: {column.stated}, comes back as a double: CAST it to "
                "text to keep every digit"
            )


def job_of(
    trained: str, checkpoints: str, changes: Mapping[str, object], said: Sequence[str]
) -> ValuesFile:
    """Return the values of a job on a trained model.

    Args:
        trained: The text of its training's values file.
        checkpoints: The folder of its checkpoints.
        changes: What the statement needs, laid over the training's values.
        said: `path=value` of the user, laid over both.
    """
    fixed = {
        "job.checkpoint.initFrom": checkpoints,
        "job.checkpoint.dir": "",
        "job.export.dir": "",
        "job.data.training": "",
        "job.data.validation": "",
        "job.data.prepare": None,
        **{f"job.model.{name}": value for name, value in OWN_ROWS.items()},
        **changes,
    }
    laid = [f"{path}={json.dumps(value)}" for path, value in fixed.items()]
    every = [*laid, *said]
    values, problems = parse_values(
        trained,
        source="job.yaml of the model",
        overrides=[*laid, *spread(every), *said],
    )
    if values is None:
        raise spec_error(problems)
    return values


def advised(message: str, advice: str) -> str:
    """Return a job's message with advice that a statement can follow.

    Where its answers lie meanwhile is no field of it.
    """
    return message.replace(OTHER_OUTPUT, advice)


def job_name(base: str, use: str) -> str:
    """Return the name of a job beside a training: within a job's 46 characters."""
    return f"{base[: 45 - len(use)].rstrip('-')}-{use}"


def said_of_job(statement: Predict | Evaluate | Explain) -> dict[str, object]:
    """Return the fields of the values file that WITH sets, by path."""
    settings = planning.settings_of(statement)
    return {"job." + ".".join(path): value for path, value in settings.fields}
