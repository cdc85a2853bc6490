"""TO EVALUATE: a model's figures on the rows of a query.

Owns these parts. Called by `sql.running.questions`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from elasticdl.errors import JobError, SpecError
from elasticdl.job.spec.job import JobSpec
from elasticdl.sql import planning
from elasticdl.sql.data import embedded, shards
from elasticdl.sql.data.source import file_literal
from elasticdl.sql.metrics import misfit
from elasticdl.sql.plan import LABEL_FEATURE
from elasticdl.sql.registry import Description
from elasticdl.sql.running.losses import Written, refuse_loss
from elasticdl.sql.running.predict import check_place, put
from elasticdl.sql.running.session import Answer, Session, Table
from elasticdl.sql.running.staging import stage, staged_in
from elasticdl.sql.statements import Evaluate, Explain
from elasticdl.sql.writing import beside

_AUC = "auc"
_COLUMNS = ("metric", "value")  # of the answer


def prepare(
    session: Session, statement: Evaluate, about: Description, folder: Path
) -> int:
    """Write the rows with their label; return how many there are."""
    return write_labelled(session, statement, about, folder, _COLUMNS)


def write_labelled(
    session: Session,
    statement: Evaluate | Explain,
    about: Description,
    folder: Path,
    columns: tuple[str, ...],
) -> int:
    """Write the rows of a query with their label; return how many there are.

    The answer has other `columns`.
    """
    check_place(session, statement.into)
    refuse_loss(session, statement.select, statement.into, Written(columns))
    wanted = statement.label.text if statement.label else about.label.column
    staged = stage(session, statement.select, about, folder, wanted)
    if not staged.num_rows:
        return 0
    column = staged.schema.named(wanted)
    assert column is not None  # noqa: S101 - `stage` found it
    label = replace(about.label, column=column.name, kind=column.kind)
    return shards.write_labelled(
        staged, folder / "shards", columns=about.columns, label=label
    )


def job_fields(
    statement: Evaluate, about: Description, folder: str, trained: JobSpec
) -> dict[str, object]:
    """Return the fields of the job over prepared rows.

    Raises SpecError where WITH names a metric of another kind of label.
    """
    fields: dict[str, object] = {
        "job.type": "evaluate",
        "job.data.validation": f"{folder}/shards/rows",
    }
    wanted = planning.settings_of(statement).metrics
    if not wanted:
        return fields
    head = about.label.head
    wrong = misfit(head, wanted)
    if wrong:
        raise SpecError(f"validation.metrics: {wrong}")
    files = {beside.EVALUATION_FILE: beside.evaluation(head, wanted)}
    return {
        **fields,
        "job.model.files": {**trained.model.files, **files},
        "job.model.evalMetrics": beside.EVALUATION,
    }


def finish(
    session: Session,
    statement: Evaluate,
    about: Description,
    folder: Path,
    metrics: Mapping[str, float],
) -> list[Answer]:
    """Return the job's metrics as a table, which is also written where INTO says."""
    if not metrics:
        raise JobError("the job ended without metrics; expected those of the model")
    number = float(staged_in(folder).num_rows)
    figures: dict[str, float | None] = dict(metrics)
    if _AUC in figures and _has_one_class(folder):
        # Keras says 0, as of the worst model.
        figures[_AUC] = None
        session.say(
            f"{_AUC} is NULL: all rows are of one class of `{about.label.column}`, and "
            "it is about two"
        )
    table = Table(_COLUMNS, (("rows", number), *sorted(figures.items())))
    if statement.into is not None:
        path = folder / "metrics.parquet"
        write_table(path, table)
        put(session, statement.into.text, path)
    return [table]


def _has_one_class(folder: Path) -> bool:
    rows = file_literal(folder / "shards" / "rows", "*.parquet")
    with embedded.working(folder) as connection:
        (least, most) = connection.execute(
            f"SELECT min({LABEL_FEATURE}), max({LABEL_FEATURE}) FROM "
            f"read_parquet({rows})"
        ).fetchone()
    return bool(least == most)


def write_table(path: Path, table: Table) -> None:
    """Write a small table as a Parquet file."""
    import pyarrow as pa
    from pyarrow import parquet

    columns = zip(*table.rows, strict=True)
    named = dict(zip(table.names, map(list, columns), strict=True))
    parquet.write_table(pa.table(named), path)
