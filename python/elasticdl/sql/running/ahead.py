"""Mistakes in the columns of statements, before the first of them runs.

Owns which queries can be asked for their columns by then: one that reads what an
earlier statement of the text makes or changes is left for its turn. Called by
`sql.running.statements`. No query is run for it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from elasticdl.errors import DataError, NotFoundError, SpecError
from elasticdl.sql import planning
from elasticdl.sql.data.source import Described, Source
from elasticdl.sql.labels import at_attribute
from elasticdl.sql.metrics import misfit
from elasticdl.sql.problems import Problem
from elasticdl.sql.registry import Description, Registry, read_description
from elasticdl.sql.running import staging
from elasticdl.sql.running.questions import Question
from elasticdl.sql.running.session import Session
from elasticdl.sql.running.train import hinting, unfit_validation
from elasticdl.sql.statements import (
    Evaluate,
    Explain,
    Explainer,
    Name,
    Plain,
    Predict,
    Statement,
    Train,
)

# Statements of the engine that leave the columns of all tables as they are.
_READS = re.compile(
    r"\(|(SELECT|WITH|FROM|VALUES|TABLE|SHOW|DESCRIBE|DESC|EXPLAIN|SUMMARIZE)\b",
    re.IGNORECASE,
)
_FILLS = re.compile(r"(INSERT|UPDATE|DELETE|ANALYZE|VACUUM)\b", re.IGNORECASE)
_MAKES = re.compile(
    r"CREATE\s+(?:OR\s+REPLACE\s+)?(?:(?:TEMP|TEMPORARY|UNLOGGED)\s+)?(?:TABLE|VIEW)\s+"
    r"(?:IF\s+NOT\s+EXISTS\s+)?([^\s(;]+)",
    re.IGNORECASE,
)
_CHANGES = re.compile(r"(DROP|ALTER|TRUNCATE)\b", re.IGNORECASE)
_FILE_ENDINGS = (".parquet", ".csv")


def mistakes(
    session: Session, statements: Sequence[Statement | None], *, reading: bool
) -> Iterator[Problem]:
    """Yield mistakes in the columns of statements, as far as they can be known.

    Args:
        session: Where the statements are to run.
        statements: All of a text; None is one with mistakes in its clauses.
        reading: Whether first rows may be read where an engine tells no types without,
            because nothing will run.
    """
    earlier = _Earlier()
    for one in statements:
        if one is None:
            return  # Nobody knows what it was to make.
        if isinstance(one, Train | Question):
            yield from _of_query(session, one, earlier, reading=reading)
        earlier.add(one)


@dataclass
class _Earlier:
    """What earlier statements make or change."""

    anything: bool = False
    nothing: bool = True
    words: set[str] = field(default_factory=set)  # of names of tables
    models: set[str] = field(default_factory=set)

    def add(self, statement: Statement) -> None:
        """Take one more statement."""
        match statement:
            case Train():
                self.models.add(statement.into.text)
            case Predict(table=Name() as table):
                self._add_table(table)
            case Evaluate(into=Name() as table) | Explain(into=Name() as table):
                self._add_table(table)
            case Plain():
                self._add_plain(statement.sql)

    def _add_table(self, table: Name) -> None:
        self.nothing = False
        # A pattern may have it: FROM 'answers/*.parquet'.
        self.anything |= table.text.endswith(_FILE_ENDINGS)
        self.words |= _words(table.text.rpartition(".")[2])

    def _add_plain(self, sql: str) -> None:
        copies = "INTO" in {one.upper() for one in _words(sql)}  # SELECT ... INTO x
        if _FILLS.match(sql) or (_READS.match(sql) and not copies):
            return
        self.nothing = False
        made = _MAKES.match(sql)
        if made:
            self.words |= _words(made[1].rpartition(".")[2])
        elif _CHANGES.match(sql):
            self.words |= _words(sql)
        else:
            self.anything = True

    def may_change(self, select: str) -> bool:
        """Whether a query may read what they make or change."""
        return self.anything or bool(self.words & _words(select))


def _words(text: str) -> set[str]:
    return set(re.findall(r"\w+", text.lower()))


def _of_query(
    session: Session, one: Train | Question, earlier: _Earlier, *, reading: bool
) -> Iterator[Problem]:
    if earlier.may_change(one.select):
        return
    try:
        with hinting(one):
            found = _columns(session.source, one.select, reading=reading)
    except DataError as error:
        if earlier.nothing:
            yield Problem(one.at, str(error))
        return
    if found is None:
        return
    if isinstance(one, Train):
        yield from _of_training(session.source, one, found, earlier)
    elif one.using.text.partition("@")[0] not in earlier.models:
        about = _about(session.registry, one.using.text)
        if about is not None:
            yield from _of_question(one, found, about)


def _columns(source: Source, select: str, *, reading: bool) -> Described | None:
    found = source.describe(select)
    if reading and (found is None or not found.typed):
        schema = source.schema(select)
        return found if schema is None else Described(schema, typed=True)
    return found


def _about(registry: Registry, reference: str) -> Description | None:
    """Return what is known of a model; None where that is told otherwise."""
    try:
        return read_description(registry.find(reference))
    except (SpecError, NotFoundError):
        return None


def _of_training(
    source: Source, one: Train, found: Described, earlier: _Earlier
) -> Iterator[Problem]:
    if not found.typed:
        yield from planning.missing_columns(one, found.schema)
        return
    plan, problems = planning.plan_without_rows(one, found.schema)
    yield from problems
    select = planning.settings_of(one).split.select
    if not select or earlier.may_change(select):
        return
    at = at_attribute(one, "validation.select")
    try:
        rows = source.describe(select)
    except DataError as error:
        if earlier.nothing:
            yield Problem(at, f"validation.select: {error}")
        return
    if rows is None or not rows.typed or plan is None or problems:
        return
    if unfit := unfit_validation(rows.schema, plan):
        yield Problem(at, f"validation.select: {unfit}")


def _of_question(
    one: Question, found: Described, about: Description
) -> Iterator[Problem]:
    label = _label(one, about)
    if found.typed:
        kept = isinstance(one, Predict)
        told = staging.problems_of(found.schema, about, label, kept=kept)
    else:
        told = staging.missing(found.schema, about, label)
    yield from (Problem(one.using.at, message) for message in told)
    if isinstance(one, Evaluate):
        wrong = misfit(about.label.head, planning.settings_of(one).metrics)
        if wrong:
            at = at_attribute(one, "validation.metrics")
            yield Problem(at, f"validation.metrics: {wrong}")


def _label(one: Question, about: Description) -> str:
    """Return the label's column that a statement needs, "" for none."""
    if isinstance(one, Predict):
        return ""
    if isinstance(one, Explain) and one.explainer is Explainer.GRADIENTS:
        return ""
    return one.label.text if one.label else about.label.column
