"""Arguments of COLUMN's functions, read and checked against the query's schema.

Owns how a column, a number, a text or a list is read, and how a mistake in one is
noted. Called by `sql.columns`. Must not know what a function makes of them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from elasticdl.job.spec.problems import did_you_mean
from elasticdl.sql import derive
from elasticdl.sql.models import is_number, is_whole
from elasticdl.sql.plan import NULL_TEXT, Column, Kind, Preview, Schema, Source
from elasticdl.sql.problems import Problem
from elasticdl.sql.statements import Call, Constant, Expression, Listing, Name

MOST_BUCKETS = 10_000  # Quantiles of one number.
NUMBERS = (Kind.NUMBER, Kind.INTEGER, Kind.BOOLEAN)
VALUES = (Kind.TEXT, Kind.INTEGER, Kind.BOOLEAN)
_ITEMS = (Kind.TEXT, Kind.INTEGER, Kind.BOOLEAN)
_COMMA = "comma"  # SQLFlow's word for the sign.


class WrongError(Exception):
    """A mistake that has been noted; it never leaves `sql.columns`."""


@dataclass
class Arguments:
    """Reads arguments; `problems` is what was wrong, `preview` None before reading.

    Without a preview names alone may be known: `names` has the columns then, of kinds
    that nobody knows.
    """

    preview: Preview | None
    names: Schema | None = None
    problems: list[Problem] = field(default_factory=list)
    signs: dict[str, tuple[str, str]] = field(default_factory=dict)  # of weights
    sizes: dict[str, tuple[str, int]] = field(default_factory=dict)  # of DENSE texts
    nameless: set[str] = field(default_factory=set)  # by AS, of entries with mistakes
    _buckets: dict[Source, int] = field(default_factory=dict)

    def column(self, name: Name | Constant) -> Column | None:
        """Return the column of a name; None where there is no schema yet."""
        text = name.text if isinstance(name, Name) else str(name.value)
        schema = self.names if self.preview is None else self.preview.schema
        if schema is None:
            return None
        found = schema.named(text)
        if found is None and text in self.nameless:
            raise WrongError(text)
        if found is None:
            hint = did_you_mean(text, schema.names)
            raise self.wrong(name, f"the query has no column `{text}`; {hint}")
        if self.preview is None:
            return None
        if found.kind is Kind.TIME:
            kind = found.stated or "time"
            raise self.wrong(name, f"`{text}` is a {kind}; {derive.extract(found)}")
        if found.kind is Kind.OTHER:
            kind = found.stated or str(found.kind)
            raise self.wrong(
                name, f"`{text}` is a {kind}, which no function takes; leave it out of "
                f"the query, or select parts of it{derive.cast(found)}"
            )  # fmt: skip
        return found

    def wrong(self, where: Expression, message: str) -> WrongError:
        """Note a mistake; what it returns is to be raised."""
        self.problems.append(Problem(where.at, message))
        return WrongError(message)

    def source(self, entry: Expression) -> Source:
        """Return the column that an entry names, whatever there is."""
        if isinstance(entry, Name):
            return Source(entry.text)
        if isinstance(entry, Constant) and isinstance(entry.value, str):
            return Source(entry.value)
        raise self.wrong(entry, "this is no column; expected the name of one")

    def of_kind(
        self, entry: Expression, function: str, kinds: tuple[Kind, ...], takes: str
    ) -> Source:
        """Return the column of a name; refused where its kind is none of these."""
        source = self.source(entry)
        assert isinstance(entry, Name | Constant)  # noqa: S101 - `source` saw to it
        column = self.column(entry)
        if column is None:
            return source
        if column.kind is Kind.ARRAY and kinds is VALUES and column.item in _ITEMS:
            return Source(column.name, several=True)
        if column.kind not in kinds:
            raise self.wrong(
                entry, f"`{column.name}` is {told(column)}; {function} takes {takes}"
            )
        return Source(column.name)

    def whole(self, entry: Expression | None, name: str, least: int = 1) -> int:
        """Return a whole number."""
        if isinstance(entry, Constant) and is_whole(entry.value, least):
            return int(entry.value)  # type: ignore[arg-type]
        assert entry is not None  # noqa: S101 - needed arguments are there
        raise self.wrong(entry, f"expected `{name}`, a whole number, {least} or more")

    def text(self, entry: Expression | None, default: str, expected: str) -> str:
        """Return a text."""
        if entry is None:
            return default
        if isinstance(entry, Constant) and isinstance(entry.value, str) and entry.value:
            return entry.value
        if isinstance(entry, Name):
            return entry.text
        raise self.wrong(entry, f"expected {expected}")

    def separator(self, entry: Expression | None, default: str, call: Call) -> str:
        """Return what is between the parts of a text."""
        found = self.text(entry, default, f"a text, as '{default}'")
        found = "," if found.lower() == _COMMA else found
        if found in NULL_TEXT:
            message = (
                f"`{found}` is a part of {NULL_TEXT}, which stands for NULL in the "
                "shards; take another separator, with a REPLACE in the SELECT"
            )
            raise self.wrong(entry or call, message)
        return found

    def check_buckets(self, of: Source, count: int, at: Expression) -> None:
        """Refuse more quantiles of a number than one pass computes.

        They are computed once for all uses of it: as many as all of them divide.
        """
        whole = math.lcm(count, self._buckets.get(of, 1))
        if count > MOST_BUCKETS:
            raise self.wrong(at, f"expected {MOST_BUCKETS:,} buckets at most")
        if whole > MOST_BUCKETS:
            raise self.wrong(
                at,
                f"with the other BUCKETIZE of `{of.column}` this takes {whole:,} "
                f"quantiles, of {MOST_BUCKETS:,} at most; expected numbers of buckets "
                "that divide each other, as 10 and 100, or boundaries",
            )
        self._buckets[of] = whole

    def boundaries(self, entry: Expression) -> tuple[float, ...]:
        """Return ascending numbers."""
        if not isinstance(entry, Listing) or not entry.items:
            raise self.wrong(
                entry, "expected boundaries, as [18, 30, 60], or num_buckets=10"
            )
        found: list[float] = []
        for item in entry.items:
            if not isinstance(item, Constant) or not is_number(item.value):
                raise self.wrong(item, "expected a number")
            number = float(item.value)  # type: ignore[arg-type]
            if found and number <= found[-1]:
                raise self.wrong(
                    item, "boundaries ascend; this one is not above the one before"
                )
            found.append(number)
        return tuple(found)


def told(column: Column) -> str:
    """Return a column's kind; of an array what it holds."""
    return f"array of {column.item}" if column.kind is Kind.ARRAY else str(column.kind)
