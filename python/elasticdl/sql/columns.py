"""COLUMN: entries into encodings, checked against the query's schema.

Owns what each function means and which kinds of columns it takes; every mistake is
noted with its place. Called by `sql.planning`, once without a schema, so that mistakes
in functions are known before anything is read, and once with it. The functions'
arguments are in `sql.signatures`, what is not written in `sql.derive`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

from elasticdl.job.spec.problems import did_you_mean
from elasticdl.sql import derive, signatures
from elasticdl.sql.models import is_number, is_whole
from elasticdl.sql.plan import (
    NULL_TEXT,
    Bucketize,
    Category,
    Column,
    Concat,
    Cross,
    Embedding,
    Encoding,
    Hash,
    Identity,
    Indicator,
    Kind,
    Log,
    Normalize,
    NullIndicator,
    Preview,
    Raw,
    Source,
    Split,
    Standardize,
    Vocabularize,
)
from elasticdl.sql.problems import Problem
from elasticdl.sql.statements import Call, Constant, Expression, Listing, Name

MOST_BUCKETS = 10_000  # Quantiles of one number.
COMBINERS = ("mean", "sum", "sqrtn")
_NUMBERS = (Kind.NUMBER, Kind.INTEGER, Kind.BOOLEAN)
_VALUES = (Kind.TEXT, Kind.INTEGER, Kind.BOOLEAN)
_ITEMS = (Kind.TEXT, Kind.INTEGER, Kind.BOOLEAN)
_CATEGORIES = (Bucketize, Vocabularize, Identity, Hash, Cross, Concat)


class _Wrong(Exception):  # noqa: N818 - it never leaves this module
    """A mistake that has been noted."""


@dataclass
class Encoder:
    """Makes encodings; `problems` is what was wrong, `preview` None before reading."""

    preview: Preview | None
    aliases: dict[str, Encoding] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)  # of what was derived inside others
    signs: dict[str, tuple[str, str]] = field(default_factory=dict)  # of weights
    _buckets: dict[Source, int] = field(default_factory=dict)

    def encode(self, entry: Expression) -> tuple[Encoding, str] | None:
        """Return the encoding of one entry and why, if it was derived."""
        try:
            return self._entry(entry)
        except _Wrong:
            return None

    def column(self, name: Name | Constant) -> Column | None:
        """Return the column of a name; None where there is no schema yet."""
        text = name.text if isinstance(name, Name) else str(name.value)
        if self.preview is None:
            return None
        schema = self.preview.schema
        found = schema.named(text)
        if found is None:
            hint = did_you_mean(text, schema.names)
            raise self.wrong(name, f"the query has no column `{text}`; {hint}")
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

    def wrong(self, where: Expression, message: str) -> _Wrong:
        """Note a mistake; what it returns is to be raised."""
        self.problems.append(Problem(where.at, message))
        return _Wrong(message)

    def _entry(self, entry: Expression) -> tuple[Encoding, str]:
        if isinstance(entry, Name | Constant):
            return self._bare(entry)
        if isinstance(entry, Call):
            return self._call(entry), ""
        what = "a list" if isinstance(entry, Listing) else "this"
        raise self.wrong(
            entry,
            f"{what} is no column; expected a name or a function, as EMBEDDING(x, 8)",
        )

    def _bare(self, entry: Name | Constant) -> tuple[Encoding, str]:
        source = self._source(entry)
        if isinstance(entry, Name) and entry.text in self.aliases:
            return self.aliases[entry.text], ""
        column = self.column(entry)
        if column is None or self.preview is None:
            return Raw(source), ""
        found = derive.derive(column, self.preview)
        if found is None:  # pragma: no cover - `column` refused these kinds
            raise self.wrong(entry, f"`{column.name}` has no encoding")
        return found.encoding, found.why

    def _call(self, call: Call) -> Encoding:
        signature = signatures.find(call)
        if isinstance(signature, Problem):
            self.problems.append(signature)
            raise _Wrong
        bound = signatures.bind(call, signature, self.problems.append)
        if bound is None:
            raise _Wrong
        encoding = _BUILDERS[signature.name](self, call, bound)
        if call.alias is not None:
            self.aliases[call.alias.text] = encoding
        return encoding

    # Arguments.

    def _source(self, entry: Expression) -> Source:
        if isinstance(entry, Name):
            return Source(entry.text)
        if isinstance(entry, Constant) and isinstance(entry.value, str):
            return Source(entry.value)
        raise self.wrong(entry, "this is no column; expected the name of one")

    def of_kind(
        self, entry: Expression, function: str, kinds: tuple[Kind, ...], takes: str
    ) -> Source:
        """Return the column of a name; refused where its kind is none of these."""
        source = self._source(entry)
        assert isinstance(entry, Name | Constant)  # noqa: S101 - `_source` saw to it
        column = self.column(entry)
        if column is None:
            return source
        if column.kind is Kind.ARRAY and kinds is _VALUES and column.item in _ITEMS:
            return Source(column.name, several=True)
        if column.kind not in kinds:
            raise self.wrong(
                entry, f"`{column.name}` is {_told(column)}; {function} takes {takes}"
            )
        return Source(column.name)

    def number(self, entry: Expression, function: str) -> Source | Log:
        """Return a number, or the logarithm of one."""
        if isinstance(entry, Call):
            inner = self._call(entry)
            if isinstance(inner, Raw) and isinstance(inner.of, Log):
                return inner.of
            raise self.wrong(
                entry, f"{function} takes a column or LOG(column), not {entry.function}"
            )
        takes = "a number; VOCABULARIZE, HASH and EMBEDDING take text"
        return self.of_kind(entry, function, _NUMBERS, takes)

    def value(self, entry: Expression, function: str) -> Source | Split:
        """Return a text or an integer, or the parts of a text."""
        if isinstance(entry, Call):
            if entry.function.upper() == "SPLIT":
                return self.split(entry)
            raise self.wrong(
                entry,
                f"{function} takes a column or SPLIT(x, ','), not {entry.function}",
            )
        takes = "text, integers and booleans; put BUCKETIZE around a number"
        return self.of_kind(entry, function, _VALUES, takes)

    def split(self, call: Call) -> Split:
        """Return the parts of a text column."""
        signature = signatures.SIGNATURES["SPLIT"]
        bound = signatures.bind(call, signature, self.problems.append)
        if bound is None:
            raise _Wrong
        source = self.of_kind(bound["x"], "SPLIT", (Kind.TEXT,), "text")
        return Split(source, self.separator(bound.get("delimiter"), ",", call))

    def category(self, entry: Expression, function: str) -> Category:
        """Return a category; one is derived for a column alone."""
        if isinstance(entry, Call):
            if entry.function.upper() == "SPLIT":
                return Vocabularize(self.split(entry), derive.LARGEST_VOCABULARY)
            found = self._call(entry)
        elif isinstance(entry, Name) and entry.text in self.aliases:
            found = self.aliases[entry.text]
        else:
            takes = "a category; put BUCKETIZE around a number"
            source = self.of_kind(entry, function, _VALUES, takes)
            if self.preview is None:
                return Vocabularize(source)
            column = self.preview.schema.find(source.column)
            derived = derive.category(column, self.preview) if column else None
            if derived is not None:
                self.notes.append(f"{source.column}: {derived.why}")
            found = derived.encoding if derived else Vocabularize(source)
        if isinstance(found, _CATEGORIES):
            return found
        raise self.wrong(
            entry,
            f"{function} takes a category (VOCABULARIZE, HASH, BUCKETIZE, CROSS), "
            "this is a number",
        )

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


# What each function makes of its arguments. All take the call, for the places of
# mistakes, and its arguments by name.

_Bound = dict[str, Expression]


def _simple(kind: type[Raw | Standardize | Normalize]) -> Callable[..., Encoding]:
    def build(encoder: Encoder, call: Call, bound: _Bound) -> Encoding:
        return kind(encoder.number(bound["x"], call.function.upper()))

    return build


def _log(encoder: Encoder, call: Call, bound: _Bound) -> Encoding:
    inner = encoder.number(bound["x"], "LOG")
    if isinstance(inner, Log):
        raise encoder.wrong(call, "LOG takes a column, not another LOG")
    return Raw(Log(inner))


def _null_indicator(encoder: Encoder, _: Call, bound: _Bound) -> Encoding:
    every = (Kind.NUMBER, Kind.INTEGER, Kind.BOOLEAN, Kind.TEXT)
    return NullIndicator(
        encoder.of_kind(bound["x"], "NULL_INDICATOR", every, "a column")
    )


def _bucketize(encoder: Encoder, call: Call, bound: _Bound) -> Encoding:
    number = encoder.number(bound["x"], "BUCKETIZE")
    given = bound.get("boundaries")
    count = bound.get("num_buckets")
    if given is not None and count is not None:
        raise encoder.wrong(
            count, "boundaries are given; expected them or num_buckets, not both"
        )
    if isinstance(given, Constant):
        given, count = None, given  # BUCKET(x, 10)
    if given is not None:
        return Bucketize(number, boundaries=encoder.boundaries(given))
    buckets = 10 if count is None else encoder.whole(count, "num_buckets", 2)
    # Of a logarithm the same rows fall into a bucket: and none is on its edge by a last
    # digit of the logarithm, which differs with the size of a batch.
    number = number.of if isinstance(number, Log) else number
    encoder.check_buckets(number, buckets, call if count is None else count)
    return Bucketize(number, num_buckets=buckets)


def _vocabularize(encoder: Encoder, _: Call, bound: _Bound) -> Encoding:
    value = encoder.value(bound["x"], "VOCABULARIZE")
    most = bound.get("max_size")
    least = bound.get("min_count")
    return Vocabularize(
        value,
        encoder.whole(most, "max_size") if most is not None else None,
        encoder.whole(least, "min_count") if least is not None else 1,
    )


def _category_id(encoder: Encoder, _: Call, bound: _Bound) -> Encoding:
    kinds = (Kind.INTEGER, Kind.BOOLEAN)
    source = encoder.of_kind(bound["x"], "CATEGORY_ID", kinds, "integers")
    return Identity(source, encoder.whole(bound["buckets"], "buckets"))


def _hash(encoder: Encoder, _: Call, bound: _Bound) -> Encoding:
    value = encoder.value(bound["x"], "HASH")
    return Hash(value, encoder.whole(bound["buckets"], "buckets"))


def _cross(encoder: Encoder, _: Call, bound: _Bound) -> Encoding:
    items = bound["items"]
    if not isinstance(items, Listing) or len(items.items) < 2:
        raise encoder.wrong(items, "CROSS takes a list of two or more, as [a, b]")
    crossed: list[Source | Category] = []
    for item in items.items:
        if isinstance(item, Name) and item.text not in encoder.aliases:
            takes = "text, integers and booleans; put BUCKETIZE around a number"
            source = encoder.of_kind(item, "CROSS", _VALUES, takes)
            if source.several:
                raise encoder.wrong(item, "CROSS takes columns of one value a row")
            crossed.append(source)
        else:
            found = encoder.category(item, "CROSS")
            if several(found):
                raise encoder.wrong(item, "CROSS takes columns of one value a row")
            crossed.append(found)
    return Cross(tuple(crossed), encoder.whole(bound["buckets"], "buckets"))


def _concat(encoder: Encoder, call: Call, _: _Bound) -> Encoding:
    if len(call.arguments) < 2:
        raise encoder.wrong(call, "CONCAT takes two or more, as CONCAT(a, b) AS name")
    parts = []
    for argument in call.arguments:
        found = encoder.category(argument, "CONCAT")
        if several(found):
            raise encoder.wrong(argument, "CONCAT takes columns of one value a row")
        parts.append(found)
    return Concat(tuple(parts), call.alias.text if call.alias else "")


def _indicator(encoder: Encoder, _: Call, bound: _Bound) -> Encoding:
    return Indicator(encoder.category(bound["x"], "INDICATOR"))


def _embedding(encoder: Encoder, _: Call, bound: _Bound) -> Encoding:
    inner = encoder.category(bound["x"], "EMBEDDING")
    combiner = bound.get("combiner")
    word = encoder.text(combiner, "mean", f"one of {', '.join(COMBINERS)}").lower()
    if word not in COMBINERS:
        assert combiner is not None  # noqa: S101 - "mean" is one of them
        raise encoder.wrong(combiner, f"expected one of {', '.join(COMBINERS)}")
    return Embedding(inner, encoder.whole(bound["dim"], "dim"), word)


def _split(encoder: Encoder, call: Call, _: _Bound) -> Encoding:
    return Vocabularize(encoder.split(call), derive.LARGEST_VOCABULARY)


def _dense(encoder: Encoder, _: Call, bound: _Bound) -> Encoding:
    shape = bound.get("shape")
    if isinstance(shape, Listing) and len(shape.items) == 1:
        shape = shape.items[0]
    size = 1 if shape is None else encoder.whole(shape, "shape")
    x = bound["x"]
    found = encoder.column(x) if isinstance(x, Name | Constant) else None
    if found is None or found.kind is not Kind.ARRAY:
        if size != 1 and found is not None:
            raise encoder.wrong(
                x,
                f"`{found.name}` is {_told(found)}, one value a row; expected an array "
                f"of {size} numbers, as CAST(string_split(x, ',') AS DOUBLE[])",
            )
        return Raw(encoder.number(x, "DENSE"))
    assert encoder.preview is not None  # noqa: S101 - it gave the column
    longest = derive.longest(found, encoder.preview)
    if found.item not in _NUMBERS:
        raise encoder.wrong(
            x, f"`{found.name}` is {_told(found)}; DENSE takes numbers, EMBEDDING texts"
        )
    if shape is not None and size != longest and encoder.preview.num_rows:
        raise encoder.wrong(
            shape, f"`{found.name}` has arrays of {longest} values, not {size}"
        )
    return Raw(Source(found.name, several=True))


def _sparse(encoder: Encoder, call: Call, bound: _Bound) -> Encoding:
    """Return what SQLFlow's SPARSE is; with a second separator values have weights."""
    shape = bound["buckets"]
    if isinstance(shape, Listing) and len(shape.items) == 1:
        bound = {**bound, "buckets": shape.items[0]}
    build = _weighted if "pair" in bound else _sequence
    return build(encoder, call, bound)


def _sequence(encoder: Encoder, call: Call, bound: _Bound) -> Encoding:
    buckets = encoder.whole(bound["buckets"], "buckets")
    source = encoder.of_kind(bound["x"], call.function.upper(), _VALUES, "text, arrays")
    if source.several:
        return Hash(source, buckets)
    text = (Kind.TEXT,)
    source = encoder.of_kind(bound["x"], call.function.upper(), text, "text and arrays")
    delimiter = encoder.separator(bound.get("delimiter"), ",", call)
    return Hash(Split(source, delimiter), buckets)


def _weighted(encoder: Encoder, call: Call, bound: _Bound) -> Encoding:
    takes = "text, as 'red:0.5,blue:2'"
    source = encoder.of_kind(bound["x"], "WEIGHTED_CATEGORY", (Kind.TEXT,), takes)
    delimiter = encoder.separator(bound.get("delimiter"), ",", call)
    pair = encoder.separator(bound.get("pair"), ":", call)
    at = bound.get("pair", bound.get("delimiter", bound["x"]))
    signs = (delimiter, pair)
    before = encoder.signs.setdefault(source.column, signs)
    if wrong := derive.confused(source.column, signs, before):
        raise encoder.wrong(at, wrong)
    buckets = encoder.whole(bound["buckets"], "buckets")
    return Hash(Split(source, delimiter, pair), buckets)


def _told(column: Column) -> str:
    """Return a column's kind; of an array what it holds."""
    return f"array of {column.item}" if column.kind is Kind.ARRAY else str(column.kind)


def several(encoding: Encoding) -> bool:
    """Whether an encoding has several values a row."""
    if isinstance(encoding, Concat):
        return True
    of = getattr(encoding, "of", None)
    if isinstance(of, Source):
        return of.several
    return isinstance(of, Split) or (isinstance(of, _CATEGORIES) and several(of))


_BUILDERS: dict[str, Callable[[Encoder, Call, _Bound], Encoding]] = {
    "RAW": _simple(Raw),
    "STANDARDIZE": _simple(Standardize),
    "NORMALIZE": _simple(Normalize),
    "LOG": _log,
    "NULL_INDICATOR": _null_indicator,
    "BUCKETIZE": _bucketize,
    "VOCABULARIZE": _vocabularize,
    "CATEGORY_ID": _category_id,
    "HASH": _hash,
    "CROSS": _cross,
    "CONCAT": _concat,
    "INDICATOR": _indicator,
    "EMBEDDING": _embedding,
    "SPLIT": _split,
    "DENSE": _dense,
    "SEQ_CATEGORY_ID": _sequence,
    "SPARSE": _sparse,
    "WEIGHTED_CATEGORY": _weighted,
}
