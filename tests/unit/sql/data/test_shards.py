"""Shards hold each row once, NULLs settled, on the side that every engine gives it."""

import math
import sqlite3

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from elasticdl.errors import DataError
from elasticdl.sql.data import shards
from elasticdl.sql.data.shards import Staged
from elasticdl.sql.data.source import open_source
from elasticdl.sql.plan import (
    NULL_INTEGER,
    NULL_TEXT,
    ColumnPlan,
    Head,
    Kind,
    LabelPlan,
    SplitPlan,
    Stored,
)

ROWS = 3000
COLUMNS = (
    ColumnPlan("age", "age", Stored.FLOAT),
    ColumnPlan("id", "id", Stored.INTEGER),
    ColumnPlan("city", "city_name", Stored.TEXT),
)
LABEL = LabelPlan("y", Kind.TEXT, Head.BINARY, 2, ("no", "yes"))


def table():
    n = np.arange(ROWS)
    return {
        "age": [None if i % 7 == 0 else i / 4 for i in n.tolist()],
        "id": [None if i % 11 == 0 else i for i in n.tolist()],
        "city": [None if i % 5 == 0 else f"city {i % 13}" for i in n.tolist()],
        "user": [f"u{i % 97}" for i in n.tolist()],
        "y": ["yes" if i % 3 else "no" for i in n.tolist()],
    }


@pytest.fixture(scope="module")
def engines(tmp_path_factory):
    """The same rows behind two engines."""
    folder = tmp_path_factory.mktemp("engines")
    rows = table()
    pq.write_table(pa.table(rows), folder / "t.parquet")
    with sqlite3.connect(folder / "t.sqlite") as connection:
        connection.execute("CREATE TABLE t (age REAL, id INT, city TEXT, user TEXT, y)")
        connection.executemany(
            "INSERT INTO t VALUES (?, ?, ?, ?, ?)", zip(*rows.values(), strict=True)
        )
    connection.close()
    return {
        "duckdb": ("", f"SELECT * FROM '{folder / 't.parquet'}'"),
        # The order of columns and rows is another one.
        "sqlite": (
            str(folder / "t.sqlite"),
            "SELECT y, user, city, id, age FROM t ORDER BY age DESC",
        ),
    }


def staged(engines, name, folder):
    url, select = engines[name]
    source = open_source(url)
    try:
        with source.rows(select) as rows:
            path = folder / f"{name}.parquet"
            return Staged(path, rows.schema, rows.write(path))
    finally:
        source.close()


def read(folder):
    if not folder.exists():
        return []
    return pq.read_table(folder).to_pylist()


def write(engines, name, tmp_path, division=None, label=LABEL):
    return shards.write_training(
        staged(engines, name, tmp_path),
        tmp_path / f"{name}-shards",
        columns=COLUMNS,
        label=label,
        division=division or SplitPlan(),
    )


@pytest.mark.parametrize(
    "division",
    [SplitPlan(), SplitPlan(fraction=0.35), SplitPlan(key="user"),
     SplitPlan(order="id", fraction=0.25), SplitPlan(fraction=0)],
)  # fmt: skip
def test_each_row_is_on_one_side_and_every_engine_gives_the_same(
    engines, tmp_path, division
):
    sides = {}
    for name in engines:
        made = write(engines, name, tmp_path, division)
        training, validation = read(made.training), read(made.validation)
        assert len(training) == made.num_training
        assert len(validation) == made.num_validation
        assert made.num_training + made.num_validation == ROWS
        if division.fraction:
            share = made.num_validation / ROWS
            assert share == pytest.approx(division.fraction, abs=0.06)
        sides[name] = sorted(str(sorted(row.items())) for row in validation)
    assert sides["duckdb"] == sides["sqlite"]


def test_a_split_is_the_same_in_every_run_and_version(engines, tmp_path):
    """A change of the engine's hash would mix training rows into validation rows."""
    made = write(engines, "duckdb", tmp_path)
    assert (made.num_training, made.num_validation) == RECORDED_SPLIT
    again = write(engines, "duckdb", tmp_path)
    assert again == made


def test_rows_of_one_key_are_on_one_side(engines, tmp_path):
    one = staged(engines, "duckdb", tmp_path)
    columns = (ColumnPlan("user", "user", Stored.TEXT),)
    made = shards.write_training(
        one,
        tmp_path / "s",
        columns=columns,
        label=LABEL,
        division=SplitPlan(key="user"),
    )
    users = [{row["user"] for row in read(s)} for s in (made.training, made.validation)]
    assert users[0]
    assert users[1]
    assert not users[0] & users[1]


def test_the_last_rows_by_an_order_are_for_validation(engines, tmp_path):
    made = write(engines, "duckdb", tmp_path, SplitPlan(order="id", fraction=0.1))
    known = [r["id"] for r in read(made.training) if r["id"] != NULL_INTEGER]
    assert max(known) < min(row["id"] for row in read(made.validation))


@pytest.mark.parametrize("kind", ["DOUBLE", "FLOAT"])
def test_what_is_no_number_is_not_the_last_row_by_an_order(tmp_path, kind):
    """As NULL, which it stands for elsewhere; engines sort it behind all numbers."""
    source = open_source("")
    with source.rows(
        f"SELECT i AS x, i % 2 AS y, CASE WHEN i % 10 = 0 THEN 'nan'::{kind} ELSE i END"
        " AS day FROM range(100) t(i)"
    ) as rows:
        one = Staged(tmp_path / "s.parquet", rows.schema, 100)
        rows.write(one.path)
    made = shards.write_training(
        one,
        tmp_path / "shards",
        columns=(ColumnPlan("x", "x", Stored.FLOAT),),
        label=LabelPlan("y", Kind.INTEGER, Head.BINARY, 2, (0, 1)),
        division=SplitPlan(order="day", fraction=0.2),
    )
    last = [i for i in range(100) if i % 10][-18:]
    assert sorted(row["x"] for row in read(made.validation)) == last


def test_nulls_are_settled_and_labels_are_numbers(engines, tmp_path):
    made = write(engines, "duckdb", tmp_path, SplitPlan(fraction=0))
    found, rows = read(made.training), table()
    assert [set(row) for row in found[:1]] == [{"age", "id", "city_name", "label"}]
    for i, row in enumerate(found):
        age, number, city = rows["age"][i], rows["id"][i], rows["city"][i]
        assert row["age"] == age or (age is None and math.isnan(row["age"]))
        assert row["id"] == (NULL_INTEGER if number is None else number)
        assert row["city_name"] == (NULL_TEXT if city is None else city)
        assert row["label"] == ["no", "yes"].index(rows["y"][i])
    file = pq.ParquetFile(made.training / "rows.parquet")
    kinds = {field.name: str(field.type) for field in file.schema_arrow}
    assert kinds == {
        "age": "float", "id": "int64", "city_name": "string", "label": "int64",
    }  # fmt: skip


def test_row_groups_are_small(tmp_path):
    pq.write_table(pa.table({"x": np.arange(50_000.0), "y": np.arange(50_000) % 2}),
                   tmp_path / "x.parquet")  # fmt: skip
    source = open_source("")
    with source.rows(f"SELECT * FROM '{tmp_path / 'x.parquet'}'") as rows:
        one = Staged(tmp_path / "s.parquet", rows.schema, 0)
        rows.write(one.path)
    columns = (ColumnPlan("x", "x", Stored.FLOAT),)
    label = LabelPlan("y", Kind.INTEGER, Head.BINARY, 2, (0, 1))
    made = shards.write_training(
        one, tmp_path / "shards", columns=columns, label=label, division=SplitPlan()
    )
    file = pq.ParquetFile(made.training / "rows.parquet")
    groups = [file.metadata.row_group(g).num_rows for g in range(file.num_row_groups)]
    assert max(groups) <= 8192
    assert min(groups[:-1]) >= 2048


def test_a_null_label_is_an_error_with_the_count_and_the_where(engines, tmp_path):
    label = LabelPlan("city", Kind.TEXT, Head.CLASSES)
    with pytest.raises(DataError, match=r"NULL in 600 rows.*WHERE city IS NOT NULL"):
        write(engines, "duckdb", tmp_path, label=label)


def test_a_class_that_was_not_in_the_first_rows_is_named(engines, tmp_path):
    label = LabelPlan("y", Kind.TEXT, Head.BINARY, 2, ("maybe", "yes"))
    with pytest.raises(DataError, match=r"the value 'no' in 1,000 rows"):
        write(engines, "duckdb", tmp_path, label=label)


def test_a_class_that_a_model_never_saw_is_named_with_those_that_it_knows(tmp_path):
    label = LabelPlan("y", Kind.TEXT, Head.BINARY, 2, ("maybe", "yes"))
    staged = selected("SELECT 1.0 AS x, 'no' AS y", tmp_path, "odd")
    told = r"expected one of 'maybe', 'yes', as the model was trained with; leave them"
    with pytest.raises(DataError, match=told):
        shards.write_labelled(staged, tmp_path, columns=X, label=label)


def test_classes_that_nobody_knew_are_those_of_all_rows(engines, tmp_path):
    label = LabelPlan("y", Kind.TEXT, Head.BINARY)
    made = write(engines, "duckdb", tmp_path, label=label)
    assert [entry.value for entry in made.classes] == ["no", "yes"]
    assert sum(entry.count for entry in made.classes) == made.num_training


def test_an_order_without_enough_values_is_refused(engines, tmp_path):
    with pytest.raises(DataError, match="one and the same `y`, yes"):
        write(engines, "duckdb", tmp_path, SplitPlan(order="y"))


def test_arrays_are_filled_up_to_one_length(tmp_path):
    source = open_source("")
    with source.rows("SELECT [1, NULL, 3] AS a, 1 AS y UNION ALL SELECT NULL, 0 "
                     "UNION ALL SELECT [9, 8, 7, 6, 5], 1") as rows:  # fmt: skip
        one = Staged(
            tmp_path / "s.parquet", rows.schema, rows.write(tmp_path / "s.parquet")
        )
    made = shards.write_training(
        one,
        tmp_path / "shards",
        columns=(ColumnPlan("a", "a", Stored.INTEGER, longest=4),),
        label=LabelPlan("y", Kind.INTEGER, Head.BINARY, 2, (0, 1)),
        division=SplitPlan(fraction=0),
    )
    null = NULL_INTEGER
    found = sorted(tuple(row["a"]) for row in read(made.training))
    wanted = [(1, null, 3, null), (null,) * 4, (9, 8, 7, 6)]
    assert found == sorted(wanted)


def selected(sql, folder, name="s"):
    source = open_source("")
    try:
        with source.rows(sql) as rows:
            path = folder / f"{name}.parquet"
            return Staged(path, rows.schema, rows.write(path))
    finally:
        source.close()


X = (ColumnPlan("x", "x", Stored.FLOAT),)
WHOLE = "SELECT i AS x, CAST(i % 2 AS DOUBLE) AS y FROM range(300) t(i)"
ODD = WHOLE.replace(
    "CAST(i % 2 AS DOUBLE)", "CASE WHEN i < 299 THEN i % 2 ELSE 0.4 END"
)
FRACTION = r"the value 0\.4 in 1 row, expected whole numbers as classes"


@pytest.mark.parametrize("classes", [(), (0.0, 1.0)])
def test_a_later_fraction_is_no_class(tmp_path, classes):
    label = LabelPlan("y", Kind.NUMBER, Head.BINARY, len(classes), classes)
    whole = selected(WHOLE, tmp_path, "whole")
    odd = selected(ODD, tmp_path, "odd")
    options = {"columns": X, "label": label}
    with pytest.raises(DataError, match=FRACTION):
        shards.write_training(odd, tmp_path, division=SplitPlan(), **options)
    with pytest.raises(DataError, match=FRACTION):
        shards.write_training(
            whole, tmp_path, division=SplitPlan(), validation=odd, **options
        )
    with pytest.raises(DataError, match=FRACTION):
        shards.write_labelled(odd, tmp_path, **options)
    made = shards.write_training(
        whole, tmp_path, division=SplitPlan(fraction=0), **options
    )
    assert [row["label"] for row in read(made.training)][:3] == [0, 1, 0]


ID = (ColumnPlan("c", "c", Stored.INTEGER),)


def test_a_fraction_is_no_integer_of_a_category(tmp_path):
    one = selected("SELECT 2.7::DOUBLE AS c UNION ALL SELECT 2", tmp_path)
    with pytest.raises(
        DataError, match=r"column `c`: got 2\.7, expected whole numbers"
    ):
        shards.write_prediction(one, tmp_path / "p" / "rows.parquet", columns=ID)


@pytest.mark.parametrize("longest", [0, 3])
@pytest.mark.parametrize(
    ("kind", "odd"),
    [
        ("DOUBLE", "1.25"),
        ("DOUBLE", "'inf'"),
        ("DOUBLE", "1e20"),
        ("FLOAT", "'-inf'"),
        ("DECIMAL(9, 2)", "1.25"),
        ("HUGEINT", "1e20"),
    ],
)
def test_only_whole_numbers_are_ids_also_in_arrays(tmp_path, kind, longest, odd):
    ids = (ColumnPlan("c", "c", Stored.INTEGER, longest=longest),)
    value = f"[2, {odd}::{kind}]" if longest else f"{odd}::{kind}"
    one = selected(f"SELECT {value} AS c", tmp_path)
    with pytest.raises(DataError, match=r"column `c`: got .*expected whole numbers"):
        shards.write_prediction(one, tmp_path / "p" / "rows.parquet", columns=ids)


@pytest.mark.parametrize("kind", ["DOUBLE", "DECIMAL(9, 2)", "HUGEINT"])
def test_whole_numbers_in_arrays_are_ids_whatever_their_type(tmp_path, kind):
    nan = "'nan'::DOUBLE" if kind == "DOUBLE" else "NULL"
    one = selected(f"SELECT [3, {nan}, NULL, -4]::{kind}[] AS c", tmp_path)
    file = tmp_path / "p" / "rows.parquet"
    ids = (ColumnPlan("c", "c", Stored.INTEGER, longest=4),)
    shards.write_prediction(one, file, columns=ids)
    (found,) = pq.read_table(file).column("c").to_pylist()
    assert found == [3, NULL_INTEGER, NULL_INTEGER, -4]


def test_a_weight_that_is_no_number_is_named_with_its_column(tmp_path):
    parts = (ColumnPlan("t", "t", Stored.TEXT, delimiter=";", pair="=>"),)
    rows = "SELECT unnest([NULL, '', 'a', 'a=>1;;b=>-.5e-1', 'c=>+7.', {}]) AS t"
    file = tmp_path / "p" / "rows.parquet"
    right = selected(rows.format("'d=>0'"), tmp_path)
    shards.write_prediction(right, file, columns=parts)
    assert pq.read_table(file)["t"].to_pylist()[3] == "a=>1;;b=>-.5e-1"
    for odd in ("nan", "1,5", "", "0x1", "1=>2", "1e40", "9" * 50):  # two are no float
        wrong = selected(rows.format(f"'d=>1;a=>{odd}'"), tmp_path)
        with pytest.raises(DataError, match=f"`t`: got a=>{odd}, expected a number"):
            shards.write_prediction(wrong, file, columns=parts)


def test_a_text_of_other_numbers_is_counted_with_an_example(tmp_path):
    of = (ColumnPlan("t", "t", Stored.TEXT, delimiter=",", numbers=3),)
    label = LabelPlan("y", Kind.INTEGER, Head.NUMBER)
    query = "SELECT t, 1 AS y FROM (SELECT unnest([NULL, {}]) AS t)"
    right = ["1,2,3", " -1 ,+.5,\t7.", "1e3,1e-120,3.4e38"]
    listed = ", ".join(f"'{one}'" for one in right)
    file = tmp_path / "p" / "rows.parquet"
    shards.write_prediction(selected(query.format(listed), tmp_path), file, columns=of)
    assert pq.read_table(file)["t"].to_pylist() == [NULL_TEXT, *right]
    for odd in ("", "1,2", "1,2,3,", "1,2,x", "1,2,nan", "1,,3", "1,2,1e39", "1,2,0x1"):
        rows = selected(query.format(f"{listed}, '{odd}', '{odd}'"), tmp_path)
        told = (
            rf"column `t` is not 3 numbers with `,` between them in 2 rows of 6, as in "
            rf"'{odd}'; leave them out"
        )
        with pytest.raises(DataError, match=told):
            shards.write_prediction(rows, file, columns=of)
        with pytest.raises(DataError, match=told):
            shards.write_labelled(rows, tmp_path / "l", columns=of, label=label)
        with pytest.raises(DataError, match=told):
            shards.write_training(
                rows, tmp_path / "t", columns=of, label=label, division=SplitPlan()
            )


def test_an_infinity_in_an_array_is_named_with_its_column(tmp_path):
    odd = "if(i = 7, 'inf'::DOUBLE, NULL)"
    rows = f"SELECT [i::DOUBLE, {odd}] AS x, i AS y FROM range(9) t(i)"
    with pytest.raises(DataError, match="`x` has a number that is infinite in"):
        shards.write_training(
            selected(rows, tmp_path),
            tmp_path,
            columns=(ColumnPlan("x", "x", Stored.FLOAT, longest=2),),
            label=LabelPlan("y", Kind.INTEGER, Head.NUMBER),
            division=SplitPlan(),
        )


@pytest.mark.parametrize("kind", ["DOUBLE", "DECIMAL(9, 2)", "HUGEINT"])
def test_whole_numbers_of_another_type_are_integers_of_a_category(tmp_path, kind):
    nan = "'nan'::DOUBLE" if kind == "DOUBLE" else "NULL"
    rows = f"SELECT unnest([3, {nan}, NULL, -4]::{kind}[]) AS c"
    one = selected(rows, tmp_path)
    file = tmp_path / "p" / "rows.parquet"
    shards.write_prediction(one, file, columns=ID)
    found = pq.read_table(file).column("c").to_pylist()
    assert found == [3, NULL_INTEGER, NULL_INTEGER, -4]


@pytest.mark.parametrize("column", ["x", "y"])
def test_an_infinity_is_named_with_its_column(tmp_path, column):
    rows = "SELECT i::DOUBLE AS x, i / 2 AS y FROM range(300) t(i)"
    infinite = f"if(x = 7, 'inf'::DOUBLE, {column}) AS {column}"
    odd = f"SELECT * REPLACE ({infinite}) FROM ({rows})"
    label = LabelPlan("y", Kind.NUMBER, Head.NUMBER)
    with pytest.raises(DataError, match=rf"column `{column}` is infinite in 1 row"):
        shards.write_training(
            selected(odd, tmp_path),
            tmp_path,
            columns=X,
            label=label,
            division=SplitPlan(),
        )


RECORDED_SPLIT = (2404, 596)
