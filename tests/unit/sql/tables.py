"""A small table of employees, its first rows and its statistics, for planning."""

from __future__ import annotations

import math
import random
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

from elasticdl.sql import planning
from elasticdl.sql.data import shards
from elasticdl.sql.data import statistics as measuring
from elasticdl.sql.data.shards import Staged
from elasticdl.sql.data.source import open_source
from elasticdl.sql.generate import generate
from elasticdl.sql.plan import (
    Column,
    ColumnStatistics,
    Entry,
    Generated,
    Kind,
    Places,
    Preview,
    Schema,
    SplitPlan,
    Statistics,
    StatisticsNeeded,
    TrainPlan,
)
from elasticdl.sql.statements import Train

NUM_ROWS = 200
SCHEMA = Schema(
    (
        Column("age", Kind.INTEGER),
        Column("city", Kind.TEXT),
        Column("hours per week", Kind.NUMBER),
        Column("skills", Kind.TEXT),
        Column("user_id", Kind.INTEGER),
        Column("married", Kind.BOOLEAN),
        Column("name", Kind.TEXT),
        Column("pay", Kind.NUMBER),
        Column("income", Kind.TEXT),
        Column("grade", Kind.INTEGER),
    )
)


def _values() -> dict[str, tuple[Any, ...]]:
    draw = random.Random(1)
    rows = range(NUM_ROWS)
    cities = ["Bonn", "Köln", "Aachen", None]
    hours = [20.0, 37.5, 40.0, None]
    skills = ["sql,python", "sql", "go,sql,c", None]
    return {
        "age": tuple(draw.randint(17, 80) for _ in rows),
        "city": tuple(draw.choice(cities) for _ in rows),
        "hours per week": tuple(draw.choice(hours) for _ in rows),
        "skills": tuple(draw.choice(skills) for _ in rows),
        "user_id": tuple(draw.randint(0, 2**40) for _ in rows),
        "married": tuple(draw.random() < 0.5 for _ in rows),
        "name": tuple(f"name {i}" for i in rows),
        "pay": tuple(draw.random() * 50_000 for _ in rows),
        "income": tuple(draw.choice(["<=50K", ">50K"]) for _ in rows),
        "grade": tuple(draw.randint(1, 3) for _ in rows),
    }


VALUES = _values()


def preview(
    *, schema: Schema = SCHEMA, complete: bool = True, **values: Any
) -> Preview:
    """Return the first rows, with other values for some columns."""
    return Preview(schema, {**VALUES, **values}, NUM_ROWS, complete)


def plan(sql: str, first: Preview | None = None) -> TrainPlan:
    """Return the plan of a statement over the table."""
    (statement,) = planning.read_statements(sql, "duckdb")
    assert isinstance(statement, Train)
    return planning.plan_training(statement, first or preview(), sql)


def statistics(of: TrainPlan) -> Statistics:
    """Return the statistics that a plan asks for, over all rows."""
    return Statistics(NUM_ROWS, tuple(map(_measured, of.needs)))


def _measured(need: StatisticsNeeded) -> ColumnStatistics:
    raw = VALUES[need.of.column]
    values = [value for value in raw if value is not None]
    found: dict[str, Any] = {}
    if need.moments or need.num_buckets:
        numbers = [float(value) for value in values]
        if need.of.log:
            numbers = [math.copysign(math.log1p(abs(n)), n) for n in numbers]
        mean = sum(numbers) / len(numbers)
        found["mean"] = mean
        found["variance"] = sum((n - mean) ** 2 for n in numbers) / len(numbers)
        found["minimum"], found["maximum"] = min(numbers), max(numbers)
        ordered = sorted(numbers)
        places = [len(ordered) * i // max(1, need.num_buckets) for i in range(100)]
        cuts = [ordered[place] for place in places[1 : max(1, need.num_buckets)]]
        found["boundaries"] = tuple(cuts)
    if need.means:
        rows = [list(map(float, value.split(need.of.split))) for value in values]
        found["means"] = tuple(sum(one) / len(rows) for one in zip(*rows, strict=True))
    elif need.of.split:
        found["longest"] = max(len(value.split(need.of.split)) for value in values)
        values = [part for value in values for part in value.split(need.of.split)]
    if need.vocabulary:
        plain = [int(v) if isinstance(v, bool) else v for v in values]
        counted = sorted(Counter(plain).items(), key=lambda item: (-item[1], item[0]))
        entries = [Entry(*item) for item in counted if item[1] >= need.min_count]
        found["vocabulary"] = tuple(entries[: need.max_size])
        found["vocabulary_size"] = len(found["vocabulary"])
    nulls = len(raw) - sum(value is not None for value in raw)
    return ColumnStatistics(need.of, NUM_ROWS, nulls, **found)


def generated(sql: str) -> Generated:
    """Return the module and values file of a statement over the table."""
    made = plan(sql)
    places = Places("data/training", "data/validation", "data/vocabularies", "export")
    return generate(made, statistics(made), places)


class Trained(NamedTuple):
    """What a TRAIN makes of real rows before its job begins."""

    plan: TrainPlan
    statistics: Statistics
    made: Generated
    vocabularies: Path


def trained(sql: str, folder: Path) -> Trained:
    """Return what a statement makes of the rows of its query, all of them training."""
    source = open_source("", folder=folder)
    (statement,) = planning.read_statements(sql, source.engine)
    assert isinstance(statement, Train)
    with source.rows(statement.select) as rows:
        of = planning.plan_training(statement, rows.preview, sql)
        path = folder / "rows.parquet"
        staged = Staged(path, rows.schema, rows.write(path))
    written = shards.write_training(
        staged, folder, columns=of.columns, label=of.label, division=SplitPlan(0.0)
    )
    found = measuring.measure(
        written, columns=of.columns, needs=of.needs, label=of.label.column
    )
    vocabularies = folder / "vocabularies"
    places = Places(str(written.training), "", str(vocabularies), str(folder / "e"))
    return Trained(of, found, generate(of, found, places), vocabularies)


# By the name of the model; `samples` has files of some of them.
SAMPLES = {
    "original": "SELECT * FROM employee LABEL income INTO original",
    "wide_and_deep": (
        "SELECT * FROM employee\n"
        "TO TRAIN WideAndDeepClassifier\n"
        "WITH train.epoch = 5, model.hidden_units = [64, 32], optimizer = adagrad,\n"
        "     optimizer.learning_rate = 0.05, validation.metrics = 'AUC,Precision'\n"
        "COLUMN city, CROSS([city, married, BUCKETIZE(age, 5)], 500),\n"
        '       HASH(user_id, 100), BUCKETIZE("hours per week", [35, 38.5]) FOR wide\n'
        "COLUMN STANDARDIZE(LOG(pay)), EMBEDDING(SPLIT(skills, ','), 4, 'sum'),\n"
        "       EMBEDDING(VOCABULARIZE(name, min_count=1), 8) FOR deep\n"
        "LABEL income INTO wide_and_deep"
    ),
    "deepfm": (
        "SELECT * FROM employee TO TRAIN DeepFMRegressor WITH model.embedding_dim = 4\n"
        'COLUMN NORMALIZE(age), RAW("hours per week"), EMBEDDING(city, 4), married,\n'
        "       CATEGORY_ID(grade, 4), HASH(user_id, 50) LABEL pay INTO deepfm"
    ),
    "cross": (
        "SELECT * FROM employee TO TRAIN DCNClassifier\n"
        "COLUMN CONCAT(city, BUCKETIZE(age, 4)) AS g, EMBEDDING(g, 6),\n"
        '       NULL_INDICATOR(city), NULL_INDICATOR("hours per week"),\n'
        "       INDICATOR(SPLIT(skills)), SEQ_CATEGORY_ID(skills, 20), LOG(user_id),\n"
        "       EMBEDDING(WEIGHTED_CATEGORY(skills, 20), 4, 'sqrtn'),\n"
        "       NULL_INDICATOR(user_id), HASH(user_id, 10) LABEL grade INTO cross"
    ),
    "linear": (
        "SELECT * FROM employee TO TRAIN LinearRegressor COLUMN age, city, married\n"
        "LABEL pay INTO linear"
    ),
    "own": (
        "SELECT * FROM employee TO TRAIN tabular.net.towers WITH model.units = 8\n"
        "COLUMN age, city FOR person COLUMN pay FOR job LABEL income INTO own"
    ),
}
