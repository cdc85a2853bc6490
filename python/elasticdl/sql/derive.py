"""What COLUMN and LABEL do not say, from the first rows of the query.

Owns the rules by which a column without a function gets one, and a label its head,
and the words in which the choice is shown. Called by `sql.columns` and `sql.planning`.
Pure: the rows come as a Preview.
"""

from __future__ import annotations

import math
import re
from array import array
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from elasticdl.sql.plan import (
    Category,
    Column,
    Dense,
    Hash,
    Head,
    Kind,
    Preview,
    Raw,
    Source,
    Split,
    Standardize,
    Vocabularize,
    in_sql,
)

LARGEST_VOCABULARY = 10_000
_NEARLY_UNIQUE = 0.9  # Distinct values to rows: names, addresses, ids as text.
_FEW_ROWS = 100  # Below so many rows hardly anything repeats.
_HASH_BUCKETS = 4_096
_WHOLE = re.compile(r"[0-9]{1,18}")  # As the module reads parts of a text.
# No code, as 00501, and no address, as 10.0.0.1.
_AMOUNT = re.compile(r"[-+]?(?:0|[1-9][0-9]*)(?:[.,][0-9]+)?")
_FEW_LEVELS = 100  # Fewer of a number, and it says less than it did.
_FAR = 2.0**-18  # A span to the largest value: float32 has 2 ** 24 steps up to that.
MOST_CLASSES = 20  # Distinct whole numbers that are taken for classes, not amounts.


@dataclass(frozen=True)
class Derived:
    """An encoding and why it was chosen, in a few words."""

    encoding: Category | Dense
    why: str


def derive(column: Column, preview: Preview) -> Derived | None:
    """Return the encoding of a column for which none is written, if there is one."""
    source = Source(column.name)
    if column.kind in (Kind.NUMBER, Kind.INTEGER):
        return Derived(Standardize(source), f"{column.kind}: standardised")
    if column.kind is Kind.BOOLEAN:
        return Derived(Vocabularize(source), "boolean: by vocabulary")
    if column.kind is Kind.TEXT:
        values = _values(column, preview)
        encoding, why = _of_text(source, values)
        return Derived(encoding, why + _if_amounts(column.name, set(values)))
    if column.kind is Kind.ARRAY:
        return _of_array(column, preview)
    return None


def _if_amounts(column: str, texts: Collection[str]) -> str:
    """Return what makes numbers of texts that are all numbers, or "".

    As in a table that was imported from a file: all of its columns are text, and where
    a number is missing is one and the same other text, as an empty one.
    """
    others = [one for one in texts if not _AMOUNT.fullmatch(one.strip())]
    if len(texts) - len(others) <= MOST_CLASSES or len(others) > 1:
        return ""
    amount = in_sql(column)
    for other in others:
        told = other.replace("'", "''")
        amount = f"nullif({amount}, '{told}')"
    if any("," in text for text in texts):
        amount = f"replace({amount}, ',', '.')"
    return f"; if they are amounts: CAST({amount} AS DOUBLE) in the SELECT"


def _of_array(column: Column, preview: Preview) -> Derived:
    source = Source(column.name, several=True)
    if column.item is Kind.NUMBER:
        most = longest(column, preview)
        return Derived(Raw(source), f"array of {most} numbers: as they are")
    why = f"array of {column.item}: several values by vocabulary"
    return Derived(Vocabularize(source, LARGEST_VOCABULARY), why)


def longest(column: Column, preview: Preview) -> int:
    """Return the values of the longest array in the preview, 1 at least."""
    return max([1, *(len(value) for value in _values(column, preview))])


def category(column: Column, preview: Preview) -> Derived | None:
    """Return the category of a column inside EMBEDDING(x, ..) or INDICATOR(x)."""
    source = Source(column.name)
    if column.kind is Kind.TEXT:
        return Derived(*_of_text(source, _values(column, preview)))
    if column.kind is Kind.ARRAY and column.item is not Kind.NUMBER:
        return _of_array(column, preview)
    if column.kind in (Kind.INTEGER, Kind.BOOLEAN):
        why = f"{column.kind} as category: by vocabulary"
        return Derived(Vocabularize(source, LARGEST_VOCABULARY), why)
    return None


def _of_text(source: Source, values: Sequence[Any]) -> tuple[Category, str]:
    distinct = len(set(values))
    if len(values) >= _FEW_ROWS and distinct > _NEARLY_UNIQUE * len(values):
        why = f"text, {distinct:,} values in {len(values):,} rows: hashed"
        return Hash(source, _HASH_BUCKETS), why
    why = f"text, {distinct:,} {'value' if distinct == 1 else 'values'}: by vocabulary"
    return Vocabularize(source, LARGEST_VOCABULARY), why


def _values(column: Column, preview: Preview) -> list[Any]:
    return [value for value in preview.values.get(column.name, ()) if value is not None]


def nulls(column: Column, preview: Preview) -> int:
    """Return how many NULLs a column has in the preview."""
    return sum(value is None for value in preview.values.get(column.name, ()))


def distinct_values(column: Column, preview: Preview) -> list[Any]:
    """Return the distinct values of a column in the preview, ascending."""
    found = set(_values(column, preview))
    # An engine without types may have numbers among text, which is text then.
    return sorted(set(map(str, found)) if column.kind is Kind.TEXT else found)


def head_of(column: Column, preview: Preview) -> Head:
    """Return what the label's type says is to be predicted."""
    distinct = distinct_values(column, preview)
    classes = column.kind in (Kind.TEXT, Kind.BOOLEAN)
    if column.kind is Kind.INTEGER:
        classes = len(distinct) <= MOST_CLASSES
    elif column.kind is Kind.NUMBER:
        classes = set(distinct) <= {0, 1}
    if not classes:
        return Head.NUMBER
    return Head.BINARY if len(distinct) <= 2 else Head.CLASSES


def blurred(column: Column, preview: Preview) -> str:
    """Return what is to be said of numbers that float32 hardly tells apart, or "".

    As of times in milliseconds within a minute: what they differ by is lost.
    """
    if column.kind not in (Kind.NUMBER, Kind.INTEGER):
        return ""
    values = [one for one in map(float, _values(column, preview)) if math.isfinite(one)]
    if not values:
        return ""
    low, high = min(values), max(values)
    if not high - low < max(abs(low), abs(high)) * _FAR:
        return ""
    many, few = len(set(values)), len(set(array("f", values)))
    if few >= min(many, _FEW_LEVELS):
        return ""
    name = in_sql(column.name)
    return (
        f"{column.name}: of {many:,} different numbers float32 tells {few:,} apart; "
        f"take off what all have, as {name} - {low:.15g} in the SELECT"
    )


def cast(column: Column) -> str:
    """Return what to write for values that no function takes, where that is known.

    Of an array texts; of dates, some of which are none, parts.
    """
    if zero := re.search(r" with ('\d{4}-\d\d-\d\d.*')$", column.stated):
        date = f"NULLIF({in_sql(column.name)}, {zero[1]})"
        return f", as EXTRACT(YEAR FROM {date})"
    if not re.fullmatch(r".*[^\]]\[\d*\]", column.stated, re.DOTALL):
        return ""
    return f", as CAST({in_sql(column.name)} AS text[])"


def whole_parts(preview: Preview, of: Split) -> bool:
    """Whether all parts of a text in the first rows are whole numbers."""
    texts = filter(None, preview.values.get(of.of.column, ()))
    parts = [part for text in texts for part in text.split(of.delimiter) if part]
    if of.pair:
        parts = [part.partition(of.pair)[0] for part in parts]
    return bool(parts) and all(_WHOLE.fullmatch(part.strip()) for part in parts)


def confused(column: str, signs: tuple[str, str], before: tuple[str, str]) -> str:
    """Return why the separators of values and weights would be mistaken, or "".

    `before` are those of another use of the column, whose weights are checked once.
    """
    between, pair = signs
    if pair in between or between in pair:
        return (
            f"`{pair}` is between the values, too (`{between}`); expected two "
            "separators, of which neither is in the other"
        )
    if signs != before:
        return (
            f"another WEIGHTED_CATEGORY of `{column}` has the separators "
            f"`{before[0]}` and `{before[1]}`; expected the same ones"
        )
    return ""


def extract(column: Column) -> str:
    """Return what to write for a date or time, which no function here takes."""
    name = column.name
    stated = column.stated.upper()
    parts = ("HOUR", "MINUTE") if stated.startswith("TIME") else ("YEAR", "MONTH")
    if stated.startswith(("TIMESTAMP", "DATETIME")):
        parts = ("MONTH", "HOUR")  # which MySQL knows, too; it has no DOW
    plain = re.sub(r"\W", "_", name).strip("_")
    some = ", ".join(
        f"EXTRACT({p} FROM {in_sql(name)}) AS {in_sql(f'{plain}_{p.lower()}')}"
        for p in parts
    )
    return f"select its parts as numbers: {some}"
