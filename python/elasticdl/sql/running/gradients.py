"""TO EXPLAIN ... USING IntegratedGradients: a job whose predictions are attributions.

Owns these parts; the model code of it is `sql.writing.beside`'s. No label is needed.
Called by `sql.running.questions`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from elasticdl.errors import DataError
from elasticdl.job.spec.job import JobSpec
from elasticdl.sql.data import embedded, shards
from elasticdl.sql.data.results import PREDICTION
from elasticdl.sql.data.shards import ROW_GROUP
from elasticdl.sql.data.source import file_literal, identifier, literal
from elasticdl.sql.plan import Head
from elasticdl.sql.registry import Description
from elasticdl.sql.running.explain import COLUMNS, chosen, write_importance
from elasticdl.sql.running.losses import Written, refuse_loss
from elasticdl.sql.running.predict import check_place, prediction_fields
from elasticdl.sql.running.session import Answer, Bars, Session
from elasticdl.sql.running.staging import stage
from elasticdl.sql.statements import Explain
from elasticdl.sql.writing import beside

_CHOSEN = "chosen.parquet"
_PLACE = '"the place"'


def prepare(
    session: Session, statement: Explain, about: Description, folder: Path
) -> int:
    """Write some of the rows as the model takes them; return how many."""
    check_place(session, statement.into)
    refuse_loss(session, statement.select, statement.into, Written(COLUMNS))
    staged = stage(session, statement.select, about, folder)
    if not staged.num_rows:
        return 0
    every = folder / "shards" / "rows.parquet"
    shards.write_prediction(staged, every, columns=about.columns)
    of = chosen(statement)
    with embedded.working(folder) as connection:
        names = ", ".join(identifier(one.feature) for one in about.columns)
        connection.execute(
            f"COPY (SELECT {names} FROM (SELECT *, row_number() OVER () - 1 AS "
            f"{_PLACE} FROM read_parquet({file_literal(every)})) "
            f"ORDER BY {of.order(_PLACE)} LIMIT {of.most}) "
            f"TO {literal(str(folder / _CHOSEN))} "
            f"(FORMAT parquet, ROW_GROUP_SIZE {ROW_GROUP})"
        )
    return embedded.count_rows(folder / _CHOSEN)


def job_fields(
    statement: Explain, about: Description, folder: str, trained: JobSpec
) -> dict[str, object]:
    """Return the fields of the job over prepared rows."""
    del statement
    features = [one.feature for one in about.columns]
    text = beside.explained(trained.model.definition, features)
    return {
        **prediction_fields(about, f"{folder}/{_CHOSEN}", folder),
        "job.model.files": {**trained.model.files, beside.EXPLAINED_FILE: text},
        "job.model.definition": beside.EXPLAINED,
    }


def finish(
    session: Session,
    statement: Explain,
    about: Description,
    folder: Path,
    metrics: Mapping[str, float],
) -> list[Answer]:
    """Return a chart of bars, which is also written where INTO says."""
    del metrics
    number = embedded.count_rows(folder / _CHOSEN)
    values = _means(folder / "outputs", about, number)
    write_importance(session, statement, folder, values)
    what = "prediction" if about.label.head is Head.NUMBER else "probability"
    return [
        Bars(
            f"mean share of a column in the {what}, by integrated gradients "
            f"({number:,} rows)",
            values,
        )
    ]


def _means(
    outputs: Path, about: Description, number: int
) -> tuple[tuple[str, float], ...]:
    """Return the mean absolute attribution of each column; the largest first."""
    wanted = ", ".join(
        f"avg(abs({identifier(PREDICTION)}[{place}]))"
        for place in range(1, len(about.columns) + 1)
    )
    parts = file_literal(outputs, "part-*.parquet")
    with embedded.working(outputs) as connection:
        found, *means = connection.execute(
            f"SELECT count(*), {wanted} FROM read_parquet({parts})"
        ).fetchone()
    if found != number:
        raise DataError(
            f"the job answered for {found:,} of {number:,} rows; expected all: run the "
            "statement again"
        )
    values = zip((one.column for one in about.columns), map(float, means), strict=True)
    return tuple(sorted(values, key=lambda one: -one[1]))
