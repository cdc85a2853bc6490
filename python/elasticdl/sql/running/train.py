"""TO TRAIN: a plan, shards with statistics, a module, a job, a version of a model.

Owns these steps. Called by `sql.running.statements`.
"""

from __future__ import annotations

import json
import math
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from elasticdl.errors import DataError, JobError, SpecError
from elasticdl.files import write_whole
from elasticdl.job.spec.problems import spec_error
from elasticdl.job.values.document import ValuesFile
from elasticdl.job.values.file import dump_values, parse_values
from elasticdl.sql import flags, generate, planning
from elasticdl.sql.data import shards, statistics
from elasticdl.sql.data.passwords import without_secret
from elasticdl.sql.data.shards import Shards, Staged
from elasticdl.sql.derive import MOST_CLASSES
from elasticdl.sql.labels import at_attribute
from elasticdl.sql.metrics import misfit
from elasticdl.sql.plan import (
    Generated,
    Head,
    Kind,
    LabelPlan,
    Places,
    Preview,
    Schema,
    Statistics,
    TrainPlan,
)
from elasticdl.sql.problems import Problem, StatementError
from elasticdl.sql.registry import (
    Description,
    ModelVersion,
    check_name,
    write_description,
    write_statistics,
)
from elasticdl.sql.running import staging
from elasticdl.sql.running.own import OwnModel, fitted, own_model, refuse_logits
from elasticdl.sql.running.session import Answer, Session, Told
from elasticdl.sql.statements import Evaluate, Explain, Predict, Train

_SELECT = "validation.select"
_FEW_STEPS = 100
_ZOO = "zoo"  # Where a dry run puts model code.
# A clause of TO TRAIN in a statement that goes without these words; a WITH that the
# SELECT begins with is its own.
_EARLY = re.compile(r"\s(WITH|COLUMN)\s", re.IGNORECASE)


@dataclass(frozen=True)
class Prepared:
    """What a job needs, on disk."""

    plan: TrainPlan
    shards: Shards
    statistics: Statistics
    generated: Generated
    values: ValuesFile


def train(session: Session, statement: Train, text: str) -> list[Answer]:
    """Run a TRAIN; the answer names the version and its figures.

    `text` is what the user gave, in which mistakes are shown.
    """
    check_name(statement.into.text)
    statement = replace(statement, text=without_secret(statement.text))
    with _version(session, statement.into.text) as version:
        prepared = prepare(session, statement, text, version)
        if session.dry_run is not None:
            return [_write_dry(version, statement, prepared)]
        write_files(version, statement, prepared)
        report = session.run_job(prepared.values)
        keep(
            version,
            described(prepared, session.source.engine),
            report.metrics,
            last_loss=report.last_loss,
            checkpoint=report.checkpoint,
        )
    rows = prepared.shards
    return [
        told(version.reference, rows.num_training, rows.num_validation, report.metrics)
    ]


@contextmanager
def _version(session: Session, name: str) -> Iterator[ModelVersion]:
    """Give a new version's folder, or with a dry run the folder that was named."""
    if session.dry_run is not None:
        session.dry_run.mkdir(parents=True, exist_ok=True)
        yield ModelVersion(name, 0, session.dry_run.absolute())
        return
    with session.registry.adding(name) as version:
        yield version


def prepare(
    session: Session, statement: Train, text: str, version: ModelVersion
) -> Prepared:
    """Read the rows once: shards, statistics and module in a version's folder."""
    folder = version.data_dir
    folder.mkdir(parents=True, exist_ok=True)
    own, wrong = own_model(statement)
    known, unread = _validation_columns(session, statement)
    wrong += unread
    with ExitStack() as stack:
        with hinting(statement):
            rows = stack.enter_context(session.source.rows(statement.select))
        plan = _planned(statement, rows.preview, text, wrong)
        if known is not None and (unfit := unfit_validation(known, plan)):
            at = at_attribute(statement, _SELECT)
            raise StatementError(text, [Problem(at, f"{_SELECT}: {unfit}")])
        if own is not None:
            refuse_logits(plan, own, statement, text)
            plan = fitted(plan, own)
        for note in plan.notes:
            session.say(note)
        path = folder / "rows.parquet"
        staged = Staged(path, rows.schema, rows.write(path))
    validation = _validation(session, plan, folder)
    made = shards.write_training(
        staged,
        folder,
        columns=plan.columns,
        label=plan.label,
        division=plan.split,
        validation=validation,
    )
    _refuse_metrics(statement, plan, made, text)
    _refuse_weights(statement, with_classes(plan.label, made), text)
    _refuse_amounts(statement, plan, made, text)
    for one in (staged, validation):
        if one is not None:
            one.path.unlink()
    session.say(
        f"{made.num_training:,} rows for training, {made.num_validation:,} for "
        "validation"
    )
    if few := few_steps(plan, made.num_training):
        session.say(few)
    measured = statistics.measure(
        made, columns=plan.columns, needs=plan.needs, label=plan.label.column
    )
    for line in without_line(measured):
        session.say(line)
    places = Places(
        training=str(made.training),
        validation=str(made.validation) if made.num_validation else "",
        vocabularies=str(version.vocabularies_dir),
        export=str(version.export_dir),
    )
    generated = _generated(plan, measured, places, own)
    return Prepared(
        plan, made, measured, generated, _values(session, version, generated)
    )


def few_steps(plan: TrainPlan, num_rows: int) -> str:
    """Return what is to be said of a training too short to learn much, or ""."""
    steps = plan.epochs * math.ceil(num_rows / plan.batch_size)
    chosen = (plan.epochs, plan.batch_size) != (TrainPlan.epochs, TrainPlan.batch_size)
    if chosen or steps >= _FEW_STEPS:
        return ""
    return (
        f"{plan.epochs} epochs of these rows are {steps} steps, in which little is "
        "learned; more are made by WITH train.batch_size = 16, train.epoch = 50"
    )


@contextmanager
def hinting(statement: Train | Predict | Evaluate | Explain) -> Iterator[None]:
    """Say why the engine was perhaps given a clause of ours: it took it as its own."""
    try:
        yield
    except DataError as error:
        found = _EARLY.search(statement.select)
        if not isinstance(statement, Train) or statement.model or found is None:
            raise
        word = found[1].upper()
        raise DataError(
            f"{error}; {word} before LABEL belongs to the SELECT, unless TO TRAIN "
            f"stands between: SELECT ... TO TRAIN DNNClassifier {word} ... LABEL ..."
        ) from error


def _refuse_metrics(statement: Train, plan: TrainPlan, made: Shards, text: str) -> None:
    """Raise StatementError for metrics of two classes, where later rows had a third."""
    wrong = misfit(with_classes(plan.label, made).head, plan.metrics)
    if wrong:
        at = at_attribute(statement, "validation.metrics")
        said = f"{wrong}, as `{plan.label.column}` has {len(made.classes)} classes"
        raise StatementError(text, [Problem(at, f"{said}, not all in the first rows")])


def _refuse_weights(statement: Train, label: LabelPlan, text: str) -> None:
    """Raise StatementError for a weight of no class: it would do nothing."""
    classes = {str(i): str(value) for i, value in enumerate(label.classes)}
    known = ", ".join(f"{i} ({value})" for i, value in list(classes.items())[:12])
    for attribute in statement.attributes:
        field, _, number = flags.field_of(attribute.key).rpartition(".")
        if field != "training.classWeight" or number in classes:
            continue
        told = f"`{label.column}` has no class {number}; it has {known}"
        if label.head is Head.NUMBER:
            told = f"`{label.column}` is a number, which has no classes to be weighed"
        raise StatementError(text, [Problem(attribute.at, told)])


def _refuse_amounts(statement: Train, plan: TrainPlan, made: Shards, text: str) -> None:
    """Raise StatementError for amounts that the first rows let pass for classes.

    As where rows are ordered by their label, or begin with many zeros.
    """
    if statement.model is not None or statement.label is None:
        return
    values = {entry.value for entry in made.classes}
    amounts = plan.label.kind is Kind.INTEGER and len(values) > MOST_CLASSES
    # Fractions are classes where they are 0 and 1 alone.
    amounts |= plan.label.kind is Kind.NUMBER and not values <= {0, 1}
    if amounts:
        said = (
            f"`{plan.label.column}` has {len(made.classes):,} different numbers, of "
            f"which the first rows had few; say whether they are amounts or classes: "
            "TO TRAIN DNNRegressor, or TO TRAIN DNNClassifier, behind the SELECT"
        )
        raise StatementError(text, [Problem(statement.label.at, said)])


def _planned(
    statement: Train, preview: Preview, text: str, wrong: list[Problem]
) -> TrainPlan:
    """Return the plan; mistakes in it are told together with those that are known."""
    try:
        plan = planning.plan_training(statement, preview, text)
    except StatementError as error:
        raise StatementError(text, [*wrong, *error.problems]) from error
    if wrong:
        raise StatementError(text, wrong)
    return plan


def _generated(
    plan: TrainPlan, measured: Statistics, places: Places, own: OwnModel | None
) -> Generated:
    if own is None:
        return generate.generate(plan, measured, places)
    return generate.generate_own(
        plan, measured, places, files=own.files, classic=own.classic
    )


def _validation_columns(
    session: Session, statement: Train
) -> tuple[Schema | None, list[Problem]]:
    """Return the columns of validation.select, which is read behind all other rows."""
    select = planning.settings_of(statement).split.select
    if not select:
        return None, []
    try:
        with session.source.rows(select) as rows:
            return rows.schema, []
    except DataError as error:
        at = at_attribute(statement, _SELECT)
        return None, [Problem(at, f"{_SELECT}: {error}")]


def unfit_validation(schema: Schema, plan: TrainPlan) -> str:
    """Return what keeps the rows of validation.select from being such, or ""."""
    needed = [*(one.column for one in plan.columns), plan.label.column]
    problems = [
        *planning.duplicates(schema),
        *(
            f"it has no column `{name}`, which the training needs"
            for name in needed
            if schema.find(name) is None
        ),
    ]
    problems += filter(None, _misfits(schema, plan))
    return "; ".join(problems)


def _validation(session: Session, plan: TrainPlan, folder: Path) -> Staged | None:
    if not plan.split.select:
        return None
    with session.source.rows(plan.split.select) as rows:
        if unfit := unfit_validation(rows.schema, plan):  # it has changed meanwhile
            raise SpecError(f"{_SELECT}: {unfit}")
        path = folder / "validation-rows.parquet"
        return Staged(path, rows.schema, rows.write(path))


def _misfits(schema: Schema, plan: TrainPlan) -> Iterator[str]:
    """Yield of each column why its validation rows are none, or ""."""
    for one in plan.columns:
        column = schema.find(one.column)
        if column is not None:
            yield staging.misfit(column, one)
    label = schema.find(plan.label.column)
    if label is not None:
        yield staging.label_misfit(label, plan.label)


def _values(
    session: Session, version: ModelVersion, generated: Generated
) -> ValuesFile:
    ours = [
        f"job.checkpoint.dir={json.dumps(str(version.checkpoints_dir))}",
        "job.checkpoint.keep=1",
    ]
    values, problems = parse_values(
        generated.values,
        source=str(version.values_file),
        overrides=[*ours, *generate.spread(session.overrides), *session.overrides],
    )
    if values is None:
        raise spec_error(problems)
    return values


def write_files(version: ModelVersion, statement: Train, prepared: Prepared) -> None:
    """Write what an engineer goes on with: module, values, statement, statistics."""
    module = version.folder / Path(prepared.generated.module_path).name
    write_whole(module, prepared.generated.module, durable=False)
    _write_about(version, statement, prepared)


def _write_about(version: ModelVersion, statement: Train, prepared: Prepared) -> None:
    write_whole(version.values_file, dump_values(prepared.values), durable=False)
    text = statement.text.strip().rstrip(";") + ";\n"
    write_whole(version.statement_file, text, durable=False)
    write_statistics(version, prepared.statistics)


def _write_dry(version: ModelVersion, statement: Train, prepared: Prepared) -> Told:
    """Write what a dry run leaves: the job runs the module that lies there.

    Inside the values file, a change of the module beside it would change nothing.
    """
    zoo = version.folder / _ZOO
    job = prepared.values.job
    for name, text in job.model.files.items():
        place = zoo / name
        place.parent.mkdir(parents=True, exist_ok=True)
        write_whole(place, text, durable=False)
    model = job.model.model_copy(update={"zoo": str(zoo), "files": {}})
    values = prepared.values.model_copy(
        update={"job": job.model_copy(update={"model": model})}
    )
    _write_about(version, statement, replace(prepared, values=values))
    module = f"{_ZOO}/{prepared.generated.module_path}"
    return Told(
        (
            f"written: {version.values_file}, {module}, shards in {version.data_dir}",
            f"run it: elasticdl train -f {version.values_file}",
        )
    )


def described(prepared: Prepared, engine: str) -> Description:
    """Return what is known of a model before it is trained."""
    plan = prepared.plan
    return Description(
        columns=plan.columns,
        label=with_classes(plan.label, prepared.shards),
        schema=plan.schema,
        model=plan.model.name,
        engine=engine,
        notes=plan.notes,
        num_training=prepared.shards.num_training,
        num_validation=prepared.shards.num_validation,
    )


def keep(
    version: ModelVersion,
    about: Description,
    metrics: Mapping[str, float],
    *,
    last_loss: float | None,
    checkpoint: str,
) -> None:
    """Complete a version: the figures, and the last checkpoint alone.

    Raises JobError where the job left none: nothing could be predicted.
    """
    if not any(version.checkpoints_dir.glob("*")):
        raise JobError(
            f"the job ended, but {version.checkpoints_dir} has no checkpoint: there is "
            "no model to keep; train it again"
        )
    figures = dict(metrics)
    text = json.dumps({"metrics": figures, "last_loss": last_loss}, indent=1)
    write_whole(version.evaluation_file, text, durable=False)
    for older in sorted(version.checkpoints_dir.glob("*")):
        if older.name != Path(checkpoint).name and checkpoint:
            shutil.rmtree(older, ignore_errors=True)
    write_description(version, replace(about, evaluation=figures))


def without_line(measured: Statistics) -> list[str]:
    """Return what to say of values that a vocabulary leaves out."""
    return [
        f"column `{one.of.column}`: {one.no_lines:,} of its values have a line end. "
        "Its vocabulary is a file with a line for each value: they count as unseen; "
        "replace(..., chr(10), ' ') in the SELECT keeps them"
        for one in measured.columns
        if one.no_lines
    ]


def told(
    reference: str, num_training: int, num_validation: int, metrics: Mapping[str, float]
) -> Told:
    """Return the line about a model that was trained."""
    figures = ", ".join(
        f"{name} {value:.4g}" for name, value in sorted(metrics.items())
    )
    line = f"{reference}: {num_training:,} rows for training"
    if num_validation:
        line += f", {num_validation:,} for validation: {figures}"
    return Told((line,))


def with_classes(label: LabelPlan, made: Shards) -> LabelPlan:
    """Return the label with the classes that the shards were written with."""
    if not made.classes:
        return label
    classes = label.classes or tuple(entry.value for entry in made.classes)
    head = Head.CLASSES if len(classes) > 2 else Head.BINARY
    return replace(label, head=head, classes=classes, num_classes=len(classes))
