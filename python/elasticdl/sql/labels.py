"""The label of a TRAIN: its column, what is predicted, which model that fits.

Owns what is wrong with a label. Called by `sql.planning`. Pure.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from elasticdl.job.spec.problems import did_you_mean
from elasticdl.sql import derive
from elasticdl.sql.attributes import Settings
from elasticdl.sql.models import ModelKind
from elasticdl.sql.plan import Column, Head, Kind, LabelPlan, Preview, in_sql
from elasticdl.sql.problems import Problem
from elasticdl.sql.statements import Evaluate, Position, Train

_LIKE_A_NUMBER = re.compile(r"[-+]?\d[\d.,' ]*")


@dataclass
class LabelReader:
    """Reads the label of one statement; `problems` is what is wrong."""

    statement: Train
    preview: Preview
    problems: list[Problem] = field(default_factory=list)

    def column(self) -> Column | None:
        """Return the label's column."""
        name = self.statement.label
        if name is None:
            return None
        schema = self.preview.schema
        found = schema.named(name.text)
        if found is None:
            hint = did_you_mean(name.text, schema.names)
            message = f"the query has no column `{name.text}`; {hint}"
            self.problems.append(Problem(name.at, message))
        elif found.kind in (Kind.TIME, Kind.ARRAY, Kind.OTHER):
            kind = found.stated or str(found.kind)
            message = (
                f"`{found.name}` is a {kind}; a label is a number, text or boolean"
            )
            self.problems.append(Problem(name.at, message))
            return None
        return found

    def plan(
        self, column: Column, model: ModelKind | None, settings: Settings
    ) -> LabelPlan | None:
        """Return what is predicted, and its classes where all rows were seen."""
        assert self.statement.label is not None  # noqa: S101 - it gave the column
        at = self.statement.label.at
        nulls = derive.nulls(column, self.preview)
        if nulls:
            rows = "rows" if self.preview.complete else "first rows"
            message = (
                f"`{column.name}` is NULL in {nulls:,} of the "
                f"{self.preview.num_rows:,} {rows}; a label has a value: WHERE "
                f"{in_sql(column.name)} IS NOT NULL"
            )
            self.problems.append(Problem(at, message))
            return None
        distinct = derive.distinct_values(column, self.preview)
        wrong = _does_not_fit(column, model, distinct)
        if wrong:
            self.problems.append(Problem(at, wrong))
            return None
        head = _head(model, derive.head_of(column, self.preview), len(distinct))
        if head is Head.NUMBER:
            return LabelPlan(column.name, column.kind, head)
        if len(distinct) < 2 and self.preview.complete:
            message = (
                f"`{column.name}` has one value alone, there is nothing to tell apart; "
                "expected two or more"
                if distinct
                else "the query has no rows; nothing can be learnt"
            )
            self.problems.append(Problem(at, message))
        if settings.num_classes and self.preview.complete:
            self._compare_classes(settings.num_classes, len(distinct))
        classes = tuple(distinct) if self.preview.complete else ()
        return LabelPlan(column.name, column.kind, head, len(classes), classes)

    def _compare_classes(self, said: int, found: int) -> None:
        if said != found:
            at = at_attribute(self.statement, "model.num_classes", "model.n_classes")
            message = f"num_classes is {said}, but the label has {found} values"
            self.problems.append(Problem(at, message))


def at_attribute(statement: Train | Evaluate, *keys: str) -> Position:
    """Return the place of an attribute's value; `keys` are its names."""
    for attribute in statement.attributes:
        if attribute.key.lower() in keys:
            return attribute.value.at
    return statement.at


def _numbers_as_text(column: Column, distinct: Sequence[Any]) -> str:
    """Return what to ask where amounts are text, as `12,5` of a CSV file is, or ""."""
    if column.kind is not Kind.TEXT:
        return ""
    numbers = [one for one in distinct if _LIKE_A_NUMBER.fullmatch(one.strip())]
    if len(numbers) <= derive.MOST_CLASSES:
        return ""
    name = in_sql(column.name)
    return (
        f"`{column.name}` is text with {len(numbers):,} different values that look "
        f"like numbers, as '{numbers[-1]}'; say whether they are amounts or classes: "
        f"CAST(replace({name}, ',', '.') AS DOUBLE) in the SELECT, or TO TRAIN "
        "DNNClassifier behind it"
    )


def _head(model: ModelKind | None, derived: Head, num_distinct: int) -> Head:
    """Return what a model predicts, of a label whose type says something itself."""
    if model is None or model.classifies is None:
        return derived
    if not model.classifies:
        return Head.NUMBER
    if derived is Head.NUMBER:
        return Head.BINARY if num_distinct <= 2 else Head.CLASSES
    return derived


def _does_not_fit(
    column: Column, model: ModelKind | None, distinct: Sequence[Any]
) -> str:
    """Return why a label is none for a model, or for one that it chooses; or ""."""
    if model is None:
        return _numbers_as_text(column, distinct)
    if model.classifies is None:
        return ""
    if not model.classifies and column.kind is Kind.TEXT:
        other = model.name.replace("Regressor", "Classifier")
        return f"`{column.name}` is text, {model.name} learns numbers; use {other}"
    many = len(distinct) > derive.MOST_CLASSES and column.kind is Kind.NUMBER
    if model.classifies and many:
        other = model.name.replace("Classifier", "Regressor")
        return (
            f"`{column.name}` has {len(distinct):,} different numbers, {model.name} "
            f"learns classes; use {other}, or CAST the label to an integer"
        )
    if model.classifies and column.kind is Kind.NUMBER:
        odd = next((one for one in distinct if _is_fraction(one)), None)
        if odd is not None:
            return (
                f"`{column.name}` has the value {odd}, expected whole numbers as "
                "classes; CAST it to VARCHAR to make a class of each value"
            )
    return ""


def _is_fraction(value: Any) -> bool:
    # What is no number counts as NULL, which is told with the rows.
    return not math.isnan(value) and not float(value).is_integer()


def chosen(model: ModelKind, label: LabelPlan, preview: Preview) -> str:
    """Return the line that says which model was chosen, and why."""
    column = preview.schema.find(label.column)
    assert column is not None  # noqa: S101 - the label was found
    count = len(derive.distinct_values(column, preview))
    what = f"{count:,} values" if label.head is Head.NUMBER else f"{count} classes"
    return f"{model.name}: the label {label.column} is {column.kind} with {what}"
