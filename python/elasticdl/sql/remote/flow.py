"""A statement with its rows on a cluster's volume, as the user's process runs it.

Owns the order: what can be checked without data, the job with its extraction as
`data.prepare`, the step behind it. Called by `sql.running.statements` for a session
with a `Place`. Must not reach the source, which may be seen from the cluster alone.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from elasticdl.errors import DataError, ElasticDLError, JobError, SpecError
from elasticdl.job.spec.problems import spec_error
from elasticdl.job.status import JobReport
from elasticdl.job.values.checking import validate
from elasticdl.job.values.document import ValuesFile
from elasticdl.job.values.file import dump_values, parse_values
from elasticdl.sql import planning
from elasticdl.sql.data.passwords import without_secret
from elasticdl.sql.data.source import NO_COLUMNS, Held
from elasticdl.sql.data.source import Answer as Rows
from elasticdl.sql.generate import OWN_ROWS, job_tree, spread
from elasticdl.sql.plan import Places, Schema
from elasticdl.sql.problems import in_one_line
from elasticdl.sql.registry import RUNS, description_of
from elasticdl.sql.remote import module
from elasticdl.sql.remote.messages import (
    Step,
    from_tree,
    read_answer,
    reason,
    statement_error,
)
from elasticdl.sql.remote.steps import work_folder
from elasticdl.sql.running.questions import Question, parts_of
from elasticdl.sql.running.session import Answer, Session, Table
from elasticdl.sql.running.staging import advised, job_name, job_of, said_of_job
from elasticdl.sql.statements import Plain, Statement, Train

_LARGER_VOLUME = "enlarge the job's volume"


class Place(Protocol):
    """Where jobs and steps run: a cluster, or processes in a test."""

    def run_job(self, values: ValuesFile) -> JobReport:
        """Run a job to its end. Raises JobError unless it succeeded."""

    def run_step(
        self, values: ValuesFile, words: Sequence[str], *, patient: bool = False
    ) -> str:
        """Run `elasticdl WORDS` as a worker of that job would; return what it says.

        With `patient` it waits for a place as long as a job may. Raises JobError with
        what it says where it fails.
        """


@dataclass(frozen=True)
class Remote:
    """A cluster as statements see it; also the source that answers plain SQL there.

    Attributes:
        place: Runs jobs and steps.
        engine: The dialect of the source, for its quotes and comments.
        models: The registry's folder, from the data root.
        db: Where the tables are, without a password; "" is the cluster's own URL.
        overrides: The user's `path=value`.
    """

    place: Place
    engine: str
    models: str = "models"
    db: str = ""
    overrides: tuple[str, ...] = ()
    keeps_tables: bool = True

    def run_one(
        self, session: Session, statement: Statement, text: str
    ) -> list[Answer]:
        """Run one statement of a text."""
        del session
        if without_secret(_text(statement)) != _text(statement):
            raise SpecError(
                "the statement holds a password, which would be in the job's values "
                "file; put the URL into a Secret and name that with --secret"
            )
        begin = statement.at.offset
        try:
            if isinstance(statement, Train):
                return self._train(statement)
            if isinstance(statement, Question):
                return self._ask(statement)
            return self._step(self._base(), self._new("ask", statement))
        except JobError as error:
            told = statement_error(str(error), text, begin)
            if told is not None:
                raise told from None
            said = in_one_line(reason(str(error)))
            raise JobError(advised(said, _LARGER_VOLUME)) from None

    def _new(self, do: str, statement: Statement, **more: Any) -> Step:
        return Step(
            do,
            _text(statement),
            self.models,
            db=self.db,
            overrides=self.overrides,
            **more,
        )

    def _step(
        self, values: ValuesFile, step: Step, *, patient: bool = False
    ) -> list[Answer]:
        said = self.place.run_step(values, step.words, patient=patient)
        return from_tree(read_answer(said).get("answers", []))

    def _train(self, statement: Train) -> list[Answer]:
        job = _new_name(statement.into.text)
        step = self._new("train", statement, job=job)
        values = self._training(statement, step)
        return self._run(values, step)

    def _run(self, values: ValuesFile, step: Step) -> list[Answer]:
        """Run the job and what is behind it; a failed one leaves nothing.

        One that cannot be seen any more goes on, and needs what is there.
        """
        try:
            report = self.place.run_job(values)
        except JobError:
            with suppress(ElasticDLError):
                self._step(values, replace(step, do="discard"))
            raise
        behind = replace(
            step,
            do="finish",
            metrics=dict(report.metrics),
            last_loss=report.last_loss,
            checkpoint=Path(report.checkpoint).name if report.checkpoint else "",
        )
        return self._step(values, behind, patient=True)

    def _training(self, statement: Train, step: Step) -> ValuesFile:
        """Return the values of a job that makes its own data and module."""
        settings = planning.settings_of(statement)
        folder = f"{self.models}/{statement.into.text}/{RUNS}/{step.job}"
        split = settings.split
        data = f"{folder}/data"
        places = Places(
            training=f"{data}/training",
            validation=f"{data}/validation" if split.fraction or split.select else "",
            vocabularies=f"{data}/vocabularies",
            export=f"{folder}/export",
        )
        tree = job_tree(
            step.job,
            {
                "definition": module.STUB_DEFINITION,
                "files": module.stub(folder),
                **OWN_ROWS,
            },
            places,
            epochs=settings.epochs,
            batch_size=settings.batch_size,
            fields=settings.fields,
        )
        tree["job"]["data"]["prepare"] = {"command": step.command}
        tree["job"]["checkpoint"] = {
            **tree["job"].get("checkpoint", {}),
            "dir": f"{folder}/checkpoints",
            "keep": 1,
        }
        values = _laid(tree, self.overrides)
        named = module.own_names(values.job.model)
        return _laid(tree, [*self.overrides, *named]) if named else values

    def _ask(self, statement: Question) -> list[Answer]:
        parts = parts_of(statement)
        using = self._new("describe", statement, model=statement.using.text)
        found = read_answer(self.place.run_step(self._base(), using.words))
        if not found:
            raise DataError("the cluster did not say what the model is; run it again")
        trained, problems = parse_values(found["values"], source="the model's job.yaml")
        if trained is None:
            raise spec_error(problems)
        job = _new_name(job_name(trained.job.name, parts.verb))
        step = self._new("prepare", statement, job=job, model=found["model"])
        about = description_of(found["about"])
        fields = {
            "job.name": job,
            **parts.job_fields(
                statement, about, work_folder(self.models, job), trained.job
            ),
            **said_of_job(statement),
            "job.data.prepare": {"command": step.command},
        }
        values = job_of(found["values"], found["checkpoints"], fields, self.overrides)
        return self._run(values, step)

    def _base(self) -> ValuesFile:
        """Return the values of a job that only says where pods run, and how."""
        tree = {
            "kind": "job",
            "job": {
                "name": "sql",
                "strategy": "local",
                "model": {"definition": "m.f", "files": {"m.py": ""}},
                "data": {"training": "none"},
            },
        }
        return _laid(tree, self.overrides)

    # As a source: only what plain SQL needs.

    def schema(self, select: str) -> None:
        """Return None: the source is asked in the cluster alone."""
        del select

    def describe(self, select: str) -> None:
        """Return None, too."""
        del select

    def rows(self, select: str) -> Any:
        raise TypeError(f"{select}: rows of a cluster are read there")

    def execute(self, sql: str, *, most_rows: int) -> Rows:
        step = Step("ask", sql, self.models, db=self.db, overrides=self.overrides)
        (answer,) = self._step(self._base(), step)
        if isinstance(answer, Table):
            return Rows(answer.names, answer.rows[:most_rows], answer.more)
        return Rows((), ())

    def check_table(self, name: str) -> None:
        raise TypeError(f"{name}: tables of a cluster are checked there")

    def held(self, name: str) -> Held | None:
        raise TypeError(f"{name}: tables of a cluster are looked at there")

    def state(self, name: str) -> str:
        raise TypeError(f"{name}: tables of a cluster are looked at there")

    def views(self, query: str) -> list[tuple[str, str]]:
        raise TypeError(f"{query}: views of a cluster's source are looked at there")

    def has_schema(self, name: str) -> bool:
        raise TypeError(f"{name}: schemas of a cluster's source are looked at there")

    def put_table(self, name: str, parquet: Path, came: Schema = NO_COLUMNS) -> int:
        del came
        raise TypeError(f"{name}, {parquet}: tables of a cluster are written there")

    def close(self) -> None:
        """Nothing is open."""


def _text(statement: Statement) -> str:
    return statement.sql if isinstance(statement, Plain) else statement.text


def _laid(tree: dict[str, Any], overrides: Sequence[str]) -> ValuesFile:
    text = dump_values(validate(tree))
    laid = [*spread(overrides), *overrides]
    values, problems = parse_values(text, source="the statement", overrides=laid)
    if values is None:
        raise spec_error(problems)
    return values


def _new_name(base: str) -> str:
    """Return the name of a job that no other has: its release stays behind it."""
    plain = "".join(c if c.isalnum() else "-" for c in base.lower()).strip("-")
    return f"{plain[:33].rstrip('-') or 'sql'}-{secrets.token_hex(3)}"
