"""Built-in data sets as folders of record files: `<name>/train`, `<name>/test`.

Owns their split, their records and their marker. Called by `elasticdl data make` and by
`data.making.prepare`. Must not know jobs.

An image's record has the features `image` (its raw values, row by row, as a float list)
and `label` (int64); a table row's has `features` and `label`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from elasticdl.data.formats.example import encode_example
from elasticdl.data.making.builtin import Array, Arrays, load_arrays
from elasticdl.data.making.catalog import DEFAULT_SHARE, IMAGES
from elasticdl.data.making.shards import (
    MARKER,
    Progress,
    no_progress,
    whole_folder,
    write_shards,
)
from elasticdl.errors import DataError
from elasticdl.job.spec.job import DataFormat

_FILES_WANTED = 4  # Several files, so that several workers read.
_FEWEST_IN_FILE, _MOST_IN_FILE = 32, 8192


@dataclass(frozen=True)
class DatasetOptions:
    """Options that distinguish data sets of the same name.

    Attributes:
        format: RECORDIO or TFRECORD.
        records_per_file: 0 makes about four files of up to 8192 records.
        seed: Of the split and of the order of records.
        validation_share: Share of the records that go to `test`, where the data set
            has no test part of its own.
    """

    format: DataFormat = DataFormat.RECORDIO
    records_per_file: int = 0
    seed: int = 0
    validation_share: float = DEFAULT_SHARE


@dataclass(frozen=True)
class MadeDataset:
    """A data set on disk.

    Attributes:
        made: False if it was there already.
    """

    name: str
    directory: Path
    num_train: int
    num_test: int
    made: bool

    @property
    def train(self) -> Path:
        """Folder of training records."""
        return self.directory / "train"

    @property
    def test(self) -> Path:
        """Folder of test records."""
        return self.directory / "test"


def make_dataset(
    name: str,
    directory: Path,
    options: DatasetOptions | None = None,
    *,
    overwrite: bool = False,
    load: Callable[[str], Arrays] = load_arrays,
    progress: Progress = no_progress,
) -> MadeDataset:
    """Write a built-in data set to `<directory>/<name>` unless it already exists.

    Raises DataError if the name is not known, the data cannot be fetched, or something
    else is in that folder.
    """
    options = options or DatasetOptions()
    _check(options)
    place = directory / name
    if not overwrite:
        there = _there(name, place, options)
        if there is not None:
            return there
    arrays = load(name)
    train, test = _parts(arrays, options)
    total = len(train[1]) + len(test[1])
    feature = "image" if name in IMAGES else "features"
    with whole_folder(place, replace=overwrite) as folder:
        done = 0
        for part, (x, y) in (("train", train), ("test", test)):
            write_shards(
                _counted(_records(x, y, feature), done, total, progress),
                folder / part,
                format=options.format,
                records_per_file=options.records_per_file or _per_file(len(y)),
            )
            done += len(y)
        _write_marker(folder / MARKER, name, options, len(train[1]), len(test[1]))
    return MadeDataset(name, place, len(train[1]), len(test[1]), made=True)


def _check(options: DatasetOptions) -> None:
    if not 0.0 < options.validation_share < 1.0:
        raise DataError(
            f"got the test share {options.validation_share}, expected one between 0 "
            "and 1, as 0.2"
        )
    if options.records_per_file < 0:
        raise DataError(
            f"got {options.records_per_file} records per file, expected 1 or more, or "
            "0 to choose"
        )


def _there(name: str, place: Path, options: DatasetOptions) -> MadeDataset | None:
    """Return the existing data set. Raises DataError if its options differ."""
    try:
        marker = json.loads((place / MARKER).read_text())
        there = MadeDataset(
            name, place, int(marker["num_train"]), int(marker["num_test"]), made=False
        )
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(
            f"{place / MARKER}: cannot be read: {error}; remove {place} and make the "
            "data set again"
        ) from error
    wanted = json.loads(json.dumps(asdict(options)))
    if marker.get("options") != wanted:
        raise DataError(
            f"{place}: was made with {marker.get('options')}, now {wanted} is wanted; "
            "make it again with --overwrite, or in another folder"
        )
    return there


def _write_marker(
    file: Path, name: str, options: DatasetOptions, num_train: int, num_test: int
) -> None:
    content = {
        "name": name,
        "options": asdict(options),
        "num_train": num_train,
        "num_test": num_test,
    }
    file.write_text(json.dumps(content, indent=1) + "\n")


Part = tuple[Array, NDArray[np.int64]]


def _parts(arrays: Arrays, options: DatasetOptions) -> tuple[Part, Part]:
    rng = np.random.Generator(np.random.PCG64(options.seed))
    if arrays.test_x is not None and arrays.test_y is not None:
        order = rng.permutation(len(arrays.y))
        return (arrays.x[order], arrays.y[order]), (arrays.test_x, arrays.test_y)
    test = stratified(arrays.y, options.validation_share, rng)
    train_rows = rng.permutation(np.flatnonzero(~test))
    test_rows = rng.permutation(np.flatnonzero(test))
    return (
        (arrays.x[train_rows], arrays.y[train_rows]),
        (arrays.x[test_rows], arrays.y[test_rows]),
    )


def stratified(
    labels: NDArray[np.int64], share: float, rng: np.random.Generator
) -> NDArray[np.bool_]:
    """Select a share of the rows, with the same share of each label.

    Returns bool[n], true for the chosen rows: `round(n * share)` of them, the remainder
    going to the labels that rounding down took most from.
    """
    values, counts = np.unique(labels, return_counts=True)
    exact = counts * share
    take = np.floor(exact).astype(np.int64)
    missing = round(len(labels) * share) - int(take.sum())
    take[np.argsort(take - exact, kind="stable")[:missing]] += 1
    chosen = np.zeros(len(labels), np.bool_)
    for value, number in zip(values, take, strict=True):
        rows = np.flatnonzero(labels == value)
        chosen[rng.permutation(rows)[:number]] = True
    return chosen


def _records(x: Array, y: NDArray[np.int64], feature: str) -> Iterator[bytes]:
    rows = x.reshape(len(x), -1)
    for row, label in zip(rows, y.tolist(), strict=True):
        yield encode_example({feature: row.astype(np.float32), "label": label})


def _counted(
    records: Iterator[bytes], done: int, total: int, progress: Progress
) -> Iterator[bytes]:
    for record in records:
        yield record
        done += 1
        progress(done, total)


def _per_file(num_records: int) -> int:
    wanted = -(-num_records // _FILES_WANTED)
    return min(max(wanted, _FEWEST_IN_FILE), _MOST_IN_FILE)
