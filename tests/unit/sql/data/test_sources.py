"""Claims about what sources make of queries: previews, transactions, URLs."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from elasticdl.errors import DataError
from elasticdl.sql import planning
from elasticdl.sql.data import embedded
from elasticdl.sql.data.source import Source, open_source
from elasticdl.sql.plan import Head, TrainPlan
from elasticdl.sql.problems import StatementError
from elasticdl.sql.statements import Train


@pytest.fixture
def source(tmp_path: Path) -> Iterator[Source]:
    opened = open_source("", folder=tmp_path)
    yield opened
    opened.close()


def _planned(source: Source, text: str) -> TrainPlan:
    (statement,) = planning.read_statements(text, source.engine)
    assert isinstance(statement, Train)
    with source.rows(statement.select) as rows:
        return planning.plan_training(statement, rows.preview, text)


@pytest.mark.parametrize("label", ["CASE WHEN i % 3 = 0 THEN 1.0 ELSE 0.0 END",
                                   "CAST(i % 2 AS HUGEINT)"])  # fmt: skip
def test_a_label_of_decimals_has_plain_numbers_as_classes(
    source: Source, label: str
) -> None:
    plan = _planned(
        source, f"SELECT i AS x, {label} AS y FROM range(40) t(i) LABEL y INTO m"
    )
    assert plan.label.head is Head.BINARY
    assert plan.label.classes == (0, 1)
    assert {type(one) for one in plan.label.classes} <= {int, float}


def test_columns_that_python_has_no_values_for_are_left_alone(source: Source) -> None:
    text = (
        "SELECT i AS x, DATE '20000-01-01' AS a, DATE '0044-03-15 (BC)' AS b, "
        "'infinity'::TIMESTAMP AS c, '2020-01-01 00:00:00.123456789'::TIMESTAMP_NS "
        "AS d, i % 2 AS y FROM range(40) t(i) "
        "TO TRAIN DNNClassifier COLUMN x LABEL y INTO m"
    )
    assert [one.column for one in _planned(source, text).columns] == ["x"]


def test_numbers_among_text_are_classes_of_text(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "t.sqlite") as connection:
        connection.execute("CREATE TABLE t (x, y)")
        rows = [(i, 1 if i % 2 else "a") for i in range(40)]
        connection.executemany("INSERT INTO t VALUES (?, ?)", rows)
    connection.close()
    source = open_source(str(tmp_path / "t.sqlite"))
    plan = _planned(source, "SELECT * FROM t LABEL y INTO m")
    source.close()
    assert plan.label.classes == ("1", "a")


@pytest.mark.parametrize("value", ["i || ',5'", "'-1.' || i", "i || ' 000'"])
def test_amounts_that_are_text_make_no_classifier_unasked(
    source: Source, value: str
) -> None:
    """A CSV file with `12,5` got a class for each amount."""
    select = f"SELECT i AS x, CASE WHEN i > 0 THEN {value} ELSE 'n/a' END AS y FROM "
    with pytest.raises(StatementError, match=r"look like numbers, .* amounts"):
        _planned(source, f"{select} range(30) t(i) LABEL y INTO m")
    asked = f"{select} range(30) t(i) TO TRAIN DNNClassifier LABEL y INTO m"
    assert _planned(source, asked).label.num_classes == 30
    few = f"{select} range(9) t(i) LABEL y INTO m"
    assert _planned(source, few).label.num_classes == 9


def test_an_open_transaction_is_told_in_a_sentence(source: Source) -> None:
    source.execute("BEGIN", most_rows=1)
    source.execute("CREATE TABLE t AS SELECT 1 AS x, 1 AS y", most_rows=1)
    with pytest.raises(DataError, match="rolled back now; COMMIT it before"):
        _planned(source, "SELECT * FROM t LABEL y INTO m")
    assert source.execute("SELECT 1 AS x", most_rows=1).rows == ((1,),)


@pytest.mark.parametrize("url", ["", "{}/t.duckdb", "sqlite:///{}/t.sqlite"])
def test_what_is_rolled_back_is_as_it_was(tmp_path: Path, url: str) -> None:
    """SQLite's rows were gone, as each statement was kept at once."""
    source = open_source(url.format(tmp_path), folder=tmp_path)
    count = "SELECT count(*) FROM t"

    def after(*statements: str) -> Any:
        for sql in statements:
            source.execute(sql, most_rows=1)
        return source.execute(count, most_rows=1).rows[0][0]

    assert after("CREATE TABLE t (x INTEGER)", "INSERT INTO t VALUES (1), (2)") == 2
    assert after("BEGIN", "DELETE FROM t") == 0
    assert after("ROLLBACK") == 2
    assert after("BEGIN", "DELETE FROM t WHERE x = 1", "COMMIT") == 1
    after("BEGIN", "DELETE FROM t")
    with pytest.raises(DataError, match="transaction, which is rolled back now; COM"):
        source.check_table("u")
    assert after() == 1
    after("BEGIN", "DELETE FROM t")
    with (
        pytest.raises(DataError, match="transaction, which is rolled back now; COM"),
        source.rows(count),
    ):
        pass
    assert after() == 1
    source.close()


@pytest.mark.parametrize("order", ["", " ORDER BY a"])
def test_a_value_that_the_engine_cannot_convert_is_told(
    source: Source, order: str
) -> None:
    """That the transaction had ended was told instead."""
    select = f"SELECT CAST(i || ',5' AS DOUBLE) AS a FROM range(9) t(i){order}"
    with (
        pytest.raises(DataError, match=r"the query failed: .* '\d,5' to DOUBLE"),
        source.rows(select) as rows,
    ):
        assert rows.preview


def test_a_name_of_the_programs_own_is_no_table(source: Source) -> None:
    with (
        pytest.raises(DataError, match="Table with name types does not exist"),
        source.rows("SELECT * FROM types"),
    ):
        pass


def test_no_bar_of_the_engine_is_written_between_answers() -> None:
    """It has one where no script runs."""
    asked = (
        "from elasticdl.sql.data import embedded\n"
        "query = \"SELECT current_setting('enable_progress_bar')\"\n"
        "print(embedded.connect().execute(query).fetchone())"
    )
    said = subprocess.run(
        [sys.executable, "-c", asked], capture_output=True, text=True, check=True
    )
    assert said.stdout == "(False,)\n"


def test_a_port_that_is_no_number_is_told_without_the_password() -> None:
    with pytest.raises(DataError, match="a number as port") as caught:
        open_source("mysql://u:secret@host:33x/db")
    assert "secret" not in str(caught.value)


def _through(source: Source, select: str, folder: Path, name: str = "back") -> int:
    """Stage a query's rows and put them back as a table."""
    path = folder / "rows.parquet"
    with source.rows(select) as rows:
        rows.write(path, kept=True)
        schema = rows.schema
    return source.put_table(name, path, schema)


@pytest.mark.parametrize(
    "value",
    [
        "99999999999999999999999999999999999999::HUGEINT",
        "[9007199254740993::HUGEINT]",
        "{'a b': 9007199254740993::UHUGEINT}",
        "123456789012345678901234567890::BIGNUM",
        "'HUGEINT UNION(a'::ENUM('HUGEINT UNION(a', 'b')",
        r"'\xAA\x00a'::BLOB",
        "'0101'::BIT",
        "[1, 2]::INTEGER[2]",
        "TIMESTAMP_S '2026-01-02 03:04:05'",
        "TIMETZ '01:02:03+02'",
        "[TIMETZ '01:02:03.000004+05:30']",
        "{'at': TIMETZ '01:02:03-11', 'hugeint': 1}",
        "INTERVAL '1 year 2 months -3 days 04:05:06.000007'",
        "-INTERVAL '3 months 00:00:00.000001'",
        "INTERVAL '9223372036854775807 microseconds'",
        "[INTERVAL '-1 day', NULL]",
        "MAP {'a': INTERVAL 1 MONTH}",
        "{'a': [{'b \"c': TIMETZ '01:02:03+02'}], 'd': 'HUGEINT'}",
        "[DATE '2026-01-02', 'infinity'::DATE]",
        "TIMESTAMP_NS '2026-01-02 03:04:05.123456789'",
        "TIMESTAMP_MS '2026-01-02 03:04:05.123'",
        "'00000000-0000-0000-0000-000000000001'::UUID",
        "[[1], NULL, []]",
        "'{\"a\": 1}'::JSON",
        "12.345::DECIMAL(30, 3)",
        "NULL",
    ],
)
def test_a_value_of_any_type_of_duckdb_comes_back_as_it_was(
    source: Source, tmp_path: Path, value: str
) -> None:
    source.execute(f"CREATE TABLE t AS SELECT {value} AS x", most_rows=1)
    told = "SELECT typeof(x), CAST(x AS VARCHAR) FROM "
    before = source.execute(f"{told} t", most_rows=2).rows
    assert _through(source, "SELECT * FROM t", tmp_path) == 1
    assert source.execute(f"{told} back", most_rows=2).rows == before


def test_a_number_of_too_many_digits_is_named_with_its_column(
    source: Source, tmp_path: Path
) -> None:
    with pytest.raises(DataError, match=r"column `x`: got 1000.*at most 38 digits"):
        _through(source, f"SELECT {10**38}::HUGEINT AS x", tmp_path)


def test_a_view_on_a_table_of_sqlite_sees_the_one_in_its_place(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "t.sqlite") as connection:
        connection.execute("CREATE TABLE people (id INTEGER, picture BLOB)")
        connection.execute("INSERT INTO people VALUES (1, x'AA00'), (2, NULL)")
        connection.execute("CREATE VIEW ids AS SELECT id FROM people")
    connection.close()
    source = open_source(str(tmp_path / "t.sqlite"))
    select = "SELECT id + 5 AS id, picture FROM people"
    assert _through(source, select, tmp_path, "people") == 2
    assert source.execute("SELECT * FROM ids", most_rows=9).rows == ((6,), (7,))
    kept = source.execute("SELECT picture FROM people ORDER BY id", most_rows=9).rows
    assert kept == ((b"\xaa\x00",), (None,))
    rule = source.execute("PRAGMA legacy_alter_table", most_rows=1).rows
    assert rule == ((0,),)
    source.close()


def test_a_text_among_bytes_is_named_with_its_column(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "t.sqlite") as connection:
        connection.execute("CREATE TABLE t (x)")
        rows = [(b"a",)] * 10_000 + [("b",)]
        connection.executemany("INSERT INTO t VALUES (?)", rows)
    connection.close()
    source = open_source(str(tmp_path / "t.sqlite"))
    with pytest.raises(DataError, match=r"column `x`: got 'b' .str., expected bytes"):
        _through(source, "SELECT x FROM t", tmp_path)
    source.close()


@pytest.mark.parametrize("value", ["[{}]", "{{'a': {}}}", "[[{}]]"])
def test_a_number_of_too_many_digits_inside_others_is_named_with_its_column(
    source: Source, tmp_path: Path, value: str
) -> None:
    select = f"SELECT {value.format(f'{10**38}::HUGEINT')} AS x"
    with pytest.raises(DataError, match=r"column `x`: got .*1000.*at most 38 digits"):
        _through(source, select, tmp_path)


@pytest.mark.parametrize(
    ("first", "late", "told"),
    [
        ("a", b"b", r"got '62' .bytes., expected text"),
        (1, b"b", r"got '62' .bytes., expected integer"),
        (1.5, b"b", r"got '62' .bytes., expected number"),
        (None, b"b", r"got '62' .bytes. behind rows that had only NULL.*x IS NULL"),
        (None, 7, r"got '7' .int. behind rows that had only NULL"),
        ("a", 7, r"got '7' .int., expected text"),
        (1.5, 2**53 + 1, r"got '9007199254740993' .int., expected number"),
    ],
)
def test_a_later_value_of_sqlite_that_fits_no_column_is_named(
    tmp_path: Path, first: object, late: object, told: str
) -> None:
    with sqlite3.connect(tmp_path / "t.sqlite") as connection:
        connection.execute("CREATE TABLE t (x)")
        rows = [(first,)] * 10_000 + [(late,)]
        connection.executemany("INSERT INTO t VALUES (?)", rows)
    connection.close()
    source = open_source(str(tmp_path / "t.sqlite"))
    with pytest.raises(DataError, match=f"column `x`: {told}"):
        _through(source, "SELECT x FROM t", tmp_path)
    source.close()


@pytest.mark.parametrize("first", [None, "a"])
def test_a_later_number_among_text_is_text_where_nothing_comes_back(
    tmp_path: Path, first: object
) -> None:
    with sqlite3.connect(tmp_path / "t.sqlite") as connection:
        connection.execute("CREATE TABLE t (x)")
        rows = [(first,)] * 10_000 + [(7,)]
        connection.executemany("INSERT INTO t VALUES (?)", rows)
    connection.close()
    source = open_source(str(tmp_path / "t.sqlite"))
    with source.rows("SELECT x FROM t") as found:
        found.write(tmp_path / "rows.parquet")
    source.close()
    assert pq.read_table(tmp_path / "rows.parquet")["x"].to_pylist()[-1] == "7"


@pytest.mark.parametrize(
    ("split", "kind", "told"),
    [
        ("key", "INTERVAL", r"an INTERVAL.*EXTRACT\(EPOCH FROM x\)"),
        ("order", "INTERVAL", r"an INTERVAL.*EXTRACT\(EPOCH FROM x\)"),
        ("order", "TIMETZ", "a TIME WITH TIME ZONE, by which no rows are ordered"),
        ("order", "INTEGER[]", r"a INTEGER\[\], by which no rows are ordered"),
    ],
)
def test_rows_are_not_divided_by_what_has_several_texts_or_no_order(
    source: Source, split: str, kind: str, told: str
) -> None:
    with pytest.raises(StatementError, match=told):
        _planned(
            source,
            f"SELECT i AS n, CAST(NULL AS {kind}) AS x, i % 2 AS y FROM range(40) t(i) "
            f"TO TRAIN DNNClassifier WITH validation.{split} = x COLUMN n "
            "LABEL y INTO m",
        )


@pytest.mark.parametrize(
    "made", ["VIEW t AS SELECT 1 AS x", "TABLE t AS SELECT 1 AS x"]
)
def test_the_trial_of_a_table_changes_nothing(source: Source, made: str) -> None:
    source.execute(f"CREATE {made}", most_rows=1)
    if made.startswith("VIEW"):
        with pytest.raises(DataError, match=r"table t cannot be written: .*View"):
            source.check_table("t")
    else:
        source.check_table("t")
    source.check_table("other")
    assert source.execute("SELECT * FROM t", most_rows=1).rows == ((1,),)
    found = source.execute("SELECT count(*) FROM duckdb_tables()", most_rows=1).rows
    assert found == ((int(made.startswith("TABLE")),),)
    with pytest.raises(DataError, match="nowhere"):
        source.check_table("nowhere.t")


def test_a_view_of_sqlite_is_no_target(tmp_path: Path) -> None:
    source = open_source(f"sqlite:///{tmp_path / 't.sqlite'}")
    source.execute("CREATE VIEW v AS SELECT 1 AS x", most_rows=1)
    source.check_table("t")
    with pytest.raises(DataError, match="`v` is a view, in whose place no table"):
        source.check_table("v")
    source.close()


def test_a_source_that_takes_no_tables_is_told_before_a_job_runs(
    tmp_path: Path,
) -> None:
    sqlite3.connect(tmp_path / "t.sqlite").execute("CREATE TABLE t (x INT)")
    source = open_source(f"sqlite:///file:{tmp_path / 't.sqlite'}?mode=ro&uri=true")
    with pytest.raises(DataError, match=r"table p cannot be written: .* readonly"):
        source.check_table("p")
    source.close()


def test_a_trial_of_a_table_leaves_sqlite_as_it_was(tmp_path: Path) -> None:
    source = open_source(f"sqlite:///{tmp_path / 't.sqlite'}")
    source.execute("CREATE TABLE t AS SELECT 7 AS x", most_rows=1)
    source.check_table("t")
    found = source.execute("SELECT name FROM sqlite_master", most_rows=9).rows
    assert found == (("t",),)
    assert source.execute("SELECT * FROM t", most_rows=9).rows == ((7,),)
    source.close()


def test_a_server_that_is_away_at_the_end_is_told_in_one_line(tmp_path: Path) -> None:
    """Cleaning up behind the failure raised SQLAlchemy's own error."""
    with open_source("").rows("SELECT 1 AS x") as rows:
        rows.write(tmp_path / "x.parquet")
    source = open_source(f"sqlite:///{tmp_path / 'nowhere' / 't.sqlite'}")
    with pytest.raises(DataError, match="table p cannot be written: unable to open"):
        source.put_table("p", tmp_path / "x.parquet")


def test_ctrl_c_is_itself_while_the_engine_works(tmp_path: Path) -> None:
    """The engine makes a RuntimeError of it, which ended a prompt with its tables."""
    with pytest.raises(KeyboardInterrupt), embedded.working(tmp_path):
        raise RuntimeError("Query interrupted")
    engine = open_source("")
    with pytest.raises(KeyboardInterrupt), engine.rows("SELECT 1 AS x"):
        raise RuntimeError("Query interrupted")
    assert engine.execute("SELECT 1", most_rows=1).rows == ((1,),)
    with pytest.raises(RuntimeError, match="another"), embedded.working(tmp_path):
        raise RuntimeError("another")
    engine.close()


@pytest.mark.parametrize(
    ("query", "times"),
    [
        ("SELECT seen(x) AS s, x, t FROM t ORDER BY t", 1),
        ("SELECT max(seen(x)) AS s, x, min(t) AS t FROM t GROUP BY x", 1),
        ("SELECT a.x AS x, b.s AS s, a.t FROM t a JOIN (SELECT x, seen(x) AS s FROM t) "
         "b ON a.x = b.x", 1),
        ("SELECT x, x AS s, t FROM t WHERE seen(x) < 500", 1),
        # What gives rows as it reads gives the first ones twice.
        ("SELECT seen(x) AS s, x, t FROM t", 1.5),
    ],
)  # fmt: skip
def test_a_query_of_the_embedded_engine_is_run_once(
    tmp_path: Path, query: str, times: float
) -> None:
    """Groups, joins and an order were computed three times."""
    number = 100_000
    calls = 0

    def seen(x: int) -> int:
        nonlocal calls
        calls += 1
        return x

    with embedded.connect(spill=tmp_path) as connection:
        kinds = (["BIGINT"], "BIGINT")
        connection.create_function("seen", seen, *kinds, side_effects=True)
        connection.execute(
            f"CREATE TABLE t AS SELECT i AS x, 't' || i AS t FROM range({number}) r(i)"
        )
        source = embedded.Embedded(connection, keeps_tables=False)
        with source.rows(query) as rows:
            assert rows.preview.values["t"][0].startswith("t")
            written = rows.write(tmp_path / "rows.parquet")
            assert rows.preview.complete == (written < 10_000)
        assert connection.execute("SHOW TABLES").fetchall() == [("t",)]
    assert written == (500 if "WHERE" in query else number)
    assert calls <= number * times


# As who is not root, or without root's right to write any file.
_UNPRIVILEGED = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"]
_AS_ROOT = os.geteuid() == 0


@pytest.mark.skipif(
    _AS_ROOT and not shutil.which("setpriv"), reason="root may write any file"
)
def test_a_database_file_that_one_may_only_read_is_read(tmp_path: Path) -> None:
    place = tmp_path / "shop.duckdb"
    made = embedded.connect(str(place))
    made.execute("CREATE TABLE t AS SELECT range AS x FROM range(3)")
    made.close()
    place.chmod(0o444)
    code = (
        "from elasticdl.sql.data.source import open_source\n"
        "from elasticdl.errors import DataError\n"
        f"source = open_source({str(place)!r}, folder=None)\n"
        "joined = 'SELECT x FROM t JOIN t AS u USING (x) ORDER BY x'\n"
        "with source.rows(joined) as rows: print(rows.preview.values['x'])\n"
        "try: source.check_table('out')\n"
        "except DataError as error: print(error)\n"
    )
    command = [*(_UNPRIVILEGED if _AS_ROOT else ()), sys.executable, "-c", code]
    found = subprocess.run(command, capture_output=True, text=True, check=True)
    read, refused = found.stdout.splitlines()
    assert read == "(0, 1, 2)"
    assert "read-only mode" in refused


def test_a_database_that_is_only_read_may_be_read_by_others(tmp_path: Path) -> None:
    """A second training of the same file was refused while the first one ran."""
    place = str(tmp_path / "shop.duckdb")
    made = open_source(place, folder=tmp_path)
    made.execute("CREATE TABLE t AS SELECT i AS x FROM range(9) t(i)", most_rows=1)
    made.close()
    first = open_source(place, folder=tmp_path, reading=True)
    with first.rows("SELECT * FROM t ORDER BY x") as rows:
        assert rows.write(tmp_path / "rows.parquet") == 9
        asked = (
            "from elasticdl.sql.data.source import open_source; "
            f"source = open_source({place!r}, reading=True); "
            "print(source.execute('SELECT count(*) FROM t', most_rows=1).rows)"
        )
        second = subprocess.run(
            [sys.executable, "-c", asked], capture_output=True, text=True, check=False
        )
    first.close()
    assert second.stdout == "((9,),)\n", second.stderr


@pytest.mark.parametrize(
    "sql", ["SET autocommit=0", "set  SESSION autocommit = OFF", "SET @@autocommit = 0"]
)
def test_statements_that_wait_for_a_commit_are_asked_for_with_begin(
    tmp_path: Path, sql: str
) -> None:
    source = open_source(f"sqlite:///{tmp_path / 't.sqlite'}")
    with pytest.raises(DataError, match="write BEGIN before"):
        source.execute(sql, most_rows=1)
    source.close()
