"""Arrow columns as features: which types fit, and how their values become arrays.

Owns that mapping. Called by the reader of Parquet and Arrow files, which imports
pyarrow; here only its types and arrays are asked. Knows no file.

| Arrow                                        | feature                          |
|----------------------------------------------|----------------------------------|
| integers, booleans, dates, times, durations  | int64 list (in the type's unit)  |
| floats, decimals                             | float list                       |
| strings, binary                              | bytes list                       |
| lists of these, nested or not                | all values of the row, flattened |
| dictionaries                                 | as the values they stand for     |
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elasticdl.data.formats.example_rows import Column, Distinct, Texts

_INT, _FLOAT, _BYTES = "int64", "float32", "bytes"
# In the units of their type; days for dates.
_TIMES = "is_date32", "is_time32", "is_date64", "is_time64", "is_timestamp"


@dataclass(frozen=True)
class ColumnValues:
    """A column's values, and which rows have none.

    Attributes:
        values: Rows along the first axis, or a value for each row.
        null_rows: int64[bad rows], ascending: rows that are null or hold a null.
    """

    values: Column
    null_rows: NDArray[np.int64]


def feature_type(pa: Any, kind: Any) -> str:
    """Return `int64`, `float32` or `bytes` for an Arrow type; "" if unsupported."""
    types = pa.types
    if is_list(pa, kind):
        return feature_type(pa, kind.value_type)
    if types.is_dictionary(kind):
        return feature_type(pa, kind.value_type)
    if types.is_integer(kind) or types.is_boolean(kind) or _is_time(pa, kind):
        return _INT
    if types.is_floating(kind) or types.is_decimal(kind):
        return _FLOAT
    return _BYTES if _is_bytes(pa, kind) else ""


def time_unit(pa: Any, kind: Any) -> str:
    """Return in what a column of dates, times or durations counts; "" of others."""
    if is_list(pa, kind) or pa.types.is_dictionary(kind):
        return time_unit(pa, kind.value_type)
    if not _is_time(pa, kind):
        return ""
    if pa.types.is_date(kind):
        return "days" if pa.types.is_date32(kind) else "ms"
    return str(kind.unit)


def is_list(pa: Any, kind: Any) -> bool:
    """Return whether a row of the type holds several values."""
    types = pa.types
    return bool(
        types.is_list(kind)
        or types.is_large_list(kind)
        or types.is_fixed_size_list(kind)
    )


def _is_time(pa: Any, kind: Any) -> bool:
    return pa.types.is_duration(kind) or any(
        getattr(pa.types, name)(kind) for name in _TIMES
    )


def _is_bytes(pa: Any, kind: Any) -> bool:
    types = pa.types
    return bool(
        types.is_string(kind)
        or types.is_large_string(kind)
        or types.is_binary(kind)
        or types.is_large_binary(kind)
        or types.is_fixed_size_binary(kind)
    )


def row_shape(pa: Any, kind: Any) -> tuple[int, ...] | None:
    """Return the shape of a row's values; None if rows differ."""
    if pa.types.is_fixed_size_list(kind):
        inner = row_shape(pa, kind.value_type)
        return None if inner is None else (kind.list_size, *inner)
    return None if is_list(pa, kind) else ()


def is_text(pa: Any, kind: Any) -> bool:
    """Return whether a row of the type is one value of text or bytes."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return _is_bytes(pa, kind)


def distinct_of(pa: Any, array: Any) -> Distinct:
    """Return the different values of a dictionary array of text or bytes."""
    found = array.dictionary
    if pa.types.is_string(found.type):
        found = found.cast(pa.binary())
    elif pa.types.is_large_string(found.type):
        found = found.cast(pa.large_binary())
    # All rows may be null, and then there is no value to point at.
    return Distinct(found.to_pylist() or [b""])


def as_dictionary(pa: Any, array: Any) -> Any:
    """Return an array of text or bytes as a dictionary array without null entries."""
    array = _without_null_entries(pa, array)
    return array if pa.types.is_dictionary(array.type) else array.dictionary_encode()


def convert(pa: Any, array: Any, distinct: Distinct | None = None) -> ColumnValues:
    """Return an array (no chunked one) of a type that `feature_type` names.

    Args:
        pa: pyarrow.
        array: The column.
        distinct: Its values, if it is a slice of an array from `as_dictionary`.
    """
    if distinct is not None:
        codes = array.indices.fill_null(0).to_numpy(zero_copy_only=False)
        return ColumnValues(Texts(distinct, codes), _null_places(array))
    num_rows = len(array)
    bounds = np.arange(num_rows + 1)
    array = _without_null_entries(pa, array)
    nulls = [_null_places(array)]
    while is_list(pa, array.type):
        inner = _bounds(pa, array)
        array, bounds = _without_null_entries(pa, array.flatten()), inner[bounds]
        # The row of an inner null is the last that begins before it or there.
        nulls.append(np.searchsorted(bounds, _null_places(array), side="right") - 1)
    null_rows = np.unique(np.concatenate(nulls))
    values = _values(pa, array)
    if len(array) == num_rows and (np.diff(bounds) == 1).all():
        return ColumnValues(values, null_rows)
    sizes = np.diff(bounds)
    if isinstance(values, np.ndarray) and num_rows and (sizes == sizes[0]).all():
        return ColumnValues(values.reshape(num_rows, int(sizes[0])), null_rows)
    if isinstance(values, Texts):
        values = values.tolist()
    edges = bounds.tolist()
    return ColumnValues([values[a:b] for a, b in pairwise(edges)], null_rows)


def _without_null_entries(pa: Any, array: Any) -> Any:
    """Return an array with nulls marked in rows, not as a null dictionary entry."""
    if pa.types.is_dictionary(array.type) and array.dictionary.null_count:
        return array.dictionary_decode()
    return array


def _null_places(array: Any) -> NDArray[np.int64]:
    if not array.null_count:
        return np.zeros(0, np.int64)
    return np.flatnonzero(array.is_null().to_numpy(zero_copy_only=False))


def _bounds(pa: Any, array: Any) -> NDArray[np.int64]:
    """Return where each row of a list array begins among its flattened values."""
    if pa.types.is_fixed_size_list(array.type):
        # flatten() leaves the values of null rows out.
        sizes = np.where(
            array.is_valid().to_numpy(zero_copy_only=False), array.type.list_size, 0
        )
    else:
        sizes = array.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)
    return np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])


def _values(pa: Any, array: Any) -> Column:
    """Return the values of a non-list array; the values of null rows are arbitrary."""
    kind = array.type
    if is_text(pa, kind):
        array = as_dictionary(pa, array)
        codes = array.indices.fill_null(0).to_numpy(zero_copy_only=False)
        return Texts(distinct_of(pa, array), codes)
    if pa.types.is_dictionary(kind):
        return _values(pa, array.dictionary_decode())
    if pa.types.is_decimal(kind):
        array = array.cast(pa.float64())
    elif _is_time(pa, kind):
        array = array.cast(pa.int32() if kind.bit_width == 32 else pa.int64())
    if array.null_count:
        array = array.fill_null(False if pa.types.is_boolean(array.type) else 0)
    numbers: NDArray[Any] = array.to_numpy(zero_copy_only=False)
    return numbers
