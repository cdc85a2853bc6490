"""PREDICT, EVALUATE and EXPLAIN: the same three parts, wherever each of them runs.

Owns the table of what prepares the rows, which job goes over them, and what finishes;
and their order on this machine. In a cluster the first part is the job's
`data.prepare` and the last a pod behind it (`sql.remote`). Called by
`sql.running.statements` and `sql.remote`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elasticdl.errors import DataError, JobError
from elasticdl.job.spec.job import JobSpec
from elasticdl.job.values.file import load_values
from elasticdl.sql.generate import with_vocabularies_in
from elasticdl.sql.registry import Description, ModelVersion, read_description
from elasticdl.sql.running import evaluate, explain, gradients, predict
from elasticdl.sql.running.session import Answer, Session, Told
from elasticdl.sql.running.staging import advised, job_name, job_of, said_of_job
from elasticdl.sql.statements import Evaluate, Explain, Explainer, Predict

Question = Predict | Evaluate | Explain
_OTHER_DISK = "set TMPDIR to a folder of a larger disk"
NO_ROWS = "the query has no rows: nothing to {verb}"


@dataclass(frozen=True)
class Parts:
    """What a kind of statement is made of.

    Attributes:
        verb: Its name, as in the job's.
        prepare: Writes the rows into a folder; returns how many there are.
        job_fields: The fields of the job over them, by path.
        finish: Makes the answer of what the job left in the folder, and of its metrics.
    """

    verb: str
    prepare: Callable[[Session, Any, Description, Path], int]
    job_fields: Callable[[Any, Description, str, JobSpec], dict[str, object]]
    finish: Callable[
        [Session, Any, Description, Path, Mapping[str, float]], list[Answer]
    ]


def parts_of(statement: Question) -> Parts:
    """Return the parts of a statement."""
    match statement:
        case Predict():
            return Parts("predict", predict.prepare, predict.job_fields, predict.finish)
        case Evaluate():
            return Parts(
                "evaluate", evaluate.prepare, evaluate.job_fields, evaluate.finish
            )
        case Explain(explainer=Explainer.GRADIENTS):
            return Parts(
                "explain", gradients.prepare, gradients.job_fields, gradients.finish
            )
        case Explain():
            return Parts("explain", explain.prepare, explain.job_fields, explain.finish)


def _no_rows(statement: Question, said: str) -> Told:
    """Return what is told of a query without rows.

    Raises DataError where a table is asked for: who reads that would take the answers
    of another day for those of this one.
    """
    table = statement.table if isinstance(statement, Predict) else statement.into
    if table is not None:
        raise DataError(f"{said}; `{table.text}` stays as it was")
    return Told((said,))


def _trained(version: ModelVersion) -> JobSpec:
    """Return a version's training, with its model's files where they are now.

    A registry may have been copied to another folder, or machine.
    """
    job = load_values(version.values_file).job
    files = with_vocabularies_in(job.model.files, str(version.vocabularies_dir))
    model = job.model.model_copy(update={"files": files})
    return job.model_copy(update={"model": model})


def ask(session: Session, statement: Question) -> list[Answer]:
    """Run a statement here: rows, a job over them, the answer."""
    version = session.registry.find(statement.using.text)
    about = read_description(version)
    parts = parts_of(statement)
    with session.workspace() as folder:
        trained = _trained(version)
        changes = {
            "job.name": job_name(trained.name, parts.verb),
            "job.model.files": trained.model.files,
            **parts.job_fields(statement, about, str(folder), trained),
            **said_of_job(statement),
        }
        # Before rows are read: what is wrong with them costs nothing then.
        values = job_of(
            version.values_file.read_text(encoding="utf-8"),
            str(version.checkpoints_dir),
            changes,
            session.overrides,
        )
        if not parts.prepare(session, statement, about, folder):
            return [_no_rows(statement, NO_ROWS.format(verb=parts.verb))]
        try:
            report = session.run_job(values)
        except JobError as error:
            raise JobError(advised(str(error), _OTHER_DISK)) from error
        return parts.finish(session, statement, about, folder, report.metrics)
