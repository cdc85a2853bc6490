"""The parts of a statement that run where the volume and the source are.

Owns what each step does and the line that it ends with. Called by `elasticdl sql
--step`, as a job's `data.prepare` and in the pods before and behind a job; a
preparation may be broken off and run again. Must not run jobs.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, NoReturn

from elasticdl.errors import DataError
from elasticdl.files import write_whole
from elasticdl.job.values.document import ValuesFile
from elasticdl.sql import planning
from elasticdl.sql.data.source import open_source
from elasticdl.sql.registry import (
    Registry,
    read_description,
    write_description,
)
from elasticdl.sql.remote.messages import Step, to_tree
from elasticdl.sql.remote.module import ZOO
from elasticdl.sql.running import train
from elasticdl.sql.running.questions import NO_ROWS, Question, parts_of
from elasticdl.sql.running.session import Session, gone_afterwards
from elasticdl.sql.running.statements import run_one
from elasticdl.sql.statements import Statement, Train

WORK = ".work"  # In the registry's folder: what PREDICT and the like need meanwhile.


def run_step(step: Step, url: str, say: Callable[[str], None]) -> dict[str, Any]:
    """Run a step; return its answer.

    Args:
        step: What to do.
        url: Where the tables are, of the environment.
        say: Told a line at a time what happens.
    """
    source = open_source(step.db or url)
    try:
        session = Session(
            source,
            Registry(Path(step.models)),
            _no_job,
            say,
            overrides=step.overrides,
        )
        return STEPS[step.do](step, session)
    finally:
        source.close()


def work_folder(models: str, job: str) -> str:
    """Return the folder of a PREDICT, EVALUATE or EXPLAIN, from the data root."""
    return f"{models}/{WORK}/{job}"


def _no_job(values: ValuesFile) -> NoReturn:
    raise TypeError(f"{values.job.name}: a step runs no job")


def _statement(step: Step, session: Session) -> Statement:
    (statement,) = planning.read_statements(step.statement, session.source.engine)
    return statement


def _train(step: Step, session: Session) -> dict[str, Any]:
    """`data.prepare` of a TRAIN: shards, statistics, module, a number."""
    statement = _statement(step, session)
    assert isinstance(statement, Train)  # noqa: S101 - `flow` asked for it
    version = session.registry.run(statement.into.text, step.job)
    version.pending_file.touch()
    prepared = train.prepare(session, statement, step.statement, version)
    if not prepared.shards.num_validation and prepared.plan.split.fraction:
        raise DataError(
            "no row was chosen for validation; write WITH validation.fraction = 0 to "
            "train without, or select more rows"
        )
    train.write_files(version, statement, prepared)
    for name, text in prepared.values.job.model.files.items():
        place = version.folder / ZOO / name
        place.parent.mkdir(parents=True, exist_ok=True)
        write_whole(place, text, durable=False)
    write_description(version, train.described(prepared, session.source.engine))
    return {}


def _prepare(step: Step, session: Session) -> dict[str, Any]:
    """`data.prepare` of a PREDICT, EVALUATE or EXPLAIN: rows as the model has them."""
    statement = _question(step, session)
    about = read_description(session.registry.find(step.model))
    folder = Path(work_folder(step.models, step.job))
    folder.mkdir(parents=True, exist_ok=True)
    parts = parts_of(statement)
    if not parts.prepare(session, statement, about, folder):
        raise DataError(NO_ROWS.format(verb=parts.verb))
    return {}


def _question(step: Step, session: Session) -> Question:
    statement = _statement(step, session)
    assert isinstance(statement, Question)  # noqa: S101 - `flow` asked for it
    return statement


def _finish(step: Step, session: Session) -> dict[str, Any]:
    """Behind the job: the answer, and the table that the statement names."""
    statement = _statement(step, session)
    if isinstance(statement, Train):
        version = session.registry.run(statement.into.text, step.job)
        about = read_description(version)
        train.keep(
            version,
            replace(about, made=0.0),
            step.metrics,
            last_loss=step.last_loss,
            checkpoint=step.checkpoint,
        )
        version.pending_file.unlink(missing_ok=True)
        session.registry.thin(version.name)
        told = train.told(
            version.reference, about.num_training, about.num_validation, step.metrics
        )
        return {"answers": to_tree([told])}
    folder = Path(work_folder(step.models, step.job))
    about = read_description(session.registry.find(step.model))
    question = _question(step, session)
    finish = parts_of(question).finish
    with gone_afterwards(folder):
        answers = finish(session, question, about, folder, step.metrics)
    return {"answers": to_tree(answers)}


def _discard(step: Step, session: Session) -> dict[str, Any]:
    """Behind a job that failed: nothing of it is left."""
    statement = _statement(step, session)
    if isinstance(statement, Train):
        session.registry.discard(statement.into.text, step.job)
    else:
        folder = Path(work_folder(step.models, step.job))
        shutil.rmtree(folder, ignore_errors=True)
    return {}


def _describe(step: Step, session: Session) -> dict[str, Any]:
    """Before a job: which version, and what a job on it needs."""
    version = session.registry.find(step.model)
    about = read_description(version)
    return {
        "model": version.reference,
        "values": version.values_file.read_text(encoding="utf-8"),
        "checkpoints": str(version.checkpoints_dir),
        "about": asdict(about),
    }


def _ask(step: Step, session: Session) -> dict[str, Any]:
    """Answer plain SQL, and statements about models."""
    statement = _statement(step, session)
    return {"answers": to_tree(run_one(session, statement, step.statement))}


STEPS: Mapping[str, Callable[[Step, Session], dict[str, Any]]] = {
    "train": _train,
    "prepare": _prepare,
    "finish": _finish,
    "discard": _discard,
    "describe": _describe,
    "ask": _ask,
}
