"""Encodings as lines of Python: one block a column, with where its numbers come from.

Owns the variables of the function `encode` and which helpers they call. Called by
`sql.generate`. The helpers' texts are in `sql.writing.helpers`.
"""

from __future__ import annotations

import keyword
import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from elasticdl.sql.needs import identifier, measured, vocabulary_of
from elasticdl.sql.plan import (
    NULL_INTEGER,
    NULL_TEXT,
    Bucketize,
    Category,
    ColumnStatistics,
    Concat,
    Cross,
    Dense,
    Embedding,
    Encoding,
    Hash,
    Identity,
    Indicator,
    Log,
    Normalize,
    NullIndicator,
    Numbers,
    Raw,
    Source,
    Split,
    Standardize,
    Statistics,
    Stored,
    TrainPlan,
    Vocabularize,
    is_line,
)
from elasticdl.sql.writing.helpers import HELPERS, LAYERS
from elasticdl.sql.writing.text import call, comment, fits, listing, literal

_INLINE_LINES = 12  # A vocabulary of more lines is a file beside the module.
_INLINE_MEANS = 24  # The same of means.
_ONE_HOT = 12  # Categories of so many values need no trained vectors.
_WIDEST_VECTOR = 32
# What the function `encode` and the module call otherwise.
_TAKEN = {
    *HELPERS,
    *LAYERS,
    *("inputs", "numbers", "embedding_dim", "model", "encode", "summed"),
    *("own", "checked", "refuse_logits"),
    *("NULL_INTEGER", "NULL_TEXT", "FOLDER", "VOCABULARIES", "CLASSES", "OUTPUTS"),
    "THRESHOLDS",
    *("keras", "layers", "np", "ops", "tf", "Path", "len", "float", "int"),
}
CATEGORIES = (Bucketize, Vocabularize, Identity, Hash, Cross, Concat)


@dataclass(frozen=True)
class Ids:
    """A category in the text: its variable and how many numbers it may have."""

    name: str
    size: int
    several: bool = False  # values a row
    padded: bool = False  # with 0 where there is none
    weights: str = ""  # variable of the values' weights


@dataclass
class EncodingWriter:
    """Writes encodings; `lines`, `helpers`, `files` and `constants` are the result."""

    plan: TrainPlan
    statistics: Statistics
    lines: list[str] = field(default_factory=list)
    helpers: set[str] = field(default_factory=set)
    files: dict[str, str] = field(default_factory=dict)
    large_files: bool = False
    _names: set[str] = field(default_factory=set)
    _done: dict[object, str] = field(default_factory=dict)
    _ids: dict[object, Ids] = field(default_factory=dict)

    def dense(self, encoding: Encoding) -> str:
        """Return the variable of an encoding as numbers; a category gets a vector."""
        if encoding in self._done:
            return self._done[encoding]
        if isinstance(encoding, CATEGORIES):
            name = self._vector(encoding)
        else:
            name = self._numbers(encoding)
        self._done[encoding] = name
        return name

    def ids(self, category: Category) -> Ids:
        """Return the variable of a category's numbers."""
        if category not in self._ids:
            self._ids[category] = self._category(category)
        return self._ids[category]

    def embedding(
        self, ids: Ids, dim: int | str, what: str, combiner: str = "mean"
    ) -> str:
        """Write trained vectors of a category; `dim` may be a variable's name."""
        base = f"{ids.name.removesuffix('_id')}_{what}"
        # A layer has that name too, and an input has that of its column.
        inputs = {column.feature for column in self.plan.columns}
        name = self.name(base, inputs)
        self._assign_embedding(name, ids, str(dim), combiner)
        return name

    def note(self, text: str) -> None:
        """Write a comment above the next lines."""
        if self.lines:
            self.lines.append("")
        self.lines.append(comment(text, indent=4))

    def _assign_embedding(self, name: str, ids: Ids, dim: str, combiner: str) -> None:
        size = str(ids.size)
        end = (size, dim, literal(combiner), literal(name))
        if ids.weights:
            self._call(name, "weighted", ids.name, ids.weights, *end)
        elif ids.several:
            self._call(name, "combined", ids.name, *end)
        else:
            self._call(name, "embedded", ids.name, size, dim, literal(name))

    def _call(self, name: str, helper: str, *arguments: str) -> None:
        self.helpers.add(helper)
        self.lines.append(call(f"{name} = {helper}", arguments, indent=4))

    def name(self, wanted: str, others: Collection[str] = ()) -> str:
        """Return a variable's name that nothing else has, none of `others` either."""
        taken = self._names | _TAKEN | {*others}
        name, number = wanted, 2
        while name in taken or keyword.iskeyword(name):
            name, number = f"{wanted}_{number}", number + 1
        self._names.add(name)
        return name

    def _input(self, source: Source) -> str:
        return f"inputs[{literal(self.plan.column(source.column).feature)}]"

    def _feature(self, of: object) -> str:
        while not isinstance(of, Source):
            if isinstance(of, Concat) and of.name:
                return identifier(of.name)
            inner = getattr(of, "of", None)
            if isinstance(inner, tuple):
                return "_".join(self._feature(part) for part in inner)
            of = inner
        return self.plan.column(of.column).feature

    def _number(self, of: Source | Log) -> str:
        """Return the expression of a number column, perhaps its logarithm."""
        source = of.of if isinstance(of, Log) else of
        text = self._input(source)
        if self.plan.column(source.column).stored is Stored.INTEGER:
            self.helpers.add("as_number")
            text = f"as_number({text})"
        if isinstance(of, Log):
            self.helpers.add("logarithm")
            text = f"logarithm({text})"
        return text

    def _numbers(self, encoding: Dense) -> str:
        feature = self._feature(encoding)
        match encoding:
            case Standardize(of):
                return self._standardized(feature, of)
            case Normalize(of):
                return self._normalized(feature, of)
            case Raw(of):
                return self._raw(feature, of)
            case NullIndicator(of):
                name = self.name(f"{feature}_is_null")
                self.note(f"whether {of.column} is NULL")
                self._call(name, "null_indicator", self._input(of))
                return name
            case Indicator(of):
                return self._one_hot(self.ids(of))
            case Embedding(of, dim, combiner):
                return self.embedding(self.ids(of), dim, "vector", combiner)
        raise AssertionError(encoding)

    def _standardized(self, feature: str, of: Source | Log) -> str:
        found = self.statistics.of(measured(of))
        mean = found.mean or 0.0
        # The mean of equal numbers may be off by the last digit, and so their variance.
        constant = found.minimum is not None and found.minimum == found.maximum
        variance = 0.0 if constant else found.variance or 0.0
        note = f"{_of(of)}: mean and variance{_rows(found)}"
        if not variance:
            note += "; it is constant there, so its variance is taken as 1"
        self.note(note)
        name = self.name(feature)
        numbers = f"mean={literal(mean)}", f"variance={literal(variance or 1.0)}"
        self._call(name, "standardized", self._number(of), *numbers)
        return name

    def _normalized(self, feature: str, of: Source | Log) -> str:
        found = self.statistics.of(measured(of))
        low, high = found.minimum or 0.0, found.maximum or 0.0
        note = f"{_of(of)}: minimum, maximum and mean{_rows(found)}"
        if high == low:
            note += "; it is constant there, so the range is taken as 1"
            # So that it is another number with the digits that are written.
            high = low + max(1.0, abs(low) / 2**20)
        self.note(note)
        name = self.name(feature)
        self._call(
            name, "normalized", self._number(of), f"minimum={literal(float(low))}",
            f"maximum={literal(float(high))}", f"mean={literal(found.mean or 0.0)}",
        )  # fmt: skip
        return name

    def _raw(self, feature: str, of: Source | Log | Numbers) -> str:
        if isinstance(of, Numbers):
            return self._of_text(feature, of)
        name = self.name(feature)
        if isinstance(of, Source) and of.several:
            self.note(f"the numbers of {of.column} as they are; 0 where there is none")
            self._call(name, "filled", self._number(of), "0.0")
            return name
        found = self.statistics.of(measured(of))
        self.note(f"{_of(of)} as it is; the mean{_rows(found)} for NULL")
        mean = literal(found.mean or 0.0)
        self._call(name, "filled", self._number(of), mean)
        return name

    def _of_text(self, feature: str, of: Numbers) -> str:
        """Write the numbers of a text; NULL, and any other text, has their means."""
        found = self.statistics.of(measured(of))
        name, numbers = self.name(feature), self.name(f"{feature}_numbers")
        self.helpers.add("Numbers")
        many = f"{of.count:,} numbers of {of.of.column}"
        self.note(f"{many}: their means{_rows(found)} for NULL")
        listed = [literal(float(mean)) for mean in found.means]
        means, sign = f"[{', '.join(listed)}]", literal(of.delimiter)
        if len(listed) > _INLINE_MEANS:
            means = self._in_file(f"{name}_means.txt", listed, "read_numbers")
        elif not fits(f"        {sign}, {means}"):
            means = self.name(f"{feature}_means")
            self.lines.append(listing(f"{means} = ", listed, indent=4))
        self.lines.append(call(f"{numbers} = Numbers", [sign, means], indent=4))
        given = [self._input(of.of)]
        self.lines.append(call(f"{name} = {numbers}", given, indent=4))
        return name

    def _vector(self, category: Category) -> str:
        """Write a category as numbers, in the way that its size suggests."""
        ids = self.ids(category)
        if ids.size <= _ONE_HOT:
            return self._one_hot(ids)
        dim = min(_WIDEST_VECTOR, math.isqrt(ids.size) + 1)
        return self.embedding(ids, dim, "vector")

    def _one_hot(self, ids: Ids) -> str:
        name = self.name(f"{ids.name.removesuffix('_id')}_one_hot")
        if ids.weights:
            size = str(ids.size)
            self._call(name, "weighted_one_hot", ids.name, ids.weights, size)
        else:
            self._call(name, "one_hot", ids.name, str(ids.size))
        return name

    def _category(self, category: Category) -> Ids:
        match category:
            case Bucketize():
                return self._bucketized(category)
            case Vocabularize():
                return self._vocabularized(category)
            case Identity(of, buckets):
                name = self.name(f"{self._feature(of)}_id")
                self.note(f"{of.column}: a number below {buckets:,}; others are last")
                self._call(name, "identified", self._input(of), str(buckets))
                return Ids(name, buckets + 1)
            case Hash(of, buckets, whole):
                return self._hashed(of, buckets, whole=whole)
            case Cross(of, buckets):
                return self._crossed(of, buckets)
            case Concat(of):
                return self._concatenated(category, of)

    def _bucketized(self, category: Bucketize) -> Ids:
        boundaries = category.boundaries
        name = self.name(f"{self._feature(category.of)}_bucket")
        what = _of(category.of)
        if boundaries:
            self.note(f"{what}: boundaries of the statement")
        else:
            found = self.statistics.of(measured(category.of))
            boundaries = _chosen(found.boundaries, category.num_buckets)
            self.note(f"{what}: quantiles{_rows(found)}, each value once")
        listed = [literal(float(one)) for one in boundaries]
        written = f"[{', '.join(listed)}]"
        number = self._number(category.of)
        if not fits(f"    {name} = bucketized({number}, {written})"):
            self.lines.append(listing(f"{name}_bounds = ", listed, indent=4))
            written = f"{name}_bounds"
        self._call(name, "bucketized", number, written)
        return Ids(name, len(boundaries) + 2)

    def _vocabularized(self, category: Vocabularize) -> Ids:
        found = self.statistics.of(vocabulary_of(category))
        name = self.name(f"{self._feature(category.of)}_id")
        array = isinstance(category.of, Source) and category.of.several
        several = isinstance(category.of, Split) or array
        self.note(_about_vocabulary(category.of, found))
        vocabulary, size = self._vocabulary(name, category, found)
        helper = "parts_looked_up" if several else "looked_up"
        helper = "items_looked_up" if array else helper
        self._call(name, helper, self._value(category.of, found), vocabulary)
        extra = 2 if several else 1
        return Ids(name, size + extra, several=several, padded=several)

    def _vocabulary(
        self, name: str, category: Vocabularize, found: ColumnStatistics
    ) -> tuple[str, int]:
        """Return the expression of a vocabulary, and its size with NULL."""
        source = category.of.of if isinstance(category.of, Split) else category.of
        integer = self.plan.column(source.column).stored is Stored.INTEGER
        reader = "read_integers" if integer else "read_vocabulary"
        size = found.vocabulary_size or len(found.vocabulary)
        # In an array NULL is what fills it up.
        array = isinstance(category.of, Source) and category.of.several
        null = bool(found.null_count) and not array
        size += null
        if found.vocabulary_file:
            self.helpers.add(reader)
            self.large_files = True
            return f'{reader}(f"{{VOCABULARIES}}/{found.vocabulary_file}")', size
        values = [entry.value for entry in found.vocabulary]
        if null or not values:
            values.append(_nothing(integer=integer, array=array))
            size = len(values)
        listed = [literal(value) for value in values]
        long = (
            not fits(f"        [{', '.join(listed)}]") and len(listed) > _INLINE_LINES
        )
        # Keras makes an array of a list, which loses NUL at the end of a text.
        if long or any(str(value).endswith("\0") for value in values):
            return self._in_file(f"{name}.txt", values, reader), size
        written = f"[{', '.join(listed)}]"
        helper = f"    {name} = looked_up({self._input(source)}, {written})"
        if not fits(helper):
            self.lines.append(listing(f"{name}_values = ", listed, indent=4))
            return f"{name}_values", size
        return written, size

    def _in_file(self, name: str, values: Sequence[str | int], reader: str) -> str:
        """Put a vocabulary into a file beside the module, a line each."""
        lines = [NULL_TEXT if value == NULL_INTEGER else str(value) for value in values]
        # A value with a line end in it cannot be a line; it counts as unseen.
        plain = [line if is_line(line) else f"{line!r}" for line in lines]
        self.files[name] = "\n".join(plain) + "\n"
        self.helpers.add(reader)
        return f'{reader}(FOLDER / "{name}")'

    def _value(self, of: Source | Split, found: ColumnStatistics) -> str:
        if isinstance(of, Source):
            return self._input(of)
        self.helpers.add("Split")
        longest = max(1, found.longest)
        return f"Split({literal(of.delimiter)}, {longest})({self._input(of.of)})"

    def _hashed(self, of: Source | Split, buckets: int, *, whole: bool) -> Ids:
        name = self.name(f"{self._feature(of)}_id")
        found = self.statistics.of(measured(of))
        array = isinstance(of, Source) and of.several
        several = isinstance(of, Split) or array
        if isinstance(of, Split) and of.pair:
            longest = max(1, found.longest)
            return self._weighted(of, longest, name, buckets, whole=whole)
        what = "parts of " + of.of.column if isinstance(of, Split) else of.column
        if whole:
            self.note(f"{what}: numbers below {buckets:,}; others are last")
            self.helpers.add("Numbered")
            parts = self._value(of, found)
            self.lines.append(f"    {name} = Numbered({buckets})({parts})")
            return Ids(name, buckets + 2, several=True, padded=True)
        self.note(f"{what}: hashed, NULL has an entry of its own")
        # `hashed` has 0 for NULL, which also fills arrays up.
        helper = "parts_hashed" if isinstance(of, Split) else "hashed"
        self._call(name, helper, self._value(of, found), str(buckets))
        return Ids(name, buckets + 1, several=several, padded=several)

    def _weighted(
        self, of: Split, longest: int, name: str, buckets: int, *, whole: bool
    ) -> Ids:
        feature = self._feature(of)
        pairs, parts = self.name(f"{feature}_pairs"), self.name(f"{feature}_parts")
        weights = self.name(f"{feature}_weights")
        self.helpers.add("Weighted")
        how = f"numbers below {buckets:,}, others last" if whole else "hashed"
        self.note(f"parts of {of.of.column}: {how}, each with its weight")
        signs = literal(of.delimiter), literal(of.pair), str(longest)
        self.lines.append(call(f"{pairs} = Weighted", signs, indent=4))
        given = [self._input(of.of)]
        self.lines.append(call(f"{parts}, {weights} = {pairs}", given, indent=4))
        size = buckets + 1
        if whole:
            self.helpers.add("Numbered")
            self.lines.append(f"    {name} = Numbered({buckets})({parts})")
            size += 1
        else:
            self._call(name, "parts_hashed", parts, str(buckets))
        return Ids(name, size, several=True, padded=True, weights=weights)

    def _crossed(self, of: tuple[Source | Category, ...], buckets: int) -> Ids:
        parts = [
            self._input(one) if isinstance(one, Source) else self.ids(one).name
            for one in of
        ]
        feature = "_".join(self._feature(one) for one in of)
        name = self.name(f"{feature}_cross")
        self.note(f"combinations of {', '.join(self._feature(o) for o in of)}")
        self._call(name, "crossed", f"[{', '.join(parts)}]", str(buckets))
        return Ids(name, buckets)

    def _concatenated(self, category: Concat, of: tuple[Category, ...]) -> Ids:
        every = [self.ids(one) for one in of]
        names = ", ".join(ids.name for ids in every)
        self.note(f"{names} in one space of numbers; 0 is left free")
        shifted: list[str] = []
        begin = 1
        for ids in every:
            shifted.append(f"{ids.name} + {begin}")
            begin += ids.size
        feature = self._feature(category)
        name = self.name(feature if category.name else f"{feature}_id")
        parts = listing("", shifted, indent=0)
        if "\n" in parts or not fits(f"    {name} = ops.concatenate({parts}, axis=-1)"):
            self.lines.append(listing(f"{name}_parts = ", shifted, indent=4))
            parts = f"{name}_parts"
        self.lines.append(
            call(f"{name} = ops.concatenate", [parts, "axis=-1"], indent=4)
        )
        return Ids(name, begin, several=True)


def _nothing(*, integer: bool, array: bool) -> str | int:
    """Return NULL as it lies in the shards; in an array that is no value of its own."""
    if array:
        return 0 if integer else ""
    return NULL_INTEGER if integer else NULL_TEXT


def _chosen(boundaries: tuple[float, ...], num_buckets: int) -> tuple[float, ...]:
    """Return the boundaries of so many buckets, of which a multiple was computed."""
    if not boundaries:
        return (0.0,)
    step = (len(boundaries) + 1) // num_buckets
    return tuple(dict.fromkeys(boundaries[step - 1 :: step]))


def _of(of: Source | Log) -> str:
    return f"ln(1 + {of.of.column})" if isinstance(of, Log) else of.column


def _rows(found: ColumnStatistics) -> str:
    rows = f" of {found.num_rows - found.null_count:,} training rows"
    return f"{rows} ({found.null_count:,} are NULL)" if found.null_count else rows


def _about_vocabulary(of: Source | Split, found: ColumnStatistics) -> str:
    size = found.vocabulary_size or len(found.vocabulary)
    name = f"parts of {of.of.column}" if isinstance(of, Split) else of.column
    text = f"{name}: {size:,} values of {found.num_rows:,} training rows"
    if found.null_count:
        text += f", {found.null_count:,} of them NULL, which is an entry of its own"
    return text
