"""TO EXPLAIN: how much a model's answers depend on each column.

Owns permutation importance: the rows are predicted as they are, and again with the
values of one column exchanged among them; how much worse the answers get is that
column's importance. All of it is one job over one file, elastic as any. Called by
`sql.running.questions`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from elasticdl.errors import DataError
from elasticdl.job.spec.job import JobSpec
from elasticdl.sql import planning
from elasticdl.sql.data import embedded, results
from elasticdl.sql.data.shards import ROW_GROUP
from elasticdl.sql.data.source import file_literal, identifier, literal
from elasticdl.sql.plan import LABEL_FEATURE, Head, LabelPlan
from elasticdl.sql.registry import Description
from elasticdl.sql.running.evaluate import write_labelled, write_table
from elasticdl.sql.running.predict import prediction_fields, put
from elasticdl.sql.running.session import Answer, Bars, Session, Table
from elasticdl.sql.statements import Explain

MOST_ROWS = 2000  # Of the query; each is predicted once for each column.
_EXCHANGED = "exchanged.parquet"
COLUMNS = ("column", "importance")  # of the answer
# No column of a shard has a blank in its name.
_ROW, _PART, _PLACE = '"the row"', '"the part"', '"the place"'


def prepare(
    session: Session, statement: Explain, about: Description, folder: Path
) -> int:
    """Write the rows, and again with each column exchanged; return how many rows."""
    if not write_labelled(session, statement, about, folder, COLUMNS):
        return 0
    rows = folder / "shards" / "rows" / "rows.parquet"
    return _exchange(rows, folder / _EXCHANGED, about, chosen(statement))


def job_fields(
    statement: Explain, about: Description, folder: str, trained: JobSpec
) -> dict[str, object]:
    """Return the fields of the job over prepared rows."""
    del statement, trained
    return prediction_fields(about, f"{folder}/{_EXCHANGED}", folder)


def finish(
    session: Session,
    statement: Explain,
    about: Description,
    folder: Path,
    metrics: Mapping[str, float],
) -> list[Answer]:
    """Return a chart of bars, which is also written where INTO says."""
    del metrics
    label = about.label
    rows = folder / _EXCHANGED
    number = embedded.count_rows(rows) // (len(about.columns) + 1)
    values = _importances(rows, folder / "outputs", about, number, label)
    write_importance(session, statement, folder, values)
    what = "mean error gained"
    if label.head is not Head.NUMBER:
        what = "probability of the right class lost"
    title = f"{what} when a column's values are exchanged ({number:,} rows)"
    return [Bars(title, values)]


def write_importance(
    session: Session,
    statement: Explain,
    folder: Path,
    values: tuple[tuple[str, float], ...],
) -> None:
    """Write what each column counts for into the table that INTO names."""
    if statement.into is not None:
        path = folder / "importance.parquet"
        write_table(path, Table(COLUMNS, values))
        put(session, statement.into.text, path)


@dataclass(frozen=True)
class Chosen:
    """How many of the rows are looked at, and which."""

    most: int = MOST_ROWS
    seed: int = 0

    def order(self, place: str) -> str:
        """Return what is to be ordered by: an order that a row's place decides."""
        return f"hash({place}, {self.seed})" if self.seed else f"hash({place})"


def chosen(statement: Explain) -> Chosen:
    """Return what WITH says of the rows."""
    said = planning.settings_of(statement)
    return Chosen(said.other("num_rows", MOST_ROWS), said.other("seed", 0))


def _exchange(labelled: Path, out: Path, about: Description, of: Chosen) -> int:
    """Write the rows as they are, then once for each column with that one exchanged."""
    names = [plan.feature for plan in about.columns]
    listed = ", ".join(map(identifier, [*names, LABEL_FEATURE]))
    with embedded.working(out.parent) as connection:
        connection.execute(
            f"CREATE TABLE chosen AS SELECT {listed}, row_number() OVER () AS {_ROW} "
            f"FROM (SELECT * FROM (SELECT *, row_number() OVER () - 1 AS {_PLACE} "
            f"FROM read_parquet({file_literal(labelled)})) ORDER BY {of.order(_PLACE)} "
            f"LIMIT {of.most})"
        )
        (number,) = connection.execute("SELECT count(*) FROM chosen").fetchone()
        mixed = f"hash(n, {of.seed + 1})"
        # Row n gets the value of another row: a fixed shift of a mixed order.
        connection.execute(
            f"CREATE TABLE other AS SELECT n, lead(n) OVER (ORDER BY {mixed}) AS m, "
            f"first(n) OVER (ORDER BY {mixed}) AS f "
            f"FROM (SELECT {_ROW} AS n FROM chosen)"
        )
        taken = ", ".join(
            f"CASE WHEN parts.part = {part} THEN o.{name} ELSE s.{name} END AS {name}"
            for part, name in enumerate(map(identifier, names), 1)
        )
        query = (
            f"SELECT parts.part AS {_PART}, {taken}, s.{LABEL_FEATURE}, "
            # As the job counts them: a file's own count may be a column's name.
            f"parts.part * {number} + s.{_ROW} - 1 AS {_PLACE} "
            f"FROM range({len(names) + 1}) AS parts(part) CROSS JOIN chosen AS s "
            f"JOIN other AS x ON x.n = s.{_ROW} "
            f"JOIN chosen AS o ON o.{_ROW} = coalesce(x.m, x.f) ORDER BY {_PLACE}"
        )
        connection.execute(
            f"COPY ({query}) TO {literal(str(out))} "
            f"(FORMAT parquet, ROW_GROUP_SIZE {ROW_GROUP})"
        )
    return int(number)


def _importances(
    rows: Path, outputs: Path, about: Description, number: int, label: LabelPlan
) -> tuple[tuple[str, float], ...]:
    """Return what each column's exchange takes from the answers; the largest first.

    Of classes that is the probability of the right one. Where one of them is seldom, no
    answer is it whatever the columns are: accuracy would tell that none counts.
    """
    files = file_literal(outputs, "part-*.parquet")
    with embedded.working(rows.parent) as connection:
        results.refuse_unnumbered(connection, files)
        said = results.said(connection, files, label)
        if label.head is Head.NUMBER:
            good = f"-avg(abs({said.value} - r.{LABEL_FEATURE}))"
        else:
            right = said.chance_of(f"r.{LABEL_FEATURE}")
            good = f"avg(CASE WHEN {said.known} THEN {right} ELSE 0 END)"
        found = dict(
            connection.execute(
                f"SELECT r.{_PART}, {good} FROM read_parquet({file_literal(rows)}) r "
                f"JOIN read_parquet({files}) p "
                f"ON p.record = r.{_PLACE} GROUP BY 1"
            ).fetchall()
        )
    if len(found) != len(about.columns) + 1:
        raise DataError(
            f"the job answered {len(found)} of {len(about.columns) + 1} parts of "
            f"{number} rows each; run the statement again"
        )
    values = [
        (plan.column, float(found[0] - found[part]))
        for part, plan in enumerate(about.columns, 1)
    ]
    return tuple(sorted(values, key=lambda one: -one[1]))
