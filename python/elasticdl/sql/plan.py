"""What is to be done for a TRAIN: schema, encodings, statistics, model, split.

Owns the frozen types that both sides share: `sql.planning` makes a TrainPlan from a
statement, a Schema and a Preview; `sql.shards` and `sql.statistics` read it to write
the data; `sql.generate` reads it with the Statistics to write the module. Must not
know SQL text, engines, Parquet or Keras.

How values lie in the shards, and so what the exported model takes:

| `Stored` | a value | NULL |
|---|---|---|
| FLOAT | float32 | NaN |
| INTEGER | int64 (booleans: 0 and 1) | NULL_INTEGER |
| TEXT | UTF-8 text | NULL_TEXT |
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

NULL_INTEGER = -(2**63)
NULL_TEXT = "\\N"  # As dumps of PostgreSQL, MySQL and Hive write it.
LABEL_FEATURE = "label"  # What the default feed takes for the label.
PREVIEW_ROWS = 10_000
# A number in a text, as a regular expression of the engine and of TensorFlow (RE2).
NUMBER = r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,3})?"


def is_line(text: str) -> bool:
    """Whether a text can be a line of a file: it has no line end of any kind."""
    return not text or text.splitlines() == [text]


# Names that no engine takes without quotes, of those that a column is likely to have.
_RESERVED = re.compile(
    "all|and|any|as|asc|case|check|column|default|desc|distinct|do|else|end|for|from"
    "|group|having|in|into|like|limit|not|null|offset|on|or|order|select|table|then|to"
    "|union|unique|user|using|when|where|with"
)


def in_sql(name: str) -> str:
    """Return a column's name as a message writes it into SQL: in quotes if it must."""
    if re.fullmatch(r"[a-z_][a-z0-9_]*", name) and not _RESERVED.fullmatch(name):
        return name
    doubled = name.replace('"', '""')
    return f'"{doubled}"'


class Kind(StrEnum):
    """What a column's values are, whatever the engine calls its type."""

    NUMBER = "number"  # Fractions: float, double, decimal.
    INTEGER = "integer"
    BOOLEAN = "boolean"
    TEXT = "text"
    TIME = "time"  # Dates, times, timestamps, intervals: refused with an EXTRACT.
    ARRAY = "array"  # Of `Column.item`.
    OTHER = "other"  # Refused by name: struct, map, blob, ...


@dataclass(frozen=True)
class Column:
    """One column of a query; `stated` is the engine's own name of its type.

    `lost` says why PREDICT cannot bring its values back as they are, and what to write
    instead; "" where it can. `rounded` says that they come back as doubles.
    """

    name: str
    kind: Kind
    nullable: bool = True
    item: Kind | None = None  # Of an ARRAY.
    stated: str = ""
    lost: str = ""
    rounded: bool = False


@dataclass(frozen=True)
class Schema:
    """The columns of a query in order."""

    columns: tuple[Column, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The names in order."""
        return tuple(column.name for column in self.columns)

    def find(self, name: str) -> Column | None:
        """Return the column of that name; case counts only where two differ in it."""
        same = [c for c in self.columns if c.name == name]
        if same:
            return same[0]
        close = [c for c in self.columns if c.name.lower() == name.lower()]
        return close[0] if len(close) == 1 else None

    def named(self, text: str) -> Column | None:
        """Return the column that a clause names, perhaps with its table: `t.age`.

        The columns of a query have no table any more.
        """
        return self.find(text) or self.find(text.rpartition(".")[2])


@dataclass(frozen=True)
class Preview:
    """The first rows of a query, at most PREVIEW_ROWS, column by column."""

    schema: Schema
    values: dict[str, tuple[Any, ...]]  # By column name; None is NULL.
    num_rows: int
    complete: bool  # Whether these are all rows.


class Stored(StrEnum):
    """How a column lies in the shards."""

    FLOAT = "float"
    INTEGER = "integer"
    TEXT = "text"


@dataclass(frozen=True)
class Measured:
    """What a statistic is about: a column, or what a function first makes of it.

    With `log` the values are sign(x) * ln(1 + |x|); with `split` a text's parts, of
    which empty ones do not count; with `numbers` so many of them, each a number.
    Vocabularies of other limits are other things.
    """

    column: str
    log: bool = False
    split: str = ""
    numbers: int = 0
    max_size: int | None = None  # of a vocabulary
    min_count: int = 1


@dataclass(frozen=True)
class StatisticsNeeded:
    """What has to be computed over the training rows for one measured thing."""

    of: Measured
    moments: bool = False  # mean, variance (of the population), minimum, maximum
    num_buckets: int = 0  # boundaries of so many buckets of equal count, or multiples
    vocabulary: bool = False
    max_size: int | None = None  # of the vocabulary, most frequent first
    min_count: int = 1
    longest: bool = False  # the most values in one row: split texts and arrays
    means: bool = False  # of each number of a text


@dataclass(frozen=True)
class Entry:
    """A value of a vocabulary and how many training rows have it."""

    value: str | int
    count: int


@dataclass(frozen=True)
class ColumnStatistics:
    """What was computed for one measured thing; what was not asked for is None.

    `vocabulary` has no NULL; most frequent first, then by value. A large one is in
    `vocabulary_file` (a line each, beside the shards; NULL_TEXT is its last line where
    `null_count` is not 0) and `vocabulary` is empty.
    """

    of: Measured
    num_rows: int
    null_count: int
    mean: float | None = None
    variance: float | None = None
    minimum: float | None = None
    maximum: float | None = None
    boundaries: tuple[float, ...] = ()  # num_buckets - 1, ascending
    vocabulary: tuple[Entry, ...] = ()
    vocabulary_file: str = ""
    vocabulary_size: int = 0  # without NULL and unseen
    no_lines: int = 0  # values that no line of a vocabulary's file can be
    longest: int = 0
    means: tuple[float, ...] = ()  # of the numbers of a text, by their place


@dataclass(frozen=True)
class Statistics:
    """All statistics of a training, over its training rows alone."""

    num_rows: int
    columns: tuple[ColumnStatistics, ...]
    num_validation_rows: int = 0

    def of(self, measured: Measured) -> ColumnStatistics:
        """Return those of one thing; KeyError where nobody asked for it."""
        for one in self.columns:
            if one.of == measured:
                return one
        raise KeyError(measured)


@dataclass(frozen=True)
class ColumnPlan:
    """A column of the query that goes into the shards.

    `feature` is its name there and in the model: `column`, made an identifier, so that
    a signature of the exported model can have it as an argument.
    """

    column: str
    feature: str
    stored: Stored
    longest: int = 0  # An array's values a row, padded; 0: one value.
    # Of a text of numbers, how many there are, or of parts with weights, with what is
    # between the two; and of both what is between them.
    delimiter: str = ""
    pair: str = ""
    numbers: int = 0


# Encodings: what COLUMN's functions make of columns, from the inside out.


@dataclass(frozen=True)
class Source:
    """The column itself; of an array `several`, which has more than one value a row."""

    column: str
    several: bool = False


@dataclass(frozen=True)
class Raw:
    """A number as it is, or an array or a text of numbers."""

    of: Source | Log | Numbers


@dataclass(frozen=True)
class Numbers:
    """The numbers of a text, each of which has so many."""

    of: Source
    delimiter: str
    count: int


@dataclass(frozen=True)
class Log:
    """sign(x) * ln(1 + |x|)."""

    of: Source


@dataclass(frozen=True)
class Standardize:
    """(x - mean) / standard deviation."""

    of: Source | Log


@dataclass(frozen=True)
class Normalize:
    """To the range from 0 to 1."""

    of: Source | Log


@dataclass(frozen=True)
class Split:
    """A text's parts; with `pair` each is followed by it and a weight: `red:0.5`."""

    of: Source
    delimiter: str
    pair: str = ""


@dataclass(frozen=True)
class Bucketize:
    """The number of the bucket; boundaries given, or quantiles of the data."""

    of: Source | Log
    num_buckets: int = 0
    boundaries: tuple[float, ...] = ()


@dataclass(frozen=True)
class Vocabularize:
    """The number of the value in the vocabulary."""

    of: Source | Split
    max_size: int | None = None
    min_count: int = 1


@dataclass(frozen=True)
class Identity:
    """An integer that is a number of a category already, below `buckets`."""

    of: Source
    buckets: int


@dataclass(frozen=True)
class Hash:
    """A hash of the value, below `buckets`; of parts that are `whole` the number."""

    of: Source | Split
    buckets: int
    whole: bool = False


@dataclass(frozen=True)
class Cross:
    """A hash of the combination of two or more columns or categories."""

    of: tuple[Source | Category, ...]
    buckets: int


@dataclass(frozen=True)
class Concat:
    """Several categories in one id space: each one's numbers follow the last one's."""

    of: tuple[Category, ...]
    name: str = ""


@dataclass(frozen=True)
class NullIndicator:
    """1 where the value is NULL, else 0."""

    of: Source


@dataclass(frozen=True)
class Indicator:
    """A category as zeros and a one (several ones for several values)."""

    of: Category


@dataclass(frozen=True)
class Embedding:
    """A category as a trained vector; `combiner` puts several values together."""

    of: Category
    dim: int
    combiner: str = "mean"


Category = Bucketize | Vocabularize | Identity | Hash | Cross | Concat
Dense = Raw | Standardize | Normalize | NullIndicator | Indicator | Embedding
Encoding = Category | Dense


@dataclass(frozen=True)
class FeaturePlan:
    """One entry of COLUMN, written or derived."""

    encoding: Encoding
    group: str = ""  # FOR group
    derived: str = ""  # Why, where it was not written.


class Head(StrEnum):
    """What is predicted."""

    BINARY = "binary"
    CLASSES = "classes"
    NUMBER = "number"


@dataclass(frozen=True)
class LabelPlan:
    """The label: in the shards it is LABEL_FEATURE.

    BINARY and CLASSES: int64, the place of the value in the label's vocabulary, which
    is `classes`: the values in ascending order, and where it is empty (not all classes
    are in the preview), the label's vocabulary of the statistics, sorted by value.
    NUMBER: float32.
    """

    column: str
    kind: Kind
    head: Head
    num_classes: int = 0  # Known at planning only with `classes`.
    classes: tuple[str | int | float | bool, ...] = ()


@dataclass(frozen=True)
class SplitPlan:
    """Which rows are validation rows: a hash, the last by an order, or a query."""

    fraction: float = 0.2  # 0: none.
    key: str = ""  # Rows with the same value are on the same side.
    order: str = ""  # The last part by this column.
    select: str = ""  # Another query has them.


@dataclass(frozen=True)
class ModelPlan:
    """The model: one of ours, or `folder.file.function` of one's own."""

    name: str  # `DNNClassifier`, whichever synonym was written
    family: str  # "dnn", "linear", "wide_and_deep", "deepfm", "dcn", "own"
    params: tuple[tuple[str, Any], ...] = ()  # model.*
    definition: str = ""  # of family "own"


@dataclass(frozen=True)
class TrainPlan:
    """All that a TRAIN needs besides statistics."""

    name: str  # INTO
    schema: Schema
    columns: tuple[ColumnPlan, ...]  # without the label
    features: tuple[FeaturePlan, ...]
    label: LabelPlan
    model: ModelPlan
    split: SplitPlan
    needs: tuple[StatisticsNeeded, ...]
    epochs: int = 10
    batch_size: int = 128
    optimizer: str = "adam"
    optimizer_params: tuple[tuple[str, Any], ...] = ()
    metrics: tuple[str, ...] = ()  # validation.metrics, Keras's names
    # Fields of the values file: path in its parts below `job`, value.
    fields: tuple[tuple[tuple[str, ...], Any], ...] = ()
    notes: tuple[str, ...] = field(default=())  # One line each: what was chosen, why.
    statement: str = ""

    def column(self, name: str) -> ColumnPlan:
        """Return the plan of a source column; KeyError where it is not used."""
        for one in self.columns:
            if one.column == name:
                return one
        raise KeyError(name)

    def groups(self) -> Iterator[tuple[str, tuple[FeaturePlan, ...]]]:
        """Return features by group, in the order of first mention."""
        names = dict.fromkeys(feature.group for feature in self.features)
        for name in names:
            yield name, tuple(f for f in self.features if f.group == name)


@dataclass(frozen=True)
class Places:
    """Where data and results of one training lie, as the job sees them."""

    training: str
    validation: str  # "": none
    vocabularies: str  # folder, joined with ColumnStatistics.vocabulary_file
    export: str


@dataclass(frozen=True)
class Generated:
    """A module and the values file that trains it; both are whole texts."""

    module: str
    module_path: str  # `sql/income.py`
    values: str
    files: dict[str, str] = field(default_factory=dict)  # further files of the zoo
