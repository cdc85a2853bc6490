"""The employee table: made-up people, their work and what they earn, as one CSV file.

Owns what is in it. Called by `elasticdl data make employee`. Who earns more is drawn
from a probability that is known for each row, so the accuracy that no model can surpass
on average is known too. It has NULLs (empty fields), rare categories and a column that
says nothing.
"""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from elasticdl.data.making.catalog import EMPLOYEE
from elasticdl.errors import DataError
from elasticdl.files import write_whole

NUM_ROWS = 20_000
LABEL = "income"
CLASSES = ("<=50K", ">50K")

_EDUCATION = {
    "school": -1.2, "college": -0.2, "bachelor": 0.6, "master": 1.3, "doctorate": 2.0,
}  # fmt: skip
_OCCUPATION = {
    "clerk": -0.6, "driver": -0.8, "nurse": 0.0, "teacher": 0.1, "engineer": 1.2,
    "manager": 1.4, "farmer": -0.9, "cook": -1.1, "lawyer": 1.8, "pilot": 2.0,
    "astronaut": 3.0, "diver": 0.4,
}  # fmt: skip
# The last two are rare: a few rows in thousands.
_OCCUPATION_SHARES = (14, 12, 11, 12, 14, 11, 8, 9, 6, 2.6, 0.2, 0.2)
_NUM_CITIES = 60
_NULL_SHARE = 0.04


@dataclass(frozen=True)
class Employees:
    """The table, column by column; None is an empty field.

    `probability` is that of the second class, for each row.
    """

    columns: dict[str, list[object]]
    probability: NDArray[np.float64]

    @property
    def best_accuracy(self) -> float:
        """The accuracy of who knows the probabilities, on average over draws."""
        return float(np.maximum(self.probability, 1 - self.probability).mean())


def employees(num_rows: int = NUM_ROWS, *, seed: int = 0) -> Employees:
    """Return the table of a seed."""
    rng = np.random.Generator(np.random.PCG64(seed))
    age = np.clip(rng.normal(41, 12, num_rows), 18, 75).astype(np.int64)
    education = rng.choice(len(_EDUCATION), num_rows, p=(0.3, 0.28, 0.25, 0.13, 0.04))
    shares = np.asarray(_OCCUPATION_SHARES) / sum(_OCCUPATION_SHARES)
    occupation = rng.choice(len(_OCCUPATION), num_rows, p=shares)
    # Few large cities and many small ones.
    weight = 1 / np.arange(1, _NUM_CITIES + 1)
    city = rng.choice(_NUM_CITIES, num_rows, p=weight / weight.sum())
    city_effect = np.sin(np.arange(_NUM_CITIES) * 2.4)
    hours = np.clip(rng.normal(39, 9, num_rows), 5, 80).round(1)
    capital = np.where(rng.random(num_rows) < 0.1, rng.lognormal(8, 1, num_rows), 0.0)
    married = rng.random(num_rows) < 0.5
    score = (
        np.asarray(list(_EDUCATION.values()))[education]
        + np.asarray(list(_OCCUPATION.values()))[occupation]
        + 0.8 * city_effect[city]
        - ((age - 50) / 16.0) ** 2
        + (hours - 39) / 11.0
        + 0.25 * np.log1p(capital)
        + 0.7 * married
        - 0.9
    )
    # Steep, so that most rows are nearly certain, as in the real census.
    probability = 1 / (1 + np.exp(-1.8 * score))
    rich = rng.random(num_rows) < probability
    columns: dict[str, list[object]] = {
        "age": _with_nulls(age.tolist(), rng),
        "education": _named(education, list(_EDUCATION)),
        "occupation": _with_nulls(_named(occupation, list(_OCCUPATION)), rng),
        "city": [f"city-{number:02}" for number in city.tolist()],
        "hours": _with_nulls(hours.tolist(), rng),
        "capital_gain": capital.round(2).tolist(),
        "married": ["true" if one else "false" for one in married.tolist()],
        "lucky_number": rng.integers(0, 100, num_rows).tolist(),
        LABEL: [CLASSES[int(one)] for one in rich.tolist()],
    }
    return Employees(columns, probability)


def _named(codes: NDArray[np.int64], names: list[str]) -> list[object]:
    return [names[code] for code in codes.tolist()]


def _with_nulls(values: list[object], rng: np.random.Generator) -> list[object]:
    empty = rng.random(len(values)) < _NULL_SHARE
    return [None if e else v for v, e in zip(values, empty.tolist(), strict=True)]


@dataclass(frozen=True)
class MadeTable:
    """The file, and what is in it."""

    path: Path
    num_rows: int
    best_accuracy: float
    made: bool  # False if it was there already


def make_employee(
    directory: Path, *, seed: int = 0, overwrite: bool = False
) -> MadeTable:
    """Write `<directory>/employee.csv` unless it exists.

    Raises DataError if it cannot be written.
    """
    path = directory / f"{EMPLOYEE}.csv"
    table = employees(seed=seed)
    result = MadeTable(path, NUM_ROWS, table.best_accuracy, made=True)
    if path.exists() and not overwrite:
        return MadeTable(path, NUM_ROWS, table.best_accuracy, made=False)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        write_whole(path, _csv(table), durable=False)
    except OSError as error:
        raise DataError(
            f"{path}: cannot be written: {error.strerror or error}; make room, or name "
            "another folder with --dir"
        ) from error
    return result


def _csv(table: Employees) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(table.columns)
    writer.writerows(zip(*table.columns.values(), strict=True))
    return out.getvalue()
