"""Each kind of statement, led to what runs it.

Owns that table, and the answers of statements about models. Called by `cli.sql`, by
the prompt and by notebooks.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

from elasticdl.errors import NotFoundError, SpecError
from elasticdl.sql import attributes, clauses, planning
from elasticdl.sql.data.settings import sets
from elasticdl.sql.data.transactions import begins
from elasticdl.sql.problems import Problem, StatementError
from elasticdl.sql.registry import ModelVersion, Registry, read_description
from elasticdl.sql.running import ahead
from elasticdl.sql.running.losses import FILE_ENDINGS
from elasticdl.sql.running.own import own_model
from elasticdl.sql.running.questions import ask
from elasticdl.sql.running.session import Answer, Session, Table, Told
from elasticdl.sql.running.staging import UnfitError
from elasticdl.sql.running.train import train
from elasticdl.sql.statements import (
    DescribeModel,
    DropModel,
    Evaluate,
    Explain,
    Name,
    Plain,
    Predict,
    ShowModels,
    ShowTrain,
    Statement,
    Train,
)


def run(session: Session, text: str) -> Iterator[tuple[Statement, list[Answer]]]:
    """Run the statements of a text in order; yield each with its answers.

    All of them are parsed before the first one runs. Raises what the first one that
    fails raises.
    """
    for statement in read(session, text):
        yield statement, run_one(session, statement, text)


def read(session: Session, text: str) -> list[Statement]:
    """Return a text's statements; StatementError has all mistakes in them."""
    _refuse_written(session.overrides)
    source = session.source
    parsed, problems = clauses.parsed(text, source.engine)
    statements = [one for one in parsed if one is not None]
    for one in statements:
        problems += planning.check(one)
    if session.dry_run is not None:
        problems += _not_dry(statements, keeps_tables=source.keeps_tables)
    if session.elsewhere is not None:
        problems += _apart(statements)
    else:  # what a cluster has is known there
        problems += _unknown(parsed, session.registry)
        for one in statements:
            problems += own_model(one)[1] if isinstance(one, Train) else []
        # The first of several may run for hours; one alone is asked when it runs.
        if problems or len(parsed) > 1:
            problems += ahead.mistakes(session, parsed, reading=bool(problems))
    if problems:
        raise StatementError(text, problems)
    return statements


def only_reads(text: str, engine: str) -> bool:
    """Whether the statements of a text leave all tables as they are."""
    try:
        parsed, _ = clauses.parsed(text, engine)
    except StatementError:  # told when they are read
        return False
    return all(map(_only_reads, parsed))


def _only_reads(statement: Statement | None) -> bool:
    match statement:
        case None | Plain():
            return False  # Who knows what the engine would do.
        case Predict(table=Name() as table):
            return table.text.endswith(FILE_ENDINGS)
        case Evaluate(into=Name() as table) | Explain(into=Name() as table):
            return table.text.endswith(FILE_ENDINGS)
        case _:
            return True


def _apart(statements: Sequence[Statement]) -> Iterator[Problem]:
    """Yield what would be kept at once, as each statement has a pod of its own."""
    for one in statements:
        if isinstance(one, Plain) and begins(one.sql):
            yield Problem(
                one.at,
                "in a cluster each statement has a session of its own, and is kept at "
                "once: nothing could be rolled back; take the transaction out",
            )
        elif isinstance(one, Plain) and sets(one.sql):
            yield Problem(
                one.at,
                "in a cluster each statement has a session of its own: what is set "
                "here is not set in the next one; write schema.table there, or set it "
                "in the URL or for the user",
            )


def _unknown(
    statements: Sequence[Statement | None], registry: Registry
) -> Iterator[Problem]:
    """Yield models that are not there, nor made by a statement before."""
    made: set[str] = set()
    for one in statements:
        match one:
            case None:
                return  # It was perhaps to make one.
            case Train():
                made.add(one.into.text)
                continue
            case Predict() | Evaluate() | Explain():
                name = one.using
            case DescribeModel() | ShowTrain() | DropModel(if_exists=False):
                name = one.model
            case _:
                continue
        if name.text.partition("@")[0] in made:
            continue
        try:
            registry.find(name.text)
        except NotFoundError as error:
            yield Problem(name.at, str(error))


def _refuse_written(overrides: Sequence[str]) -> None:
    """Raise SpecError for `--set` of what statements write: it would not be found."""
    for one in overrides:
        path = one.partition("=")[0].strip()
        own = attributes.written(path.removeprefix("job."))
        if own:
            raise SpecError(
                f"--set {path}: a statement writes job.{own} itself, and looks for its "
                "model and rows there; take it out"
            )


def _not_dry(statements: list[Statement], *, keeps_tables: bool) -> Iterator[Problem]:
    """Yield which statements a dry run would have to run, or have no place for."""
    trainings = [one for one in statements if isinstance(one, Train)]
    for second in trainings[1:]:
        said = "a second TO TRAIN; --dry-run writes the files of one into its folder"
        yield Problem(second.at, said)
    for one in statements:
        match one:
            case Predict() | Evaluate() | Explain() | DropModel():
                yield Problem(
                    one.at,
                    "--dry-run runs nothing, and has something to write for TO TRAIN "
                    "alone; leave this statement out",
                )
            case Plain() if keeps_tables:
                yield Problem(
                    one.at,
                    "--dry-run runs nothing, and who knows what the engine would do "
                    "here; run this statement before, without --dry-run",
                )


def run_one(session: Session, statement: Statement, text: str) -> list[Answer]:
    """Run one statement of a text."""
    if session.elsewhere is not None:
        return session.elsewhere.run_one(session, statement, text)
    match statement:
        case Train():
            return train(session, statement, text)
        case Predict() | Evaluate() | Explain():
            try:
                return ask(session, statement)
            except UnfitError as error:
                at = statement.using.at
                told = [Problem(at, one) for one in error.problems]
                raise StatementError(text, told) from error
        case Plain():
            return [_plain(session, statement)]
        case _:
            return [_about_models(session, statement)]


def _plain(session: Session, statement: Plain) -> Answer:
    found = session.source.execute(statement.sql, most_rows=session.most_rows)
    if found.names:
        return Table(found.names, found.rows, found.more)
    if found.changed >= 0:
        return Told((f"{found.changed:,} rows changed",))
    return Told(("done",))


def _about_models(session: Session, statement: Statement) -> Answer:
    registry = session.registry
    match statement:
        case ShowModels():
            return models_table(registry.all())
        case DescribeModel():
            return description(registry.find(statement.model.text))
        case ShowTrain():
            version = registry.find(statement.model.text)
            text = version.statement_file.read_text(encoding="utf-8")
            return Told(tuple(text.rstrip().splitlines()))
        case DropModel():
            return _drop(session, statement)
        case _:
            raise TypeError(f"{type(statement).__name__} is no statement about models")


def _drop(session: Session, statement: DropModel) -> Answer:
    try:
        gone = session.registry.drop(statement.model.text)
    except NotFoundError:
        if statement.if_exists:
            return Told(("there was none",))
        raise
    return Told((f"dropped {', '.join(one.reference for one in gone)}",))


def models_table(versions: list[ModelVersion]) -> Table:
    """Return the models as a table."""
    rows: list[tuple[Any, ...]] = []
    for one in versions:
        try:
            about = read_description(one)
        except SpecError as error:  # dropped just now, or of another release
            rows.append((one.reference, "?", "?", None, f"unreadable: {error}", "?"))
            continue
        figures = [f"{k} {v:.4g}" for k, v in sorted(about.evaluation.items())]
        made = time.strftime("%Y-%m-%d %H:%M", time.localtime(about.made))
        rows.append(
            (one.reference, about.model, about.label.column, about.num_training,
             ", ".join(figures), made)
        )  # fmt: skip
    return Table(
        ("model", "kind", "label", "rows", "evaluation", "trained"), tuple(rows)
    )


def description(version: ModelVersion) -> Told:
    """Return a model's columns, label, figures and files as lines."""
    about = read_description(version)
    columns = ", ".join(f"{c.column} ({c.stored})" for c in about.columns)
    lines = [
        f"{version.reference}: {about.model}, {about.num_training:,} rows for training "
        f"and {about.num_validation:,} for validation, from {about.engine}",
        f"label: {about.label.column} ({about.label.head})",
        f"columns: {columns}",
    ]
    if about.label.classes:
        lines.append(f"classes: {', '.join(map(str, about.label.classes[:20]))}")
    lines += [f"{k}: {v:.6g}" for k, v in sorted(about.evaluation.items())]
    lines += list(about.notes)
    lines.append(f"files: {version.folder}")
    return Told(tuple(lines))
