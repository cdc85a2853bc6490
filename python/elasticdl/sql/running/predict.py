"""TO PREDICT: rows in, a job over them, the same rows and predictions out.

Owns these parts, and where answers of all statements are put. Called by
`sql.running.questions`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from elasticdl.errors import DataError, NotFoundError, SpecError
from elasticdl.files import write_whole
from elasticdl.job.spec.job import JobSpec
from elasticdl.sql import clauses
from elasticdl.sql.data import embedded, results, shards
from elasticdl.sql.data.results import Names
from elasticdl.sql.data.shards import Staged
from elasticdl.sql.data.source import (
    NO_COLUMNS,
    EngineError,
    file_literal,
    literal,
)
from elasticdl.sql.plan import Head, Schema
from elasticdl.sql.registry import Description
from elasticdl.sql.running.losses import FILE_ENDINGS, Written, refuse_loss, state
from elasticdl.sql.running.session import Answer, KeptError, Session, Table, Told
from elasticdl.sql.running.staging import stage, staged_in
from elasticdl.sql.statements import Name, Predict, Train

_STATE = "target.txt"  # Of the table that is read and written, when rows were read.


def prepare(
    session: Session, statement: Predict, about: Description, folder: Path
) -> int:
    """Write the rows as the model takes them; return how many there are."""
    check_place(session, statement.table)
    _refuse_schema(session, statement)
    # Before they are read: what changes meanwhile is perhaps not in them.
    before = state(session, statement.select, statement.table)
    staged = stage(session, statement.select, about, folder, kept=True)
    write_whole(folder / _STATE, before, durable=False)
    if staged.num_rows:
        _refuse_loss(session, statement, about, staged)
        rows = folder / "shards" / "rows.parquet"
        shards.write_prediction(staged, rows, columns=about.columns)
    return staged.num_rows


def job_fields(
    statement: Predict, about: Description, folder: str, trained: JobSpec
) -> dict[str, object]:
    """Return the fields of the job over prepared rows."""
    del statement, trained
    return prediction_fields(about, f"{folder}/shards/rows.parquet", folder)


def prediction_fields(about: Description, rows: str, folder: str) -> dict[str, object]:
    """Return the fields of a job that predicts some rows."""
    return {
        "job.type": "predict",
        "job.data.prediction": rows,
        # The training's are these and the label.
        "job.data.readerParams": {"columns": [c.feature for c in about.columns]},
        "job.predictionOutput": f"{folder}/outputs",
        "job.predictionFormat": "parquet",
        # A module's own would put the answers elsewhere.
        "job.model.predictionOutputsProcessor": "",
    }


def finish(
    session: Session,
    statement: Predict,
    about: Description,
    folder: Path,
    metrics: Mapping[str, float],
) -> list[Answer]:
    """Join rows and predictions; the answer is the rows, or what was written."""
    del metrics
    staged = staged_in(folder)
    names = _names(statement, staged)
    out = folder / "predicted.parquet"
    try:
        results.join(staged, folder / "outputs", out, label=about.label, names=names)
        without = results.count_without(out, names)
    except (EngineError, OSError) as error:  # as of a disk that is full
        out.unlink(missing_ok=True)
        raise KeptError(
            f"{error}; make room: a job's answers stay in {folder}, and "
            f"{results.beside(staged, folder / 'outputs')} has them as the model gave "
            "them"
        ) from error
    if without:
        rows = "1 row has" if without == 1 else f"{without:,} rows have"
        session.say(
            f"{rows} NULL as `{names.prediction}`: the model's answer is no number, as "
            "where numbers are far beyond those that it was trained with"
        )
    if statement.table is None:
        return [_shown(out, session.most_rows)]
    table = statement.table.text
    try:
        # Others may have put rows there while the job ran.
        _refuse_loss(session, statement, about, staged)
        _refuse_changed(session, statement, folder)
        number = put(session, table, out, staged.schema)
    except (DataError, SpecError, OSError) as error:
        # A job of hours made them.
        try:
            kept = session.registry.keep_answers(table, out)
        except OSError:
            raise KeptError(f"{error}; the answers are kept in {out}") from error
        raise DataError(f"{error}; the answers are kept in {kept}") from error
    lines = [f"{number:,} rows with {_added(about, names)} in {table}"]
    if not session.source.keeps_tables and not table.endswith(FILE_ENDINGS):
        lines.append(
            f"{table} is in memory and gone at the end of this session; --db FILE "
            f'keeps it, or write TO PREDICT "{table}.parquet"'
        )
    return [Told(tuple(lines))]


def _refuse_schema(session: Session, statement: Predict) -> None:
    """Raise DataError where `mart.sales` seems to be a table of the schema `mart`."""
    table, column = statement.table, statement.column
    if table is None or column is None or table.text.endswith(FILE_ENDINGS):
        return
    source = session.source
    if "." in table.text or not source.has_schema(table.text):
        return
    if source.held(table.text) is None:
        whole = f"{table.text}.{column.text}"
        raise DataError(
            f"TO PREDICT {whole} would make a table `{table.text}` with the column "
            f"`{column.text}`, and `{table.text}` is a schema or database; for its "
            f"table `{column.text}` name the column, too: TO PREDICT {whole}.prediction"
        )


def _names(statement: Predict, staged: Staged) -> Names:
    column = statement.column.text if statement.column is not None else ""
    return results.names_beside(staged.schema.names, column)


def _refuse_loss(
    session: Session, statement: Predict, about: Description, staged: Staged
) -> None:
    names = _names(statement, staged)
    kept = (*staged.schema.names, names.prediction)
    # `TO PREDICT t.y` may have been meant as the y of t, which is learned from.
    learned = {about.label.column, *(one.column for one in about.columns)}
    if names.prediction.lower() in {name.lower() for name in learned}:
        kept = tuple(one for one in kept if one.lower() != names.prediction.lower())
    added: tuple[str, ...] = (names.prediction,)
    answer = None
    if about.label.head is not Head.NUMBER:
        added, answer = (names.prediction, names.probability), names
    trained = _learned_from(session, statement, about)
    written = Written(added, kept, staged.num_rows, answer, trained)
    refuse_loss(session, statement.select, statement.table, written)


def _learned_from(session: Session, statement: Predict, about: Description) -> str:
    """Return the query that a model learned from; "" where that is gone."""
    try:
        version = session.registry.find(statement.using.text)
        text = version.statement_file.read_text(encoding="utf-8")
    except (NotFoundError, OSError):  # It may have been dropped while its job ran.
        return ""
    found, _ = clauses.parsed(text, about.engine)
    return next((one.select for one in found if isinstance(one, Train)), "")


def _refuse_changed(session: Session, statement: Predict, folder: Path) -> None:
    """Raise DataError where others changed values of the target while the job ran."""
    before = (folder / _STATE).read_text(encoding="utf-8")
    if before and before != state(session, statement.select, statement.table):
        assert statement.table is not None  # noqa: S101 - it has a state
        raise DataError(
            f"{statement.table.text} was changed while the job ran, and would have the "
            "values of before again"
        )


def _added(about: Description, names: Names) -> str:
    if about.label.classes:
        return f"`{names.prediction}` and `{names.probability}`"
    return f"`{names.prediction}`"


def _shown(parquet: Path, most: int) -> Table:
    with embedded.working(parquet.parent) as connection:
        cursor = connection.execute(
            f"SELECT * FROM read_parquet({file_literal(parquet)})"
        )
        names = tuple(one[0] for one in cursor.description)
        rows = tuple(map(tuple, cursor.fetchmany(most + 1)))
    return Table(names, rows[:most], len(rows) > most)


def check_place(session: Session, table: Name | None) -> None:
    """Raise DataError where an answer could not be put in place behind the job."""
    if table is None:
        return
    if not table.text.endswith(FILE_ENDINGS):
        session.source.check_table(table.text)
        return
    place = Path(table.text).expanduser()
    if not os.access(place.parent, os.W_OK) or place.is_dir():
        raise DataError(
            f"{place}: cannot be written; expected a file in a folder that is there"
        )


def put(session: Session, table: str, parquet: Path, came: Schema = NO_COLUMNS) -> int:
    """Put rows in place: a table of the source, or a file by its ending.

    `came` is the query that gave some of the columns.
    """
    if not table.endswith(FILE_ENDINGS):
        return session.source.put_table(table, parquet, came)
    place = Path(table).expanduser()
    aside = place.with_name(f".{place.name}.tmp")
    kind = "csv, HEADER"
    if place.suffix == ".parquet":
        kind = f"parquet, {embedded.like_those_of(parquet)}"
    try:
        with embedded.working(parquet.parent) as connection:
            connection.execute(
                f"COPY (SELECT * FROM read_parquet({file_literal(parquet)})) TO "
                f"{literal(str(aside))} (FORMAT {kind})"
            )
        aside.replace(place)
    except (OSError, DataError) as error:
        aside.unlink(missing_ok=True)
        raise SpecError(
            f"{place}: cannot be written: {error}; name another file or a table"
        ) from error
    return embedded.count_rows(parquet)
