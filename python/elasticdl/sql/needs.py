"""What a plan's encodings ask of the data: columns, how they lie, statistics.

Owns the walk through encodings. Called by `sql.planning` and `sql.generate`. Pure.
"""

from __future__ import annotations

import keyword
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from elasticdl.sql.derive import longest
from elasticdl.sql.plan import (
    LABEL_FEATURE,
    Bucketize,
    ColumnPlan,
    Cross,
    Encoding,
    FeaturePlan,
    Hash,
    Head,
    Identity,
    Kind,
    LabelPlan,
    Log,
    Measured,
    Normalize,
    Numbers,
    Preview,
    Raw,
    Source,
    Split,
    Standardize,
    StatisticsNeeded,
    Stored,
    Vocabularize,
)

# Layers and operations of a module have such names, with a number behind them: an
# Input of that name would be a second one.
_OF_KERAS = (
    "absolute|activation|add|cast|category_encoding|clip|concatenate|dense|discretization"
    "|divide|dropout|embedding|equal|expand_dims|flatten|full_like|get_item|greater"
    "|greater_equal|hashed_crossing|hashing|input_layer|integer_lookup|isnan|less"
    "|less_equal|log1p|logical_and|maximum|minimum|multiply|not_equal|numbers|one_hot"
    "|repeat|rescaling|reshape|sign|split|sqrt|square|string_lookup|subtract|sum"
    "|true_divide|weighted|where"
)
# What asks for statistics of its inside.
_MEASURED = (Raw, Standardize, Normalize, Bucketize, Vocabularize, Hash)


def inner(encoding: object) -> Iterator[object]:
    """Yield what an encoding is made of, itself left out."""
    of = getattr(encoding, "of", ())
    for part in of if isinstance(of, tuple) else (of,):
        yield part
        yield from inner(part)


def sources(encoding: Encoding) -> list[str]:
    """Return the columns that an encoding is made of, each once."""
    every = [one.column for one in inner(encoding) if isinstance(one, Source)]
    return list(dict.fromkeys(every))


def needs_of(
    features: Iterable[FeaturePlan], label: LabelPlan
) -> Iterator[StatisticsNeeded]:
    """Yield the statistics that encodings need, one for each measured thing."""
    needed: dict[Measured, StatisticsNeeded] = {}
    for feature in features:
        for one in (feature.encoding, *inner(feature.encoding)):
            for need in _of_encoding(one):
                before = needed.get(need.of)
                needed[need.of] = _both(before, need) if before else need
    whole = Measured(label.column)
    if label.head is Head.NUMBER:
        needed[whole] = StatisticsNeeded(whole, moments=True)
    else:
        needed[whole] = StatisticsNeeded(whole, vocabulary=True)
    yield from needed.values()


def _of_encoding(one: object) -> Iterator[StatisticsNeeded]:
    if not isinstance(one, _MEASURED):
        return
    of = measured(one.of)
    if isinstance(one.of, Numbers):
        yield StatisticsNeeded(of, means=True)
        return
    if isinstance(one, Raw) and isinstance(one.of, Source) and one.of.several:
        return  # numbers as they are
    if isinstance(one, Bucketize):
        yield StatisticsNeeded(of, num_buckets=0 if one.boundaries else one.num_buckets)
    elif isinstance(one, Vocabularize):
        yield StatisticsNeeded(
            vocabulary_of(one),
            vocabulary=True,
            max_size=one.max_size,
            min_count=one.min_count,
            longest=bool(of.split),
        )
    elif isinstance(one, Hash):
        yield StatisticsNeeded(of, longest=bool(of.split))
    else:
        yield StatisticsNeeded(of, moments=True)


def measured(of: Source | Log | Split | Numbers) -> Measured:
    """Return what a statistic of an encoding's inside is about."""
    if isinstance(of, Log):
        return Measured(of.of.column, log=True)
    if isinstance(of, Split):
        return Measured(of.of.column, split=of.delimiter)
    if isinstance(of, Numbers):
        return Measured(of.of.column, split=of.delimiter, numbers=of.count)
    return Measured(of.column)


def vocabulary_of(category: Vocabularize) -> Measured:
    """Return what the vocabulary of a category is about: its limits belong to it."""
    of = measured(category.of)
    return replace(of, max_size=category.max_size, min_count=category.min_count)


def _both(one: StatisticsNeeded, other: StatisticsNeeded) -> StatisticsNeeded:
    buckets = [need.num_buckets for need in (one, other) if need.num_buckets]
    return StatisticsNeeded(
        one.of,
        one.moments or other.moments,
        math.lcm(*buckets) if buckets else 0,
        one.vocabulary or other.vocabulary,
        one.of.max_size,
        one.of.min_count,
        one.longest or other.longest,
        one.means or other.means,
    )


def column_plans(
    features: Sequence[FeaturePlan], preview: Preview
) -> Iterator[ColumnPlan]:
    """Yield how each column lies in the shards: by its kind and its uses."""
    as_category = {
        name for feature in features for name in _used_as_category(feature.encoding)
    }
    written = {
        one.of.column: one
        for feature in features
        for one in inner(feature.encoding)
        if isinstance(one, Numbers) or (isinstance(one, Split) and one.pair)
    }
    names = list(
        dict.fromkeys(n for feature in features for n in sources(feature.encoding))
    )
    called = feature_names(names)
    for name in names:
        column = preview.schema.find(name)
        assert column is not None  # noqa: S101 - the encoder found it
        stored = Stored.FLOAT
        array = column.kind is Kind.ARRAY
        kind = column.item if array else column.kind
        if kind is Kind.TEXT:
            stored = Stored.TEXT
        elif kind in (Kind.INTEGER, Kind.BOOLEAN) and name in as_category:
            stored = Stored.INTEGER
        most = longest(column, preview) if array else 0
        signs = written.get(name)
        yield ColumnPlan(
            name,
            called[name],
            stored,
            most,
            signs.delimiter if signs else "",
            signs.pair if isinstance(signs, Split) else "",
            signs.count if isinstance(signs, Numbers) else 0,
        )


def _used_as_category(encoding: Encoding) -> Iterator[str]:
    for one in (encoding, *inner(encoding)):
        of = getattr(one, "of", None)
        if isinstance(one, Cross):
            yield from (part.column for part in one.of if isinstance(part, Source))
        elif isinstance(one, Vocabularize | Hash | Identity) and isinstance(of, Source):
            yield of.column


def identifier(name: str) -> str:
    """Return a name as an identifier of Python in ASCII."""
    plain = re.sub(r"\W", "_", name, flags=re.ASCII)
    if re.match(r"[A-Za-z]", plain):
        return plain
    return f"c{plain}" if plain.startswith("_") else f"c_{plain}"


def feature_names(columns: Sequence[str]) -> dict[str, str]:
    """Return the columns' names in the model.

    A column that can be called as it is has its name whatever stands before it: beside
    `x y`, `x_y` was another one's in a module that has an Input of that name.
    """
    as_they_are = [name for name in columns if feature_name(name, set()) == name]
    taken = {LABEL_FEATURE}
    ordered = dict.fromkeys([*as_they_are, *columns])
    return {name: feature_name(name, taken) for name in ordered}


def feature_name(column: str, taken: set[str]) -> str:
    """Return the column's name as an identifier that no other feature has."""
    plain = identifier(column)
    if re.fullmatch(rf"({_OF_KERAS})(_\d+)?", plain, re.IGNORECASE):
        plain = f"c_{plain}"
    elif keyword.iskeyword(plain) or plain == "self":
        plain = f"{plain}_"  # no argument of the exported model's signature
    name, number = plain, 2
    while name.lower() in taken:
        name, number = f"{plain}_{number}", number + 1
    taken.add(name.lower())
    return name
