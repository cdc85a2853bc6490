"""From a statement and the first rows of its query to the plan of a training.

Owns the order of the checks, what `*` means, the label's head, which statistics are
needed and how each column lies in the shards. `check` finds what is wrong without any
data, `plan_training` the rest; both report all mistakes at once. Called by whoever runs
statements. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from elasticdl.job.spec.problems import did_you_mean
from elasticdl.sql import attributes, clauses, columns, derive, models
from elasticdl.sql.attributes import Settings
from elasticdl.sql.labels import LabelReader, at_attribute, chosen
from elasticdl.sql.metrics import misfit
from elasticdl.sql.models import ModelKind
from elasticdl.sql.needs import column_plans, inner, needs_of, sources
from elasticdl.sql.plan import (
    Column,
    ColumnPlan,
    Concat,
    Embedding,
    Encoding,
    FeaturePlan,
    Head,
    Kind,
    LabelPlan,
    ModelPlan,
    Preview,
    Schema,
    Stored,
    TrainPlan,
    in_sql,
)
from elasticdl.sql.problems import Problem, StatementError
from elasticdl.sql.statements import (
    Call,
    Evaluate,
    Explain,
    Name,
    Position,
    Predict,
    Star,
    Statement,
    Train,
)

# As `registry.check_name`, which also takes names of other releases.
_NAME = re.compile(r"[A-Za-z](?:[\w-]{0,98}\w)?", re.ASCII)
_DIM = "embedding_dim"
_VERSIONED = re.compile(rf"{_NAME.pattern}(@\d+)?", re.ASCII)


def read_statements(text: str, engine: str) -> list[Statement]:
    """Return a text's statements; StatementError has all mistakes seen so far."""
    statements = clauses.parse(text, engine)
    problems = [problem for one in statements for problem in check(one)]
    if problems:
        raise StatementError(text, problems)
    return statements


def check(statement: Statement) -> list[Problem]:
    """Return the mistakes of a statement that can be seen without its data."""
    if isinstance(statement, Train):
        return _check_training(statement)
    problems: list[Problem] = []
    for verb, kind in (
        ("evaluate", Evaluate),
        ("predict", Predict),
        ("explain", Explain),
    ):
        if isinstance(statement, kind):
            problems += attributes.read(verb, statement.attributes, None)[1]
            problems += _wrong_name(statement.using, _VERSIONED)
    model = getattr(statement, "model", None)
    if isinstance(model, Name):
        problems += _wrong_name(model, _VERSIONED)
    return problems


def settings_of(statement: Train | Evaluate | Predict | Explain) -> Settings:
    """Return what WITH says in a statement that `check` found right."""
    verb = type(statement).__name__.lower()
    model = _model(statement, []) if isinstance(statement, Train) else None
    return attributes.read(verb, statement.attributes, model)[0]


def _wrong_name(name: Name, pattern: re.Pattern[str]) -> Iterator[Problem]:
    if not pattern.fullmatch(name.text):
        form = "up to 100 letters of ASCII, digits, - and _, as income_model"
        if pattern is _VERSIONED:
            form += ", perhaps with a version, as income@2"
        yield Problem(name.at, f"`{name.text}` names no model; expected {form}")


def _check_training(statement: Train) -> list[Problem]:
    problems = list(_wrong_name(statement.into, _NAME))
    model = _model(statement, problems)
    problems += attributes.read("train", statement.attributes, model)[1]
    encoder = columns.Encoder(None)
    stars: list[Star] = []
    for clause in statement.columns:
        if clause.group is not None and isinstance(model, ModelKind):
            problems += _wrong_group(model, clause.group)
        for entry in clause.entries:
            if isinstance(entry, Star):
                stars.append(entry)
            else:
                encoder.encode(entry)
    problems += encoder.problems
    problems += [
        Problem(star.at, "* is there twice; it means all columns that no entry uses")
        for star in stars[1:]
    ]
    if statement.label is None:
        end = statement.into.at
        problems.append(Problem(end, "LABEL is missing; expected LABEL and a column"))
    return problems


def _model(statement: Train, problems: list[Problem]) -> ModelKind | None:
    if statement.model is None:
        return None
    found = models.find_model(statement.model.text)
    if isinstance(found, ModelKind):
        return found
    problems.append(Problem(statement.model.at, found))
    return None


def _wrong_group(model: ModelKind, group: Name) -> Iterator[Problem]:
    if model.family == models.OWN or group.text == "feature_columns":
        return
    known = models.GROUPS.get(model.family)
    if known is None:
        message = f"{model.name} has one group of columns; take FOR away"
        yield Problem(group.at, message)
    elif group.text not in known:
        hint = did_you_mean(group.text, known)
        yield Problem(group.at, f"{model.name} has no group `{group.text}`; {hint}")


def plan_training(statement: Train, preview: Preview, text: str) -> TrainPlan:
    """Return the plan of a training; `text` is what the statement's places are in."""
    planner = _Planner(statement, preview)
    plan = planner.plan()
    if planner.problems or plan is None:
        raise StatementError(text, planner.problems)
    return plan


def plan_without_rows(
    statement: Train, schema: Schema
) -> tuple[TrainPlan | None, list[Problem]]:
    """Return a plan by the kinds of columns alone, and the mistakes in them."""
    planner = _Planner(statement, Preview(schema, {}, num_rows=0, complete=False))
    return planner.plan(), planner.problems


def missing_columns(statement: Train, names: Schema) -> list[Problem]:
    """Return which columns are not there; of those that are nothing else is known."""
    encoder = columns.Encoder(None, names)
    every = [one for clause in statement.columns for one in clause.entries]
    # A name may be used before AS gives it.
    aliased = [one for one in every if isinstance(one, Call) and one.alias is not None]
    for entry in (*aliased, *every):
        if not isinstance(entry, Star):
            encoder.encode(entry)
    split = settings_of(statement).split
    for word, name in (("key", split.key), ("order", split.order)):
        if name:
            at = at_attribute(statement, f"validation.{word}")
            encoder.encode(Name(name, at))
    if statement.label is not None:
        encoder.encode(statement.label)
    return encoder.problems


def duplicates(schema: Schema) -> Iterator[str]:
    """Yield what is wrong with a query whose columns share a name, but for case."""
    seen: set[str] = set()
    for name in schema.names:
        if name.lower() in seen:
            yield f"the query has two columns `{name}`; name one of them with AS"
        seen.add(name.lower())


class _Planner:
    def __init__(self, statement: Train, preview: Preview) -> None:
        self._statement = statement
        self._preview = preview
        self.problems: list[Problem] = []
        self._notes: list[str] = []

    def plan(self) -> TrainPlan | None:
        """Return the plan; None, or one that is no use, where there are problems."""
        statement = self._statement
        model = _model(statement, self.problems)
        settings, wrong = attributes.read("train", statement.attributes, model)
        self.problems += wrong
        self._find_duplicates()
        settings = self._checked_split(settings)
        labels = LabelReader(statement, self._preview)
        label_column = labels.column()
        label = labels.plan(label_column, model, settings) if label_column else None
        self.problems += labels.problems
        features = self._features(label_column, settings, model)
        if self.problems or label is None:
            return None
        if not features:
            at = statement.label.at if statement.label else statement.at
            self.problems.append(
                Problem(at, "no column is left to learn from besides the label")
            )
            return None
        model = model or models.default_model(label.head)
        if statement.model is None:
            self._notes.insert(0, chosen(model, label, self._preview))
        self._check_metrics(settings, label)
        needs = tuple(needs_of(features, label))
        planned = tuple(column_plans(features, self._preview))
        self._notes += self._blurred(planned, label)
        return TrainPlan(
            name=statement.into.text,
            schema=self._preview.schema,
            columns=planned,
            features=features,
            label=label,
            model=ModelPlan(
                model.name, model.family, settings.model_params, model.definition
            ),
            split=settings.split,
            needs=needs,
            epochs=settings.epochs,
            batch_size=settings.batch_size,
            optimizer=settings.optimizer,
            optimizer_params=settings.optimizer_params,
            metrics=settings.metrics,
            fields=settings.fields,
            notes=tuple(self._notes),
            statement=statement.text,
        )

    def _blurred(
        self, columns: Sequence[ColumnPlan], label: LabelPlan
    ) -> Iterator[str]:
        """Yield what is lost of numbers, which are float32 in the shards."""
        names = [one.column for one in columns if one.stored is Stored.FLOAT]
        if label.head is Head.NUMBER:
            names.append(label.column)
        for name in names:
            column = self._preview.schema.find(name)
            if column and (said := derive.blurred(column, self._preview)):
                yield said

    def _check_metrics(self, settings: Settings, label: LabelPlan) -> None:
        # Without rows it is not known what kind of label it is.
        seen = self._preview.num_rows > 0
        wrong = misfit(label.head, settings.metrics) if seen else ""
        if wrong:
            at = at_attribute(self._statement, "validation.metrics")
            self.problems.append(Problem(at, wrong))

    def _find_duplicates(self) -> None:
        for message in duplicates(self._preview.schema):
            self.problems.append(Problem(self._statement.at, message))

    def _checked_split(self, settings: Settings) -> Settings:
        split = settings.split
        for word in ("key", "order"):
            name = getattr(split, word)
            if not name:
                continue
            found = self._preview.schema.named(name)
            if found is None:
                hint = did_you_mean(name, self._preview.schema.names)
                at = at_attribute(self._statement, f"validation.{word}")
                message = f"the query has no column `{name}`; {hint}"
                self.problems.append(Problem(at, message))
            elif wrong := _divides_badly(found, word):
                at = at_attribute(self._statement, f"validation.{word}")
                self.problems.append(Problem(at, wrong))
            else:
                split = (
                    replace(split, key=found.name)
                    if word == "key"
                    else replace(split, order=found.name)
                )
        return replace(settings, split=split)

    def _features(
        self, label: Column | None, settings: Settings, model: ModelKind | None
    ) -> tuple[FeaturePlan, ...]:
        encoder = columns.Encoder(self._preview)
        groups = models.GROUPS.get(model.family, {}) if model else {}
        found: list[tuple[FeaturePlan | Star, str]] = []
        every = [one for clause in self._statement.columns for one in clause.entries]
        for entry in every:  # A name may be used before AS gives it.
            if isinstance(entry, Call) and entry.alias is not None:
                encoder.encode(entry)
        encoder.notes.clear()  # They come again, in order.
        for clause in self._statement.columns:
            group = clause.group.text if clause.group else ""
            group = groups.get(group, "" if group == "feature_columns" else group)
            for entry in clause.entries:
                if isinstance(entry, Star):
                    found.append((entry, group))
                    continue
                if encoded := encoder.encode(entry):
                    self._refuse_label(encoded[0], label, entry.at)
                    self._check_vector(encoded[0], group, model, settings, entry.at)
                    found.append((FeaturePlan(encoded[0], group, encoded[1]), group))
        if not self._statement.columns:
            at = self._statement.label.at if self._statement.label else None
            found.append((Star(at or self._statement.at), ""))
        self.problems += encoder.problems
        self._notes += dict.fromkeys(encoder.notes)
        return tuple(self._expanded(found, label, settings))

    def _expanded(
        self,
        found: Sequence[tuple[FeaturePlan | Star, str]],
        label: Column | None,
        settings: Settings,
    ) -> Iterator[FeaturePlan]:
        """Yield the features, with those that * stands for in its place."""
        written = [one for one, _ in found if isinstance(one, FeaturePlan)]
        used = {name for one in written for name in sources(one.encoding)}
        aliased = _inside_others(found)
        for feature, group in found:
            if isinstance(feature, Star):
                yield from self._rest(feature, group, used, label, settings)
            elif feature.encoding not in aliased:
                yield feature

    def _refuse_label(
        self, encoding: Encoding, label: Column | None, at: Position
    ) -> None:
        if label is not None and label.name in sources(encoding):
            message = f"`{label.name}` is the label; a model must not see it"
            self.problems.append(Problem(at, message))

    def _check_vector(
        self,
        encoding: Encoding,
        group: str,
        model: ModelKind | None,
        settings: Settings,
        at: Position,
    ) -> None:
        """Tell of vectors whose size a model decides otherwise."""
        if model is None or not isinstance(encoding, Embedding):
            return
        if model.family == "deepfm":
            default = next(p.default for p in model.parameters if p.name == _DIM)
            dim = dict(settings.model_params).get(_DIM, default)
            if encoding.dim != dim:
                self.problems.append(
                    Problem(
                        at,
                        f"all vectors of a {model.name} have model.{_DIM} = {dim} "
                        f"numbers; expected {dim} here, or WITH model.{_DIM} = "
                        f"{encoding.dim}",
                    )
                )
        elif model.family == "linear" or group == "wide":
            name = ", ".join(sources(encoding))
            self._notes.append(
                f"{name}: a weight for each value, as in all linear parts; a vector of "
                f"{encoding.dim} has no place there"
            )

    def _rest(
        self,
        star: Star,
        group: str,
        used: set[str],
        label: Column | None,
        settings: Settings,
    ) -> Iterator[FeaturePlan]:
        """Yield a feature for each column that no entry uses."""
        encoder = columns.Encoder(self._preview)
        aside = (settings.split.key, settings.split.order)
        for column in self._preview.schema.columns:
            if column.name in used or column == label:
                continue
            if column.name in aside:
                self._notes.append(f"{column.name}: splits the rows, left out")
                continue
            encoded = encoder.encode(Name(column.name, star.at))
            if encoded is not None:
                self._notes.append(f"{column.name}: {encoded[1]}")
                yield FeaturePlan(encoded[0], group, encoded[1])
        self.problems += encoder.problems


def _divides_badly(column: Column, word: str) -> str:
    """Return why rows cannot be divided by a column, or ""."""
    stated, name = column.stated, column.name
    if stated.upper() == "INTERVAL":
        return (
            f"`{name}` is an {stated}, and one length is written in several ways; take "
            f"a number of it: EXTRACT(EPOCH FROM {in_sql(name)})"
        )
    if word == "order" and stated.upper().startswith("ENUM"):
        return (
            f"`{name}` is an ENUM, whose order is not that of its texts in the shards; "
            f"take its place in that order: enum_code({in_sql(name)}) AS place"
        )
    unordered = column.kind in (Kind.ARRAY, Kind.OTHER)
    if word == "order" and (unordered or stated.upper() == "TIME WITH TIME ZONE"):
        return (
            f"`{name}` is a {stated}, by which no rows are ordered; expected a number, "
            "a text or a date"
        )
    return ""


def _inside_others(found: Sequence[tuple[FeaturePlan | Star, str]]) -> set[Encoding]:
    """Return entries that only give a name to what another entry uses."""
    every = [f.encoding for f, _ in found if isinstance(f, FeaturePlan)]
    return {
        one
        for one in every
        if isinstance(one, Concat) and any(one in inner(other) for other in every)
    }
