"""Statistics are NumPy's, over the training rows alone."""

import collections

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from elasticdl.errors import DataError
from elasticdl.sql.data import embedded, shards, statistics
from elasticdl.sql.data.shards import Shards, Staged
from elasticdl.sql.data.source import open_source
from elasticdl.sql.plan import (
    ColumnPlan,
    Head,
    Kind,
    LabelPlan,
    Measured,
    SplitPlan,
    StatisticsNeeded,
    Stored,
)
from elasticdl.sql.running.train import without_line

from tests.unit.sql import tables

ROWS = 20_000
COLUMNS = (
    ColumnPlan("gauss", "gauss", Stored.FLOAT),
    ColumnPlan("long", "long", Stored.FLOAT),
    ColumnPlan("id", "id", Stored.INTEGER),
    ColumnPlan("word", "word", Stored.TEXT),
    ColumnPlan("tags", "tags", Stored.TEXT),
)
LABEL = LabelPlan("y", Kind.TEXT, Head.CLASSES, 3, ("a", "b", "c"))
NEEDS = (
    StatisticsNeeded(Measured("gauss"), moments=True, num_buckets=10),
    StatisticsNeeded(Measured("long"), moments=True, num_buckets=20),
    StatisticsNeeded(Measured("long", log=True), moments=True, num_buckets=4),
    StatisticsNeeded(Measured("id"), vocabulary=True, max_size=50),
    StatisticsNeeded(Measured("word"), vocabulary=True, min_count=20),
    StatisticsNeeded(Measured("tags", split=","), vocabulary=True, longest=True),
    StatisticsNeeded(Measured("y"), vocabulary=True),
)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("statistics")
    random = np.random.default_rng(7)
    nothing = random.random(ROWS) < 0.1
    rows = {
        "gauss": pa.array(random.normal(1e3, 2.5, ROWS), mask=nothing),
        "long": pa.array(random.lognormal(3, 2, ROWS), mask=nothing[::-1]),
        "id": pa.array(random.zipf(1.3, ROWS).clip(0, 10**9)),
        "word": pa.array([f"w{n}" for n in random.zipf(1.5, ROWS)], mask=nothing),
        "tags": pa.array([",".join(f"t{i}" for i in range(n)) + ",,"
                          for n in random.integers(0, 9, ROWS)]),
        "y": pa.array(random.choice(["a", "b", "c"], ROWS)),
    }  # fmt: skip
    pq.write_table(pa.table(rows), folder / "t.parquet")
    source = open_source("")
    with source.rows(f"SELECT * FROM '{folder / 't.parquet'}'") as found:
        staged = Staged(folder / "s.parquet", found.schema, ROWS)
        found.write(staged.path)
    written = shards.write_training(
        staged, folder / "shards", columns=COLUMNS, label=LABEL, division=SplitPlan()
    )
    measured = statistics.measure(
        written, columns=COLUMNS, needs=NEEDS, label=LABEL.column
    )
    return written, measured, pq.read_table(written.training)


def numbers(table, name, *, log=False):
    values = table[name].to_numpy().astype(np.float64)
    values = values[~np.isnan(values)]
    return np.sign(values) * np.log1p(np.abs(values)) if log else values


@pytest.mark.parametrize(("name", "log"), [("gauss", False), ("long", False),
                                           ("long", True)])  # fmt: skip
def test_moments_are_those_of_numpy(made, name, log):
    _, measured, table = made
    found = measured.of(Measured(name, log=log))
    values = numbers(table, name, log=log)
    assert found.num_rows == len(table)
    assert found.null_count == len(table) - len(values)
    assert found.mean == pytest.approx(values.mean(), rel=1e-5)
    assert found.variance == pytest.approx(values.var(), rel=1e-5)
    assert found.minimum == pytest.approx(values.min())
    assert found.maximum == pytest.approx(values.max())


@pytest.mark.parametrize(("name", "log", "buckets"), [("gauss", False, 10),
    ("long", False, 20), ("long", True, 4)])  # fmt: skip
def test_quantiles_are_within_a_hundredth_of_their_rank(made, name, log, buckets):
    _, measured, table = made
    values = np.sort(numbers(table, name, log=log))
    bounds = measured.of(Measured(name, log=log)).boundaries
    assert len(bounds) == buckets - 1
    for number, bound in enumerate(bounds, 1):
        rank = np.searchsorted(values, bound) / len(values)
        assert rank == pytest.approx(number / buckets, abs=0.01)


def test_quantiles_of_millions_of_rows_are_within_a_hundredth_of_their_rank(tmp_path):
    """Also those of sorted rows and of a column that is NULL in nearly all of them."""
    many = 2_000_000
    random = np.random.default_rng(5)
    values = random.permutation(many).astype(np.int64)
    seldom = random.random(many, np.float32)
    seldom[random.random(many) < 0.999] = np.nan
    rows = {"sorted": np.sort(values), "any": values, "seldom": seldom}
    (tmp_path / "training").mkdir()
    for number, part in enumerate(np.array_split(np.arange(many), 2)):
        pq.write_table(
            pa.table({name: column[part] for name, column in rows.items()}),
            tmp_path / f"training/{number}.parquet",
        )
    stored = {"sorted": Stored.INTEGER, "any": Stored.INTEGER, "seldom": Stored.FLOAT}
    measured, repeated = (
        statistics.measure(
            Shards(tmp_path, many, 0),
            columns=tuple(ColumnPlan(n, n, kind) for n, kind in stored.items()),
            needs=tuple(StatisticsNeeded(Measured(n), num_buckets=20) for n in stored),
        )
        for _ in range(2)
    )
    assert measured == repeated
    for found in measured.columns:
        there = np.sort(rows[found.of.column])[: many - found.null_count]
        ranks = np.searchsorted(there, found.boundaries) / len(there)
        assert ranks == pytest.approx(np.arange(1, 20) / 20, abs=0.01)


def test_a_column_named_as_a_row_number_draws_no_sample(tmp_path, monkeypatch):
    """It hides the engine's own number: all of its rows would be drawn, or none."""
    monkeypatch.setattr(statistics, "_EXACT_ROWS", 1000)
    monkeypatch.setattr(statistics, "_SAMPLED_ROWS", 1000)
    monkeypatch.setattr(statistics, "_FEWEST_SAMPLED", 0)
    rows = {"File_Row_Number": np.full(ROWS, 8), "file_index": np.full(ROWS, 9),
            "x": np.arange(ROWS)}  # fmt: skip
    (tmp_path / "training").mkdir()
    pq.write_table(pa.table(rows), tmp_path / "training/0.parquet")
    (found,) = statistics.measure(
        Shards(tmp_path, ROWS, 0),
        columns=tuple(ColumnPlan(name, name, Stored.INTEGER) for name in rows),
        needs=(StatisticsNeeded(Measured("x"), num_buckets=4),),
    ).columns
    wanted = [ROWS / 4, ROWS / 2, ROWS * 3 / 4]
    assert found.boundaries == pytest.approx(wanted, abs=0.1 * ROWS)


def test_exact_quantiles_of_many_columns_need_no_more_memory(tmp_path, monkeypatch):
    """The engine keeps the values of one query in memory, and has 600 MiB."""
    names = [f"c{number}" for number in range(100)]
    rows = np.random.default_rng(3).random((len(names), ROWS), np.float32)
    (tmp_path / "training").mkdir()
    pq.write_table(
        pa.table(dict(zip(names, rows, strict=True))), tmp_path / "training/0.parquet"
    )
    monkeypatch.setattr(embedded, "MEMORY_LIMIT", "24MiB")
    monkeypatch.setattr(statistics, "_EXACT_VALUES", 10 * ROWS, raising=False)
    measured = statistics.measure(
        Shards(tmp_path, ROWS, 0),
        columns=tuple(ColumnPlan(name, name, Stored.FLOAT) for name in names),
        needs=tuple(StatisticsNeeded(Measured(n), num_buckets=4) for n in names),
    )
    wanted = np.sort(rows)[:, [ROWS // 4 - 1, ROWS // 2 - 1, ROWS * 3 // 4 - 1]]
    assert [one.boundaries for one in measured.columns] == list(map(tuple, wanted))


def test_vocabularies_and_counts_are_exact(made):
    _, measured, table = made
    ids = collections.Counter(table["id"].to_pylist())
    words = collections.Counter(w for w in table["word"].to_pylist() if w != "\\N")
    for name, counted, least, most in (("id", ids, 1, 50), ("word", words, 20, None)):
        wanted = sorted(
            ((v, n) for v, n in counted.items() if n >= least),
            key=lambda one: (-one[1], one[0]),
        )[:most]
        found = measured.of(Measured(name))
        assert [(entry.value, entry.count) for entry in found.vocabulary] == wanted
        assert found.vocabulary_size == len(wanted)
    nulls = table["word"].to_pylist().count("\\N")
    assert measured.of(Measured("word")).null_count == nulls


def test_the_parts_of_a_text_are_counted_without_empty_ones(made):
    _, measured, table = made
    parts = [[p for p in t.split(",") if p] for t in table["tags"].to_pylist()]
    counted = collections.Counter(p for row in parts for p in row)
    found = measured.of(Measured("tags", split=","))
    assert {e.value: e.count for e in found.vocabulary} == dict(counted)
    assert found.longest == max(map(len, parts))


def test_each_number_of_a_text_has_the_mean_of_the_rows_that_have_one(tmp_path):
    draw = np.random.default_rng(1)
    numbers = draw.normal(size=(500, 3)) * [1, 1e4, 1e-3]
    texts = [" ; ".join(map(repr, row)) for row in numbers.tolist()]
    texts[::7] = [None] * len(texts[::7])
    pq.write_table(pa.table({"t": texts, "y": [1] * 500}), tmp_path / "t.parquet")
    source = open_source("")
    with source.rows(f"SELECT * FROM '{tmp_path / 't.parquet'}'") as rows:
        path = tmp_path / "rows.parquet"
        one = Staged(path, rows.schema, rows.write(path))
    source.close()
    columns = (ColumnPlan("t", "t", Stored.TEXT, delimiter=";", numbers=3),)
    written = shards.write_training(
        one, tmp_path, columns=columns, label=LabelPlan("y", Kind.INTEGER, Head.NUMBER),
        division=SplitPlan(0.0),
    )  # fmt: skip
    of = Measured("t", split=";", numbers=3)
    needs = (StatisticsNeeded(of, means=True),)
    found = statistics.measure(written, columns=columns, needs=needs).of(of)
    there = np.array([text is not None for text in texts])
    np.testing.assert_allclose(found.means, numbers[there].mean(axis=0), 1e-9)
    assert found.null_count == 500 - there.sum()


def test_the_classes_are_counted_over_training_rows(made):
    written, measured, table = made
    counted = collections.Counter(table["label"].to_pylist())
    found = {e.value: e.count for e in measured.of(Measured("y")).vocabulary}
    assert found == {value: counted[i] for i, value in enumerate("abc")}
    assert measured.num_rows == written.num_training
    assert measured.num_validation_rows == written.num_validation


def test_a_large_vocabulary_is_a_file_with_null_at_its_end(made, tmp_path, monkeypatch):
    written, measured, _ = made
    monkeypatch.setattr(statistics, "INLINE_ENTRIES", 10)
    elsewhere = Shards(tmp_path, written.num_training, 0)
    (tmp_path / "training").symlink_to(written.training)
    needs = (StatisticsNeeded(Measured("word"), vocabulary=True, min_count=20),)
    found = statistics.measure(elsewhere, columns=COLUMNS, needs=needs)
    one = found.columns[0]
    lines = (tmp_path / "vocabularies" / one.vocabulary_file).read_text().splitlines()
    wanted = [str(entry.value) for entry in measured.of(Measured("word")).vocabulary]
    assert lines == [*wanted, "\\N"]
    assert one.vocabulary_size == len(wanted)
    assert one.vocabulary == ()


@pytest.mark.parametrize(
    ("query", "columns"),
    [
        ("SELECT 'a' || i % 1100 AS user_id, 'b' || i % 1200 AS \"user id\"",
         'VOCABULARIZE(user_id), VOCABULARIZE("user id")'),
        ("SELECT 'a' || i % 1100 || ',' || 'b' || i % 1300 || ';c' AS t",
         "VOCABULARIZE(t), SPLIT(t, ','), SPLIT(t, ';')"),
    ],
)  # fmt: skip
def test_each_large_vocabulary_has_a_file_of_its_own(query, columns, tmp_path):
    trained = tables.trained(
        f"{query}, i % 2 AS y FROM range(20000) t(i) TO TRAIN DNNClassifier "
        f"COLUMN {columns} LABEL y INTO m",
        tmp_path,
    )
    large = [one for one in trained.statistics.columns if one.vocabulary_file]
    assert len(large) == columns.count("), ") + 1
    for one in large:
        text = (trained.vocabularies / one.vocabulary_file).read_text()
        assert len(text.splitlines()) == one.vocabulary_size


def test_the_empty_text_is_a_value_of_a_large_vocabulary(tmp_path):
    trained = tables.trained(
        "SELECT CASE WHEN i % 2 = 0 THEN '' ELSE 'v' || i END AS c, i % 2 AS y "
        "FROM range(4000) t(i) TO TRAIN DNNClassifier COLUMN VOCABULARIZE(c) "
        "LABEL y INTO m",
        tmp_path,
    )
    (file,) = trained.vocabularies.iterdir()
    lines = file.read_text().removesuffix("\n").split("\n")
    assert lines[0] == ""
    assert len(lines) == 2001 == trained.statistics.columns[0].vocabulary_size


def test_values_that_a_large_vocabulary_leaves_out_are_told(tmp_path):
    trained = tables.trained(
        "SELECT CASE WHEN i % 4 = 0 THEN 'a' || chr(10) || i ELSE 'v' || i END AS c, "
        "i % 2 AS y FROM range(4000) t(i) TO TRAIN DNNClassifier "
        "COLUMN VOCABULARIZE(c) LABEL y INTO m",
        tmp_path,
    )
    (found,) = [one for one in trained.statistics.columns if one.of.column == "c"]
    assert (found.vocabulary_size, found.no_lines) == (3000, 1000)
    (line,) = without_line(trained.statistics)
    assert "column `c`: 1,000 of its values have a line end" in line


def test_many_vocabularies_leave_the_values_file_small(tmp_path):
    """It is a ConfigMap in a cluster, also where none of them is large."""
    words = [f"'a text of many signs {c} ' || i % 900 AS c{c}" for c in range(30)]
    listed = ", ".join(f"VOCABULARIZE(c{c})" for c in range(30))
    trained = tables.trained(
        f"SELECT {', '.join(words)}, i % 2 AS y FROM range(4000) t(i) "
        f"TO TRAIN DNNClassifier COLUMN {listed} LABEL y INTO m",
        tmp_path,
    )
    assert len(trained.made.values) < 2**19
    in_files = [one for one in trained.statistics.columns if one.vocabulary_file]
    assert 15 < len(in_files) < 30
    assert {one.vocabulary_size for one in trained.statistics.columns} == {2, 900}


@pytest.mark.parametrize("function", ["STANDARDIZE", "NORMALIZE", "RAW"])
def test_infinite_numbers_are_refused_by_their_column(function, tmp_path):
    with pytest.raises(DataError, match=r"column `far` .* WHERE isfinite"):
        tables.trained(
            "SELECT CASE WHEN i % 50 = 3 THEN 'inf'::DOUBLE ELSE i END AS far, "
            "i % 2 AS y FROM range(400) t(i) TO TRAIN DNNClassifier "
            f"COLUMN {function}(far) LABEL y INTO m",
            tmp_path,
        )
