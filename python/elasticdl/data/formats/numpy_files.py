"""NumPy files (.npy, .npz) as records: each row a serialized tf.train.Example.

Owns the mapping from arrays to records. Called by the reader of many files and by
conversion. Must not import TensorFlow.

All arrays of a file have the same first dimension. A feature is named after the array
(.npz), the field (a structured .npy) or `features` (any other .npy). Arrays that are
not compressed are mapped into memory, so that a range reads its own rows alone;
compressed ones are loaded whole.
"""

from __future__ import annotations

import struct
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from elasticdl.data.formats.example_rows import encode_rows
from elasticdl.data.records import BadRecords, Metadata
from elasticdl.errors import DataError

PARAMS = ("arrays",)
_LOCAL_HEADER = struct.Struct("<26x2H")  # lengths of name and extra field
_LOCAL_HEADER_BYTES = 30  # Fixed part of a ZIP file's local header.

Array = NDArray[np.generic]


class NumpyReader:
    """Reads ranges of rows of one .npy or .npz file. Thread-safe."""

    def __init__(self, path: Path, params: Mapping[str, Any]) -> None:
        """Map the arrays. Raises DataError if they do not make records.

        `params["arrays"]`, if given, maps feature names to the names of a .npz file's
        arrays: `{image: x_train, label: y_train}`.
        """
        arrays = _load(path)
        chosen = params.get("arrays")
        if chosen is not None:
            arrays = _choose(path, arrays, chosen)
        _check(path, arrays)
        self._arrays = arrays

    @property
    def num_records(self) -> int:
        """Rows in the file."""
        return len(next(iter(self._arrays.values())))

    @property
    def metadata(self) -> Metadata:
        """Names and types of the features; `extra["shapes"]` holds a row's shapes."""
        return Metadata(
            column_names=tuple(self._arrays),
            column_dtypes=tuple(str(array.dtype) for array in self._arrays.values()),
            examples=True,
            extra={
                "shapes": {
                    name: array.shape[1:] for name, array in self._arrays.items()
                }
            },
        )

    def read(self, start: int, end: int, bad: BadRecords) -> list[bytes]:  # noqa: ARG002 - a row is never bad
        """Return the records of [start, end)."""
        end = min(end, self.num_records)
        rows = {name: array[start:end] for name, array in self._arrays.items()}
        return encode_rows(rows, max(0, end - start))


def _load(path: Path) -> dict[str, Array]:
    try:
        if zipfile.is_zipfile(path):
            return _load_zip(path)
        array: NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        # NumPy's own words for it speak of unpickling, and how to risk it.
        objects = "pickle" in str(error) or "Python objects" in str(error)
        what = "Python objects, or no NumPy file at all" if objects else str(error)
        raise DataError(
            f"{path}: got {what}, expected a .npy or .npz file with plain arrays; "
            "write it again with numpy.save or numpy.savez"
        ) from error
    if array.dtype.names:
        return {name: array[name] for name in array.dtype.names}
    return {"features": array}


def _load_zip(path: Path) -> dict[str, Array]:
    arrays: dict[str, Array] = {}
    with zipfile.ZipFile(path) as archive, path.open("rb") as raw:
        for info in archive.infolist():
            name = info.filename.removesuffix(".npy")
            if info.compress_type == zipfile.ZIP_STORED:
                raw.seek(info.header_offset)
                name_size, extra_size = _LOCAL_HEADER.unpack(
                    raw.read(_LOCAL_HEADER_BYTES)
                )
                begin = info.header_offset + _LOCAL_HEADER_BYTES
                arrays[name] = _map_array(path, begin + name_size + extra_size)
            else:
                with archive.open(info) as member:
                    array = npy.read_array(member, allow_pickle=False)
                arrays[name] = array
    return arrays


def _map_array(path: Path, offset: int) -> Array:
    with path.open("rb") as file:
        file.seek(offset)
        version = npy.read_magic(file)
        read_header = (
            npy.read_array_header_1_0
            if version == (1, 0)
            else npy.read_array_header_2_0
        )
        shape, fortran, dtype = read_header(file)
        if dtype.hasobject:
            raise ValueError("an array of Python objects")
        if not shape or 0 in shape:
            file.seek(offset)
            return npy.read_array(file, allow_pickle=False)
        return np.memmap(
            path, dtype, "r", file.tell(), shape, order="F" if fortran else "C"
        )


def _choose(path: Path, arrays: dict[str, Array], chosen: Any) -> dict[str, Array]:
    if not isinstance(chosen, Mapping) or not chosen:
        raise DataError(
            f"readerParams.arrays: got {chosen!r}, expected feature names and array "
            "names, as {image: x_train, label: y_train}"
        )
    missing = [name for name in chosen.values() if name not in arrays]
    if missing:
        raise DataError(
            f"{path}: has no array {missing[0]!r}, but {sorted(arrays)}; name one of "
            "these in readerParams.arrays"
        )
    return {str(feature): arrays[name] for feature, name in chosen.items()}


def _check(path: Path, arrays: dict[str, Array]) -> None:
    if not arrays:
        raise DataError(f"{path}: holds no arrays; write some with numpy.savez")
    for name, array in arrays.items():
        if not array.shape or array.dtype.kind not in "fiubSU":
            raise DataError(
                f"{path}: array {name!r} has shape {array.shape} and type "
                f"{array.dtype}; expected rows of numbers, bytes or text"
            )
    lengths = {name: len(array) for name, array in arrays.items()}
    if len(set(lengths.values())) > 1:
        raise DataError(
            f"{path}: arrays have different lengths: {lengths}; choose those that "
            "belong together: --arrays image=x_train,label=y_train, or in a values "
            "file readerParams `arrays: {image: x_train, label: y_train}`"
        )
