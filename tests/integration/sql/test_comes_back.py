"""What PREDICT writes back of a server's columns equals what stood there, or is told.

Compared by the server itself, in its own text: a driver may show two values alike.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from elasticdl.errors import DataError, SpecError
from elasticdl.sql import planning
from elasticdl.sql.data import types_postgresql
from elasticdl.sql.data.source import Source, open_source
from elasticdl.sql.plan import (
    NULL_INTEGER,
    ColumnPlan,
    Head,
    Kind,
    LabelPlan,
    Schema,
    Stored,
)
from elasticdl.sql.problems import StatementError
from elasticdl.sql.registry import Description, Registry
from elasticdl.sql.running import predict
from elasticdl.sql.running.session import Session
from elasticdl.sql.running.staging import UnfitError
from elasticdl.sql.statements import Train

from tests.integration.sql import servers

_LATE = (
    "SELECT n, CASE WHEN n > 10000 THEN {} END AS x FROM generate_series(1, 10003) n"
)
# Each once as it is and once as NULL.
VALUES = {
    "mood": "'sad'",
    "mood[]": "'{sad,\"ok, fine\",NULL}'",
    "pair": "'(1,\"a,b\")'",
    "pair[]": "ARRAY['(1,a)', NULL]::pair[]",
    "uuid": "'00000000-0000-0000-0000-000000000001'",
    "uuid[]": "'{00000000-0000-0000-0000-000000000001}'",
    "interval": "'1 year 2 mons -3 days 04:05:06.000007'",
    "interval[]": "'{1 mon,\"-1 days\"}'",
    "timetz": "'01:02:03.000004+05:30'",
    "date": "'0044-03-15'",
    "date[]": "'{2026-01-02,infinity}'",
    "timestamp": "'2026-01-02 03:04:05.000006'",
    "timestamptz": "'2026-01-02 03:04:05+02'",
    "timestamp[]": "'{\"2026-01-02 03:04:05\"}'",
    "time": "'03:04:05.000006'",
    "bytea": "'\\x00ff'",
    "bytea[]": "ARRAY['\\x00ff'::bytea, NULL]",
    "json": '\'{"b" :  1.0, "a": [null]}\'',
    "jsonb": "'null'",
    "jsonb[]": "ARRAY['null'::jsonb, NULL, '{\"a\": 1}']",
    "int[]": "'{}'",
    "text[]": "'{}'",
    "bigint[]": "'{9007199254740993,NULL}'",
    "boolean[]": "'{t,f,NULL}'",
    "numeric(38,10)": "'1234567890123456789012345678.0123456789'",
    "numeric(4,2)": "'1.50'",
    "real": "'1.1'",
    "real[]": "'{1.1,NaN}'",
    "smallint": "'-1'",
    "boolean": "'t'",
    "char(3)": "'a'",
    "varchar(5)": "'ab '",
    "int4range": "'[1,5)'",
    "inet": "'10.0.0.1/24'",
    "money": "'12.34'",
    "xml": "'<a/>'",
    "bit(3)": "'101'",
    "tsvector": "'a b'",
    "point": "'(1,2.5)'",
    "hstore_like": '\'("k","v")\'',
}


@pytest.fixture(scope="module")
def postgresql(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with servers.postgresql(tmp_path_factory.mktemp("postgresql")) as one:
        source = open_source(one.url)
        for sql in (
            "CREATE TYPE mood AS ENUM ('sad', 'ok, fine')",
            "CREATE TYPE pair AS (n int, s text)",
            "CREATE TYPE hstore_like AS (k text, v text)",
        ):
            source.execute(sql, most_rows=1)
        source.close()
        yield one.url


@pytest.fixture
def source(postgresql: str) -> Iterator[Source]:
    opened = open_source(postgresql)
    yield opened
    opened.close()


def _session(source: Source, folder: Path) -> Session:
    def run_job(*_: object) -> Any:
        raise AssertionError("no job is run here")

    return Session(source, Registry(folder / "models"), run_job, lambda _: None)


def _about(*columns: ColumnPlan) -> Description:
    label = LabelPlan("y", Kind.NUMBER, Head.NUMBER)
    return Description(columns, label, Schema(()), "DNNRegressor")


def _predicted(
    source: Source,
    select: str,
    folder: Path,
    target: str = "back",
    said: list[str] | None = None,
) -> int:
    """Run both parts of a PREDICT around a job that says 0.5 of each row."""
    session = _session(source, folder)
    if said is not None:
        session = replace(session, say=said.append)
    about = _about(ColumnPlan("n", "n", Stored.FLOAT))
    (statement,) = planning.read_statements(
        f"{select} TO PREDICT {target} USING m", source.engine
    )
    count = predict.prepare(session, statement, about, folder)
    (folder / "outputs").mkdir()
    table = pa.table({"record": range(count), "prediction": [0.5] * count})
    pq.write_table(table, folder / "outputs" / "part-0.parquet")
    predict.finish(session, statement, about, folder, {})
    return count


def _run(source: Source, *statements: str) -> Any:
    answers = [source.execute(sql, most_rows=99) for sql in statements]
    return answers[-1].rows


@pytest.mark.parametrize("kind", VALUES)
def test_a_value_of_any_type_of_postgresql_comes_back_as_it_was(
    source: Source, tmp_path: Path, kind: str
) -> None:
    _run(
        source,
        "DROP TABLE IF EXISTS before",
        f"CREATE TABLE before (n int, x {kind})",
        f"INSERT INTO before VALUES (1, {VALUES[kind]}), (2, NULL)",
    )
    assert _predicted(source, "SELECT n, x FROM before", tmp_path) == 2
    told = "SELECT n, x::text, pg_typeof(x)::text FROM {} ORDER BY n"
    found = _run(source, told.format("back"))
    assert found == _run(source, told.format("before"))
    assert found[0][1] is not None
    assert found[1][1] is None


@pytest.mark.parametrize(
    "value",
    ["n", "n / 4.0::float8", "'w' || n", "ARRAY[n]", "n = 10001",
     "n * interval '1 mon'", "DATE '2026-01-01' + n", "decode('00ff', 'hex')",
     "'sad'::mood"],
)  # fmt: skip
def test_a_value_behind_ten_thousand_nulls_comes_back_as_it_was(
    source: Source, tmp_path: Path, value: str
) -> None:
    _run(source, "DROP TABLE IF EXISTS before",
         f"CREATE TABLE before AS {_LATE.format(value)}")  # fmt: skip
    _predicted(source, "SELECT * FROM before ORDER BY n", tmp_path)
    told = (
        "SELECT n, x::text, pg_typeof(x)::text FROM {} WHERE x IS NOT NULL ORDER BY n"
    )
    found = _run(source, told.format("back"))
    assert len(found) == 3
    assert found == _run(source, told.format("before"))


def test_arrays_that_are_empty_first_have_the_kind_of_their_type(
    source: Source,
) -> None:
    select = (
        "SELECT CASE WHEN n > 10000 THEN ARRAY[n] ELSE '{}' END AS x "
        "FROM generate_series(1, 10001) n"
    )
    with source.rows(select) as rows:
        (column,) = rows.schema.columns
    assert (column.kind, column.item) == (Kind.ARRAY, Kind.INTEGER)


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ("ROW(n, 'a')", "column `x` is a record"),
        (
            "ARRAY[[n, 1], [2, 3]]",
            r"`x` is a integer\[\]\[\], with values as \{\{1,1\},",
        ),
        ("'[0:1]={1,2}'::int[]", r"`x` is a integer\[\]\[\], with values as \[0:1\]="),
        (
            "CASE WHEN n > 1 THEN ARRAY[['a']] ELSE '{}' END",
            r"with values as \{\{a\}\}, w",
        ),
    ],
)
def test_what_cannot_come_back_is_refused_before_anything_is_read(
    source: Source, tmp_path: Path, value: str, told: str
) -> None:
    select = f"SELECT n, {value} AS x FROM generate_series(1, 3) n"
    with pytest.raises(SpecError, match=f"{told}.*CAST it to text"):
        _predicted(source, select, tmp_path)
    assert not (tmp_path / "rows.parquet").exists()
    assert _predicted(source, f"SELECT n, CAST({value} AS text) AS x FROM "
                      "generate_series(1, 3) n", tmp_path) == 3  # fmt: skip


@pytest.mark.parametrize(
    ("value", "item"),
    [("ARRAY[[n]]", "integer"), ("'[0:0]={1}'::int[]", "integer"),
     ("ARRAY[['a']]", "text"), ("ARRAY[[1.5]]", "number")],
)  # fmt: skip
def test_an_array_with_a_shape_that_comes_late_is_named(
    source: Source, tmp_path: Path, value: str, item: str
) -> None:
    late = _LATE.format(value).replace("END", "ELSE '{}' END")
    told = f"column `x`: got .*, expected array of {item}"
    with pytest.raises(DataError, match=told):
        _predicted(source, late, tmp_path)


@pytest.mark.parametrize(
    "value",
    ["'infinity'::date", "'infinity'::timestamp", "'0044-03-15 BC'::date",
     "'24:00'::time"],
)  # fmt: skip
def test_a_time_that_python_has_not_is_refused_with_what_to_write(
    source: Source, tmp_path: Path, value: str
) -> None:
    with pytest.raises(DataError, match=r"'.*'.*CAST its column to text"):
        _predicted(source, f"SELECT 1 AS n, {value} AS x", tmp_path)
    assert _predicted(source, f"SELECT 1 AS n, {value}::text AS x", tmp_path) == 1


@pytest.mark.parametrize("value", ["ARRAY['sad'::mood]", "ARRAY[gen_random_uuid()]"])
def test_arrays_that_are_no_values_of_a_category_say_what_to_write(
    source: Source, value: str
) -> None:
    text = (
        f"SELECT {value} AS x, n AS y FROM generate_series(1, 90) n "
        "TO TRAIN DNNRegressor COLUMN EMBEDDING({}, 4) LABEL y INTO m"
    )
    (statement,) = planning.read_statements(text.format("x"), source.engine)
    assert isinstance(statement, Train)
    with (
        pytest.raises(StatementError, match=r"CAST\(x AS text\[\]\)"),
        source.rows(statement.select) as rows,
    ):
        planning.plan_training(statement, rows.preview, text)
    with source.rows(
        statement.select.replace(value, f"CAST({value} AS text[])")
    ) as rows:
        plan = planning.plan_training(statement, rows.preview, text)
    assert plan.columns[0].stored is Stored.TEXT
    assert plan.columns[0].longest == 1


def test_numbers_that_come_back_as_doubles_are_told(
    source: Source, tmp_path: Path
) -> None:
    said: list[str] = []
    session = replace(_session(source, tmp_path), say=said.append)
    (statement,) = planning.read_statements(
        "SELECT 1 AS n, 1.5 AS x TO PREDICT back USING m", source.engine
    )
    about = _about(ColumnPlan("n", "n", Stored.FLOAT))
    predict.prepare(session, statement, about, tmp_path)
    assert said == [
        "x: numeric, comes back as a double: CAST it to text to keep every digit"
    ]


@pytest.mark.parametrize(
    ("made", "wrong"),
    [
        ("CREATE VIEW back AS SELECT 1 AS n", "is not a table"),
        ("CREATE MATERIALIZED VIEW back AS SELECT 1 AS n", "is not a table"),
        ("CREATE TABLE back (n int); CREATE VIEW over_it AS SELECT * FROM back",
         "other objects depend on it"),
    ],
)  # fmt: skip
def test_a_table_that_cannot_be_replaced_is_told_before_anything_is_read(
    source: Source, tmp_path: Path, made: str, wrong: str
) -> None:
    _run(source, "DROP TABLE IF EXISTS back CASCADE", *made.split("; "))
    kind = made.split(" back", maxsplit=1)[0].removeprefix("CREATE ")
    try:
        with pytest.raises(DataError, match=f"table back cannot be written: .*{wrong}"):
            _predicted(source, "SELECT 1 AS n", tmp_path)
        assert not (tmp_path / "rows.parquet").exists()
        assert _run(source, "SELECT count(*) FROM back") is not None
    finally:
        _run(source, f"DROP {kind} back CASCADE")


def test_the_trial_of_a_table_leaves_it_as_it_was(
    source: Source, tmp_path: Path
) -> None:
    _run(source, "DROP TABLE IF EXISTS back CASCADE", "CREATE TABLE back AS SELECT 7 n")
    source.check_table("back")
    assert _run(source, "SELECT * FROM back") == ((7,),)
    tables = "SELECT count(*) FROM pg_tables WHERE tablename LIKE 'back%'"
    assert _run(source, tables) == ((1,),)
    with pytest.raises(DataError, match="nowhere"):
        source.check_table("nowhere.back")


def test_a_table_that_others_read_is_not_waited_for(
    postgresql: str, source: Source
) -> None:
    _run(source, "DROP TABLE IF EXISTS back CASCADE", "CREATE TABLE back AS SELECT 7 n")
    other = open_source(postgresql)
    with other.rows("SELECT * FROM back") as rows:
        assert rows.schema.names == ("n",)
        source.check_table("back")
    other.close()
    assert _run(source, "SELECT * FROM back") == ((7,),)


def test_the_table_of_types_has_what_the_server_calls_them(source: Source) -> None:
    for stated in types_postgresql.KINDS:
        told = _run(source, f"SELECT format_type('{stated}'::regtype, -1)")
        assert told == ((stated,),)


@pytest.mark.parametrize("stored", [Stored.FLOAT, Stored.INTEGER])
def test_a_model_takes_decimals_that_come_back(
    source: Source, tmp_path: Path, stored: Stored
) -> None:
    select = "SELECT CAST(7 AS numeric(20, 4)) AS n UNION ALL SELECT NULL"
    session, about = _session(source, tmp_path), _about(ColumnPlan("n", "n", stored))
    text = f"{select} TO PREDICT USING m"
    (statement,) = planning.read_statements(text, source.engine)
    assert predict.prepare(session, statement, about, tmp_path) == 2
    seven, null = pq.read_table(tmp_path / "shards")["n"].to_pylist()
    assert seven == 7
    assert null == NULL_INTEGER if stored is Stored.INTEGER else math.isnan(null)


def test_a_decimal_that_is_no_number_is_named(source: Source, tmp_path: Path) -> None:
    select = "SELECT n, CASE n WHEN 2 THEN 'NaN' ELSE 1.5 END::numeric(4, 2) AS x FROM "
    with pytest.raises(
        DataError, match=r"column `x`: got 'NaN' .Decimal., expected nu"
    ):
        _predicted(source, select + "generate_series(1, 3) n", tmp_path)


def test_decimals_of_mariadb_come_back_with_all_digits(tmp_path: Path) -> None:
    with servers.mariadb(tmp_path / "server") as one:
        source = open_source(one.url)
        _run(
            source,
            "CREATE TABLE prices (n INT, x DECIMAL(30, 10), y DECIMAL(4, 2))",
            "INSERT INTO prices VALUES (1, 12345678901234567890.0123456789, 1.50), "
            "(2, NULL, NULL)",
        )
        (tmp_path / "p").mkdir()
        assert _predicted(source, "SELECT * FROM prices", tmp_path / "p") == 2
        told = "SELECT n, CAST(x AS CHAR), CAST(y AS CHAR) FROM {} ORDER BY n"
        found = _run(source, told.format("back"))
        assert found == _run(source, told.format("prices"))
        assert found[0][1:] == ("12345678901234567890.0123456789", "1.50")
        source.close()


def test_times_of_mariadb_come_back_and_lost_digits_are_told(tmp_path: Path) -> None:
    """Spans were whole numbers of microseconds; of a FLOAT there are 6 digits."""
    with servers.mariadb(tmp_path / "server") as one:
        source = open_source(one.url)
        _run(
            source,
            "CREATE TABLE trips (n INT, x TIME(6), y FLOAT)",
            "INSERT INTO trips VALUES (1, '-100:00:01.5', 16777217), "
            "(2, '838:59:59', 0.1), (3, NULL, NULL), (4, '00:00:00', 1)",
        )
        (tmp_path / "p").mkdir()
        said: list[str] = []
        select = "SELECT n, x, CAST(y AS DOUBLE) AS y FROM trips"
        assert _predicted(source, select, tmp_path / "p", said=said) == 4
        assert said == []
        told = "SELECT n, CAST(x AS CHAR), y + 0e0 FROM {} ORDER BY n"
        found = _run(source, told.format("back"))
        assert found == _run(source, told.format("trips"))
        assert found[0][1:] == ("-100:00:01.500000", 16777216)
        assert _run(source, "SHOW COLUMNS FROM back LIKE 'x'")[0][1] == "time(6)"
        (tmp_path / "q").mkdir()
        _predicted(source, "SELECT n, y FROM trips", tmp_path / "q", said=said)
        assert said == [
            "y: FLOAT, of which the server gives 6 digits: CAST it to DOUBLE to keep "
            "every digit"
        ]
        source.close()


def test_dates_of_mariadb_that_are_none_say_what_makes_null_of_them(
    tmp_path: Path,
) -> None:
    with servers.mariadb(tmp_path / "server") as one:
        source = open_source(one.url)
        # As of a table from before the server was strict.
        _run(
            source,
            "SET sql_mode = ''",
            "CREATE TABLE trips (n INT, x DATE, y DATETIME)",
            "INSERT INTO trips VALUES (1, 0, 0), (2, '2026-01-02', '2026-01-02 03:04')",
        )
        (tmp_path / "p").mkdir()
        with pytest.raises(UnfitError) as caught:
            _predicted(source, "SELECT * FROM trips", tmp_path / "p")
        nulls = [
            "NULLIF(x, '0000-00-00')",
            "NULLIF(y, '0000-00-00 00:00:00')",
        ]
        told = str(caught.value)
        assert all(f"{one} makes NULL of it" in told for one in nulls)
        select = f"SELECT n, {nulls[0]} AS x, {nulls[1]} AS y FROM trips"
        assert _predicted(source, select, tmp_path / "p") == 2
        found = _run(source, "SELECT x IS NULL, y FROM back ORDER BY n")
        assert [one[0] for one in found] == [1, 0]
        assert str(found[1][1]) == "2026-01-02 03:04:00"
        source.close()


def test_a_view_of_mariadb_is_no_target(tmp_path: Path) -> None:
    with servers.mariadb(tmp_path / "server") as one:
        source = open_source(one.url)
        _run(source, "CREATE VIEW back AS SELECT 1 AS n")
        with pytest.raises(DataError, match="`back` is a view"):
            _predicted(source, "SELECT 1 AS n", tmp_path)
        _run(
            source,
            *_statements("CREATE PROCEDURE p(a INT) IF a > 1 THEN SELECT 2; "
                         "IF a > 2 THEN SELECT 3; END IF; ELSE SELECT 1; END IF; "
                         "CREATE TABLE later (n INT)"),
        )  # fmt: skip
        assert _run(source, "SELECT count(*) FROM later") == ((0,),)
        source.close()


def test_a_table_of_mariadb_that_could_not_be_swapped_is_refused(
    tmp_path: Path,
) -> None:
    """At the end it would have left the other table with a key to a renamed one."""
    with servers.mariadb(tmp_path / "server") as one:
        source = open_source(one.url)
        _run(
            source,
            "CREATE TABLE back (n INT PRIMARY KEY)",
            "CREATE TABLE child (n INT, FOREIGN KEY (n) REFERENCES back (n))",
        )
        with pytest.raises(DataError, match="`child` has a foreign key to it"):
            source.check_table("back")
        with pytest.raises(DataError, match="has 80 characters, MySQL takes 64"):
            source.check_table("x" * 80)
        with pytest.raises(DataError, match="denied"):
            source.check_table("nowhere.back")
        source.check_table("other")
        assert _run(source, "SHOW TABLES") == (("back",), ("child",))
        source.close()


def _statements(text: str) -> list[str]:
    return [one.sql for one in planning.read_statements(text, "mysql")]
