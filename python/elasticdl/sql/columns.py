"""COLUMN: entries into encodings, checked against the query's schema.

Owns what each function means and which kinds of columns it takes; every mistake is
noted with its place. Called by `sql.planning`, once without a schema, so that mistakes
in functions are known before anything is read, and once with it. Which arguments there
are is in `sql.signatures`, how one is read in `sql.arguments`, what is not written in
`sql.derive`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TypeGuard

from elasticdl.sql import derive, signatures
from elasticdl.sql.arguments import NUMBERS, VALUES, Arguments, WrongError, told
from elasticdl.sql.plan import (
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
    Numbers,
    Raw,
    Source,
    Split,
    Standardize,
    Vocabularize,
)
from elasticdl.sql.problems import Problem
from elasticdl.sql.statements import Call, Constant, Expression, Listing, Name

COMBINERS = ("mean", "sum", "sqrtn")
MOST_NUMBERS = 10_000  # Of one text: their means are a part of the model.
_CATEGORIES = (Bucketize, Vocabularize, Identity, Hash, Cross, Concat)
# What SQLFlow nests: a column as its texts are written, inside of what it is.
_WRITTEN = ("DENSE", "SPARSE")
_WEIGHTED = ("HASH", "CATEGORY_ID", "SEQ_CATEGORY_ID", *_WRITTEN)


@dataclass
class Encoder(Arguments):
    """Makes encodings of entries."""

    aliases: dict[str, Encoding] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)  # of what was derived inside others

    def encode(self, entry: Expression) -> tuple[Encoding, str] | None:
        """Return the encoding of one entry and why, if it was derived."""
        try:
            return self._entry(entry)
        except WrongError:
            if isinstance(entry, Call) and entry.alias is not None:
                self.nameless.add(entry.alias.text)
            return None

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
        source = self.source(entry)
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
            raise WrongError
        bound = signatures.bind(call, signature, self.problems.append)
        if bound is None:
            raise WrongError
        encoding = _BUILDERS[signature.name](self, call, bound)
        if call.alias is not None:
            self.aliases[call.alias.text] = encoding
        return encoding

    def number(self, entry: Expression, function: str) -> Source | Log:
        """Return a number, or the logarithm of one."""
        if isinstance(entry, Call):
            inner = self._call(entry)
            if isinstance(inner, Raw) and _is_one_number(inner.of):
                return inner.of
            raise self.wrong(
                entry, f"{function} takes a column or LOG(column), not {entry.function}"
            )
        takes = "a number; VOCABULARIZE, HASH and EMBEDDING take text"
        return self.of_kind(entry, function, NUMBERS, takes)

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
        return self.of_kind(entry, function, VALUES, takes)

    def split(self, call: Call) -> Split:
        """Return the parts of a text column."""
        signature = signatures.SIGNATURES["SPLIT"]
        bound = signatures.bind(call, signature, self.problems.append)
        if bound is None:
            raise WrongError
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
            source = self.of_kind(entry, function, VALUES, takes)
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


def _category_id(encoder: Encoder, call: Call, bound: _Bound) -> Encoding:
    bound, parts = _written(encoder, bound)
    if parts:
        return _sparse(encoder, call, bound)
    kinds = (Kind.INTEGER, Kind.BOOLEAN)
    source = encoder.of_kind(bound["x"], "CATEGORY_ID", kinds, "integers")
    return Identity(source, encoder.whole(bound["buckets"], "buckets"))


def _hash(encoder: Encoder, call: Call, bound: _Bound) -> Encoding:
    bound, parts = _written(encoder, bound)
    if parts:
        return _sparse(encoder, call, bound)
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
            source = encoder.of_kind(item, "CROSS", VALUES, takes)
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


def _dense(encoder: Encoder, call: Call, bound: _Bound) -> Encoding:
    x = bound["x"]
    size = _size(encoder, bound.get("shape"))
    delimiter = encoder.separator(bound.get("delimiter"), ",", call)
    found = encoder.column(x) if isinstance(x, Name | Constant) else None
    if found is None:
        return Raw(encoder.number(x, "DENSE"))
    if found.kind is Kind.TEXT:
        return Raw(
            _numbers(encoder, call, bound, Numbers(Source(found.name), delimiter, size))
        )
    if found.kind is Kind.ARRAY:
        return Raw(_array(encoder, found, bound, size))
    if size > 1:
        raise encoder.wrong(
            x,
            f"`{found.name}` is {told(found)}, one value a row; expected a text or an "
            f"array of {size} numbers",
        )
    return Raw(encoder.number(x, "DENSE"))


def _size(encoder: Encoder, shape: Expression | None) -> int:
    """Return how many numbers a shape has, as 5, [5] or [28, 28]; 0 if none is said."""
    if shape is None or (isinstance(shape, Name) and shape.text.lower() == "none"):
        return 0
    if not isinstance(shape, Listing):
        return encoder.whole(shape, "shape")
    if not shape.items:
        raise encoder.wrong(shape, "expected `shape`, as 5 or [28, 28]")
    return math.prod(encoder.whole(item, "shape") for item in shape.items)


def _numbers(encoder: Encoder, call: Call, bound: _Bound, of: Numbers) -> Numbers:
    """Return the numbers of a text, refused where their number is not said."""
    column, at = of.of.column, bound.get("shape", call)
    if not of.count:
        raise encoder.wrong(
            at,
            f"`{column}` is text; expected how many numbers each has, as DENSE(x, 5)",
        )
    if of.count > MOST_NUMBERS:
        raise encoder.wrong(at, f"expected {MOST_NUMBERS:,} numbers at most")
    said = (of.delimiter, of.count)
    before = encoder.sizes.setdefault(column, said)
    if said != before:
        raise encoder.wrong(
            at,
            f"another DENSE of `{column}` has {before[1]} numbers with `{before[0]}` "
            "between them; expected the same",
        )
    _refuse_both(encoder, column, at)
    return of


def _refuse_both(encoder: Encoder, column: str, at: Expression) -> None:
    if column in encoder.sizes and column in encoder.signs:
        raise encoder.wrong(
            at,
            f"`{column}` is in DENSE and in WEIGHTED_CATEGORY; no text holds numbers "
            "alone and values with weights",
        )


def _array(encoder: Encoder, found: Column, bound: _Bound, size: int) -> Source:
    """Return an array of numbers."""
    assert encoder.preview is not None  # noqa: S101 - it gave the column
    longest = derive.longest(found, encoder.preview)
    if found.item not in NUMBERS:
        raise encoder.wrong(
            bound["x"],
            f"`{found.name}` is {told(found)}; DENSE takes numbers, EMBEDDING texts",
        )
    if size and size != longest and encoder.preview.num_rows:
        raise encoder.wrong(
            bound["shape"],
            f"`{found.name}` has arrays of {longest} values, not {size}",
        )
    return Source(found.name, several=True)


def _inside(encoder: Encoder, bound: _Bound, taken: tuple[str, ...]) -> _Bound:
    """Return arguments with those of functions that SQLFlow nests in others."""
    while isinstance(x := bound["x"], Call):
        signature = signatures.find(x)
        if isinstance(signature, Problem) or signature.name not in taken:
            break  # It is no column, which is told where one is looked for.
        inner = signatures.bind(x, signature, encoder.problems.append)
        if inner is None:
            raise WrongError
        if "shape" in inner:
            inner["buckets"] = inner.pop("shape")
        bound = {**inner, **{k: v for k, v in bound.items() if k != "x"}}
    return bound


def _written(encoder: Encoder, bound: _Bound) -> tuple[_Bound, bool]:
    """Return arguments with those of a SPARSE or DENSE inside, and if it has parts."""
    x = bound["x"]
    inner = _inside(encoder, {"x": x}, _WRITTEN)
    sparse = isinstance(x, Call) and x.function.upper() == "SPARSE"
    size = _size(encoder, inner.get("buckets"))
    parts = sparse or size > 1 or (not size and "delimiter" in inner)
    return {**inner, **{k: v for k, v in bound.items() if k != "x"}}, parts


def _sparse(encoder: Encoder, call: Call, bound: _Bound) -> Encoding:
    """Return what SQLFlow's SPARSE is; with a second separator values have weights."""
    bound, _ = _written(encoder, bound)
    build = _weighted if "pair" in bound else _sequence
    return build(encoder, call, bound)


def _buckets(encoder: Encoder, call: Call, bound: _Bound) -> int:
    given = bound.get("buckets")
    if given is None:
        usage = signatures.SIGNATURES["WEIGHTED_CATEGORY"].usage
        raise encoder.wrong(
            call, f"{call.function.upper()} needs `buckets`; expected {usage}"
        )
    if isinstance(given, Listing) and len(given.items) == 1:
        given = given.items[0]  # a shape
    return encoder.whole(given, "buckets")


def _sequence(encoder: Encoder, call: Call, bound: _Bound) -> Encoding:
    buckets = _buckets(encoder, call, bound)
    takes = "text and arrays"
    source = encoder.of_kind(bound["x"], call.function.upper(), VALUES, takes)
    if source.several:
        return Hash(source, buckets)
    text = (Kind.TEXT,)
    source = encoder.of_kind(bound["x"], call.function.upper(), text, takes)
    delimiter = encoder.separator(bound.get("delimiter"), ",", call)
    parts = Split(source, delimiter)
    return Hash(parts, buckets, _are_numbers(encoder, call, parts))


def _weighted(encoder: Encoder, call: Call, bound: _Bound) -> Encoding:
    bound = _inside(encoder, bound, _WEIGHTED)
    takes = "text, as 'red:0.5,blue:2'"
    source = encoder.of_kind(bound["x"], "WEIGHTED_CATEGORY", (Kind.TEXT,), takes)
    delimiter = encoder.separator(bound.get("delimiter"), ",", call)
    pair = encoder.separator(bound.get("pair"), ":", call)
    at = bound.get("pair", bound.get("delimiter", bound["x"]))
    signs = (delimiter, pair)
    before = encoder.signs.setdefault(source.column, signs)
    if wrong := derive.confused(source.column, signs, before):
        raise encoder.wrong(at, wrong)
    _refuse_both(encoder, source.column, at)
    parts = Split(source, delimiter, pair)
    buckets = _buckets(encoder, call, bound)
    return Hash(parts, buckets, _are_numbers(encoder, call, parts))


def _are_numbers(encoder: Encoder, call: Call, parts: Split) -> bool:
    """Whether parts are numbers of a category already, as SQLFlow has them."""
    names = set(_nested(call))
    if "HASH" in names or not names & {"CATEGORY_ID", "SEQ_CATEGORY_ID", "SPARSE"}:
        return False
    return encoder.preview is not None and derive.whole_parts(encoder.preview, parts)


def _nested(call: Expression | None) -> Iterator[str]:
    """Yield the names of a function and of those inside it, one in another."""
    while isinstance(call, Call):
        name = call.function.upper()
        yield signatures.SYNONYMS.get(name, name)
        named = {one.name.lower(): one.value for one in call.keywords}
        call = call.arguments[0] if call.arguments else named.get("x")


def _is_one_number(of: Source | Log | Numbers) -> TypeGuard[Source | Log]:
    return isinstance(of, Log) or (isinstance(of, Source) and not of.several)


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
    "SEQ_CATEGORY_ID": _sparse,
    "SPARSE": _sparse,
    "WEIGHTED_CATEGORY": _weighted,
}
