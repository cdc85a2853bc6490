"""The feed of a model module that has none: features by the model's input names.

Owns the rule that docs/models.md states. Called by `feeding`. Works on whole batches.

tf.train.Example records: each model input takes the feature of its name; a model with
one input whose name is no feature takes the only feature that is not a label. The
label is the feature `label` (or `labels`); with several outputs, features named as
the outputs. A label has the shape of its array's rows, where the file has one; else
one value is a scalar and more have the output's shape, or are a vector. CSV records:
the same with columns; the one input of a model that no column is named after takes all
columns but the label, as one vector.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import keras
import tensorflow as tf

from elasticdl.data.formats.row_table import RowTable
from elasticdl.data.reader import Metadata
from elasticdl.errors import DataError, UserCodeError
from elasticdl.model.feed.call import PREDICTION, functional_inputs
from elasticdl.model.feed.columns import ColumnTensors, unrounded
from elasticdl.model.user_code import did_you_mean

LABEL_NAMES = ("label", "labels")
# In a CSV's `Metadata.extra`: columns in the order in which they make a vector, where
# that is not the file's.
VECTOR_ORDER = "vector_order"
# Of so many of the first records at most it is looked how long their features are: any
# one of them may be a bad one.
_LOOKED_AT = 64

Parser = Callable[[tf.Tensor], Any]


@dataclass(frozen=True)
class _Wanted:
    """One feature: how the records store it, and what the model takes."""

    name: str
    stored: tf.DType  # int64, float32 or string
    count: int  # values per record
    shape: tuple[int, ...]  # per record
    dtype: tf.DType


def csv_columns(metadata: Metadata) -> Sequence[str]:
    """Return the columns of records that are lines of a CSV; none for others."""
    return () if metadata.examples else metadata.column_names


def default_parser(
    model: keras.Model, metadata: Metadata, sample: Sequence[bytes], mode: str
) -> Parser:
    """Return [n] records -> (features, labels), or features alone in prediction.

    `sample`: some records; what is of another length than it is with most is bad.

    Raises UserCodeError when the model's inputs cannot be found in the records.
    """
    inputs = functional_inputs(model)
    if inputs is None:
        raise UserCodeError(
            f"{type(model).__name__} has no Inputs that name its features; add "
            "`feed(dataset, mode, metadata)` to the model module, or keras.Input to "
            "the model"
        )
    flat = keras.tree.flatten(inputs)
    if csv_columns(metadata):
        return _csv_parser(flat, metadata, mode)
    return _example_parser(model, flat, sample, metadata, mode)


_Stored = tuple[tf.DType, int]  # type and number of values


def _usual_features(sample: Sequence[bytes]) -> dict[str, list[_Stored]]:
    """Return how records store each feature that most have, the usual way first."""
    counted: dict[str, Counter[_Stored]] = {}
    error: DataError | None = None
    good = 0
    for record in sample[:_LOOKED_AT]:
        try:
            features = _features_of(record)
        except DataError as wrong:
            error = error or wrong
            continue
        good += 1
        for name, stored in features.items():
            counted.setdefault(name, Counter())[stored] += 1
    if error and not counted:
        raise error
    return {
        # An empty list says nothing of the length that the others have.
        name: sorted((stored for stored, _ in found.most_common()), key=_is_empty)
        for name, found in counted.items()
        # What one record alone has would decide what an input or the label is.
        if 2 * found.total() >= good
    }


def _is_empty(stored: _Stored) -> bool:
    return stored[1] == 0


def _features_of(sample: bytes) -> dict[str, _Stored]:
    example = tf.train.Example()
    try:
        example.ParseFromString(sample)
    except Exception as error:  # protobuf's DecodeError, of whichever implementation
        raise DataError(
            "a record is not a tf.train.Example; add `feed(dataset, mode, metadata)` "
            "to the model module, which parses it"
        ) from error
    found: dict[str, _Stored] = {}
    for name, feature in example.features.feature.items():
        if feature.HasField("int64_list"):
            found[name] = tf.int64, len(feature.int64_list.value)
        elif feature.HasField("float_list"):
            found[name] = tf.float32, len(feature.float_list.value)
        elif feature.HasField("bytes_list"):
            found[name] = tf.string, len(feature.bytes_list.value)
    if not found:
        raise DataError(
            "a record has no features; expected a tf.train.Example with the model's "
            "inputs, or a `feed` in the model module"
        )
    return found


@dataclass(frozen=True)
class _Parts:
    """What a model takes of an Example, and the labels; none in prediction."""

    features: dict[str, _Wanted]
    labels: dict[str, _Wanted]

    def element(self, made: Callable[[_Wanted], tf.Tensor], mode: str) -> Any:
        """Return features and labels in the form of a feed's element."""
        features = {key: made(wanted) for key, wanted in self.features.items()}
        if mode == PREDICTION:
            return features
        found = {key: made(wanted) for key, wanted in self.labels.items()}
        return features, found if len(found) > 1 else next(iter(found.values()))


def column_parser(
    model: keras.Model, metadata: Metadata, sample: RowTable, mode: str
) -> Callable[[RowTable], Any] | None:
    """Return rows -> what `default_parser` gives for their Examples.

    None where the model takes something of them that only an Example shows.
    """
    inputs = functional_inputs(model)
    if inputs is None or not metadata.examples:
        return None
    parts = _parts(model, keras.tree.flatten(inputs), sample, metadata, mode)
    tensors = ColumnTensors()
    for wanted in [*parts.features.values(), *parts.labels.values()]:
        text_as_numbers = wanted.stored == tf.string and wanted.dtype != tf.string
        if text_as_numbers or not tensors.fits(
            sample.columns[wanted.name], wanted.stored
        ):
            return None

    def parse(rows: RowTable) -> Any:
        return parts.element(
            lambda wanted: tensors.tensor(
                rows.columns[wanted.name],
                name=wanted.name,
                stored=wanted.stored,
                shape=wanted.shape,
                dtype=wanted.dtype,
            ),
            mode,
        )

    return parse


def _parts(
    model: keras.Model,
    inputs: Sequence[Any],
    sample: Sequence[bytes],
    metadata: Metadata,
    mode: str,
) -> _Parts:
    there = _usual_features(sample)
    wanted: dict[str, _Wanted] = {}
    for tensor in inputs:
        name = _pick(tensor.name, len(inputs), list(there), "feature")
        wanted[tensor.name] = _fitting(tensor, name, there[name])
    shapes = metadata.extra.get("shapes", {})
    usual = {name: stored for name, (stored, *_) in there.items()}
    labels = {} if mode == PREDICTION else _labels(model, usual, shapes)
    return _Parts(wanted, labels)


def _fitting(tensor: Any, name: str, ways: Sequence[_Stored]) -> _Wanted:
    """Return the first of the ways to store a feature that the model's input takes."""
    error: UserCodeError | None = None
    for stored, count in ways:
        try:
            shape = _shape_for(tensor, name, count, stored)
        except UserCodeError as wrong:
            error = error or wrong
            continue
        return _Wanted(name, stored, count, shape, tf.as_dtype(tensor.dtype))
    raise error or UserCodeError(f"no record has a feature `{name}`")


def _example_parser(
    model: keras.Model,
    inputs: Sequence[Any],
    sample: Sequence[bytes],
    metadata: Metadata,
    mode: str,
) -> Parser:
    parts = _parts(model, inputs, sample, metadata, mode)
    spec = {
        w.name: tf.io.FixedLenFeature([w.count], w.stored)
        for w in [*parts.features.values(), *parts.labels.values()]
    }

    def parse(records: tf.Tensor) -> Any:
        values = tf.io.parse_example(records, spec)
        return parts.element(lambda w: _convert(values[w.name], w), mode)

    return parse


def _pick(name: str, num_inputs: int, there: Sequence[str], word: str) -> str:
    if name in there:
        return name
    rest = [other for other in there if other not in LABEL_NAMES]
    if num_inputs == 1 and len(rest) == 1:
        return rest[0]
    raise UserCodeError(
        f"the model's input `{name}` is no {word} of the records; name the Input after "
        f"one, or add a `feed` to the model module" + did_you_mean(name, rest)
    )


def _shape_for(tensor: Any, name: str, count: int, stored: tf.DType) -> tuple[int, ...]:
    shape = tuple(tensor.shape[1:])
    known = math.prod(e for e in shape if e is not None)
    bytes_of_image = stored == tf.string and tensor.dtype != "string"
    unknown = sum(e is None for e in shape)
    if bytes_of_image and (known == 1 or count != 1):
        # `7` would be read as its character's number, 55.
        raise UserCodeError(
            f"feature `{name}` is text or bytes, and the model's input "
            f"`{tensor.name}` takes numbers ({tensor.dtype}, shape {shape}); make the "
            "column one of numbers, the Input dtype='string', or add a `feed`"
        )
    if bytes_of_image and unknown == 0:
        return shape
    if unknown == 0 and known == count:
        return shape
    if unknown == 1 and known and count % known == 0:
        return tuple(count // known if e is None else e for e in shape)
    raise UserCodeError(
        f"feature `{name}` has {count} values per record, the model's input "
        f"`{tensor.name}` takes shape {shape}; change the Input's shape or add a `feed`"
    )


def _labels(
    model: keras.Model,
    there: dict[str, _Stored],
    shapes: Mapping[str, tuple[int, ...] | None],
) -> dict[str, _Wanted]:
    outputs = list(getattr(model, "output_names", []))
    if len(outputs) > 1 and all(name in there for name in outputs):
        names = {name: name for name in outputs}
    else:
        found = next((name for name in LABEL_NAMES if name in there), None)
        if found is None:
            raise UserCodeError(
                f"the records have no feature `label`, only {sorted(there)}; add a "
                "`feed` to the model module that makes the labels"
            )
        names = {found: found}
    tensors = list(getattr(model, "outputs", None) or ())
    made = dict(zip(outputs, tensors, strict=False))
    alone = tensors[0] if len(tensors) == 1 else None
    result = {}
    for key, name in names.items():
        stored, count = there[name]
        shape = _label_shape(count, shapes.get(name), made.get(key, alone))
        result[key] = _Wanted(name, stored, count, shape, stored)
    return result


def _label_shape(
    count: int, stored: tuple[int, ...] | None, output: Any | None
) -> tuple[int, ...]:
    """Return the shape of a record's label: another one would broadcast in a loss."""
    if stored is not None and math.prod(stored) == count:
        return stored
    if count == 1:
        return ()
    wanted = () if output is None else tuple(output.shape[1:])
    fits = None not in wanted and math.prod(wanted) == count
    return wanted if fits else (count,)


def _convert(values: tf.Tensor, wanted: _Wanted) -> tf.Tensor:
    if wanted.stored == tf.string and wanted.dtype != tf.string:
        values = tf.io.decode_raw(values[:, 0], tf.uint8)
    values = unrounded(values, wanted.name, wanted.dtype)
    # Not -1: bytes of another length would make other records.
    shaped = tf.reshape(values, [tf.shape(values)[0], *wanted.shape])
    return tf.cast(shaped, wanted.dtype)


@dataclass(frozen=True)
class _Columns:
    """The role of each column of a CSV file."""

    names: list[str]
    label: str | None  # None: not there, or not wanted
    together: list[str]  # make one vector; empty: inputs take a column each


def _columns(inputs: Sequence[Any], metadata: Metadata, mode: str) -> _Columns:
    names = list(metadata.column_names)
    label = next((name for name in LABEL_NAMES if name in names), None)
    if label is None and mode != PREDICTION:
        raise UserCodeError(
            f"the CSV has no column `label`, only {names}; add a `feed` to the model "
            "module that makes the labels"
        )
    order = metadata.extra.get(VECTOR_ORDER) or names
    rest = [name for name in order if name != label]
    wanted = None if mode == PREDICTION else label
    if len(inputs) == 1 and inputs[0].name not in names:
        missing = [name for name in rest if name not in names]
        if missing:
            raise UserCodeError(
                f"the CSV of validation has no column {', '.join(missing)}, only "
                f"{names}; expected those of the training data"
            )
        return _Columns(names, wanted, rest)
    for tensor in inputs:
        _pick(tensor.name, len(inputs), names, "column")
        if math.prod(extent or 1 for extent in tensor.shape[1:]) != 1:
            raise UserCodeError(
                f"column `{tensor.name}` has one value per record, the model's input "
                f"`{tensor.name}` takes shape {tuple(tensor.shape[1:])}; change the "
                "Input's shape or add a `feed`"
            )
    return _Columns(names, wanted, [])


def _csv_parser(inputs: Sequence[Any], metadata: Metadata, mode: str) -> Parser:
    columns = _columns(inputs, metadata, mode)
    types = {tensor.name: tf.as_dtype(tensor.dtype) for tensor in inputs}
    defaults = [_default_of(name, columns, types) for name in columns.names]
    delimiter = str(metadata.extra.get("delimiter", ","))
    quote = str(metadata.extra.get("quote", '"'))
    if quote not in ('"', ""):
        raise UserCodeError(
            f"the CSV is quoted with {quote}, which only a `feed` in the model module "
            "can take apart; add one, or write the file with double quotes"
        )

    def parse(records: tf.Tensor) -> Any:
        found = tf.io.decode_csv(
            records, defaults, field_delim=delimiter, use_quote_delim=bool(quote)
        )
        values = dict(zip(columns.names, found, strict=True))
        features: dict[str, tf.Tensor] = {}
        if columns.together:
            vector = tf.stack([values[name] for name in columns.together], axis=1)
            features[inputs[0].name] = tf.cast(vector, types[inputs[0].name])
        else:
            for tensor in inputs:
                column = values[tensor.name]
                if column.dtype != types[tensor.name]:
                    column = tf.cast(column, types[tensor.name])
                shape = [-1, *(extent or 1 for extent in tensor.shape[1:])]
                features[tensor.name] = tf.reshape(column, shape)
        if columns.label is None:
            return features
        return features, values[columns.label]

    return parse


def _default_of(name: str, columns: _Columns, types: dict[str, tf.DType]) -> Any:
    """Return decode_csv's default of a column: its type; empty fields are errors."""
    if name == columns.label:
        return tf.constant([], tf.float32)
    dtype = next(iter(types.values())) if name in columns.together else types.get(name)
    if dtype is None or dtype == tf.string:
        return [""]  # a column nobody reads may hold anything
    # Ids beyond 2^24 would not survive a float.
    return tf.constant([], tf.int64 if dtype.is_integer else tf.float32)
