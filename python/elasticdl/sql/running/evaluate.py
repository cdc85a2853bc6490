"""TO EVALUATE: a model's figures on the rows of a query.

Owns these steps. Called by `sql.running.statements`.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from elasticdl.errors import JobError
from elasticdl.job.values.file import load_values
from elasticdl.sql.data import shards
from elasticdl.sql.registry import read_description
from elasticdl.sql.running.predict import put
from elasticdl.sql.running.session import Answer, Session, Table
from elasticdl.sql.running.staging import job_name, job_of, said_of_job, stage
from elasticdl.sql.statements import Evaluate


def evaluate(session: Session, statement: Evaluate) -> list[Answer]:
    """Run an EVALUATE; the answer is a table of metrics."""
    version = session.registry.find(statement.using.text)
    about = read_description(version)
    wanted = statement.label.text if statement.label else about.label.column
    label = replace(about.label, column=wanted)
    trained = load_values(version.values_file).job
    with session.workspace() as folder:
        staged = stage(session, statement.select, about, folder, wanted)
        column = staged.schema.find(wanted)
        if column is not None:
            label = replace(label, column=column.name)
        number = shards.write_labelled(
            staged, folder / "shards", columns=about.columns, label=label
        )
        values = job_of(
            version,
            session,
            {
                "job.type": "evaluate",
                "job.name": job_name(trained.name, "evaluate"),
                "job.data.validation": str(folder / "shards" / "rows"),
                **said_of_job(statement),
            },
        )
        report = session.run_job(values)
        if not report.metrics:
            raise JobError("the job ended without metrics; expected those of the model")
        rows = (("rows", float(number)), *sorted(report.metrics.items()))
        table = Table(("metric", "value"), rows)
        if statement.into is not None:
            path = folder / "metrics.parquet"
            write_table(path, table)
            put(session, statement.into.text, path)
    return [table]


def write_table(path: Path, table: Table) -> None:
    """Write a small table as a Parquet file."""
    import pyarrow as pa
    from pyarrow import parquet

    columns = zip(*table.rows, strict=True)
    named = dict(zip(table.names, map(list, columns), strict=True))
    parquet.write_table(pa.table(named), path)
