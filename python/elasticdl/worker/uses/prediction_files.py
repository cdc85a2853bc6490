"""Predictions on disk: one file per task, written aside and renamed.

Owns the default output of prediction jobs. A task that is done twice replaces its own
file, so every record's prediction is there exactly once. Called by the predictor. Must
not import TensorFlow.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np

from elasticdl.errors import DataError, UserCodeError
from elasticdl.job.words import OTHER_OUTPUT

Columns = dict[str, list[Any]]


_ONE_EACH = (
    "expected one row for each record; let predict_step return such outputs, or write "
    "a PredictionOutputsProcessor"
)
# Columns that say which record a prediction is of.
SOURCE, RECORD = "source", "record"


def named_outputs(outputs: Any) -> dict[str, Any]:
    """Return a model's outputs (one, or lists and dicts of them) by column name.

    `prediction`; of a list `prediction_0`, of a dict its keys, of what is nested in
    them paths: `head/a`, `prediction_0/1`. An output that is None, which the model
    leaves out, has no column.
    """
    match outputs:
        case Mapping():
            named = {str(name): value for name, value in outputs.items()}
        case list() | tuple():
            named = {f"prediction_{i}": value for i, value in enumerate(outputs)}
        case _:
            named = {"prediction": outputs}
    found: dict[str, Any] = {}
    for top, value in named.items():
        for name, leaf in _leaves(top, value):
            if name in found:
                raise UserCodeError(
                    f"two outputs of the model would be the column `{name}` of the "
                    "predictions; name one of them otherwise"
                )
            if leaf is not None:
                found[name] = leaf
    return found


def _leaves(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    match value:
        case Mapping():
            inner: Iterable[tuple[object, Any]] = value.items()
        case list() | tuple():
            inner = enumerate(value)
        case _:
            yield name, value
            return
    for key, part in inner:
        yield from _leaves(f"{name}/{key}", part)


def merged(
    batches: Sequence[Any], *, of_any_length: Collection[str] = frozenset()
) -> Columns:
    """Return the outputs of several batches as columns of plain Python values.

    `of_any_length`: columns of outputs [n, length] whose length is the batch's.
    """
    found: dict[str, list[np.ndarray[Any, Any]]] = {}
    for outputs in batches:
        for name, value in named_outputs(outputs).items():
            found.setdefault(name, []).append(_rows_of(name, value))
    columns: Columns = {}
    for name, arrays in found.items():
        # A model's [n, 1] is a number per record.
        number = name not in of_any_length and all(
            array.shape[1:] == (1,) for array in arrays
        )
        columns[name] = [
            row
            for array in arrays
            for row in (array[:, 0] if number else array).tolist()
        ]
    return columns


def _rows_of(name: str, value: Any) -> np.ndarray[Any, Any]:
    array = np.asarray(value)
    if not array.ndim:
        raise UserCodeError(
            f"the model's output `{name}` is one number for a batch, {_ONE_EACH}"
        )
    return array.astype(np.float32) if array.dtype.kind == "V" else array


def of_records(columns: Columns, source: str, numbers: Sequence[int] | None) -> Columns:
    """Return the columns with those that say of which record each row is.

    Raises UserCodeError where rows are not those of the records: nobody could tell
    which is which.
    """
    rows = {name: len(column) for name, column in columns.items()}
    if len(set(rows.values())) > 1:
        raise UserCodeError(
            f"the model's outputs have different numbers of rows: {rows}, {_ONE_EACH}"
        )
    if numbers is None:
        return columns
    count = next(iter(rows.values()))
    if count != len(numbers):
        raise UserCodeError(
            f"the model's outputs have {count} rows for {len(numbers)} records, "
            f"{_ONE_EACH}"
        )
    if taken := {SOURCE, RECORD} & set(columns):
        raise UserCodeError(
            f"the model has an output `{min(taken)}`, and a column of that name says "
            "of which record a prediction is; name the output otherwise"
        )
    return {SOURCE: [source] * count, RECORD: list(numbers), **columns}


class PredictionFormat(Protocol):
    """How columns are written to a file."""

    suffix: str

    def write(self, path: Path, columns: Columns) -> None:
        """Write the whole file."""


class JsonLines:
    """One JSON object per record."""

    suffix = "jsonl"

    def write(self, path: Path, columns: Columns) -> None:
        names = list(columns)
        with path.open("w", encoding="utf-8") as file:
            for row in zip(*columns.values(), strict=True):
                file.write(
                    json.dumps(dict(zip(names, row, strict=True)), default=_text)
                )
                file.write("\n")


class Parquet:
    """One Parquet file, a column per output."""

    suffix = "parquet"

    def write(self, path: Path, columns: Columns) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        pq.write_table(pa.table(columns), path)


def _text(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic):  # a row of a ragged output
        return value.tolist()
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def format_named(name: Literal["auto", "parquet", "jsonl"]) -> PredictionFormat:
    """Return the format; `auto` is Parquet where pyarrow is installed."""
    there = importlib.util.find_spec("pyarrow") is not None
    if name == "parquet" and not there:
        raise DataError(
            "job.predictionFormat: got `parquet` without pyarrow; install "
            "elasticdl[arrow] or use `jsonl`"
        )
    return Parquet() if there and name != "jsonl" else JsonLines()


class PredictionFiles:
    """The folder of a job's predictions."""

    def __init__(self, directory: Path, form: PredictionFormat) -> None:
        """Take the folder, which is created at the first write."""
        self._directory = directory
        self._form = form

    def write(self, task_id: int, columns: Columns) -> Path:
        """Write a task's file, replacing one of an earlier attempt.

        Raises DataError when the disk refuses.
        """
        path = self._directory / f"part-{task_id:06d}.{self._form.suffix}"
        aside = path.with_name(f".{path.name}.tmp")
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
            self._form.write(aside, columns)
            aside.replace(path)
        except OSError as error:
            with contextlib.suppress(OSError):
                aside.unlink(missing_ok=True)
            raise DataError(
                f"predictions cannot be written to {path}: {error.strerror or error}; "
                f"make room or {OTHER_OUTPUT}"
            ) from error
        return path
