"""What a statement says: the frozen types that parsing makes and all others read.

Owns positions, expressions of clauses and one type for each kind of statement. Made by
`sql.clauses`, checked by `sql.planning`, run by `sql.running`. Must not know tokens,
schemas or jobs.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


@dataclass(frozen=True, order=True)
class Position:
    """A place in the text that the user gave; line and column begin at 1."""

    offset: int
    line: int
    column: int
    length: int = 1  # Characters to underline.


@dataclass(frozen=True)
class Name:
    """An identifier, quoted or not; parts are joined by dots: `a.b`."""

    text: str
    at: Position
    quoted: bool = False


@dataclass(frozen=True)
class Constant:
    """A number, a string, TRUE, FALSE or NULL."""

    value: int | float | str | bool | None
    at: Position


@dataclass(frozen=True)
class Listing:
    """`[a, b]`."""

    items: tuple[Expression, ...]
    at: Position


@dataclass(frozen=True)
class Keyword:
    """`name=value` inside a call."""

    name: str
    value: Expression
    at: Position


@dataclass(frozen=True)
class Call:
    """`FUNCTION(a, b, name=c) [AS alias]`; `function` as it was written."""

    function: str
    arguments: tuple[Expression, ...]
    keywords: tuple[Keyword, ...]
    at: Position
    alias: Name | None = None


@dataclass(frozen=True)
class Star:
    """`*` in COLUMN."""

    at: Position


Expression = Name | Constant | Listing | Call | Star


@dataclass(frozen=True)
class Attribute:
    """`key = value` of WITH; a bare word as value is a Name."""

    key: str
    value: Expression
    at: Position


@dataclass(frozen=True)
class ColumnClause:
    """One `COLUMN ... [FOR group]`."""

    entries: tuple[Expression, ...]
    group: Name | None
    at: Position


@dataclass(frozen=True)
class Plain:
    """A statement of the engine's own language, handed on byte by byte."""

    sql: str
    at: Position
    text: str = ""


@dataclass(frozen=True)
class Train:
    """`SELECT ... TO TRAIN model ... INTO name`, or `SELECT ... LABEL x INTO name`.

    `select` is the user's own text, byte by byte. `model` is None in the second form,
    where the label's type chooses it.
    """

    select: str
    model: Name | None
    attributes: tuple[Attribute, ...]
    columns: tuple[ColumnClause, ...]
    label: Name | None
    into: Name
    at: Position
    text: str = ""  # The whole statement, as SHOW TRAIN prints it.


@dataclass(frozen=True)
class Evaluate:
    """`SELECT ... TO EVALUATE name [WITH ...] [LABEL col] [INTO table]`."""

    select: str
    using: Name
    attributes: tuple[Attribute, ...]
    label: Name | None
    into: Name | None
    at: Position
    text: str = ""


@dataclass(frozen=True)
class Predict:
    """`SELECT ... TO PREDICT [table[.column]] [WITH ...] USING name`.

    Without `table` the rows are printed. `column` is the one for the prediction.
    """

    select: str
    using: Name
    attributes: tuple[Attribute, ...]
    table: Name | None
    column: Name | None
    at: Position
    text: str = ""


class Explainer(StrEnum):
    """How a model is explained."""

    PERMUTATION = "PermutationImportance"
    GRADIENTS = "IntegratedGradients"


@dataclass(frozen=True)
class Explain:
    """`SELECT ... TO EXPLAIN name [WITH ...] [USING explainer] [INTO table]`."""

    select: str
    using: Name
    attributes: tuple[Attribute, ...]
    explainer: Explainer
    label: Name | None
    into: Name | None
    at: Position
    text: str = ""


@dataclass(frozen=True)
class ShowModels:
    """`SHOW MODELS`."""

    at: Position
    text: str = ""


@dataclass(frozen=True)
class DescribeModel:
    """`DESCRIBE MODEL name`."""

    model: Name
    at: Position
    text: str = ""


@dataclass(frozen=True)
class ShowTrain:
    """`SHOW TRAIN name`: the statement that made it."""

    model: Name
    at: Position
    text: str = ""


@dataclass(frozen=True)
class DropModel:
    """`DROP MODEL [IF EXISTS] name`."""

    model: Name
    if_exists: bool
    at: Position
    text: str = ""


Statement = (
    Plain
    | Train
    | Evaluate
    | Predict
    | Explain
    | ShowModels
    | DescribeModel
    | ShowTrain
    | DropModel
)
